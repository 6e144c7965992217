"""Sparse times dense on the CPU, both ways, on all threads that torch has been given."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from numba.extending import register_jitable

from fastgcn.kernels.lanes import LANES, add_scaled
from fastgcn.kernels.threads import over_ranges
from fastgcn.types import FloatArray, IntArray

# Multiplications below which a second thread costs more to wake than it saves.
_WORTH_SHARING = 1 << 21

# A part of a dense matrix that stays in the cache while the rows of a sparse one go over it, and
# the entries that a row must have in a part, on average, to be worth reading and writing it again.
_PART_BYTES = 1 << 24
_ENTRIES_A_PART = 3

# For an argument of a compiled function: a plain 0 has a type of its own, and for it the function
# would be compiled once more.
ZERO: Any = np.int64(0)


@register_jitable
def mixing_first_pays(entries: int, rows: int, sources: int, n_in: int, n_out: int) -> bool:
    """Whether (ÂH)W takes fewer multiplications than Â(HW), Â being (rows, sources) and sparse.

    >>> mixing_first_pays(entries=10, rows=5, sources=100, n_in=8, n_out=8)
    True
    """
    return entries * n_in + rows * n_in * n_out < sources * n_in * n_out + entries * n_out


@njit(cache=True, nogil=True)
def _add_entries(
    row: FloatArray,
    begin: int,
    end: int,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    first: int,
) -> None:
    """row += Σ values[e] · dense[columns[e] - first] over entries begin..end-1, in their order.

    Four at a time: a core then waits for four rows from memory at once, and reads `row` a
    quarter as often. The sums are those of one at a time to the last bit.
    """
    flat, width = dense.reshape(-1), len(row)
    whole, entry = width - width % LANES, begin
    while entry + 4 <= end:
        a, b = (columns[entry] - first) * width, (columns[entry + 1] - first) * width
        c, d = (columns[entry + 2] - first) * width, (columns[entry + 3] - first) * width
        of_a, of_b, of_c, of_d = values[entry : entry + 4]
        for j in range(0, whole, LANES):
            add_scaled(row, j, of_a, flat, a + j)
            add_scaled(row, j, of_b, flat, b + j)
            add_scaled(row, j, of_c, flat, c + j)
            add_scaled(row, j, of_d, flat, d + j)
        for j in range(whole, width):
            row[j] = (
                row[j] + of_a * flat[a + j] + of_b * flat[b + j] + of_c * flat[c + j]
                + of_d * flat[d + j]
            )  # fmt: skip
        entry += 4
    for last in range(entry, end):
        value, at = values[last], (columns[last] - first) * width
        for j in range(0, whole, LANES):
            add_scaled(row, j, value, flat, at + j)
        for j in range(whole, width):
            row[j] += value * flat[at + j]


@njit(cache=True, nogil=True)
def multiply_rows(
    start: int,
    stop: int,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    out: FloatArray,
) -> None:
    """out[start:stop] = the rows start..stop-1 of the sparse matrix times `dense`."""
    for r in range(start, stop):
        out[r] = 0
        _add_entries(out[r], indptr[r], indptr[r + 1], columns, values, dense, ZERO)


@njit(cache=True, nogil=True)
def _reaching(column: int, columns: IntArray, begin: int, end: int) -> int:
    """The first entry of begin..end-1, which ascend, at or above a column; `end` if none is."""
    while begin < end:
        middle = (begin + end) // 2
        if columns[middle] < column:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(cache=True, nogil=True)
def add_part(
    start: int,
    stop: int,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    part: FloatArray,
    first: int,
    out: FloatArray,
) -> None:
    """out[start:stop] += the product with a matrix of which `part` holds the rows from `first` on.

    Columns ascend in each row, so that the parts, taken from the first to the last, add up to
    what `multiply_rows` gives, bit for bit. The part from 0 on starts the sums.
    """
    last = first + len(part)
    for r in range(start, stop):
        if first == 0:
            out[r] = 0
        begin = _reaching(first, columns, indptr[r], indptr[r + 1])
        end = _reaching(last, columns, begin, indptr[r + 1])
        _add_entries(out[r], begin, end, columns, values, part, first)


@njit(cache=True, nogil=True)
def multiply_transposed(
    start: int,
    stop: int,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    out: FloatArray,
) -> None:
    """out[:, start:stop] += those columns of the sparse matrix's transpose times `dense`.

    Threads share the work by columns of `dense`, so that none writes where another does.
    """
    flat, width = out.reshape(-1), out.shape[1]
    whole = stop - (stop - start) % LANES
    for r in range(len(indptr) - 1):
        row = dense[r]
        for entry in range(indptr[r], indptr[r + 1]):
            value, at = values[entry], columns[entry] * width
            for j in range(start, whole, LANES):
                add_scaled(flat, at + j, value, row, j)
            for j in range(whole, stop):
                flat[at + j] += value * row[j]


@njit(cache=True, nogil=True)
def multiply_sparse_rows(
    start: int,
    stop: int,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    other_indptr: IntArray,
    other_columns: IntArray,
    other_values: FloatArray,
    out: FloatArray,
) -> None:
    """As `multiply_rows`, the other matrix being sparse too."""
    for r in range(start, stop):
        row = out[r]
        row[:] = 0
        for entry in range(indptr[r], indptr[r + 1]):
            value, u = values[entry], columns[entry]
            for other in range(other_indptr[u], other_indptr[u + 1]):
                row[other_columns[other]] += value * other_values[other]


def sparse_times_dense(
    indptr: IntArray, columns: IntArray, values: FloatArray, dense: FloatArray
) -> FloatArray:
    """(s, d) float32: the (s, k) CSR matrix times `dense` (k, d) float32, rows contiguous."""
    out = np.empty((len(indptr) - 1, dense.shape[1]), np.float32)
    _share_rows(
        lambda a, b: multiply_rows(a, b, indptr, columns, values, dense, out),
        indptr,
        len(values) * dense.shape[1],
    )
    return out


def sorted_times_dense(
    indptr: IntArray, columns: IntArray, values: FloatArray, dense: FloatArray
) -> FloatArray:
    """`sparse_times_dense` of a matrix whose columns ascend in each row, bit for bit.

    Where `dense` is larger than a cache, it is taken in parts that are not.
    """
    rows, parts = len(indptr) - 1, -(-dense.nbytes // _PART_BYTES)
    if len(values) < _ENTRIES_A_PART * parts * rows:
        parts = 1
    out = np.empty((rows, dense.shape[1]), np.float32)
    step = max(-(-len(dense) // max(parts, 1)), 1)
    for first in range(0, max(len(dense), 1), step):
        add_part_product(indptr, columns, values, dense[first : first + step], first, out)
    return out


def add_part_product(
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    part: FloatArray,
    first: int,
    out: FloatArray,
) -> None:
    """out (s, d) += the (s, k) CSR matrix times a dense (k, d) matrix of which `part` holds rows.

    They are those from `first` on. Parts come in order, and that from 0 on sets `out`.

    Columns must ascend in each row, unless the part is the whole.
    """
    _share_rows(
        lambda a, b: add_part(a, b, indptr, columns, values, part, first, out),
        indptr,
        int(indptr[-1] - indptr[0]) * out.shape[1],
    )


def sparse_times_sparse(
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    other_indptr: IntArray,
    other_columns: IntArray,
    other_values: FloatArray,
    out: FloatArray,
) -> None:
    """out (s, d) float32, dense = the (s, k) CSR matrix times a (k, d) CSR matrix."""
    other = other_indptr, other_columns, other_values
    entries = int(indptr[-1] - indptr[0])
    _share_rows(
        lambda a, b: multiply_sparse_rows(a, b, indptr, columns, values, *other, out),
        indptr,
        entries * len(other_values) // max(len(other_indptr) - 1, 1) + out.size,
    )


def _share_rows(work: Callable[[int, int], None], indptr: IntArray, multiplications: int) -> None:
    """Do all rows, on several threads where that pays, in pieces of about equally many entries."""
    rows = len(indptr) - 1
    if multiplications < _WORTH_SHARING:
        work(0, rows)
        return
    # More pieces than threads, so that a thread with light rows takes another.
    shares = np.linspace(indptr[0], indptr[-1] + rows, 8 * torch.get_num_threads() + 1)
    over_ranges(work, np.searchsorted(indptr + np.arange(rows + 1), shares))


def transposed_times_dense(
    indptr: IntArray, columns: IntArray, values: FloatArray, dense: FloatArray, k: int
) -> FloatArray:
    """(k, d) float32: the transpose of the (s, k) CSR matrix times `dense` (s, d) float32."""
    width = dense.shape[1]
    out = np.zeros((k, width), np.float32)
    if len(values) * width < _WORTH_SHARING:
        multiply_transposed(0, width, indptr, columns, values, dense, out)
    else:
        over_ranges(
            lambda a, b: multiply_transposed(a, b, indptr, columns, values, dense, out),
            np.linspace(0, width, torch.get_num_threads() + 1).astype(np.int64),
        )
    return out
