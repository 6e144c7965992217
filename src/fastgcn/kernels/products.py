"""Sparse times dense on the CPU, both ways, on all threads that torch has been given."""

from collections.abc import Callable

import numpy as np
import torch
from numba import njit

from fastgcn.kernels.threads import over_ranges
from fastgcn.types import FloatArray, IntArray

# Multiplications below which a second thread costs more to wake than it saves.
_WORTH_SHARING = 1 << 21


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
    width = dense.shape[1]
    for r in range(start, stop):
        row = out[r]
        row[:] = 0
        for entry in range(indptr[r], indptr[r + 1]):
            value, other = values[entry], dense[columns[entry]]
            for j in range(width):
                row[j] += value * other[j]


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
    for r in range(len(indptr) - 1):
        row = dense[r]
        for entry in range(indptr[r], indptr[r + 1]):
            value, target = values[entry], out[columns[entry]]
            for j in range(start, stop):
                target[j] += value * row[j]


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


def sparse_times_sparse(
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    other_indptr: IntArray,
    other_columns: IntArray,
    other_values: FloatArray,
    width: int,
) -> FloatArray:
    """(s, width) float32, dense: the (s, k) CSR matrix times a (k, width) CSR matrix."""
    out = np.empty((len(indptr) - 1, width), np.float32)
    other = other_indptr, other_columns, other_values
    _share_rows(
        lambda a, b: multiply_sparse_rows(a, b, indptr, columns, values, *other, out),
        indptr,
        len(values) * len(other_values) // max(len(other_indptr) - 1, 1) + out.size,
    )
    return out


def _share_rows(work: Callable[[int, int], None], indptr: IntArray, multiplications: int) -> None:
    """Do all rows, on several threads where that pays, in pieces of about equally many entries."""
    rows = len(indptr) - 1
    if multiplications < _WORTH_SHARING:
        work(0, rows)
        return
    # More pieces than threads, so that a thread with light rows takes another.
    shares = np.linspace(0, indptr[-1] + rows, 8 * torch.get_num_threads() + 1)
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
