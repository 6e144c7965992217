"""Dense products on the CPU by numpy's BLAS, on the threads of `over_claims`.

For tall matrices with few columns, numpy's BLAS takes a fifth to a half of torch's time. Its own
threads are not used: they keep their cores busy for milliseconds after each call. So BLAS should
be limited to one thread (`machine.one_thread`). Matrices are cut in the same way on any number of
threads, and so the results are the same.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.blas import multiply, sgemm_address
from fastgcn.kernels.claims import claim, end_piece, over_claims
from fastgcn.kernels.products import ZERO
from fastgcn.machine import cuts, pool_threads

# Below this many multiplications, some fifth of a millisecond, products are not shared. So small
# graphs compile no kernel for them.
_WORTH_SHARING = 1 << 24

# Multiplications that a thread makes at a time, and the fewest rows (with fewer, BLAS is slower)
# and the most (they should stay in a cache). Pieces begin at multiples of four, as one draw decides
# four entries of a dropout mask.
_AT_A_TIME = 1 << 22
_FEWEST, _MOST = 64, 1024
_TURNED_AT_A_TIME = 1 << 23
_PARTS = 32  # sums of a transposed product that are made apart, at most
_WIDE = 128  # rows of its result that a thread makes at a time

Pair = tuple[FloatArray, FloatArray]

# A pair for compiled code: a and b, flat, and whether b is stored transposed.
Flat = tuple[FloatArray, FloatArray, bool]
_NO_FLOATS = np.empty(0, np.float32)
_NO_PAIR: Flat = (_NO_FLOATS, _NO_FLOATS, False)


def times(a: FloatArray, b: FloatArray) -> FloatArray:
    """(s, d) float32: a (s, k) times b (k, d)."""
    out = np.empty((len(a), b.shape[1]), np.float32)
    put_products(out, [(a, b)])
    return out


def put_products(out: FloatArray, pairs: Sequence[Pair], *, adds: bool = False) -> None:
    """out (s, d) = the sum of a·b of one or two pairs; with `adds`, that is added to `out`.

    The first a has s rows; another may have fewer, and adds to the first rows of `out`.
    """
    of_a_row = sum(int(b.size) for _, b in pairs)
    if _alone(len(out) * of_a_row):
        put_products_reference(out, pairs, adds=adds, length=piece_length(of_a_row))
        return
    assert out.flags.c_contiguous
    products, flat, width = flat_pairs(pairs), out.reshape(-1), out.shape[1]
    in_pieces(
        lambda counter, length: _put(counter, length, sgemm_address(), products, adds, width, flat),
        len(out),
        of_a_row,
    )


def put_products_reference(
    out: FloatArray, pairs: Sequence[Pair], *, adds: bool, length: int
) -> None:
    """`put_products` by numpy, in the same pieces; for one thread: nothing is compiled for it."""
    for start, stop in pairwise(cuts(len(out), length)):
        for number, (a, b) in enumerate(pairs):
            end = min(stop, len(a))
            with quiet():
                if number == 0 and not adds:
                    np.matmul(a[start:stop], b, out=out[start:stop])
                elif start < end:
                    out[start:end] += a[start:end] @ b


def _alone(multiplications: int) -> bool:
    return multiplications < _WORTH_SHARING or pool_threads() == 1


def flat_pairs(pairs: Sequence[Pair]) -> tuple[Flat, Flat]:
    """At most two pairs for compiled code."""
    first, second = [*(_flat(*pair) for pair in pairs), _NO_PAIR, _NO_PAIR][:2]
    return first, second


def _flat(a: FloatArray, b: FloatArray) -> Flat:
    turned = b.T.flags.c_contiguous and not b.flags.c_contiguous
    return np.ascontiguousarray(a).reshape(-1), (b.T if turned else b).reshape(-1), turned


@njit(cache=True, nogil=True, inline="always")
def fill_rows(
    sgemm: int,
    start: int,
    stop: int,
    products: tuple[Flat, Flat],
    adds: bool,
    width: int,
    out: FloatArray,
) -> None:
    """Rows start..stop-1 of out, flat, = the sum of the products, or += with `adds`."""
    for a, b, turned in products:
        inner = len(b) // width
        end = stop if len(a) == 0 and not adds else min(stop, len(a) // max(inner, 1))
        if start < end:
            multiply(
                sgemm, (end - start, inner, width), a, start * inner, inner, False, b, ZERO,
                turned, adds, out, start * width,
            )  # fmt: skip
        adds = True


@njit(cache=True, nogil=True)
def _put(
    counter: IntArray,
    length: int,
    sgemm: int,
    products: tuple[Flat, Flat],
    adds: bool,
    width: int,
    out: FloatArray,
) -> None:
    rows = len(out) // width
    start = claim(counter, length)
    while start < rows:
        fill_rows(sgemm, start, min(start + length, rows), products, adds, width, out)
        end_piece(counter)
        start = claim(counter, length)


def in_pieces(work: Callable[[IntArray, int], None], rows: int, of_a_row: int) -> None:
    """Call work(counter, length) on several threads if that pays, to claim `length` rows at a time.

    A row takes `of_a_row` multiplications, or so many times as long as one. The length depends on
    sizes alone.
    """
    length = piece_length(of_a_row)
    if _alone(rows * of_a_row):
        work(np.zeros(2, np.int64), length)
    else:
        over_claims(lambda counter: work(counter, length), -(-rows // length))


def piece_length(of_a_row: int) -> int:
    """Rows that a thread claims at a time."""
    return max(_FEWEST, min(_MOST, _AT_A_TIME // max(of_a_row, 1) // 4 * 4))


def transposed_times(a: FloatArray, b: FloatArray) -> FloatArray:
    """(k, d) float32: the transpose of a (s, k) times b (s, d)."""
    (product,) = transposed_products([(a, b)])
    return product


def transposed_products(pairs: Sequence[Pair]) -> list[FloatArray]:
    """aᵀb of one or two pairs, on threads that share the work of both."""
    plans = [_TransposedProduct(a, b) for a, b in pairs]
    if _alone(sum(a.size * b.shape[1] for a, b in pairs)):
        for plan, (a, b) in zip(plans, pairs, strict=True):
            plan.put_reference(a, b)
        return [plan.sum() for plan in plans]
    first, second = [*(plan.flat for plan in plans), _NO_TASKS][:2]
    tasks = sum(plan.tasks for plan in plans)

    def work(counter: IntArray) -> None:
        _add_tasks(counter, sgemm_address(), (first, second), tasks)

    over_claims(work, tasks)
    return [plan.sum() for plan in plans]


# A transposed product for compiled code: a and b, flat; the width of a; the rows and the columns of
# a that a task multiplies; and the results, flat, one after the other.
Tasks = tuple[FloatArray, FloatArray, int, int, int, FloatArray]
_NO_TASKS: Tasks = (_NO_FLOATS, _NO_FLOATS, 0, 1, 1, _NO_FLOATS)


class _TransposedProduct:
    """aᵀb, cut into tasks: some rows of a wide result, or the sums over some rows of a and b."""

    def __init__(self, a: FloatArray, b: FloatArray) -> None:
        (rows, width), columns = a.shape, b.shape[1]
        length, across = max(rows, 1), max(width, 1)
        if a.size * columns >= _WORTH_SHARING:
            if width >= 4 * _WIDE:
                across = _WIDE
            else:
                most = _TURNED_AT_A_TIME // max(width * columns, 1)
                length = max(_FEWEST, most, -(-rows // _PARTS))
        parts = max(1, -(-rows // length))
        self.tasks = parts * -(-width // across) if rows else 0
        make = np.empty if self.tasks else np.zeros
        self.parts = make((parts, width, columns), np.float32)
        flat = (np.ascontiguousarray(each).reshape(-1) for each in (a, b))
        self.flat: Tasks = (*flat, width, length, across, self.parts.reshape(-1))

    def put_reference(self, a: FloatArray, b: FloatArray) -> None:
        """All tasks by numpy; for one thread, as nothing is compiled for it."""
        length = self.flat[3]
        for number, part in enumerate(self.parts):
            rows = slice(number * length, (number + 1) * length)
            with quiet():
                np.matmul(a[rows].T, b[rows], out=part)

    def sum(self) -> FloatArray:
        with quiet():
            total: FloatArray = self.parts[0] if len(self.parts) == 1 else self.parts.sum(axis=0)
        return total


@njit(cache=True, nogil=True)
def _add_tasks(counter: IntArray, sgemm: int, pairs: tuple[Tasks, Tasks], tasks: int) -> None:
    """Claim and do the tasks of two transposed products, numbered one after the other."""
    task = claim(counter, 1)
    while task < tasks:
        number = task
        for a, b, width, length, across, out in pairs:
            rows, wide = len(a) // max(width, 1), -(-width // across)
            count = wide * -(-rows // length)
            if 0 <= number < count:
                part, columns = number // wide, len(b) // rows
                row, first = part * length, number % wide * across
                shape = min(across, width - first), min(length, rows - row), columns
                multiply(
                    sgemm, shape, a, row * width + first, width, True, b, row * columns, False,
                    False, out, (part * width + first) * columns,
                )  # fmt: skip
            number -= count
        end_piece(counter)
        task = claim(counter, 1)


def quiet() -> np.errstate:
    """Without numpy's warnings of an overflow: the loss that it leads to is checked."""
    return np.errstate(over="ignore", invalid="ignore")
