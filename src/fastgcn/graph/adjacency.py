"""Â, the normalised adjacency matrix: its rows, its columns' norms, and induced subgraphs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError, nearest
from fastgcn.graph import checks
from fastgcn.graph.csr import CSR, check_columns, check_rows, index_dtype
from fastgcn.graph.graph import Graph, Split
from fastgcn.scratch import Scratch

Normalization = Literal["symmetric", "row", "neighbors"]
NORMALIZATIONS: tuple[Normalization, ...] = ("symmetric", "row", "neighbors")

# Edges looked at together when a subgraph is cut, to bound the temporaries.
_EDGES_AT_ONCE = 1 << 22


class Rows(NamedTuple):
    """Some rows of Â: `indptr` (s+1,), `indices` (m,) column ids of Â, `values` (m,) float32.

    Columns ascend in each row.
    """

    indptr: IntArray
    indices: IntArray
    values: FloatArray


class RowSource(Protocol):
    """Anything that can hand out rows of an (n, n) matrix Â by node id."""

    @property
    def n(self) -> int: ...

    def rows(self, nodes: IntArray) -> Rows: ...


@dataclass(frozen=True, slots=True)
class Adjacency:
    """An (n, n) matrix Â in CSR form: what one convolution multiplies by.

    Attributes:
        indptr: (n+1,) int64.
        indices: (m,) int32 or int64, ascending in each row.
        values: (m,) float32.
        files: those that `indices` and `values` lie in, where memory has no room for them.
    """

    indptr: IntArray
    indices: IntArray
    values: FloatArray
    files: tuple[Scratch, ...] = field(default=(), repr=False)

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    def forget(self) -> None:
        """Let go of the pages that were read of the files; they would stay in memory."""
        for file in self.files:
            file.forget()

    def to_scipy(self) -> csr_array:
        """The same matrix over the same arrays."""
        return csr_array((self.values, self.indices, self.indptr), shape=(self.n, self.n))

    def rows(self, nodes: IntArray) -> "Rows":
        """The rows of `nodes`, in that order, columns as in Â; all rows are not copied."""
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
    * `neighbors`: `row` without the loop, the mean over the neighbours alone.

    Without `self_loops`, Ã = A, and a node without neighbours has an empty row. For directed
    graphs D holds the row sums on both sides, as eq. 1 has it: every node has its own loop, so
    no sum is zero and Â(v, v) is never lost. Weights enter A as they are; the loop weighs one.

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
    from fastgcn.kernels.rows import cut_rows, scale_rows  # loads numba

    n = len(csr.indptr) - 1
    loops = self_loops and kind != "neighbors"
    check_rows(csr.indptr, csr.indices)
    indptr, indices, values = cut_rows(
        csr.indptr, csr.indices, csr.weights, np.arange(n), loops=loops
    )
    check_columns(indices, n, csr.indices)
    if csr.weights is None:
        sums = np.diff(indptr).astype(np.float64)
    else:
        matrix = csr_array((values, indices, indptr), shape=(n, n))
        sums = np.asarray(matrix.sum(axis=1, dtype=np.float64)).reshape(-1)
    factors = scaling_factors(sums, kind)
    scale_rows(indptr, indices, values, factors, factors if kind == "symmetric" else None)
    return Adjacency(indptr, indices.astype(index_dtype(n), copy=False), values)


def scaling_factors(sums: FloatArray, kind: str) -> FloatArray:
    """float64: what rows with these sums, and if symmetric their columns, are multiplied by."""
    power = -0.5 if kind == "symmetric" else -1.0
    # A row without entries keeps the factor 0: it has nothing to scale.
    return np.power(sums, power, out=np.zeros(len(sums)), where=sums > 0)


def induced_csr(csr: CSR, nodes: IntArray) -> CSR:
    """Rows and columns `nodes` of a clean CSR, renumbered 0..k-1 in the order given."""
    n, k = len(csr.indptr) - 1, len(nodes)
    position = np.full(n, -1, dtype=index_dtype(n))
    position[nodes] = np.arange(k, dtype=position.dtype)
    indptr = np.zeros(k + 1, dtype=np.int64)
    columns, values = [], []
    check_rows(csr.indptr, csr.indices, nodes)
    for start, stop in row_chunks(csr.indptr[nodes + 1] - csr.indptr[nodes]):
        entries, counts = row_entries(csr.indptr, nodes[start:stop])
        column = csr.indices[entries]
        check_columns(column, n, csr.indices)
        column = position[column]
        inside = column >= 0
        rows = np.repeat(np.arange(start, stop), counts)[inside]
        indptr[start + 1 : stop + 1] = np.bincount(rows - start, minlength=stop - start)
        columns.append(column[inside])
        if csr.weights is not None:
            values.append(csr.weights[entries][inside])
    np.cumsum(indptr, out=indptr)
    weights = (
        np.concatenate([*values, np.empty(0, np.float32)]) if csr.weights is not None else None
    )
    indices = np.concatenate([*columns, np.empty(0, position.dtype)])
    if np.any(nodes[1:] < nodes[:-1]):
        # Renumbering kept the old order of columns, which is no longer ascending.
        filler = np.ones(len(indices), np.int8) if weights is None else weights
        matrix = csr_array((filler, indices, indptr), shape=(k, k))
        matrix.sort_indices()
        indices, weights = matrix.indices, None if weights is None else matrix.data
    return CSR(indptr, indices.astype(index_dtype(k), copy=False), weights)


def subgraph(graph: Graph, nodes: Any) -> Graph:
    """The graph induced on `nodes` (distinct ids), renumbered in the order given.

    Features, labels, own ids and the split come along, restricted to these nodes.

    >>> from fastgcn import Graph, subgraph
    >>> g = Graph.from_edges([0, 1], [1, 2], features=[[0.0], [1.0], [2.0]], node_ids=list("abc"))
    >>> h = subgraph(g, [2, 1])
    >>> h.node_ids, h.indices.tolist()
    (['c', 'b'], [1, 0])
    """
    ids = checks.split_part(nodes, "nodes", graph.n_nodes)
    if not ids.size:
        raise InputError("a subgraph must have at least one node, got none")
    position = np.full(graph.n_nodes, -1, dtype=np.int64)
    position[ids] = np.arange(len(ids))
    parts = (position[part] for _, part in graph.split.items())
    csr = induced_csr(graph.csr, ids)
    return Graph.trusted(
        indptr=csr.indptr,
        indices=csr.indices,
        weights=csr.weights,
        features=graph.features[ids],
        labels=None if graph.labels is None else graph.labels[ids],
        split=Split(*(part[part >= 0] for part in parts)),
        node_ids=None if graph.node_ids is None else [graph.node_ids[int(i)] for i in ids],
        class_names=graph.class_names,
        directed=graph.directed,
        name=graph.name,
        feature_names=graph.feature_names,
    )


def row_entries(indptr: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Positions in `indices` of all entries of `rows`, row after row, and their counts."""
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum()), counts


def row_chunks(counts: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `_EDGES_AT_ONCE` entries each, at least one row a range."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, done + _EDGES_AT_ONCE, side="right"))
        stop = min(max(stop, start + 1), len(counts))
        yield start, stop
        start = stop
