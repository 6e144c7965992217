"""What a training step does between its matrix products, without autograd; and Adam.

On the paper's sizes the matrix products of a step take some 100 µs, and recording and replaying
them with autograd three times as long again. Tests compare with autograd.
"""

import numpy as np
from numba import njit

from fastgcn.types import FloatArray, IntArray


@njit(cache=True, nogil=True)
def add_bias_relu(out: FloatArray, bias: FloatArray, relu: bool) -> None:
    """out = σ(out + bias) in place, flat; an empty `bias` is none, σ is ReLU or nothing."""
    if len(bias) > 0:
        for start in range(0, len(out), len(bias)):
            row = out[start : start + len(bias)]
            for j in range(len(row)):
                row[j] += bias[j]
    if relu:
        for i in range(len(out)):
            out[i] = max(out[i], np.float32(0))


@njit(cache=True, nogil=True)
def bias_relu_backward(
    gradient: FloatArray, out: FloatArray, relu: bool, for_bias: FloatArray
) -> None:
    """Through `add_bias_relu`: `gradient` becomes that of its input, and `for_bias` that of the
    bias, which may be empty; all flat."""
    if relu:
        for i in range(len(gradient)):
            gradient[i] = gradient[i] if out[i] > 0 else np.float32(0)
    for j in range(len(for_bias)):
        for_bias[j] = 0
    if len(for_bias) > 0:
        for start in range(0, len(gradient), len(for_bias)):
            row = gradient[start : start + len(for_bias)]
            for j in range(len(row)):
                for_bias[j] += row[j]


@njit(cache=True, nogil=True)
def cross_entropy(logits: FloatArray, labels: IntArray, class_weights: FloatArray) -> float:
    """The mean of -log softmax at the labels (s,), weighted by class unless `class_weights` is
    empty.

    `logits` (s·C,), flat, becomes its own gradient.
    """
    weighted = len(class_weights) > 0
    total = loss = 0.0
    for label in labels:
        total += class_weights[label] if weighted else 1.0
    width = len(logits) // max(len(labels), 1)
    powers = np.empty(width, np.int32)
    for i in range(len(labels)):
        row, label = logits[i * width : (i + 1) * width], labels[i]
        share = (class_weights[label] if weighted else 1.0) / total
        (top, low), at_label = extremes(row), row[label]
        mass = np.float32(0)
        if top == low:  # the many rows that met no vertex
            for j in range(width):
                row[j] = 1
            mass = np.float32(width)
        else:
            for j in range(width):
                row[j] -= top
            exponentials(row, powers)
            for j in range(width):
                mass += row[j]
        loss += share * (np.log(mass) - (at_label - top))
        scale = np.float32(share / mass)
        for j in range(width):
            row[j] *= scale
        row[label] -= np.float32(share)
    return loss


@njit(cache=True, nogil=True, fastmath=True)
def extremes(x: FloatArray) -> tuple[float, float]:
    """The largest and the smallest of x; by itself, for only so the loop becomes vectors."""
    top, low = x[0], x[0]
    for j in range(len(x)):
        top, low = max(top, x[j]), min(low, x[j])
    return top, low


@njit(cache=True, nogil=True, fastmath=True)
def exponentials(x: FloatArray, powers: IntArray) -> None:
    """x = exp(x) in place for x <= 0, to a relative error of 1e-7·(1 + |x|); at least 2^-126.

    exp(x) = 2^k·2^f with k whole and 0 <= f < 1, the one by writing k into the exponent of a
    float, the other by a polynomial (Chebyshev's, of degree 6): unlike a call of exp, loops that
    the compiler turns into vector instructions. `powers` is work space.
    """
    for j in range(len(x)):
        y = max(x[j] * np.float32(1.4426950408889634), np.float32(-126))
        k = np.floor(y)
        powers[j] = (np.int32(k) + np.int32(127)) << np.int32(23)
        f = y - k
        p = np.float32(0.0002186578482)
        p = p * f + np.float32(0.001239133182)
        p = p * f + np.float32(0.009684186312)
        p = p * f + np.float32(0.0554806302)
        p = p * f + np.float32(0.2402304544)
        p = p * f + np.float32(0.6931469328)
        x[j] = p * f + np.float32(1.000000003)
    scales = powers.view(np.float32)
    for j in range(len(x)):
        x[j] *= scales[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=True)
def adam_update(
    weight: FloatArray,
    gradient: FloatArray,
    mean: FloatArray,
    square: FloatArray,
    step: int,
    rate: float,
    decay: float,
) -> None:
    """Adam (Kingma & Ba, β = 0.9 and 0.999, ε = 1e-8) with L2, in place, on flat arrays."""
    size = np.float32(rate / (1 - 0.9**step))
    root = np.float32(1 / np.sqrt(1 - 0.999**step))
    old_mean, new_mean = np.float32(0.9), np.float32(1 - 0.9)
    old_square, new_square = np.float32(0.999), np.float32(1 - 0.999)
    l2, epsilon = np.float32(decay), np.float32(1e-8)
    for i in range(len(weight)):
        g = gradient[i] + l2 * weight[i]
        m = old_mean * mean[i] + new_mean * g
        v = old_square * square[i] + new_square * g * g
        mean[i], square[i] = m, v
        weight[i] -= size * m / (np.sqrt(v) * root + epsilon)
