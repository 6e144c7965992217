"""Rows of Â made when they are asked for, without normalising the whole graph.

Prediction for a few nodes then costs what their neighbourhood costs, and a graph can be
enlarged by new nodes without being rebuilt.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.graph.adjacency import (
    Adjacency,
    Rows,
    RowSource,
    induced_csr,
    row_chunks,
    scaling_factors,
)
from fastgcn.graph.csr import CSR, check_columns, check_rows, index_dtype
from fastgcn.progress import progress
from fastgcn.scratch import Scratch, forget


@dataclass(frozen=True, slots=True)
class Joined:
    """New nodes n..n+k-1 joined to a graph of n nodes.

    `touched` (r,) ascending are the nodes, old and new, that gain edges; row i of `gained`
    lists what `touched[i]` gains.
    """

    k: int
    touched: IntArray
    gained: CSR


class GraphRows:
    """Rows of Â = normalize(graph), or of the graph enlarged by `joined`."""

    def __init__(self, csr: CSR, normalization: str, joined: Joined | None = None) -> None:
        self.csr, self.normalization, self.joined = csr, normalization, joined
        self._old = len(csr.indptr) - 1
        self._loops = normalization != "neighbors"
        self._all_factors: FloatArray | None = None

    @property
    def n(self) -> int:
        return self._old + (self.joined.k if self.joined else 0)

    def rows(self, nodes: IntArray) -> Rows:
        """The rows of `nodes`, with their own loop where the normalisation has one."""
        from fastgcn.kernels.rows import scale_rows  # loads numba

        indptr, columns, values = self._unscaled(nodes)
        many = self._are_many(len(columns))
        if many:
            forget(self.csr.indices)
        if self.normalization != "symmetric":
            factors, own, places = None, self._factors(nodes), columns
        elif many:
            factors, places = self._table(), columns
            own = factors[nodes]
        else:
            needed, places = np.unique(columns, return_inverse=True)
            factors, own = self._factors(needed), self._factors(nodes)
        scale_rows(indptr, places, values, own, factors)
        return Rows(indptr, columns, values)

    def _unscaled(self, nodes: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """The rows of A + I (of A without loops), enlarged if joined."""
        if self.joined is None:
            return self._cut(nodes)
        old = np.flatnonzero(nodes < self._old)
        places, gains = self._gains(nodes)
        new = np.flatnonzero(nodes >= self._old) if self._loops else nodes[:0]
        parts = [
            (old, *self._cut(nodes[old])),
            (places, *_cut(self.joined.gained, gains)),
            (new, np.arange(len(new) + 1), nodes[new], np.ones(len(new), np.float32)),
        ]
        row = np.concatenate([np.repeat(own, np.diff(indptr)) for own, indptr, _, _ in parts])
        columns = np.concatenate([part[2] for part in parts])
        order = np.lexsort((columns, row))
        indptr = np.searchsorted(row[order], np.arange(len(nodes) + 1))
        return indptr, columns[order], np.concatenate([part[3] for part in parts])[order]

    def _cut(self, nodes: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Rows of the graph as it was, which may be a damaged file's."""
        check_rows(self.csr.indptr, self.csr.indices, nodes)
        rows = _cut(self.csr, nodes, loops=self._loops)
        check_columns(rows[1], self._old, self.csr.indices)
        return rows

    def _are_many(self, asked: int) -> bool:
        """Whether so many are asked for that all factors are cheaper than finding out which."""
        return self._all_factors is not None or (self.joined is None and 8 * asked > self._old)

    def _table(self) -> FloatArray:
        if self._all_factors is None:
            self._all_factors = self._factors(np.arange(self._old))
        return self._all_factors

    def _factors(self, nodes: IntArray) -> FloatArray:
        """(s,) float64: what scales the rows of `nodes`, and if symmetric their columns."""
        sums = np.full(len(nodes), float(self._loops))
        old = nodes < self._old
        sums[old] += _sums(self.csr, nodes[old])
        if self.joined is not None:
            places, gains = self._gains(nodes)
            sums[places] += _sums(self.joined.gained, gains)
        return scaling_factors(sums, self.normalization)

    def _gains(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Which of `nodes` gain edges, and the rows of `gained` that say which."""
        assert self.joined is not None
        touched = self.joined.touched
        row = np.searchsorted(touched, nodes)
        hit = np.flatnonzero((row < len(touched)) & (touched[row % max(len(touched), 1)] == nodes))
        return hit, row[hit]


def _cut(
    csr: CSR, nodes: IntArray, *, loops: bool = False
) -> tuple[IntArray, IntArray, FloatArray]:
    from fastgcn.kernels.rows import cut_rows  # loads numba

    return cut_rows(csr.indptr, csr.indices, csr.weights, nodes, loops=loops)


def _sums(csr: CSR, nodes: IntArray) -> FloatArray:
    if csr.weights is None:
        return (csr.indptr[nodes + 1] - csr.indptr[nodes]).astype(np.float64)
    check_rows(csr.indptr, csr.indices, nodes)
    indptr, _, weights = _cut(csr, nodes)
    rows = np.repeat(np.arange(len(nodes)), np.diff(indptr))
    return np.bincount(rows, weights=weights, minlength=len(nodes)).astype(np.float64)


class CountedRows(RowSource, Protocol):
    """Rows of Â on demand, and how many entries each has."""

    @property
    def counts(self) -> IntArray: ...


class InducedRows:
    """Rows of Â of the graph induced on `nodes` (k,), ascending, from the whole graph's CSR.

    Beside that CSR, which may be mapped, it holds a number a node of the whole graph.
    """

    def __init__(self, csr: CSR, nodes: IntArray, normalization: str) -> None:
        from fastgcn.kernels.rows import count_inside  # loads numba

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
        from fastgcn.kernels.rows import (
            cut_inside,  # loads numba
            scale_rows,
        )

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
    """Â, and (n,) the squared norms of its columns."""

    adjacency: Adjacency
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
    return Gathered(Adjacency(indptr, indices.array, values.array, files), squares)


def _progressing(counts: IntArray, what: str) -> Iterator[tuple[int, int]]:
    """Ranges of rows with a bounded number of entries, with progress."""
    with progress(f"{what} the training graph", len(counts), "nodes") as advance:
        for start, stop in row_chunks(counts):
            yield start, stop
            advance(stop - start)


def _arrays(csr: CSR) -> tuple[IntArray, IntArray, FloatArray | None]:
    return csr.indptr, csr.indices, csr.weights
