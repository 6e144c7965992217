"""Sampling where each rank has some rows of Â: the inner loops.

Nodes are numbered from a rank's first one on, round the end, so that own rows are 0, 1, ....
`place` (n,) int32 is work space that every function finds, and leaves, filled with -1.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.draws import sized


@njit(cache=True, nogil=True)
def copy_rows(
    start: int,
    stop: int,
    matrix: tuple[IntArray, IntArray, FloatArray],
    nodes: IntArray,
    position: IntArray,
    first: int,
    loops: bool,
    starts: IntArray,
    columns: IntArray,
    values: FloatArray,
    sums: FloatArray,
) -> None:
    """The rows nodes[start:stop] of a CSR matrix to `columns` and `values`, row i from starts[i].

    Columns are renumbered by `position`, those of -1 left out; empty, it keeps all as they are.
    With `loops`, row i also has the column first + i, which the matrix must not have, with the
    value one, in its ascending place. Weights are empty where all are one. `sums` are those of the
    rows.
    """
    indptr, indices, weights = matrix
    for i in range(start, stop):
        own, at = first + i, starts[i]
        loop_to_come, total = loops, 1.0 if loops else 0.0
        for entry in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            column = np.int64(indices[entry])
            if len(position) > 0:
                column = np.int64(position[column])
            if column < 0:
                continue
            if loop_to_come and column > own:
                columns[at], values[at] = own, 1
                at += 1
                loop_to_come = False
            columns[at] = column
            values[at] = weights[entry] if len(weights) > 0 else 1
            total += values[at]
            at += 1
        if loop_to_come:
            columns[at], values[at] = own, 1
        sums[i] = total


@njit(cache=True, nogil=True)
def pick_drawn(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    drawn: IntArray,
    weights: FloatArray,
    place: IntArray,
) -> Any:
    """Entries of own `rows` in the columns `drawn`, times these columns' weights, as CSR arrays
    whose columns are places in `drawn`."""
    for c in range(len(drawn)):
        place[drawn[c]] = c
    entries = 0
    for r in range(len(rows)):
        entries += indptr[rows[r] + 1] - indptr[rows[r]]
    picked_indptr = np.zeros(len(rows) + 1, np.int64)
    columns, picked = np.empty(entries, np.int64), np.empty(entries, np.float32)
    filled = 0
    for r in range(len(rows)):
        for entry in range(indptr[rows[r]], indptr[rows[r] + 1]):
            c = place[indices[entry]]
            if c >= 0:
                columns[filled] = c
                picked[filled] = values[entry] * weights[c]
                filled += 1
        picked_indptr[r + 1] = filled
    for c in range(len(drawn)):
        place[drawn[c]] = -1
    return picked_indptr, columns[:filled].copy(), picked[:filled].copy()


@njit(cache=True, nogil=True)
def entries_at(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    lengths: FloatArray,
    power: float,
    which: IntArray,
    points: FloatArray,
) -> Any:
    """The column of the entry that each point falls on.

    Point i lies in row rows[which[i]], at points[i] of its length. The entries of a row divide it
    in proportion to |Â(v,u)|^power, which add up to `lengths`; rows with points in them, and
    points in a row, ascend.
    """
    columns = np.empty(len(points), np.int64)
    at, row, before = np.int64(0), np.int64(-1), 0.0
    for i in range(len(points)):
        v = rows[which[i]]
        if which[i] != row:
            row, at, before = which[i], indptr[v], 0.0
        target = points[i] * lengths[which[i]]
        # The last entry of a row keeps what rounding leaves over.
        while at < indptr[v + 1] - 1:
            share = sized(values[at], power)
            if target < before + share:
                break
            before += share
            at += 1
        columns[i] = indices[at]
    return columns


@njit(cache=True, nogil=True)
def sums_of_columns(columns: IntArray, values: FloatArray, power: float, count: int) -> Any:
    """(count,) float64: Σ |value|^power of the entries in each column."""
    sums = np.zeros(count)
    for entry in range(len(columns)):
        sums[columns[entry]] += sized(values[entry], power)
    return sums
