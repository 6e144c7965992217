"""What a training step does between its matrix products, without autograd; and Adam.

On the paper's sizes the matrix products of a step take some 100 µs, and recording and replaying
them with autograd three times as long again. Tests compare with autograd.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.types import FloatArray, IntArray


@njit(cache=True, nogil=True)
def add_bias_relu(out: FloatArray, bias: FloatArray, relu: bool) -> None:
    """out = σ(out + bias) in place; an empty `bias` is none, σ is ReLU or nothing."""
    if len(bias) > 0:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] += bias[j]
    if relu:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = max(out[i, j], np.float32(0))


@njit(cache=True, nogil=True)
def bias_relu_backward(gradient: FloatArray, out: FloatArray, relu: bool) -> Any:
    """Through `add_bias_relu`: the bias's gradient (d,); `gradient` becomes that of its input."""
    for_bias = np.zeros(gradient.shape[1], np.float32)
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            if relu and out[i, j] <= 0:
                gradient[i, j] = 0
            for_bias[j] += gradient[i, j]
    return for_bias


@njit(cache=True, nogil=True)
def cross_entropy(
    logits: FloatArray, probabilities: FloatArray, labels: IntArray, class_weights: FloatArray
) -> Any:
    """The mean of -log softmax at the labels, weighted by class unless `class_weights` is empty.

    `probabilities`, the softmax of `logits`, becomes the gradient for `logits`.
    """
    weighted = len(class_weights) > 0
    total = loss = 0.0
    for label in labels:
        total += class_weights[label] if weighted else 1.0
    for i in range(len(labels)):
        row, label = probabilities[i], labels[i]
        share = (class_weights[label] if weighted else 1.0) / total
        # By way of the likeliest class: the label's own probability may be too small to tell.
        likeliest = row.argmax()
        gap = logits[i, likeliest] - logits[i, label]
        loss += share * (gap - np.log(row[likeliest]))
        for j in range(len(row)):
            row[j] *= np.float32(share)
        row[label] -= np.float32(share)
    return loss


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
