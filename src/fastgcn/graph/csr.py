"""Edge lists to clean CSR rows, in memory.

Row `v` of the matrix lists the nodes that `v` points to, A(v, u) = 1 (or a weight) for an
edge v → u. This is the adjacency matrix of scipy and networkx and the A of eq. 1, so `A @ H`
describes a node by the nodes it points to. An undirected graph stores both directions.

"Clean" means, here and in every reader:

* rows are sorted by column and hold no column twice;
* the same edge given twice in the same direction is one edge; its weights add up, and a
  graph without weights still has none;
* in an undirected graph, an edge listed in both directions is one edge, with the larger of
  its two weights, so that a table that lists (a, b, w) and (b, a, w) means w;
* self loops are dropped: the normalisation adds its own;
* an edge of weight zero is no edge, and is dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import coo_array, csr_array

from fastgcn.arrays import AnyArray, FloatArray, IntArray, forget
from fastgcn.errors import FormatError


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How many of the listed edges cleaning has removed."""

    self_loops: int = 0
    duplicates: int = 0  # the same edge again, in the same direction
    zero_weights: int = 0

    def __add__(self, other: "Cleaning") -> "Cleaning":
        return Cleaning(
            self.self_loops + other.self_loops,
            self.duplicates + other.duplicates,
            self.zero_weights + other.zero_weights,
        )


@dataclass(frozen=True, slots=True)
class CSR:
    """`indptr` (n+1,) int64, `indices` (m,) int32 or int64, `weights` (m,) float32 or None."""

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None


def index_dtype(n: int) -> type[np.signedinteger]:
    """int32 if node ids fit in it: half the memory traffic of int64."""
    return np.int32 if n <= np.iinfo(np.int32).max else np.int64


def csr_from_edges(
    source: IntArray,
    target: IntArray,
    weights: FloatArray | None,
    n: int,
    *,
    directed: bool,
) -> tuple[CSR, Cleaning]:
    """Clean CSR of an edge list whose ids are already 0..n-1."""
    loops = source == target
    zeros = np.zeros(0, np.bool_) if weights is None else (weights == 0) & ~loops
    dropped = Cleaning(int(np.count_nonzero(loops)), 0, int(np.count_nonzero(zeros)))
    if dropped != Cleaning():
        keep = ~loops if weights is None else ~(loops | zeros)
        source, target = source[keep], target[keep]
        weights = None if weights is None else weights[keep]
    # Counting needs a value per edge even if the graph has no weights. An int32 count overflows
    # only if an edge is listed two thousand million times.
    values = np.ones(len(source), dtype=np.int32) if weights is None else weights
    matrix = coo_array((values, (source, target)), shape=(n, n)).tocsr()
    dropped += Cleaning(duplicates=len(source) - matrix.nnz)
    if not directed:
        matrix = matrix.maximum(matrix.T.tocsr())
    matrix.sort_indices()
    return CSR(
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(index_dtype(n), copy=False),
        None if weights is None else matrix.data.astype(np.float32, copy=False),
    ), dropped


def clean_csr(csr: CSR) -> tuple[CSR, Cleaning]:
    """The same graph with sorted rows, no column twice, no self loop; `csr` itself if clean.

    The arrays are those of a matrix of n = len(indptr) - 1 rows whose indices are in range.
    """
    n = len(csr.indptr) - 1
    rows = np.repeat(np.arange(n, dtype=csr.indices.dtype), np.diff(csr.indptr))
    ascending = (csr.indices[1:] > csr.indices[:-1]) | (rows[1:] != rows[:-1])
    without_zeros = csr.weights is None or bool(np.all(csr.weights))
    if without_zeros and bool(np.all(ascending)) and not bool(np.any(rows == csr.indices)):
        return csr, Cleaning()
    return csr_from_edges(rows, csr.indices, csr.weights, n, directed=True)


def is_symmetric(csr: CSR) -> bool:
    """True if a clean CSR has every edge in both directions, with the same weight."""
    n = len(csr.indptr) - 1
    values = np.ones(len(csr.indices), np.int8) if csr.weights is None else csr.weights
    matrix = csr_array((values, csr.indices, csr.indptr), shape=(n, n))
    other = matrix.T.tocsr()  # its rows are sorted: a transpose is a counting sort
    return (
        np.array_equal(matrix.indptr, other.indptr)
        and np.array_equal(matrix.indices, other.indices)
        and np.array_equal(matrix.data, other.data)
    )


# Entries checked together: few enough to stay in a cache and to take little memory.
_AT_ONCE = 1 << 18


def check_rows(indptr: IntArray, indices: IntArray, nodes: IntArray | None = None) -> None:
    """Check that the rows `nodes` of a CSR matrix (None: all) lie within its entries."""
    if nodes is None:
        for start in range(0, len(indptr) - 1, _AT_ONCE):
            ends = indptr[start : start + _AT_ONCE + 1]
            _check_ends(indptr, ends[:-1], ends[1:], len(indices))
    elif len(nodes):
        _check_ends(indptr, indptr[nodes], indptr[nodes + 1], len(indices))


def _check_ends(indptr: IntArray, starts: IntArray, stops: IntArray, entries: int) -> None:
    """Check that each row ends after it starts, within the entries."""
    if int(starts.min()) < 0 or int(stops.max()) > entries or bool((stops < starts).any()):
        raise damaged(indptr, f"its rows do not lie in order within {entries:,} entries")


def check_offsets(offsets: IntArray, entries: int, what: str) -> None:
    """Check that row offsets (n+1,) lead from 0 to the number of entries and never decrease.

    Offsets are compared, never subtracted: a difference of the largest ones wraps round.
    """
    if len(offsets) == 0 or int(offsets[0]) != 0 or int(offsets[-1]) != entries:
        raise damaged(offsets, f"{what} do not belong together")
    for start in range(0, len(offsets) - 1, _AT_ONCE):
        ends = offsets[start : start + _AT_ONCE + 1]
        if bool((ends[1:] < ends[:-1]).any()):
            raise damaged(offsets, f"its rows do not lie in order within {entries:,} entries")


def check_columns(columns: IntArray, n: int, stored: IntArray, what: str = "column") -> None:
    """Check that numbers read from the array `stored` are in 0..n-1."""
    if _outside(columns, n):
        raise damaged(stored, f"it names a {what} outside of 0..{n - 1:,}")


def check_all(ids: IntArray, n: int, *, lowest: int = 0, what: str = "column") -> None:
    """Check that all numbers of an array are in lowest..n-1; unmaps a memory map's pages."""
    for part in _pieces(ids):
        if _outside(part - lowest if lowest else part, n - lowest):
            raise damaged(ids, f"it names a {what} outside of {lowest}..{n - 1:,}")
        forget(ids)


class StoredMatrix(csr_array):  # type: ignore[misc]
    """A sparse matrix mapped from files: its columns are checked when they are first used.

    Everything that scipy and compiled code do with a matrix begins with `indices`. Matrices that
    are made from this one, such as some of its rows, were checked with it.
    """

    _unchecked = False

    @classmethod
    def of(cls, values: FloatArray, columns: IntArray, indptr: IntArray, width: int) -> Self:
        """From arrays of which only the offsets are known to be sound."""
        matrix = cls((values, columns, indptr), shape=(len(indptr) - 1, width))
        matrix._unchecked = True
        return matrix

    @property
    def indices(self) -> IntArray:
        if self._unchecked:
            check_sorted(self.indptr, self._columns, int(self.shape[1]))
            self._unchecked = False
        return self._columns

    @indices.setter
    def indices(self, columns: IntArray) -> None:
        self._columns: IntArray = columns


def check_sorted(indptr: IntArray, columns: IntArray, n: int) -> None:
    """Check that the columns of every row ascend and lie in 0..n-1; unmaps a map's pages."""
    check_all(columns, n)
    for start in range(0, len(columns), _AT_ONCE):
        some = columns[start : start + _AT_ONCE + 1]
        falls = (start + 1 + np.flatnonzero(some[1:] <= some[:-1])).astype(indptr.dtype)
        # Columns may fall only where a row begins.
        if not np.array_equal(indptr[np.searchsorted(indptr, falls)], falls):
            raise damaged(columns, "the columns of a row do not ascend")
        forget(columns)


def check_no_loops(indptr: IntArray, columns: IntArray, first: int) -> None:
    """Check that no node is joined to itself; row i is that of node first + i."""
    for start in range(0, len(columns), _AT_ONCE):
        some = columns[start : start + _AT_ONCE]
        rows = np.searchsorted(indptr, np.arange(start, start + len(some)), side="right") - 1
        if bool(np.any(some == rows + first)):
            raise damaged(columns, "a node is joined to itself")
        forget(columns)


def damaged(array: AnyArray, how: str) -> FormatError:
    """The error for a damaged array, with its file if it came from one."""
    file = file_of(array)
    if file is None:
        return FormatError(f"an array of the graph is damaged: {how}")
    return FormatError(f"{file} is damaged: {how}; run fastgcn info {file.parent} --verify")


def _outside(ids: IntArray, n: int) -> bool:
    if not len(ids):
        return False
    # As unsigned numbers, negative ones are large: one pass instead of two.
    return int(ids.view(np.dtype(f"u{ids.dtype.itemsize}")).max()) >= n


def _pieces(ids: IntArray) -> Iterator[IntArray]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]


def file_of(array: AnyArray) -> Path | None:
    """The file behind a memory map, or behind a view of one."""
    base: AnyArray | None = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return None if base.filename is None else Path(base.filename)
        base = base.base
    return None
