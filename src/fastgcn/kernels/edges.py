"""Sorting and merging edges, compiled.

To sort it, an edge v → u of a graph with node ids below 2**bits becomes one key,
`((v << bits) | u) << 1 | flag`. Ascending keys are in CSR order: by row, then by column. The
flag is 0 for an edge as it was listed and 1 for the reverse that an undirected graph adds.
`values` holds a weight for each key; it is empty where the graph has no weights.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray

# Bits sorted by in one pass: 2,048 counters fit the first-level cache; 8 and 17 bits were slower.
_DIGIT_BITS = 11

# The state of `merge_sorted` between two calls: the edge that is still open (row and column as
# one number, -1 for none), and how often it was listed in this direction.
_OPEN, _LISTED = 0, 1

# Greater than the key of every edge: in a graph of 2**31 nodes it would be a self loop.
END_KEY = np.iinfo(np.int64).max


@njit(cache=True, nogil=True)
def edge_keys(
    source: IntArray,
    target: IntArray,
    weights: FloatArray,
    bits: int,
    directed: bool,
    keys: IntArray,
    values: FloatArray,
) -> tuple[int, int, int]:
    """Fill `keys` (and `values`); returns the numbers of keys, self loops and zero weights.

    Self loops and edges of weight zero are left out.
    """
    weighted = len(weights) > 0
    filled = loops = zeros = 0
    for i in range(len(source)):
        row = np.int64(source[i])
        column = np.int64(target[i])
        if row == column:
            loops += 1
            continue
        if weighted:
            if weights[i] == 0:
                zeros += 1
                continue
            values[filled] = weights[i]
        keys[filled] = ((row << bits) | column) << 1
        filled += 1
        if not directed:
            if weighted:
                values[filled] = weights[i]
            keys[filled] = (((column << bits) | row) << 1) | 1
            filled += 1
    return filled, loops, zeros


@njit(cache=True, nogil=True)
def partition(
    keys: IntArray,
    values: FloatArray,
    shift: int,
    n_buckets: int,
    keys_out: IntArray,
    values_out: FloatArray,
) -> Any:
    """Stable counting sort by the bits of `keys` above `shift`, modulo `n_buckets` (2**k).

    Bucket b is `keys_out[offsets[b]:offsets[b + 1]]` of the offsets (n_buckets+1,) returned.
    """
    mask = np.int64(n_buckets - 1)
    offsets = np.zeros(n_buckets + 1, np.int64)
    for key in keys:
        offsets[((key >> shift) & mask) + 1] += 1
    for bucket in range(n_buckets):
        offsets[bucket + 1] += offsets[bucket]
    ends = offsets[:-1].copy()
    for i in range(len(keys)):
        bucket = (keys[i] >> shift) & mask
        keys_out[ends[bucket]] = keys[i]
        if len(values) > 0:
            values_out[ends[bucket]] = values[i]
        ends[bucket] += 1
    return offsets


@njit(cache=True, nogil=True)
def sort_keys(keys: IntArray, values: FloatArray, bits: int) -> Any:
    """`keys` sorted (stable) by their lowest `bits` bits, and their values.

    The arrays passed in are overwritten.
    """
    other_keys = np.empty_like(keys)
    other_values = np.empty_like(values)
    shift = 0
    while shift < bits:
        digit = min(_DIGIT_BITS, bits - shift)
        partition(keys, values, shift, 1 << digit, other_keys, other_values)
        keys, other_keys = other_keys, keys
        values, other_values = other_values, values
        shift += digit
    return keys, values


@njit(cache=True, nogil=True)
def merge_sorted(
    keys: IntArray,
    values: FloatArray,
    bits: int,
    state: IntArray,
    sums: FloatArray,
    degrees: IntArray,
    columns: IntArray,
    weights: FloatArray,
) -> tuple[int, int]:
    """Merge equal edges of sorted `keys`; returns the numbers of edges written and duplicates.

    Writes `columns` and `weights` (with room for an edge per key) and adds to `degrees` (n,).
    The last edge stays open in `state` (2,) and `sums` (2,), because the next call may continue
    it; `END_KEY` closes it. The weight of an edge is the larger of two sums: of its weights as
    listed, and of those in reverse.
    """
    weighted = len(values) > 0
    column_mask = (np.int64(1) << bits) - 1
    written = duplicates = 0
    current = state[_OPEN]
    listed = state[_LISTED]
    for i in range(len(keys)):
        edge = keys[i] >> 1
        if edge != current:
            if current >= 0:
                columns[written] = current & column_mask
                if weighted:
                    weights[written] = max(sums[0], sums[1])
                    sums[:] = 0
                degrees[current >> bits] += 1
                written += 1
            current = edge
            listed = 0
        if keys[i] & 1 == 0:
            duplicates += listed > 0
            listed += 1
        if weighted:
            sums[keys[i] & 1] += values[i]
    state[_OPEN] = current
    state[_LISTED] = listed
    return written, duplicates
