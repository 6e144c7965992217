"""Rows by number: cut out of a CSR matrix, scaled to those of Â, or read from a file."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit, types
from scipy.sparse import csr_array

from fastgcn.arrays import AnyArray, FloatArray, IntArray, forget
from fastgcn.machine import over_ranges, pool_threads

# Below this many entries, waking a second thread costs more time than it saves.
_WORTH_SHARING = 1 << 18

# After this many entries, pages of a memory map are unmapped: scattered rows soon map all of it.
_PIECE_ENTRIES = 1 << 19

_NO_WEIGHTS = np.empty(0, np.float32)
_NO_POSITIONS = np.empty(0, np.int32)
_PIECES = 8  # in which rows are counted, so that threads get equal work


def cut_rows(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    nodes: IntArray,
    *,
    loops: bool = False,
    own: IntArray | None = None,
    position: IntArray | None = None,
    counts: IntArray | None = None,
) -> tuple[IntArray, IntArray, FloatArray]:
    """The CSR arrays of the rows `nodes` (s,): `indptr` (s+1,) int64, `indices`, float32 `values`.

    `weights` None stands for ones. With `loops`, row i also gets the column own[i] (by default
    nodes[i]), which the matrix must not have, with value one, in ascending order.

    With `position` (n,), which must ascend where it is not negative, columns are renumbered by
    it, and columns of -1 are left out; `counts` (s,), from `count_rows`, are the entries left.
    """
    if counts is None:
        counts = indptr[nodes + 1] - indptr[nodes]
    starts = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum(counts + loops, out=starts[1:])
    renumber = _NO_POSITIONS if position is None else position
    columns = np.empty(starts[-1], indices.dtype if position is None else position.dtype)
    values = np.empty(starts[-1], np.float32)
    matrix = indptr, indices, _NO_WEIGHTS if weights is None else weights
    loop = nodes if own is None else own
    bounds = np.searchsorted(starts, np.arange(0, starts[-1], _PIECE_ENTRIES)).tolist()
    for first, last in pairwise([*bounds, len(nodes)]):
        over_ranges(
            lambda a, b: _cut(a, b, *matrix, nodes, renumber, loop, loops, starts, columns, values),
            first + _shares(starts[first : last + 1] - starts[first]),
        )
        if len(bounds) > 1:
            forget(indices)
            forget(matrix[2])
    return starts, columns, values


def count_rows(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    nodes: IntArray,
    position: IntArray | None = None,
) -> tuple[IntArray, FloatArray]:
    """(s,) how many entries the rows `nodes` have, and (s,) float64 the sums of their weights.

    With `position` (n,), only entries whose column has a position other than -1 count. A count
    of -1 marks a row whose columns do not ascend or are not in 0..n-1, as only a damaged file has.
    """
    counts, sums = np.empty(len(nodes), np.int64), np.empty(len(nodes))
    matrix = indptr, indices, _NO_WEIGHTS if weights is None else weights
    inside = _NO_POSITIONS if position is None else position
    over_ranges(
        lambda a, b: _count(a, b, *matrix, nodes, inside, counts, sums),
        np.linspace(0, len(nodes), _PIECES + 1).astype(np.int64),
    )
    return counts, sums


def rows_ascend(indptr: IntArray, columns: IntArray, n: int) -> bool:
    """True if the columns of every row ascend and lie in 0..n-1.

    Compiled code relies on both: it reads a dense matrix in parts that it finds by bisection.
    """
    found: list[bool] = []
    over_ranges(lambda a, b: found.append(_ascend(a, b, indptr, columns, n)), _shares(indptr))
    return all(found)


def scale_rows(
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    own: FloatArray,
    others: FloatArray | None,
) -> None:
    """values(i, u) *= own[i] · others[u] in float64; `own` (s,), `others` by column, None: ones."""
    factors = np.empty(0) if others is None else others
    over_ranges(lambda a, b: _scale(a, b, indptr, columns, values, own, factors), _shares(indptr))


def _shares(indptr: IntArray) -> IntArray:
    """Ranges of rows with about equally many entries, one per thread if threads save time."""
    rows = len(indptr) - 1
    if indptr[-1] < _WORTH_SHARING:
        return np.array([0, rows])
    shares = np.linspace(0, indptr[-1], pool_threads() + 1)[1:-1]
    return np.array([0, *np.searchsorted(indptr, shares), rows])


@njit(cache=True, nogil=True)
def _cut(
    start: int,
    stop: int,
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray,
    nodes: IntArray,
    position: IntArray,
    own: IntArray,
    loops: bool,
    starts: IntArray,
    columns: IntArray,
    values: FloatArray,
) -> None:
    for i in range(start, stop):
        at, loop_to_come = starts[i], loops
        for entry in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            column = np.int64(indices[entry])
            if len(position) > 0:
                column = np.int64(position[column])
                if column < 0:
                    continue
            if loop_to_come and column > own[i]:
                columns[at], values[at] = own[i], 1
                at += 1
                loop_to_come = False
            columns[at] = column
            values[at] = weights[entry] if len(weights) > 0 else 1
            at += 1
        if loop_to_come:
            columns[at], values[at] = own[i], 1


@njit(cache=True, nogil=True)
def _count(
    start: int,
    stop: int,
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray,
    nodes: IntArray,
    position: IntArray,
    counts: IntArray,
    sums: FloatArray,
) -> None:
    for i in range(start, stop):
        count, total, before = 0, 0.0, np.int64(-1)
        for entry in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            if len(position) > 0:
                column = np.int64(indices[entry])
                if column <= before or column >= len(position):
                    count = -1
                    break
                before = column
                if position[column] < 0:
                    continue
            count += 1
            total += weights[entry] if len(weights) > 0 else 1.0
        counts[i], sums[i] = count, total


@njit(cache=True, nogil=True)
def _ascend(start: int, stop: int, indptr: IntArray, columns: IntArray, n: int) -> bool:
    for i in range(start, stop):
        before = np.int64(-1)
        for entry in range(indptr[i], indptr[i + 1]):
            column = np.int64(columns[entry])
            if column <= before:
                return False
            before = column
        if before >= n:
            return False
    return True


@njit(cache=True, nogil=True)
def _scale(
    start: int,
    stop: int,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    own: FloatArray,
    others: FloatArray,
) -> None:
    for i in range(start, stop):
        for entry in range(indptr[i], indptr[i + 1]):
            value = values[entry] * own[i]
            if len(others) > 0:
                value *= others[columns[entry]]
            values[entry] = value


# A thread waits for each row that is not in the system's cache, so several threads read at once.
_READERS = 16
_WORTH_READERS = 256  # one thread reads fewer rows than this before others wake

# The system's `pread`, so that a compiled loop can read without Python's lock.
_pread: Any = types.ExternalFunction(
    "pread", types.intp(types.intc, types.intp, types.uintp, types.int64)
)


def gather_rows(
    ids: IntArray, descriptor: int, slots: IntArray, hot: AnyArray, out: AnyArray
) -> bool:
    """out (k, u) int16 = the rows `ids` of an open file, read in the file's order.

    `slots` (n,) is the position of each row in `hot`, -1 if it is not there; empty if no row is.
    Returns True if every row could be read.
    """
    order = np.argsort(ids)
    bounds = [0, len(ids)]
    if len(ids) >= _WORTH_READERS:
        bounds = np.linspace(0, len(ids), _READERS + 1).astype(np.int64).tolist()
    read = _readers(os.getpid()).map(
        lambda part: _gather(part[0], part[1], order, ids, descriptor, slots, hot, out),
        pairwise(bounds),
    )
    return all(list(read))


@cache
def _readers(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """One pool per process, because threads do not survive a fork."""
    return ThreadPoolExecutor(_READERS, thread_name_prefix="fastgcn-reader")


@njit(cache=True, nogil=True)
def _gather(
    start: int,
    stop: int,
    order: IntArray,
    ids: IntArray,
    descriptor: int,
    slots: IntArray,
    hot: AnyArray,
    out: AnyArray,
) -> bool:
    """True if every row could be read."""
    row_bytes, begin = 2 * out.shape[1], out.ctypes.data
    for i in range(start, stop):
        place = order[i]
        row = ids[place]
        slot = slots[row] if len(slots) > 0 else -1
        if slot >= 0:
            for j in range(out.shape[1]):
                out[place, j] = hot[slot, j]
        else:
            done = 0
            while done < row_bytes:
                to, at = begin + place * row_bytes + done, row * row_bytes + done
                got = _pread(descriptor, to, row_bytes - done, at)
                if got <= 0:
                    return False
                done += got
    return True


def rows_with_loops_reference(matrix: csr_array, nodes: IntArray) -> csr_array:
    """The rows `nodes` of a matrix without loops, each with its own column of value one."""
    loops = csr_array(
        (np.ones(len(nodes)), (np.arange(len(nodes)), nodes)), (len(nodes), matrix.shape[1])
    )
    return csr_array(matrix[nodes] + loops)


def rows_ascend_reference(indptr: IntArray, columns: IntArray, n: int) -> bool:
    """True if the columns of every row ascend and lie in 0..n-1."""
    rows = [columns[a:b].tolist() for a, b in pairwise(indptr)]
    return all(row == sorted({u for u in row if 0 <= u < n}) for row in rows)


def scaled_rows_reference(
    matrix: csr_array, own: FloatArray, others: FloatArray | None
) -> FloatArray:
    """diag(own) · matrix · diag(others), dense."""
    rows = own[:, None] * matrix.toarray()
    return np.asarray(rows if others is None else rows * others)
