"""Numbering the nodes of a block."""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.draws import sized


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


@njit(cache=True, nogil=True)
def reach(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    power: float,
    off_diagonal: bool,
    place: IntArray,
) -> Any:
    """The distinct columns u that `rows` reach, as they are met, and Σ_{v in rows} |Â(v,u)|^power.

    Also, for each entry of the rows, where its column is among these; -1 for zeros and, with
    `off_diagonal`, for entries Â(v,v), which are passed over.
    """
    entries = 0
    for r in range(len(rows)):
        entries += indptr[rows[r] + 1] - indptr[rows[r]]
    at, capacity = np.empty(entries, np.int32), min(entries, len(place))
    found, sums = np.empty(capacity, np.int64), np.zeros(capacity)
    known = filled = 0
    for r in range(len(rows)):
        v = rows[r]
        for entry in range(indptr[v], indptr[v + 1]):
            u, size = indices[entry], sized(values[entry], power)
            number = -1
            if size != 0 and not (off_diagonal and u == v):
                number = place[u]
                if number < 0:
                    number = known
                    place[u] = number
                    found[number] = u
                    known += 1
                sums[number] += size
            at[filled] = number
            filled += 1
    for i in range(known):
        place[found[i]] = -1
    return found[:known], sums[:known], at


@njit(cache=True, nogil=True)
def pick_reached(
    indptr: IntArray,
    values: FloatArray,
    rows: IntArray,
    reached: tuple[IntArray, IntArray],
    drawn: IntArray,
    weights: FloatArray,
    exact_self: bool,
) -> Any:
    """As `pick_entries`, after `reach`: `reached` are its columns and the places of the entries
    among them, `drawn` are places there."""
    found, at = reached
    weight = np.zeros(len(found))
    for c in range(len(drawn)):
        weight[drawn[c]] = weights[c]
    picked_indptr = np.zeros(len(rows) + 1, np.int64)
    columns, picked = np.empty(len(at), np.int64), np.empty(len(at), np.float32)
    filled = before = 0
    for r in range(len(rows)):
        v = rows[r]
        for entry in range(indptr[v], indptr[v + 1]):
            number = at[before]
            before += 1
            if number < 0:
                if not exact_self or values[entry] == 0:
                    continue
                columns[filled], picked[filled] = v, values[entry]
            elif weight[number] == 0:
                continue
            else:
                columns[filled] = found[number]
                picked[filled] = values[entry] * weight[number]
            filled += 1
        picked_indptr[r + 1] = filled
    return picked_indptr, columns[:filled], picked[:filled]


@njit(cache=True, nogil=True)
def pick_entries(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    drawn: IntArray,
    weights: FloatArray,
    exact_self: bool,
    place: IntArray,
) -> Any:
    """Entries of `rows` in the columns `drawn`, times these columns' weights: indptr, the columns
    as they are numbered in Â, and values.

    With `exact_self`, an entry Â(v,v) is there in full, drawn or not.
    """
    for c in range(len(drawn)):
        place[drawn[c]] = c
    picked_indptr = np.zeros(len(rows) + 1, np.int64)
    entries = 0
    for r in range(len(rows)):
        entries += indptr[rows[r] + 1] - indptr[rows[r]]
    columns, picked = np.empty(entries, indices.dtype), np.empty(entries, np.float32)
    filled = 0
    for r in range(len(rows)):
        v = rows[r]
        for entry in range(indptr[v], indptr[v + 1]):
            u = indices[entry]
            c = place[u]
            own = exact_self and u == v
            if c < 0 and not own:
                continue
            columns[filled] = u
            picked[filled] = values[entry] if own else values[entry] * weights[c]
            filled += 1
        picked_indptr[r + 1] = filled
    for c in range(len(drawn)):
        place[drawn[c]] = -1
    return picked_indptr, columns[:filled], picked[:filled]


@njit(cache=True, nogil=True)
def has_repeats(nodes: IntArray, place: IntArray) -> bool:
    """Whether a node comes twice."""
    repeats = False
    for i in range(len(nodes)):
        repeats |= place[nodes[i]] >= 0
        place[nodes[i]] = i
    for i in range(len(nodes)):
        place[nodes[i]] = -1
    return repeats
