"""Â, the normalised adjacency matrix: all of it, or single rows on demand."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError, nearest
from fastgcn.graph.csr import CSR, check_rows, index_dtype
from fastgcn.graph.edges import EdgeSource, GraphEdges, Rows, chunks_with_progress
from fastgcn.graph.graph import Graph
from fastgcn.scratch import Scratch

Normalization = Literal["symmetric", "row", "neighbors", "sum"]
NORMALIZATIONS: tuple[Normalization, ...] = ("symmetric", "row", "neighbors", "sum")


class AdjacencyRows(Protocol):
    """Anything that returns rows of an (n, n) matrix Â by node id."""

    @property
    def n(self) -> int: ...

    def rows(self, nodes: IntArray) -> Rows: ...


@dataclass(frozen=True, slots=True)
class Adjacency:
    """An (n, n) matrix Â in CSR form, by which a convolution multiplies.

    Attributes:
        indptr: (n+1,) int64.
        indices: (m,) int32 or int64, ascending in each row.
        values: (m,) float32.
        files: those that hold `indices` and `values`, if these do not fit in memory.
    """

    indptr: IntArray
    indices: IntArray
    values: FloatArray
    files: tuple[Scratch, ...] = field(default=(), repr=False)

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    def forget(self) -> None:
        """Unmap the pages of the files that were read; they would stay in memory."""
        for file in self.files:
            file.forget()

    def to_scipy(self) -> csr_array:
        """The same matrix over the same arrays."""
        return csr_array((self.values, self.indices, self.indptr), shape=(self.n, self.n))

    def rows(self, nodes: IntArray) -> "Rows":
        """The rows of `nodes`, in that order, columns as in Â; a view if these are all rows."""
        if len(nodes) == self.n and np.array_equal(nodes, np.arange(self.n)):
            return Rows(self.indptr, self.indices, self.values)
        from fastgcn.kernels.rows import cut_rows  # loads numba

        return Rows(*cut_rows(self.indptr, self.indices, self.values, nodes))

    def column_norms(self) -> FloatArray:
        """(n,) float64: ‖Â(:,u)‖₂ for every u, the √n·b(u) of eq. 7."""
        squares = np.square(self.values, dtype=np.float64)
        return np.sqrt(np.bincount(self.indices, weights=squares, minlength=self.n))


def normalize(
    graph: Graph | CSR, kind: Normalization = "symmetric", *, self_loops: bool = True
) -> Adjacency:
    """Â of a graph: with Ã = A + I and D = diag(Ã·1), the row sums,

    * `symmetric`: Â = D^-1/2 Ã D^-1/2, the paper's (eq. 1 and Kipf & Welling);
    * `row`: Â = D^-1 Ã, the mean over a node and its neighbours;
    * `neighbors`: `row` without the loop, the mean over the neighbours alone;
    * `sum`: Â = A, their sum.

    Without `self_loops`, Ã = A, and a node without neighbours has an empty row. For directed
    graphs D holds the row sums on both sides, as in eq. 1: every node has its own loop, so no
    sum is zero and Â(v, v) is never lost. Edge weights enter A unchanged; a loop has weight one.

    >>> from fastgcn import Graph
    >>> g = Graph.from_edges([0], [1], features=[[1.0], [2.0], [3.0]])
    >>> normalize(g).to_scipy().toarray()
    array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ],
           [0. , 0. , 1. ]], dtype=float32)
    """
    if kind not in NORMALIZATIONS:
        raise InputError(
            f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {kind!r}"
            + nearest(str(kind), NORMALIZATIONS)
        )
    csr = graph.csr if isinstance(graph, Graph) else graph
    check_rows(csr.indptr, csr.indices)
    source = NormalizedRows(GraphEdges(csr), kind, self_loops=self_loops)
    indptr, indices, values = source.rows(np.arange(source.n))
    return Adjacency(indptr, indices.astype(index_dtype(source.n), copy=False), values)


class NormalizedRows:
    """Rows of Â, made on demand: `normalize` without normalising the whole graph."""

    def __init__(self, edges: EdgeSource, kind: str, *, self_loops: bool = True) -> None:
        self.edges, self.kind = edges, kind
        self.loops = self_loops and has_loops(kind)
        self._factors_of_all: FloatArray | None = None

    @property
    def n(self) -> int:
        return self.edges.n

    def counts(self) -> IntArray:
        """(n,): how many entries each row has."""
        return self.edges.counts() + self.loops

    def rows(self, nodes: IntArray) -> Rows:
        """The rows of `nodes`, with their own loops if the normalisation has loops."""
        from fastgcn.kernels.rows import scale_rows  # loads numba

        indptr, columns, values = self.edges.cut(nodes, loops=self.loops)
        if self.kind != "symmetric":
            scale_rows(indptr, columns, values, self._factors(nodes), None)
        elif self._are_many(len(columns)):
            factors = self._table()
            scale_rows(indptr, columns, values, factors[nodes], factors)
        else:
            needed, places = np.unique(columns, return_inverse=True)
            scale_rows(indptr, places, values, self._factors(nodes), self._factors(needed))
        return Rows(indptr, columns, values)

    def _are_many(self, entries: int) -> bool:
        """True if the factors of all nodes are cheaper than finding out which are needed."""
        return self._factors_of_all is not None or 8 * entries > self.n

    def _table(self) -> FloatArray:
        if self._factors_of_all is None:
            self._factors_of_all = self._factors(np.arange(self.n))
        return self._factors_of_all

    def _factors(self, nodes: IntArray) -> FloatArray:
        return scaling_factors(self.edges.sums(nodes) + self.loops, self.kind)


def has_loops(kind: str) -> bool:
    """True if a row of Â has its own node's entry."""
    return kind in ("symmetric", "row")


def scaling_factors(sums: FloatArray, kind: str) -> FloatArray:
    """float64: factors of rows with these sums and, if symmetric, of their columns."""
    if kind == "sum":
        return np.ones(len(sums))
    power = -0.5 if kind == "symmetric" else -1.0
    # A row without entries keeps the factor 0: it has nothing to scale.
    return np.power(sums, power, out=np.zeros(len(sums)), where=sums > 0)


class Gathered(NamedTuple):
    """Â, and (n,) the squared norms of its columns."""

    adjacency: Adjacency
    squares: FloatArray


def gather(source: NormalizedRows, folder: Path | None) -> Gathered:
    """All rows of Â, made in chunks: in memory, or with a `folder` in unnamed files there."""
    counts = source.counts()
    indptr = np.zeros(source.n + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    total = int(indptr[-1])
    indices = Scratch((total,), index_dtype(source.n), folder)
    values = Scratch((total,), np.float32, folder)
    squares = np.zeros(source.n)
    for start, stop in chunks_with_progress(counts, "Normalising"):
        rows = source.rows(np.arange(start, stop))
        indices.put(int(indptr[start]), rows.indices)
        values.put(int(indptr[start]), rows.values)
        squares += np.bincount(rows.indices, np.square(rows.values), minlength=source.n)
    files = (indices, values) if values.descriptor is not None else ()
    return Gathered(Adjacency(indptr, indices.array, values.array, files), squares)
