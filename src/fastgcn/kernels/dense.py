"""Dense products on the CPU by numpy's BLAS, on the threads of `over_ranges`.

For tall matrices with few columns, numpy's BLAS takes a fifth to a half of torch's time. Its own
threads are not used: they keep their cores busy for milliseconds after each call. So BLAS should
be limited to one thread (`machine.one_thread`). Matrices are cut in the same way on any number of
threads, and so the results are the same.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from fastgcn.arrays import FloatArray
from fastgcn.machine import cuts, over_ranges

# Below this many multiplications, waking a second thread costs more time than it saves.
_WORTH_SHARING = 1 << 22

# Multiplications that a thread makes at a time, and the fewest rows (with fewer, BLAS is slower)
# and the most (they should stay in a cache). Ranges begin at multiples of four, as one draw decides
# four entries of a dropout mask.
_AT_A_TIME = 1 << 23
_FEWEST, _MOST = 64, 1024
_PARTS = 32  # sums of a transposed product that are made apart, at most
_WIDE = 128  # rows of its result that a thread makes at a time

Pair = tuple[FloatArray, FloatArray]


def times(a: FloatArray, b: FloatArray) -> FloatArray:
    """(s, d) float32: a (s, k) times b (k, d)."""
    if a.size * b.shape[1] < _WORTH_SHARING:
        return _product(a, b)
    out = np.empty((len(a), b.shape[1]), np.float32)
    put_products(out, [(a, b)])
    return out


def put_products(
    out: FloatArray,
    pairs: Sequence[Pair],
    *,
    adds: bool = False,
    then: Callable[[int, int], None] | None = None,
) -> None:
    """out (s, d) = the sum of a·b of all pairs; with `adds`, that is added to `out`.

    The first a has s rows; others may have fewer, and add to the first rows of `out`. `then` is
    called with each range of rows when they are done, on the thread that made them.
    """
    of_a_row = sum(b.size for _, b in pairs)

    def make(start: int, stop: int) -> None:
        for number, (a, b) in enumerate(pairs):
            end = min(stop, len(a))
            if number == 0 and not adds:
                _product(a[start:stop], b, out[start:stop])
            elif start < end:
                with quiet():
                    out[start:end] += _product(a[start:end], b)
        if then is not None:
            then(start, stop)

    in_ranges(make, len(out), of_a_row)


def in_ranges(work: Callable[[int, int], None], rows: int, of_a_row: int) -> None:
    """Call `work` with ranges of rows that depend on sizes alone, on several threads if that pays.

    A row takes `of_a_row` multiplications, or so many times as long as one.
    """
    length = max(_FEWEST, min(_MOST, _AT_A_TIME // max(of_a_row, 1) // 4 * 4))
    bounds = cuts(rows, length)
    if rows * of_a_row < _WORTH_SHARING:
        for start, stop in pairwise(bounds):
            work(start, stop)
    else:
        over_ranges(work, bounds)


def transposed_times(a: FloatArray, b: FloatArray) -> FloatArray:
    """(k, d) float32: the transpose of a (s, k) times b (s, d)."""
    (product,) = transposed_products([(a, b)])
    return product


def transposed_products(pairs: Sequence[Pair]) -> list[FloatArray]:
    """aᵀb of each pair, on threads that share the work of all of them."""
    tasks: list[Callable[[], object]] = []
    found = [_TransposedProduct(a, b, tasks) for a, b in pairs]
    if sum(a.size * b.shape[1] for a, b in pairs) < _WORTH_SHARING:
        for task in tasks:
            task()
    else:

        def do(number: int, _: int) -> None:
            tasks[number]()

        over_ranges(do, range(len(tasks) + 1))
    return [each.sum() for each in found]


class _TransposedProduct:
    """aᵀb, cut into tasks: some rows of a wide result, or the sums over some rows of a and b."""

    def __init__(self, a: FloatArray, b: FloatArray, tasks: list[Callable[[], object]]) -> None:
        (rows, width), columns = a.shape, b.shape[1]
        small = a.size * columns < _WORTH_SHARING
        if width >= 4 * _WIDE and not small:
            self.parts = np.empty((1, width, columns), np.float32)
            tasks += [
                partial(_product, a[:, start:stop].T, b, self.parts[0, start:stop])
                for start, stop in pairwise(cuts(width, _WIDE))
            ]
            return
        length = max(_FEWEST, _AT_A_TIME // max(width * columns, 1), -(-rows // _PARTS))
        bounds = [0, rows] if small else cuts(rows, length)
        self.parts = np.empty((len(bounds) - 1, width, columns), np.float32)
        tasks += [
            partial(_product, a[start:stop].T, b[start:stop], part)
            for (start, stop), part in zip(pairwise(bounds), self.parts, strict=True)
        ]

    def sum(self) -> FloatArray:
        with quiet():
            total: FloatArray = self.parts[0] if len(self.parts) == 1 else self.parts.sum(axis=0)
        return total


def quiet() -> np.errstate:
    """Without numpy's warnings of an overflow: the loss that it leads to is checked."""
    return np.errstate(over="ignore", invalid="ignore")


def _product(a: FloatArray, b: FloatArray, out: FloatArray | None = None) -> FloatArray:
    with quiet():
        return np.matmul(a, b, out=out)
