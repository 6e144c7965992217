"""Drawing distinct neighbours by weight, row by row: the inner loop of the graph generator.

Not in `kernels.edges`, because the random numbers load torch, 190 MB that reading tables does not
need.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.counter_random import STEP, mix


@njit(cache=True, nogil=True, inline="always")
def _position(cumulative: Any, low: Any, high: Any, value: Any) -> Any:
    """The p in low..high-1 with cumulative[p] <= value < cumulative[p + 1]."""
    while low < high - 1:
        middle = (low + high) >> 1
        if cumulative[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True, inline="always")
def _insert(table: Any, mask: Any, key: Any) -> Any:
    """Insert `key` into the hash set `table`; True if it was new. Empty places hold -1."""
    place = np.int64(mix(np.uint64(key)) & np.uint64(mask))
    while table[place] >= 0:
        if table[place] == key:
            return False
        place = (place + 1) & mask
    table[place] = key
    return True


@njit(cache=True, nogil=True)
def draw_rows(
    first: int,
    last: int,
    counts: IntArray,
    ends: IntArray,
    cumulative: FloatArray,
    group: IntArray,
    between: bool,
    order: IntArray,
    seed: np.uint64,
    source: IntArray,
    target: IntArray,
) -> None:
    """Fill `source`, `target` with the edges of rows first..last-1, in the order of the rows.

    Row r draws `counts[r]` distinct positions from r+1..ends[r]-1, one after the other, with
    chances proportional to the weights whose prefix sums are `cumulative` (n+1,); with
    `between`, only positions of another `group` than its own. Position p is node `order[p]`.
    Each row has its own stream of random numbers, so it does not matter which rows one call
    draws.
    """
    most = 0
    for row in range(first, last):
        most = max(most, counts[row])
    size = 4
    while size < 2 * most:
        size *= 2
    table = np.empty(size, np.int64)
    filled = 0
    for row in range(first, last):
        count, end = counts[row], ends[row]
        size = 4
        while size < 2 * count:
            size *= 2
        table[:size] = -1
        start, span = cumulative[row + 1], cumulative[end] - cumulative[row + 1]
        state = mix(seed ^ mix(np.uint64(row) + STEP))
        while count > 0:
            state += STEP
            uniform = np.float64(mix(state) >> np.uint64(11)) * 2.0**-53
            drawn = _position(cumulative, row + 1, end, start + uniform * span)
            if between and group[drawn] == group[row]:
                continue
            if _insert(table, size - 1, drawn):
                source[filled] = order[row]
                target[filled] = order[drawn]
                filled += 1
                count -= 1
