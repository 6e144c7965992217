"""Finding a node's position by its id, compiled: an array over the ids' range, or a hash table.

A hash table is (size, 2) int64, size a power of two. A row holds an id (or the hash of a
text) and the position of the id, which is -1 in a free row. If another id has the row, the
search goes on to the next row. All `find_` functions fill `found` with positions, -1 for an
unknown id.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import AnyArray, IntArray

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
    """Find ids whose positions stand in an array: that of id i is `positions[i - low]`, or -1."""
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
