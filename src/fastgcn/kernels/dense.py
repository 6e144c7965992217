"""Dense products on the CPU by numpy's BLAS, on the threads of `over_ranges`.

For tall matrices with few columns, numpy's BLAS takes a fifth to a half of torch's time. Its own
threads are not used: they keep their cores busy for milliseconds after each call. So BLAS should
be limited to one thread (`machine.one_thread`). Matrices are cut in the same way on any number of
threads, and so the results are the same.
"""

import numpy as np

from fastgcn.arrays import FloatArray
from fastgcn.machine import cuts, over_ranges

# Below this many multiplications, waking a second thread costs more time than it saves.
_WORTH_SHARING = 1 << 22

_ROWS = 1024  # of a product that a thread makes at a time
_LONG = 4096  # rows of a transposed product whose sums are made at a time
_WIDE = 128  # rows of its result that a thread makes at a time


def times(a: FloatArray, b: FloatArray) -> FloatArray:
    """(s, d) float32: a (s, k) times b (k, d)."""
    if a.size * b.shape[1] < _WORTH_SHARING:
        return _product(a, b)
    out = np.empty((len(a), b.shape[1]), np.float32)

    def multiply(start: int, stop: int) -> None:
        _product(a[start:stop], b, out[start:stop])

    over_ranges(multiply, cuts(len(a), _ROWS))
    return out


def transposed_times(a: FloatArray, b: FloatArray) -> FloatArray:
    """(k, d) float32: the transpose of a (s, k) times b (s, d)."""
    (rows, width), columns = a.shape, b.shape[1]
    if a.size * columns < _WORTH_SHARING:
        return _product(a.T, b)
    if width >= 4 * _WIDE:
        out = np.empty((width, columns), np.float32)

        def multiply(start: int, stop: int) -> None:
            _product(a[:, start:stop].T, b, out[start:stop])

        over_ranges(multiply, cuts(width, _WIDE))
        return out
    bounds = cuts(rows, _LONG)
    sums = np.empty((len(bounds) - 1, width, columns), np.float32)

    def add(start: int, stop: int) -> None:
        _product(a[start:stop].T, b[start:stop], sums[start // _LONG])

    over_ranges(add, bounds)
    total: FloatArray = sums.sum(axis=0)
    return total


def _product(a: FloatArray, b: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """ab; an overflow is no warning here: the loss that it leads to is checked."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.matmul(a, b, out=out)
