"""What lies between two layers: bias, layer norm, ReLU and dropout of a row, and the way back.

A range of rows begins at a multiple of four, as one draw decides four entries of a dropout mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.blas import sgemm_address
from fastgcn.kernels.claims import claim, end_piece
from fastgcn.kernels.counter_random import fill_mask
from fastgcn.kernels.dense import Flat, Pair, fill_rows, flat_pairs, in_pieces, piece_length, quiet

# An activated number takes about as long as so many multiplications of a dense product.
_OF_A_NUMBER = 16


@dataclass(frozen=True, slots=True)
class Activation:
    """dropout(ReLU(norm(z))): gain (d,) and shift (d,) of a layer norm, which are empty if there is
    none, and its ε; the seed of the dropout, how many of 2^16 values it drops and the others' value
    (see `mask_values`)."""

    gain: FloatArray
    shift: FloatArray
    epsilon: float
    seed: np.uint64
    dropped: int
    value: np.float32


def put_activated(
    activation: Activation,
    z: FloatArray,
    bias: FloatArray,
    scales: FloatArray,
    h: FloatArray,
    pairs: Sequence[Pair],
    *,
    adds: bool,
) -> None:
    """z (n, d) = the sum of products, as in `put_products`, + bias; h (n, d) = its activation.

    `bias` (d,) may be empty; `scales` (n, 2) takes each row's mean and 1/sd of a norm. z and h may
    be the same array if there is no norm.
    """
    of, products, flat = activation, flat_pairs(pairs), z.reshape(-1)
    in_pieces(
        lambda counter, length: _put_activated(
            counter, length, sgemm_address(), products, adds, flat, z, bias, of.gain, of.shift,
            of.epsilon, of.seed, of.dropped, of.value, scales, h,
        ),
        len(z),
        _work(pairs, z),
    )  # fmt: skip


def put_rectified(gain: FloatArray, shift: FloatArray, epsilon: float, z: FloatArray) -> None:
    """z (n, d) = ReLU(norm(z)), in its place: what evaluation needs of `put_activated`."""
    of = Activation(gain, shift, epsilon, np.uint64(0), 0, np.float32(1))
    scales = np.empty((len(z), 2), np.float32)
    put_activated(of, z, np.empty(0, np.float32), scales, z, [], adds=True)


def put_activated_back(
    activation: Activation,
    gradient: FloatArray,
    h: FloatArray,
    z: FloatArray,
    scales: FloatArray,
    pairs: Sequence[Pair],
    *,
    adds: bool,
) -> FloatArray:
    """gradient (n, d) = the sum of products, which is that by h, and then that by z, in its place.

    Returns (3, d): the gradients of bias, gain and shift; the last two only with a norm.
    """
    of, products, flat = activation, flat_pairs(pairs), gradient.reshape(-1)
    pieces = -(-len(h) // piece_length(_work(pairs, h)))
    sums = np.empty((pieces, 3, h.shape[1]), np.float32)
    in_pieces(
        lambda counter, length: _put_activated_back(
            counter, length, sgemm_address(), products, adds, flat, gradient, h, z, of.gain,
            of.value, scales, sums,
        ),
        len(h),
        _work(pairs, h),
    )  # fmt: skip
    with quiet():  # in the order of rows, whichever thread was first
        total: FloatArray = sums.sum(axis=0)
    return total


def _work(pairs: Sequence[Pair], rows: FloatArray) -> int:
    multiplications = sum(int(b.size) for _, b in pairs)
    return int(_OF_A_NUMBER * rows.shape[1] + multiplications)


@njit(cache=True, nogil=True, error_model="numpy")
def _put_activated(
    counter: IntArray,
    length: int,
    sgemm: int,
    products: tuple[Flat, Flat],
    adds: bool,
    flat: FloatArray,
    z: FloatArray,
    bias: FloatArray,
    gain: FloatArray,
    shift: FloatArray,
    epsilon: float,
    seed: np.uint64,
    dropped: int,
    value: np.float32,
    scales: FloatArray,
    h: FloatArray,
) -> None:
    rows, width = z.shape
    mask = np.empty(length * width if dropped > 0 else 0, np.float32)
    start = claim(counter, length)
    while start < rows:
        stop = min(start + length, rows)
        fill_rows(sgemm, start, stop, products, adds, width, flat)
        if dropped > 0:
            fill_mask(seed, start * width // 4, dropped, value, mask[: (stop - start) * width])
        activate(start, stop, z, bias, gain, shift, epsilon, mask, scales, h)
        end_piece(counter)
        start = claim(counter, length)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def activate(
    start: int,
    stop: int,
    z: FloatArray,
    bias: FloatArray,
    gain: FloatArray,
    shift: FloatArray,
    epsilon: float,
    mask: FloatArray,
    scales: FloatArray,
    h: FloatArray,
) -> None:
    """Rows start..stop-1 of h (n, d) = mask·ReLU(norm(z + bias)); z becomes z + bias.

    `bias` (d,), `gain` and `shift` (d,) and `mask`, which begins with these rows, may be empty.
    """
    width = z.shape[1]
    for r in range(start, stop):
        row, out = z[r], h[r]
        if len(bias) > 0:
            for j in range(width):
                row[j] += bias[j]
        if len(gain) > 0:
            total = square = 0.0  # in double precision: squares of large numbers would overflow
            for j in range(width):
                total += row[j]
            mean = np.float32(total / width)
            for j in range(width):
                off = np.float64(row[j] - mean)
                square += off * off
            scale = np.float32(1 / np.sqrt(square / width + epsilon))
            scales[r, 0], scales[r, 1] = mean, scale
            for j in range(width):
                out[j] = (row[j] - mean) * scale * gain[j] + shift[j]
        else:
            for j in range(width):
                out[j] = row[j]
        for j in range(width):
            out[j] = np.float32(0) if out[j] <= 0 else out[j]  # NaN stays NaN
        if len(mask) > 0:
            kept = mask[(r - start) * width : (r - start + 1) * width]
            for j in range(width):
                out[j] *= kept[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _put_activated_back(
    counter: IntArray,
    length: int,
    sgemm: int,
    products: tuple[Flat, Flat],
    adds: bool,
    flat: FloatArray,
    gradient: FloatArray,
    h: FloatArray,
    z: FloatArray,
    gain: FloatArray,
    value: np.float32,
    scales: FloatArray,
    sums: FloatArray,
) -> None:
    rows, width = h.shape
    start = claim(counter, length)
    while start < rows:
        stop = min(start + length, rows)
        fill_rows(sgemm, start, stop, products, adds, width, flat)
        activate_back(start, stop, gradient, h, z, gain, value, scales, sums[start // length])
        end_piece(counter)
        start = claim(counter, length)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def activate_back(
    start: int,
    stop: int,
    gradient: FloatArray,
    h: FloatArray,
    z: FloatArray,
    gain: FloatArray,
    value: np.float32,
    scales: FloatArray,
    sums: FloatArray,
) -> None:
    """Rows start..stop-1 of `gradient` (n, d), by h, become those by z + bias, as in `activate`.

    `sums` (3, d) takes the gradients of bias, gain and shift; the last two only with a norm.
    """
    width = gradient.shape[1]
    sums[:] = 0
    for r in range(start, stop):
        row, out = gradient[r], h[r]
        for j in range(width):
            row[j] = row[j] * value if out[j] > 0 else np.float32(0)
        if len(gain) > 0:
            mean, scale, before = scales[r, 0], scales[r, 1], z[r]
            total = along = np.float32(0)
            for j in range(width):
                normed = (before[j] - mean) * scale
                sums[1, j] += row[j] * normed
                sums[2, j] += row[j]
                row[j] *= gain[j]
                total += row[j]
                along += row[j] * normed
            total /= np.float32(width)
            along /= np.float32(width)
            for j in range(width):
                row[j] = scale * (row[j] - total - (before[j] - mean) * scale * along)
        for j in range(width):
            sums[0, j] += row[j]
