"""Rows of the graph induced on some nodes, straight from the CSR arrays of the whole graph."""

import numpy as np
from numba import njit

from fastgcn.damage import damaged
from fastgcn.kernels.threads import over_ranges
from fastgcn.types import FloatArray, IntArray

_NO_WEIGHTS = np.empty(0, np.float32)
_PIECES = 8  # a call is cut into, so that threads share it evenly


def count_inside(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    nodes: IntArray,
    position: IntArray,
) -> tuple[IntArray, FloatArray]:
    """(s,) how many entries of the rows `nodes` have their column inside, and (s,) their sums.

    `position` (n,) is a node's number among those inside, -1 for all others. That the rows lie
    within the entries is known (`check_rows`); columns of a damaged file are refused, so that
    `cut_inside` can rely on those counted.
    """
    counts, sums = np.empty(len(nodes), np.int64), np.empty(len(nodes))
    matrix = indptr, indices, _NO_WEIGHTS if weights is None else weights
    over_ranges(lambda a, b: _count(a, b, *matrix, nodes, position, counts, sums), _pieces(nodes))
    if len(counts) and counts.min() < 0:
        raise damaged(indices, f"it names a column outside of 0..{len(position) - 1:,}")
    return counts, sums


def cut_inside(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    nodes: IntArray,
    position: IntArray,
    counts: IntArray,
    *,
    loops: bool,
) -> tuple[IntArray, IntArray, FloatArray]:
    """The CSR arrays of the rows `nodes`, columns renumbered by `position`, which ascends.

    `counts` (s,) are those of `count_inside`. With `loops`, a row also has its own column.
    """
    starts = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum(counts + loops, out=starts[1:])
    columns = np.empty(starts[-1], position.dtype)
    values = np.empty(starts[-1], np.float32)
    matrix = indptr, indices, _NO_WEIGHTS if weights is None else weights
    over_ranges(
        lambda a, b: _cut(a, b, *matrix, nodes, position, loops, starts, columns, values),
        _pieces(nodes),
    )
    return starts, columns, values


def _pieces(nodes: IntArray) -> IntArray:
    return np.linspace(0, len(nodes), _PIECES + 1).astype(np.int64)


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
        count, total = 0, 0.0
        for entry in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            column = indices[entry]
            if column < 0 or column >= len(position):
                count = -1
                break
            if position[column] >= 0:
                count += 1
                total += weights[entry] if len(weights) > 0 else 1.0
        counts[i], sums[i] = count, total


@njit(cache=True, nogil=True)
def _cut(
    start: int,
    stop: int,
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray,
    nodes: IntArray,
    position: IntArray,
    loops: bool,
    starts: IntArray,
    columns: IntArray,
    values: FloatArray,
) -> None:
    for i in range(start, stop):
        own, at = position[nodes[i]], starts[i]
        loop_to_come = loops
        for entry in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            column = position[indices[entry]]
            if column < 0:
                continue
            if loop_to_come and column > own:
                columns[at], values[at] = own, 1
                at += 1
                loop_to_come = False
            columns[at] = column
            values[at] = weights[entry] if len(weights) > 0 else 1
            at += 1
        if loop_to_come:
            columns[at], values[at] = own, 1
