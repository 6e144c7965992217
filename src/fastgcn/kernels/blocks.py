"""Numbering the nodes of a block."""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.types import IntArray


@njit(cache=True, nogil=True)
def number_columns(rows: IntArray, columns: IntArray, place: IntArray) -> Any:
    """New numbers for `rows` (distinct), then for the other `columns` as they come.

    Returns the nodes in the order of their numbers, and the number of every column. `place`
    (n,) int32 is work space, found and left filled with -1.
    """
    nodes = np.empty(min(len(rows) + len(columns), len(place)), np.int64)
    numbers = np.empty(len(columns), np.int64)
    for i in range(len(rows)):
        nodes[i] = rows[i]
        place[rows[i]] = i
    known = len(rows)
    for i in range(len(columns)):
        if place[columns[i]] < 0:
            nodes[known] = columns[i]
            place[columns[i]] = known
            known += 1
        numbers[i] = place[columns[i]]
    for i in range(known):
        place[nodes[i]] = -1
    return nodes[:known], numbers
