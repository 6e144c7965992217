"""Edges of a graph, of a part of it, and of a graph that new nodes join: rows of A on demand.

`graph.adjacency` makes Â of these. So prediction for a few nodes reads only their neighbourhood,
and new nodes can join a graph without rebuilding it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray, forget
from fastgcn.errors import FormatError
from fastgcn.graph.csr import CSR, check_columns, check_rows, damaged, index_dtype
from fastgcn.progress import progress


class Rows(NamedTuple):
    """Some rows of Â: `indptr` (s+1,), `indices` (m,) column ids of Â, `values` (m,) float32.

    Columns ascend in each row.
    """

    indptr: IntArray
    indices: IntArray
    values: FloatArray


# Edges processed together, to bound the temporaries.
_EDGES_AT_ONCE = 1 << 22

Cut = tuple[IntArray, IntArray, FloatArray]  # row offsets, columns and values of some rows


class EdgeSource(Protocol):
    """The rows of A, an (n, n) matrix of weights without a diagonal."""

    @property
    def n(self) -> int: ...

    def counts(self) -> IntArray:
        """(n,): how many entries each row has."""
        ...

    def sums(self, nodes: IntArray) -> FloatArray:
        """(s,) float64: the sums of the rows `nodes`."""
        ...

    def cut(self, nodes: IntArray, *, loops: bool) -> Cut:
        """The rows `nodes`, columns ascending; with `loops`, the rows of A + I."""
        ...


class GraphEdges:
    """The edges of a whole graph; its CSR may be a memory map of a damaged file."""

    def __init__(self, csr: CSR) -> None:
        self.csr = csr

    @property
    def n(self) -> int:
        return len(self.csr.indptr) - 1

    def counts(self) -> IntArray:
        check_rows(self.csr.indptr, self.csr.indices)
        return np.diff(self.csr.indptr)

    def sums(self, nodes: IntArray) -> FloatArray:
        return _sums(self.csr, nodes)

    def cut(self, nodes: IntArray, *, loops: bool) -> Cut:
        check_rows(self.csr.indptr, self.csr.indices, nodes)
        rows = _cut(self.csr, nodes, loops=loops)
        check_ascending(rows[0], rows[1], self.n, self.csr.indices)
        if 8 * len(rows[1]) > self.n:
            forget(self.csr.indices)
        return rows


class InducedEdges:
    """The edges of the graph induced on `nodes` (k,), ascending, from the whole graph's CSR.

    Beside that CSR, which may be mapped, it holds one number per node of the whole graph.
    """

    def __init__(self, csr: CSR, nodes: IntArray) -> None:
        self.csr, self.nodes = csr, nodes
        n = len(csr.indptr) - 1
        self._position = positions(nodes, n)
        check_rows(csr.indptr, csr.indices, nodes)
        self._counts, self._sums = np.empty(len(nodes), np.int64), np.empty(len(nodes))
        lengths = csr.indptr[nodes + 1] - csr.indptr[nodes]
        for start, stop in chunks_with_progress(lengths, "Counting"):
            found = count_inside(csr, nodes[start:stop], self._position)
            self._counts[start:stop], self._sums[start:stop] = found

    @property
    def n(self) -> int:
        return len(self.nodes)

    def counts(self) -> IntArray:
        return self._counts

    def sums(self, nodes: IntArray) -> FloatArray:
        return self._sums[nodes]

    def cut(self, nodes: IntArray, *, loops: bool) -> Cut:
        from fastgcn.kernels.rows import cut_rows  # loads numba

        csr = self.csr
        rows = cut_rows(
            csr.indptr,
            csr.indices,
            csr.weights,
            self.nodes[nodes],
            loops=loops,
            own=nodes,
            position=self._position,
            counts=self._counts[nodes],
        )
        forget(csr.indices)
        return rows


@dataclass(frozen=True, slots=True)
class NewNodes:
    """New nodes n..n+k-1 that join a graph of n nodes.

    `touched` (r,) ascending are the nodes, old and new, that gain edges; row i of `gained`
    lists the edges that `touched[i]` gains.
    """

    k: int
    touched: IntArray
    gained: CSR

    def rows(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Which of `nodes` gain edges, and the rows of `gained` that list them."""
        row = np.searchsorted(self.touched, nodes)
        among = self.touched[row % max(len(self.touched), 1)]
        hit = np.flatnonzero((row < len(self.touched)) & (among == nodes))
        return hit, row[hit]


class EnlargedEdges:
    """The edges of a graph that new nodes join."""

    def __init__(self, csr: CSR, new: NewNodes) -> None:
        self.old, self.new = GraphEdges(csr), new

    @property
    def n(self) -> int:
        return self.old.n + self.new.k

    def counts(self) -> IntArray:
        counts = np.concatenate([self.old.counts(), np.zeros(self.new.k, np.int64)])
        counts[self.new.touched] += np.diff(self.new.gained.indptr)
        return counts

    def sums(self, nodes: IntArray) -> FloatArray:
        sums, old = np.zeros(len(nodes)), nodes < self.old.n
        sums[old] = self.old.sums(nodes[old])
        places, gains = self.new.rows(nodes)
        sums[places] += _sums(self.new.gained, gains)
        return sums

    def cut(self, nodes: IntArray, *, loops: bool) -> Cut:
        old = np.flatnonzero(nodes < self.old.n)
        places, gains = self.new.rows(nodes)
        new = np.flatnonzero(nodes >= self.old.n) if loops else nodes[:0]
        parts = [
            (old, *self.old.cut(nodes[old], loops=loops)),
            (places, *_cut(self.new.gained, gains)),
            (new, np.arange(len(new) + 1), nodes[new], np.ones(len(new), np.float32)),
        ]
        row = np.concatenate([np.repeat(own, np.diff(indptr)) for own, indptr, _, _ in parts])
        columns = np.concatenate([part[2] for part in parts])
        order = np.lexsort((columns, row))
        indptr = np.searchsorted(row[order], np.arange(len(nodes) + 1))
        return indptr, columns[order], np.concatenate([part[3] for part in parts])[order]


class ChangedEdges:
    """The edges of a graph of which a few rows are replaced.

    `rows` maps a node to its new row: columns, ascending, and weights, float32.
    """

    def __init__(self, csr: CSR, rows: Mapping[int, tuple[IntArray, FloatArray]]) -> None:
        self.old, self.rows = GraphEdges(csr), dict(rows)

    @property
    def n(self) -> int:
        return self.old.n

    def counts(self) -> IntArray:
        counts = self.old.counts()
        for node, (columns, _) in self.rows.items():
            counts[node] = len(columns)
        return counts

    def sums(self, nodes: IntArray) -> FloatArray:
        sums = self.old.sums(nodes)
        for place in self._changed(nodes):
            sums[place] = self.rows[int(nodes[place])][1].sum(dtype=np.float64)
        return sums

    def cut(self, nodes: IntArray, *, loops: bool) -> Cut:
        indptr, columns, values = self.old.cut(nodes, loops=loops)
        counts, done = np.diff(indptr), 0
        parts: list[tuple[IntArray, FloatArray]] = []
        for place in self._changed(nodes):
            row = self._row(int(nodes[place]), loops)
            parts += [(columns[done : indptr[place]], values[done : indptr[place]]), row]
            counts[place], done = len(row[0]), int(indptr[place + 1])
        if not parts:
            return indptr, columns, values
        parts.append((columns[done:], values[done:]))
        joined = (np.concatenate(each) for each in zip(*parts, strict=True))
        return (np.concatenate([[0], np.cumsum(counts)]), *joined)  # type: ignore[return-value]

    def _changed(self, nodes: IntArray) -> IntArray:
        """Places in `nodes` whose rows are replaced."""
        return np.flatnonzero(np.isin(nodes, list(self.rows)))

    def _row(self, node: int, loops: bool) -> tuple[IntArray, FloatArray]:
        columns, values = self.rows[node]
        if not loops:
            return columns, values
        place = int(np.searchsorted(columns, node))
        return np.insert(columns, place, node), np.insert(values, place, np.float32(1))


def edges_of(csr: CSR, nodes: IntArray | None) -> EdgeSource:
    """The edges of the graph induced on `nodes` in their order; None: of the whole graph."""
    if nodes is None:
        return GraphEdges(csr)
    if np.all(nodes[1:] > nodes[:-1]):
        return InducedEdges(csr, nodes)
    # Renumbered columns do not ascend and must be sorted.
    return GraphEdges(induced_csr(csr, nodes))


def positions(nodes: IntArray, n: int) -> IntArray:
    """(n,): the position of each node in `nodes`, -1 for nodes that are not in it."""
    position = np.full(n, -1, index_dtype(n))
    position[nodes] = np.arange(len(nodes), dtype=position.dtype)
    return position


def count_inside(csr: CSR, nodes: IntArray, position: IntArray) -> tuple[IntArray, FloatArray]:
    """(s,) the entries of the rows `nodes` whose columns have a `position`, and (s,) their sums.

    The rows must lie within the entries (`check_rows`). Columns that do not ascend or are outside
    of the graph raise an error, so code that cuts these rows afterwards need not check them.
    """
    from fastgcn.kernels.rows import count_rows  # loads numba

    counts, sums = count_rows(csr.indptr, csr.indices, csr.weights, nodes, position)
    if len(counts) and counts.min() < 0:
        raise _disordered(csr.indices, len(position))
    forget(csr.indices)
    if csr.weights is not None:
        forget(csr.weights)
    return counts, sums


def check_ascending(indptr: IntArray, columns: IntArray, n: int, stored: IntArray) -> None:
    """Check that the columns of rows, read from the array `stored`, ascend and are in 0..n-1."""
    from fastgcn.kernels.rows import rows_ascend  # loads numba

    if not rows_ascend(indptr, columns, n):
        raise _disordered(stored, n)


def _disordered(stored: IntArray, n: int) -> FormatError:
    return damaged(stored, f"the columns of a row do not ascend, or are outside of 0..{n - 1:,}")


def _cut(csr: CSR, nodes: IntArray, *, loops: bool = False) -> Cut:
    from fastgcn.kernels.rows import cut_rows  # loads numba

    return cut_rows(csr.indptr, csr.indices, csr.weights, nodes, loops=loops)


def _sums(csr: CSR, nodes: IntArray) -> FloatArray:
    if csr.weights is None:
        return (csr.indptr[nodes + 1] - csr.indptr[nodes]).astype(np.float64)
    from fastgcn.kernels.rows import count_rows  # loads numba

    check_rows(csr.indptr, csr.indices, nodes)
    sums = np.empty(len(nodes))
    for start, stop in row_chunks(csr.indptr[nodes + 1] - csr.indptr[nodes]):
        some = nodes[start:stop]
        sums[start:stop] = count_rows(csr.indptr, csr.indices, csr.weights, some)[1]
        forget(csr.weights)
    return sums


def chunks_with_progress(counts: IntArray, what: str) -> Iterator[tuple[int, int]]:
    """`row_chunks` of the training graph, with a progress bar."""
    with progress(f"{what} the training graph", len(counts), "nodes") as advance:
        for start, stop in row_chunks(counts):
            yield start, stop
            advance(stop - start)


def induced_csr(csr: CSR, nodes: IntArray) -> CSR:
    """Rows and columns `nodes` of a clean CSR, renumbered 0..k-1 in the order given."""
    n, k = len(csr.indptr) - 1, len(nodes)
    position = positions(nodes, n)
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


def row_entries(indptr: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Positions in `indices` of all entries of `rows`, row after row, and their counts."""
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum()), counts


def row_chunks(counts: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `_EDGES_AT_ONCE` entries each, at least one row per range."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, done + _EDGES_AT_ONCE, side="right"))
        stop = min(max(stop, start + 1), len(counts))
        yield start, stop
        start = stop
