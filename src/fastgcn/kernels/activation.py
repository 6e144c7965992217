"""What lies between two layers: bias, layer norm, ReLU and dropout of a row, and the way back.

A range of rows begins at a multiple of four, as one draw decides four entries of a dropout mask.
"""

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray
from fastgcn.kernels.counter_random import fill_mask


@njit(cache=True, nogil=True, error_model="numpy")
def activate(
    start: int,
    stop: int,
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
    """Rows start..stop-1 of h (n, d) = dropout(ReLU(norm(z + bias))); z becomes z + bias.

    `bias` (d,), and `gain` and `shift` (d,) of a layer norm, are empty if there is none; `scales`
    (n, 2) then takes nothing, else each row's mean and 1/sd. Nothing is dropped if `dropped` is 0;
    else, see `fill_mask`. z and h may be the same array if there is no norm.
    """
    width = z.shape[1]
    mask = np.empty((stop - start) * width if dropped > 0 else 0, np.float32)
    if dropped > 0:
        fill_mask(seed, start * width // 4, dropped, value, mask)
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
        if dropped > 0:
            kept = mask[(r - start) * width : (r - start + 1) * width]
            for j in range(width):
                out[j] *= kept[j]


@njit(cache=True, nogil=True, error_model="numpy")
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
