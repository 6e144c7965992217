"""Sparse times dense on the CPU, also transposed, on the threads of `over_ranges`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.blas import LANES, add_scaled
from fastgcn.kernels.claims import claim, end_piece, over_claims
from fastgcn.machine import pool_threads

# Below this many multiplications and numbers written, waking a second thread costs more time than
# it saves; and those that a thread makes at a time, at least.
_WORTH_SHARING = 1 << 21
_AT_A_TIME = 1 << 20

# Entries that are looked at to divide all of them among threads.
_LOOKED_AT = 1 << 14

# Bytes of a part of a dense matrix that stays in the cache while all sparse rows use it, and the
# entries in a part that a row must have, on average, to make up for writing its sums again.
_PART_BYTES = 1 << 24
_ENTRIES_A_PART = 3

# The order of entries that are in order.
IN_ORDER = np.empty(0, np.int64)

# Zero as an argument of a compiled function: a plain 0 has another type, for which the function
# would be compiled again.
ZERO: Any = np.int64(0)


def mixing_first_pays(entries: Any, rows: int, sources: Any, n_in: int, n_out: int) -> Any:
    """True if (ÂH)W takes fewer multiplications than Â(HW), for a sparse (rows, sources) Â.

    For one Â, or for arrays of `entries` and `sources` of many.

    >>> mixing_first_pays(entries=10, rows=5, sources=100, n_in=8, n_out=8)
    True
    """
    return entries * n_in + rows * n_in * n_out < sources * n_in * n_out + entries * n_out


@njit(cache=True, nogil=True)
def add_entries(
    out: FloatArray,
    at: int,
    width: int,
    begin: int,
    end: int,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    shift: int,
) -> None:
    """out[at : at + width] += Σ values[e] · (row columns[e] of `dense`) over entries begin..end-1.

    Arrays are flat; row u of `dense` begins at shift + u·width. Entries are added in order, four
    at a time: a core then waits for four rows from memory at once, and reads `out` a quarter as
    often. The sums are bit for bit those of one entry at a time.
    """
    row, whole, entry = out[at : at + width], width - width % LANES, begin
    while entry + 4 <= end:
        a, b = columns[entry] * width + shift, columns[entry + 1] * width + shift
        c, d = columns[entry + 2] * width + shift, columns[entry + 3] * width + shift
        of_a, of_b, of_c, of_d = (
            values[entry], values[entry + 1], values[entry + 2], values[entry + 3]
        )  # fmt: skip
        for j in range(0, whole, LANES):
            add_scaled(row, j, of_a, dense, a + j)
            add_scaled(row, j, of_b, dense, b + j)
            add_scaled(row, j, of_c, dense, c + j)
            add_scaled(row, j, of_d, dense, d + j)
        for j in range(whole, width):
            row[j] = (
                row[j] + of_a * dense[a + j] + of_b * dense[b + j] + of_c * dense[c + j]
                + of_d * dense[d + j]
            )  # fmt: skip
        entry += 4
    for last in range(entry, end):
        value, start = values[last], columns[last] * width + shift
        for j in range(0, whole, LANES):
            add_scaled(row, j, value, dense, start + j)
        for j in range(whole, width):
            row[j] += value * dense[start + j]


@njit(cache=True, nogil=True)
def _reaching(column: int, columns: IntArray, begin: int, end: int) -> int:
    """The first of the ascending entries begin..end-1 at or above `column`; `end` if none is."""
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
    last: int,
    width: int,
    sets: bool,
    out: FloatArray,
) -> None:
    """Rows start..stop-1 of out += those of the sparse matrix times a dense one, of which `part`
    holds the rows first..last-1; both are flat, with rows of `width`.

    Columns must ascend in each row, unless `part` is the whole. Parts in order then add up to
    the product with the whole, bit for bit. With `sets`, the part overwrites `out` instead of
    adding to it.
    """
    for r in range(start, stop):
        if sets:
            for j in range(r * width, (r + 1) * width):
                out[j] = 0
        begin = _reaching(first, columns, indptr[r], indptr[r + 1])
        end = _reaching(last, columns, begin, indptr[r + 1])
        add_entries(out, r * width, width, begin, end, columns, values, part, -first * width)


@njit(cache=True, nogil=True)
def _add_parts(
    counter: IntArray,
    bounds: IntArray,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    part: FloatArray,
    first: int,
    last: int,
    width: int,
    sets: bool,
    out: FloatArray,
) -> None:
    """`add_part` for ranges of rows that are claimed one after the other."""
    i = claim(counter, 1)
    while i < len(bounds) - 1:
        add_part(
            bounds[i], bounds[i + 1], indptr, columns, values, part, first, last, width, sets, out
        )
        end_piece(counter)
        i = claim(counter, 1)


@njit(cache=True, nogil=True)
def multiply_transposed(
    indptr: IntArray,
    first: int,
    rows: int,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    shift: int,
    width: int,
    out: FloatArray,
    at: int,
) -> None:
    """out[at:] += the transpose of rows first..first+rows-1 of the sparse matrix times
    dense[shift:], which has a row for each; both flat, of `width` columns."""
    whole = width - width % LANES
    for r in range(rows):
        row = shift + r * width
        for entry in range(indptr[first + r], indptr[first + r + 1]):
            value, place = values[entry], columns[entry] * width + at
            if value == 0:  # dropout has zeroed it
                continue
            for j in range(0, whole, LANES):
                add_scaled(out, place + j, value, dense, row + j)
            for j in range(whole, width):
                out[place + j] += value * dense[row + j]


@njit(cache=True, nogil=True)
def multiply_transposed_ranges(
    counter: IntArray,
    bounds: IntArray,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    width: int,
    out: FloatArray,
) -> None:
    """`multiply_transposed` of the whole, flat: rows bounds[i]..bounds[i+1]-1 of `out` at a time,
    which are claimed from `counter`.

    Each range reads all columns and adds the entries that are its own.
    """
    whole, number = width - width % LANES, claim(counter, 1)
    while number < len(bounds) - 1:
        first, last = bounds[number], bounds[number + 1]
        for i in range(first * width, last * width):
            out[i] = 0
        for r in range(len(indptr) - 1):
            row = r * width
            for entry in range(indptr[r], indptr[r + 1]):
                u = np.int64(columns[entry])
                if u < first or u >= last:
                    continue
                value, place = values[entry], u * width
                if value == 0:
                    continue
                for j in range(0, whole, LANES):
                    add_scaled(out, place + j, value, dense, row + j)
                for j in range(whole, width):
                    out[place + j] += value * dense[row + j]
        end_piece(counter)
        number = claim(counter, 1)


@njit(cache=True, nogil=True)
def multiply_sparse_rows(
    counter: IntArray,
    bounds: IntArray,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    other_indptr: IntArray,
    other_columns: IntArray,
    other_values: FloatArray,
    out: FloatArray,
) -> None:
    """out = the sparse matrix times another sparse one, for ranges of rows that are claimed."""
    i = claim(counter, 1)
    while i < len(bounds) - 1:
        for r in range(bounds[i], bounds[i + 1]):
            row = out[r]
            row[:] = 0
            for entry in range(indptr[r], indptr[r + 1]):
                value, u = values[entry], columns[entry]
                for other in range(other_indptr[u], other_indptr[u + 1]):
                    row[other_columns[other]] += value * other_values[other]
        end_piece(counter)
        i = claim(counter, 1)


def sparse_times_dense(
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    out: FloatArray | None = None,
) -> FloatArray:
    """(s, d) float32: the (s, k) CSR matrix times `dense` (k, d) float32, rows contiguous; in `out`
    if it is given."""
    out = np.empty((len(indptr) - 1, dense.shape[1]), np.float32) if out is None else out
    add_part_product(indptr, columns, values, dense, 0, out)
    return out


def sorted_times_dense(
    indptr: IntArray, columns: IntArray, values: FloatArray, dense: FloatArray
) -> FloatArray:
    """`sparse_times_dense` of a matrix whose columns ascend in each row, bit for bit.

    If `dense` is larger than a cache, it is used in parts that fit.
    """
    rows, parts = len(indptr) - 1, -(-dense.nbytes // _PART_BYTES)
    if len(values) < _ENTRIES_A_PART * parts * rows:
        parts = 1
    columns, out = _narrow(columns), np.empty((rows, dense.shape[1]), np.float32)
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
    *,
    sets: bool | None = None,
) -> None:
    """out (s, d) += the (s, k) CSR matrix times a dense (k, d) matrix of which `part` holds rows.

    They are the rows from `first` on. Parts must come in order; the part from 0 on overwrites
    `out`, unless `sets` says otherwise.

    Columns must ascend in each row, unless the part is the whole.
    """
    fresh, last, width = first == 0 if sets is None else sets, first + len(part), out.shape[1]
    assert out.flags.c_contiguous
    columns, flat, into = _narrow(columns), part.reshape(-1), out.reshape(-1)
    _share_rows(
        lambda counter, bounds: _add_parts(
            counter, bounds, indptr, columns, values, flat, first, last, width, fresh, into
        ),
        indptr,
        (int(indptr[-1] - indptr[0]) + len(indptr)) * width,
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
        lambda counter, bounds: multiply_sparse_rows(
            counter, bounds, indptr, columns, values, *other, out
        ),
        indptr,
        entries * len(other_values) // max(len(other_indptr) - 1, 1) + out.size,
    )


def _narrow(columns: IntArray) -> IntArray:
    """As int32 if they fit, as in Â: for another type, loops would be compiled again."""
    if columns.dtype == np.int32 or columns.max(initial=0) >= 1 << 31:
        return columns
    return columns.astype(np.int32)


def _share_rows(
    work: Callable[[IntArray, IntArray], None], indptr: IntArray, multiplications: int
) -> None:
    """Call work(counter, bounds) on several threads if that is faster, to claim all rows in ranges
    of about equally many entries."""
    rows, threads = len(indptr) - 1, pool_threads()
    if multiplications < _WORTH_SHARING or threads == 1:
        work(np.zeros(2, np.int64), np.array([0, rows]))
        return
    # More pieces than threads, so that a thread with light rows takes another.
    pieces = max(2, min(4 * threads, multiplications // _AT_A_TIME))
    shares = np.linspace(indptr[0], indptr[-1] + rows, pieces + 1)
    bounds = np.searchsorted(indptr + np.arange(rows + 1), shares)
    over_claims(lambda counter: work(counter, bounds), pieces)


def turn(indptr: IntArray, columns: IntArray, k: int) -> tuple[IntArray, IntArray, IntArray]:
    """The transpose of an (s, k) CSR matrix: its offsets (k+1,) and rows (m,), and for each of its
    entries the position of that entry in the matrix (m,). Rows ascend."""
    places = np.arange(len(columns))
    turned = csr_array((places, columns, indptr), shape=(len(indptr) - 1, k)).tocsc()
    return turned.indptr.astype(np.int64), _narrow(turned.indices), turned.data


@njit(cache=True, nogil=True)
def add_nonzero(
    counter: IntArray,
    bounds: IntArray,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    order: IntArray,
    dense: FloatArray,
    width: int,
    out: FloatArray,
) -> None:
    """out = the sparse matrix times `dense`, without its zeros, for ranges of rows that are
    claimed.

    `out` and `dense` are flat, with rows of `width`. Entry e has the value values[order[e]], if
    `order` is not empty.
    """
    most = 0
    for r in range(len(indptr) - 1):
        most = max(most, indptr[r + 1] - indptr[r])
    kept, found = np.empty(most, np.int32), np.empty(most, np.float32)
    i = claim(counter, 1)
    while i < len(bounds) - 1:
        for r in range(bounds[i], bounds[i + 1]):
            at: Any = np.uint64(0)
            for entry in range(np.uint64(indptr[r]), np.uint64(indptr[r + 1])):
                value = values[np.uint64(order[entry]) if len(order) > 0 else entry]
                kept[at], found[at] = columns[entry], value
                at += np.uint64(value != 0)  # no branch: it would be mispredicted half the time
            for j in range(r * width, (r + 1) * width):
                out[j] = 0
            end: Any = np.int64(at)
            add_entries(out, r * width, width, 0, end, kept, found, dense, 0)
        end_piece(counter)
        i = claim(counter, 1)


def nonzero_times_dense(
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    dense: FloatArray,
    order: IntArray = IN_ORDER,
    out: FloatArray | None = None,
) -> FloatArray:
    """`sparse_times_dense`, leaving out zeros; entry e has the value values[order[e]]."""
    out = np.empty((len(indptr) - 1, dense.shape[1]), np.float32) if out is None else out
    columns, flat, into, width = _narrow(columns), dense.reshape(-1), out.reshape(-1), out.shape[1]
    _share_rows(
        lambda counter, bounds: add_nonzero(
            counter, bounds, indptr, columns, values, order, flat, width, into
        ),
        indptr,
        (len(columns) + len(indptr)) * width,
    )
    return out


class Transpose:
    """Where the entries of an (s, k) CSR matrix stand in its transpose; found at most once.

    Matrices that differ in their values alone can share it.
    """

    __slots__ = ("_found", "_used")

    def __init__(self) -> None:
        self._found: tuple[IntArray, IntArray, IntArray] | None = None
        self._used = False

    def find(self, indptr: IntArray, columns: IntArray, k: int) -> None:
        """Make the transpose, unless it is there."""
        if self._found is None:
            self._found = turn(indptr, _narrow(columns), k)

    def times(
        self,
        indptr: IntArray,
        columns: IntArray,
        values: FloatArray,
        dense: FloatArray,
        k: int,
        out: FloatArray | None = None,
    ) -> FloatArray:
        """(k, d) float32: the transpose of the matrix times `dense` (s, d) float32; in `out` if it
        is given.

        If the result has at most half as many rows as `dense`, each of which is read many times by
        its transpose, `dense` is read once and the result stays in the cache: two to four times as
        fast. Otherwise the transpose itself is made on second use, unless it is there. All ways
        have the same sums, bit for bit.
        """
        width, columns, threads = dense.shape[1], _narrow(columns), pool_threads()
        small = 2 * k <= len(dense)
        if self._used and not small:
            self.find(indptr, columns, k)
        self._used = True
        if self._found is not None and not small:
            offsets, rows, order = self._found
            return nonzero_times_dense(offsets, rows, values, dense, order, out)
        out = np.empty((k, width), np.float32) if out is None else out
        flat, into = dense.reshape(-1), out.reshape(-1)
        if threads > 1 and (len(values) + k) * width >= _WORTH_SHARING:
            bounds = _even_ranges(columns, k, threads)
            over_claims(
                lambda counter: multiply_transposed_ranges(
                    counter, bounds, indptr, columns, values, flat, width, into
                ),
                threads,
            )
        else:
            out[:] = 0
            multiply_transposed(
                indptr, 0, len(indptr) - 1, columns, values, flat, 0, width, into, 0
            )
        return out


def _even_ranges(columns: IntArray, k: int, count: int) -> IntArray:
    """Bounds of ranges of columns 0..k-1 with about equally many entries, by some of them."""
    some = columns[:: len(columns) // _LOOKED_AT + 1]
    entries = np.cumsum(np.bincount(some, minlength=k) * (len(columns) / max(len(some), 1)) + 1)
    bounds = np.searchsorted(entries, np.linspace(0, entries[-1], count + 1)[1:-1])
    return np.array([0, *bounds, k])


def product_reference(matrix: csr_array, other: FloatArray | csr_array) -> FloatArray:
    """Sparse times sparse or dense, dense."""
    result = matrix @ other
    return np.asarray(result.toarray() if isinstance(result, csr_array) else result)
