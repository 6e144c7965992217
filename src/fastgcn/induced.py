"""Â of a training graph, made from a store's rows without a second copy of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from fastgcn.adjacency import Adjacency, Rows, RowSource, induced_csr, row_chunks, scaling_factors
from fastgcn.csr import CSR, index_dtype
from fastgcn.damage import check_rows
from fastgcn.mapped import forget
from fastgcn.progress import progress
from fastgcn.rows import GraphRows
from fastgcn.scratch import Scratch
from fastgcn.types import FloatArray, IntArray


class CountedRows(RowSource, Protocol):
    """Rows of Â on demand, and how many entries each has."""

    @property
    def counts(self) -> IntArray: ...


class InducedRows:
    """Rows of Â of the graph induced on `nodes` (k,), ascending, from the whole graph's CSR.

    Beside that CSR, which may be mapped, it holds a number a node of the whole graph.
    """

    def __init__(self, csr: CSR, nodes: IntArray, normalization: str) -> None:
        from fastgcn.kernels.induced import count_inside  # loads numba

        self.csr, self.nodes, self.normalization = csr, nodes, normalization
        self._loops = normalization != "neighbors"
        n = len(csr.indptr) - 1
        self._position = np.full(n, -1, index_dtype(n))
        self._position[nodes] = np.arange(len(nodes), dtype=self._position.dtype)
        check_rows(csr.indptr, csr.indices, nodes)
        self._inside = np.empty(len(nodes), np.int64)
        sums = np.empty(len(nodes))
        for start, stop in _progressing(csr.indptr[nodes + 1] - csr.indptr[nodes], "Counting"):
            found = count_inside(*_arrays(csr), nodes[start:stop], self._position)
            self._inside[start:stop], sums[start:stop] = found
            forget(csr.indices)
        self._factors = scaling_factors(sums + self._loops, normalization)

    @property
    def n(self) -> int:
        return len(self.nodes)

    @property
    def counts(self) -> IntArray:
        return self._inside + self._loops

    def rows(self, ids: IntArray) -> Rows:
        """The rows under these numbers, with their own loop where the normalisation has one."""
        from fastgcn.kernels.induced import cut_inside  # loads numba
        from fastgcn.kernels.rows import scale_rows

        counts, nodes = self._inside[ids], self.nodes[ids]
        indptr, columns, values = cut_inside(
            *_arrays(self.csr), nodes, self._position, counts, loops=self._loops
        )
        forget(self.csr.indices)
        others = self._factors if self.normalization == "symmetric" else None
        scale_rows(indptr, columns, values, self._factors[ids], others)
        return Rows(indptr, columns, values)


class WholeRows(GraphRows):
    """Rows of Â of a whole graph, counted."""

    @property
    def counts(self) -> IntArray:
        check_rows(self.csr.indptr, self.csr.indices)
        return np.diff(self.csr.indptr) + (self.normalization != "neighbors")


def counted_rows(csr: CSR, nodes: IntArray | None, normalization: str) -> CountedRows:
    """Rows of Â of the graph induced on `nodes` in their order, None: of the whole graph."""
    if nodes is None:
        return WholeRows(csr, normalization)
    if np.all(nodes[1:] > nodes[:-1]):
        return InducedRows(csr, nodes, normalization)
    # Renumbered columns would not ascend, and have to be sorted.
    return WholeRows(induced_csr(csr, nodes), normalization)


class Gathered(NamedTuple):
    """Â, the files that it lies in, if it does, and (n,) the squared norms of its columns."""

    adjacency: Adjacency
    files: tuple[Scratch, ...]
    squares: FloatArray


def gather(source: CountedRows, folder: Path | None) -> Gathered:
    """All rows of a source: in memory, or with a `folder` in unnamed files there."""
    counts = source.counts
    indptr = np.zeros(source.n + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    total = int(indptr[-1])
    indices = Scratch((total,), index_dtype(source.n), folder)
    values = Scratch((total,), np.float32, folder)
    squares = np.zeros(source.n)
    for start, stop in _progressing(counts, "Normalising"):
        rows = source.rows(np.arange(start, stop))
        indices.put(int(indptr[start]), rows.indices)
        values.put(int(indptr[start]), rows.values)
        squares += np.bincount(rows.indices, np.square(rows.values), minlength=source.n)
    files = (indices, values) if values.descriptor is not None else ()
    return Gathered(Adjacency(indptr, indices.array, values.array), files, squares)


def _progressing(counts: IntArray, what: str) -> Iterator[tuple[int, int]]:
    """Ranges of rows with a bounded number of entries, with progress."""
    with progress(f"{what} the training graph", len(counts), "nodes") as advance:
        for start, stop in row_chunks(counts):
            yield start, stop
            advance(stop - start)


def _arrays(csr: CSR) -> tuple[IntArray, IntArray, FloatArray | None]:
    return csr.indptr, csr.indices, csr.weights
