"""One training step of the paper's network in one compiled call: forward, backward, Adam.

Between Python and a dozen small products a step would spend as long as in them, and two threads
would take turns at Python's lock. Layers are numbered from the input up in every tuple.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.kernels.gradients import (
    adam_update,
    add_bias_relu,
    bias_relu_backward,
    cross_entropy,
)
from fastgcn.kernels.products import (
    ZERO,
    mixing_first_pays,
    multiply_rows,
    multiply_transposed,
)
from fastgcn.kernels.together import Blocks
from fastgcn.types import FloatArray, IntArray

# How a layer's products are taken: without a block, Â(HW), (ÂH)W, or without one from sparse rows.
NO_BLOCK, WEIGHT_FIRST, MIX_FIRST, SPARSE_INPUT = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def train_step(
    x: FloatArray,
    labels: IntArray,
    class_weights: FloatArray,
    orders: tuple[int, ...],
    blocks: tuple[tuple[IntArray, IntArray, FloatArray], ...],
    weights: tuple[tuple[FloatArray, FloatArray, FloatArray, float], ...],
    biases: tuple[tuple[FloatArray, FloatArray, FloatArray, float], ...],
    number: int,
    rate: float,
) -> Any:
    """Move all parameters by Adam's step `number`, and return the loss before it.

    `blocks` are CSR arrays. Where the first layer's order is SPARSE_INPUT, its block is the rows
    of ÂX themselves, and `x` is not looked at: one compiled step for both kinds of input. Of
    `weights` and `biases` each is the parameter, its two moments and its L2, a bias perhaps empty.
    """
    depth = len(orders)
    factors, outs = [x], [x]
    for layer in range(depth):
        h, order, last = outs[-1], orders[layer], layer == depth - 1
        indptr, columns, values = blocks[layer]
        if order == MIX_FIRST:
            h = _mixed(indptr, columns, values, h)
        if order == SPARSE_INPUT:
            out = _mixed(indptr, columns, values, weights[layer][0])
        else:
            out = np.dot(h, weights[layer][0])
        if order == WEIGHT_FIRST:
            out = _mixed(indptr, columns, values, out)
        add_bias_relu(out, biases[layer][0], not last)
        factors.append(h)
        outs.append(out)
    gradient = outs[-1]
    loss = cross_entropy(gradient, labels, class_weights)
    for layer in range(depth - 1, -1, -1):
        below, order, last = outs[layer], orders[layer], layer == depth - 1
        indptr, columns, values = blocks[layer]
        weight, mean, square, decay = weights[layer]
        for_bias = bias_relu_backward(gradient, outs[layer + 1], not last)
        if order == WEIGHT_FIRST:
            gradient = _unmixed(indptr, columns, values, gradient, len(below))
        if order == SPARSE_INPUT:
            for_weight = _unmixed(indptr, columns, values, gradient, len(weight))
        else:
            for_weight = np.dot(factors[layer + 1].T, gradient)
        if layer > 0:
            gradient = np.dot(gradient, weight.T)
            if order == MIX_FIRST:
                gradient = _unmixed(indptr, columns, values, gradient, len(below))
        adam_update(
            weight.reshape(-1),
            for_weight.reshape(-1),
            mean.reshape(-1),
            square.reshape(-1),
            number,
            rate,
            decay,
        )
        bias, mean, square, decay = biases[layer]
        if len(bias) > 0:
            adam_update(bias, for_bias, mean, square, number, rate, decay)
    return loss


@njit(cache=True, nogil=True)
def train_steps(
    x: FloatArray,
    inputs: tuple[IntArray, IntArray, FloatArray],
    labels: IntArray,
    class_weights: FloatArray,
    blocks: Blocks,
    weights: tuple[tuple[FloatArray, FloatArray, FloatArray, float], ...],
    biases: tuple[tuple[FloatArray, FloatArray, FloatArray, float], ...],
    number: int,
    rate: float,
    losses: FloatArray,
) -> None:
    """A step for each of `blocks`, for two layers of which the second is sampled.

    Adam's steps count from `number`; `losses` (b,) takes what `train_step` returns. The rows of
    ÂX of all batches, one's behind the other's, are `x`, or the CSR arrays `inputs` where x is
    empty.
    """
    offsets, columns, values, _, starts = blocks
    indptr, input_columns, input_values = inputs
    n_in, n_out = weights[1][0].shape
    size = offsets.shape[1] - 1
    for b in range(len(offsets)):
        begin, end, first, last = starts[0, b], starts[0, b + 1], starts[1, b], starts[1, b + 1]
        entries, sources = end - begin, last - first
        mix_first = mixing_first_pays(entries, size, sources, n_in, n_out)
        order = MIX_FIRST if mix_first else WEIGHT_FIRST
        block = (offsets[b], columns[begin:end], values[begin:end])
        lowest, kind = (indptr[:1], input_columns[:0], input_values[:0]), NO_BLOCK
        if len(x) == 0 and len(indptr) > 1:
            of, to = indptr[first], indptr[last]
            mine = indptr[first : last + 1] - of
            lowest, kind = (mine, input_columns[of:to], input_values[of:to]), SPARSE_INPUT
        losses[b] = train_step(
            x[first:last] if kind == NO_BLOCK else x,
            labels[b * size : (b + 1) * size],
            class_weights,
            (kind, order),
            (lowest, block),
            weights,
            biases,
            number + b,
            rate,
        )


@njit(cache=True, nogil=True)
def _mixed(indptr: IntArray, columns: IntArray, values: FloatArray, h: FloatArray) -> Any:
    out = np.empty((len(indptr) - 1, h.shape[1]), np.float32)
    multiply_rows(ZERO, len(out), indptr, columns, values, h, out)
    return out


@njit(cache=True, nogil=True)
def _unmixed(
    indptr: IntArray, columns: IntArray, values: FloatArray, gradient: FloatArray, sources: int
) -> Any:
    out = np.zeros((sources, gradient.shape[1]), np.float32)
    multiply_transposed(ZERO, out.shape[1], indptr, columns, values, gradient, out)
    return out
