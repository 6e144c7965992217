"""Sampling where each rank has some rows of Â: the inner loops.

Nodes are numbered from a rank's first one on, round the end, so that own rows are 0, 1, ....
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.draws import sized


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
