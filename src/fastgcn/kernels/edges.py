"""Sorting and merging edges, compiled.

To sort it, an edge v → u of a graph with node ids below 2**bits becomes one key,
`((v << bits) | u) << 1 | flag`. Ascending keys are in CSR order: by row, then by column. The
flag is 0 for an edge as it was listed and 1 for the reverse that an undirected graph adds.
`values` holds a weight for each key; it is empty if the graph has no weights.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import AnyArray, FloatArray, IntArray

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


# An odd constant: the high bits of its product with an id depend on all bits of the id.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

# Texts looked up together. Separate loops that only hash, only probe or only read let the
# processor load from many places in memory at once: three times as fast as a single loop.
_TOGETHER = 256

# The 64-bit FNV-1a hash.
_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


def hash_table(n: int) -> IntArray:
    """An empty table for `n` ids, which fill at most two thirds of it."""
    return np.full((1 << (n + n // 2).bit_length(), 2), -1, np.int64)


@njit(cache=True, nogil=True)
def find_in_range(queries: IntArray, low: int, positions: IntArray, found: IntArray) -> None:
    """Look up ids in an array: the position of id i is `positions[i - low]`, or -1."""
    high = low + len(positions) - 1
    for i in range(len(queries)):
        inside = low <= queries[i] <= high
        found[i] = positions[queries[i] - low] if inside else -1


@njit(cache=True, nogil=True)
def insert_integers(ids: IntArray, table: IntArray) -> tuple[int, int]:
    """Insert ids at positions 0, 1, …; returns the number of repeated ids and the first of them."""
    repeated, first = 0, -1
    for position in range(len(ids)):
        row = _integer_row(ids[position], table)
        if table[row, 1] < 0:
            table[row, 0] = ids[position]
            table[row, 1] = position
        else:
            repeated += 1
            first = position if first < 0 else first
    return repeated, first


@njit(cache=True, nogil=True)
def find_integers(queries: IntArray, table: IntArray, found: IntArray) -> None:
    """Find ids among those inserted by `insert_integers`."""
    for i in range(len(queries)):
        found[i] = table[_integer_row(queries[i], table), 1]


@njit(cache=True, nogil=True)
def insert_text(text: AnyArray, offsets: IntArray, table: IntArray) -> tuple[int, int]:
    """As `insert_integers`, for ids that are UTF-8 text, `text[offsets[i]:offsets[i + 1]]`."""
    repeated, first = 0, -1
    for position in range(len(offsets) - 1):
        start, end = offsets[position], offsets[position + 1]
        code = _hash(text, start, end)
        row = _text_row(text, start, end, code, text, offsets, table)
        if table[row, 1] < 0:
            table[row, 0] = code
            table[row, 1] = position
        else:
            repeated += 1
            first = position if first < 0 else first
    return repeated, first


@njit(cache=True, nogil=True)
def find_text(
    queries: AnyArray,
    query_offsets: IntArray,
    text: AnyArray,
    offsets: IntArray,
    table: IntArray,
    found: IntArray,
) -> int:
    """Find ids `queries[query_offsets[i]:query_offsets[i + 1]]` among those inserted.

    The number returned has no meaning: it keeps the compiler from leaving out `_touch`.
    """
    touched = 0
    codes = np.empty(_TOGETHER, np.int64)
    for base in range(0, len(found), _TOGETHER):
        part = found[base : base + _TOGETHER]
        starts = query_offsets[base : base + len(part) + 1]
        for i in range(len(part)):
            codes[i] = _hash(queries, starts[i], starts[i + 1])
        find_integers(codes[: len(part)], table, part)
        touched += _touch(part, text, offsets)
        for i in range(len(part)):
            position = part[i]
            if position >= 0 and not _equal(
                queries, starts[i], starts[i + 1], text, offsets[position], offsets[position + 1]
            ):
                row = _text_row(queries, starts[i], starts[i + 1], codes[i], text, offsets, table)
                part[i] = table[row, 1]
    return touched


@njit(cache=True, nogil=True)
def hash_texts(text: AnyArray, offsets: IntArray, codes: IntArray) -> None:
    """The hash of each id `text[offsets[i]:offsets[i + 1]]`."""
    for i in range(len(codes)):
        codes[i] = _hash(text, offsets[i], offsets[i + 1])


@njit(cache=True, nogil=True)
def find_ordered(
    queries: AnyArray,
    query_offsets: IntArray,
    text: AnyArray,
    offsets: IntArray,
    order: IntArray,
    found: IntArray,
) -> None:
    """Find ids by bisection; `order` has the positions of all ids, sorted by `hash_texts`."""
    for i in range(len(found)):
        start, end = query_offsets[i], query_offsets[i + 1]
        code = _hash(queries, start, end)
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            at = order[middle]
            if _hash(text, offsets[at], offsets[at + 1]) < code:
                low = middle + 1
            else:
                high = middle
        found[i] = -1
        while low < len(order):
            at = order[low]
            if _hash(text, offsets[at], offsets[at + 1]) != code:
                break
            if _equal(queries, start, end, text, offsets[at], offsets[at + 1]):
                found[i] = at
                break
            low += 1  # another id with the same hash


@njit(cache=True, nogil=True)
def _touch(positions: IntArray, text: AnyArray, offsets: IntArray) -> int:
    """Read one byte of each text, which loads it into the cache; returns their sum."""
    total = 0
    for position in positions:
        if position >= 0 and offsets[position] < len(text):
            total += text[offsets[position]]
    return total


@njit(cache=True, nogil=True, inline="always")
def _first_row(key: int, size: int) -> Any:
    # Bits 31 and up of the product: enough for 2**33 rows.
    return np.int64((np.uint64(key) * _SPREAD) >> np.uint64(31)) & (size - 1)


@njit(cache=True, nogil=True)
def _integer_row(key: int, table: IntArray) -> Any:
    """The row of `key`, or the free row where it would be."""
    row = _first_row(key, len(table))
    while table[row, 1] >= 0 and table[row, 0] != key:
        row = (row + 1) & (len(table) - 1)
    return row


@njit(cache=True, nogil=True)
def _text_row(
    queries: AnyArray,
    start: int,
    end: int,
    code: int,
    text: AnyArray,
    offsets: IntArray,
    table: IntArray,
) -> Any:
    """The row of the id `queries[start:end]`, or the free row where it would be."""
    row = _first_row(code, len(table))
    while table[row, 1] >= 0:
        position = table[row, 1]
        if table[row, 0] == code and _equal(
            queries, start, end, text, offsets[position], offsets[position + 1]
        ):
            break
        row = (row + 1) & (len(table) - 1)
    return row


@njit(cache=True, nogil=True)
def _equal(
    queries: AnyArray, start: int, end: int, text: AnyArray, text_start: int, text_end: int
) -> bool:
    if end - start != text_end - text_start:
        return False
    for i in range(end - start):  # noqa: SIM110
        if queries[start + i] != text[text_start + i]:
            return False
    return True


@njit(cache=True, nogil=True)
def _hash(text: AnyArray, start: int, end: int) -> Any:
    code = _FNV_START
    for i in range(start, end):
        code = (code ^ np.uint64(text[i])) * _FNV_PRIME
    return np.int64(code)
