"""Training steps of the paper's network in one compiled call: forward, backward, Adam.

Between Python and a dozen small products a step would spend as long as in them, and two threads
would take turns at Python's lock. All matrices are flat arrays, and what a step computes lies in
one work space: nothing is allocated, and the call is compiled in a fraction of the time that
arrays of two dimensions, made as they are needed, would take.
"""

import numpy as np
from numba import njit

from fastgcn.kernels.blas import multiply
from fastgcn.kernels.gradients import (
    adam_update,
    add_bias_relu,
    bias_relu_backward,
    cross_entropy,
)
from fastgcn.kernels.products import ZERO, add_entries, multiply_transposed
from fastgcn.types import FloatArray, IntArray

# How a layer's products are taken: without a block, Â(HW), (ÂH)W, or without one from sparse rows.
NO_BLOCK, WEIGHT_FIRST, MIX_FIRST, SPARSE_INPUT = 0, 1, 2, 3

# What `shapes` says of a layer: the above; rows that come out of its block and that go in; and
# where the block begins among the rows of its matrix, or without a block, the rows of x.
ORDER, ROWS, SOURCES, FIRST = 0, 1, 2, 3

Arrays = tuple[FloatArray, ...]


@njit(cache=True, nogil=True)
def train_steps(
    sgemm: int,
    x: FloatArray,
    labels: IntArray,
    class_weights: FloatArray,
    sizes: IntArray,
    shapes: IntArray,
    blocks: tuple[tuple[IntArray, ...], tuple[IntArray, ...], Arrays],
    parameters: tuple[Arrays, Arrays, Arrays],
    decays: FloatArray,
    number: int,
    rate: float,
    work: FloatArray,
    losses: FloatArray,
) -> None:
    """A step for each of b batches; `losses` (b,) takes the loss before each.

    `sgemm` is `sgemm_address()`. Layers, L of them, are numbered from the input up: `sizes` (L+1,)
    are their widths; `shapes` (b, L, 4) is explained above; `blocks` are indptr, int32 columns and
    values of each layer, where the first layer's are those of the rows of ÂX with SPARSE_INPUT,
    and empty without a block. Rows of all batches lie one's behind the other's in `x`, `labels`
    and each layer's matrix. `parameters` are the weights of all layers and then the biases,
    perhaps empty; their first and their second moments; `decays` (2L,) their L2. Adam's steps
    count from `number`. `work` has `work_size` numbers.
    """
    depth = len(sizes) - 1
    outs, factors = np.empty(depth + 1, np.int64), np.empty(depth + 1, np.int64)
    label = ZERO
    for b in range(len(losses)):
        end = _forward(sgemm, x, sizes, shapes[b], blocks, parameters[0], work, outs, factors)
        rows, classes = shapes[b, depth - 1, ROWS], sizes[depth]
        logits = work[outs[depth] : outs[depth] + rows * classes]
        losses[b] = cross_entropy(logits, labels[label : label + rows], class_weights)
        label += rows
        _backward(
            sgemm, x, sizes, shapes[b], blocks, parameters, decays, number + b, rate,
            work, outs, factors, end,
        )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def _forward(
    sgemm: int,
    x: FloatArray,
    sizes: IntArray,
    shapes: IntArray,
    blocks: tuple[tuple[IntArray, ...], tuple[IntArray, ...], Arrays],
    weights: Arrays,
    work: FloatArray,
    outs: IntArray,
    factors: IntArray,
) -> int:
    """Fill `work` up to the place returned. outs[l] and factors[l] are where the rows that enter
    layer l begin, as they come out of layer l - 1 and as its weights multiply them; -1 for x."""
    depth, end = len(sizes) - 1, ZERO
    outs[0] = -1
    for layer in range(depth):
        order, rows = shapes[layer, ORDER], shapes[layer, ROWS]
        sources, first = shapes[layer, SOURCES], shapes[layer, FIRST]
        n_in, n_out = sizes[layer], sizes[layer + 1]
        indptr, columns, values = blocks[0][layer], blocks[1][layer], blocks[2][layer]
        weight, h = weights[layer], outs[layer]
        given, at = work, h
        if layer == 0:
            given, at = x, first * n_in if order == NO_BLOCK else ZERO
        if order == MIX_FIRST:
            _mix(indptr, first, rows, columns, values, given, at, n_in, work, end)
            given, at, h, end = work, end, end, end + rows * n_in
        factors[layer] = h
        if order == SPARSE_INPUT:
            _mix(indptr, first, rows, columns, values, weight, ZERO, n_out, work, end)
        else:
            count = sources if order == WEIGHT_FIRST else rows
            multiply(
                sgemm, (count, n_in, n_out), given, at, False, weight, ZERO, False, work, end
            )  # fmt: skip
            if order == WEIGHT_FIRST:
                product, end = end, end + sources * n_out
                _mix(indptr, first, rows, columns, values, work, product, n_out, work, end)
        outs[layer + 1] = end
        end += rows * n_out
        add_bias_relu(work[outs[layer + 1] : end], weights[depth + layer], layer < depth - 1)
    return int(end)


@njit(cache=True, nogil=True, inline="always")
def _backward(
    sgemm: int,
    x: FloatArray,
    sizes: IntArray,
    shapes: IntArray,
    blocks: tuple[tuple[IntArray, ...], tuple[IntArray, ...], Arrays],
    parameters: tuple[Arrays, Arrays, Arrays],
    decays: FloatArray,
    number: int,
    rate: float,
    work: FloatArray,
    outs: IntArray,
    factors: IntArray,
    end: int,
) -> None:
    """From the gradient of the logits, in their place, to moved parameters. Free from `end` on."""
    depth = len(sizes) - 1
    gradient = outs[depth]
    for layer in range(depth - 1, -1, -1):
        order, rows = shapes[layer, ORDER], shapes[layer, ROWS]
        sources, first = shapes[layer, SOURCES], shapes[layer, FIRST]
        n_in, n_out = sizes[layer], sizes[layer + 1]
        indptr, columns, values = blocks[0][layer], blocks[1][layer], blocks[2][layer]
        weight, bias = parameters[0][layer], parameters[0][depth + layer]
        for_bias, count, above = end, rows, outs[layer + 1]
        end += len(bias)
        bias_relu_backward(
            work[gradient : gradient + rows * n_out], work[above : above + rows * n_out],
            layer < depth - 1, work[for_bias:end],
        )  # fmt: skip
        if order == WEIGHT_FIRST:
            _unmix(indptr, first, rows, columns, values, work, gradient, n_out, end, sources)
            gradient, count, end = end, sources, end + sources * n_out
        for_weight, end = end, end + n_in * n_out
        if order == SPARSE_INPUT:
            _unmix(indptr, first, rows, columns, values, work, gradient, n_out, for_weight, n_in)
        else:
            given, at = work, factors[layer]
            if at < 0:
                given, at = x, first * n_in if order == NO_BLOCK else ZERO
            multiply(
                sgemm, (n_in, count, n_out), given, at, True, work, gradient, False, work,
                for_weight,
            )  # fmt: skip
        if layer > 0:
            multiply(
                sgemm, (count, n_out, n_in), work, gradient, False, weight, ZERO, True, work, end
            )  # fmt: skip
            gradient, end = end, end + count * n_in
            if order == MIX_FIRST:
                _unmix(indptr, first, rows, columns, values, work, gradient, n_in, end, sources)
                gradient, end = end, end + sources * n_in
        for which, at in ((layer, for_weight), (depth + layer, for_bias)):
            moved = parameters[0][which]
            adam_update(
                moved, work[at : at + len(moved)], parameters[1][which], parameters[2][which],
                number, rate, decays[which],
            )  # fmt: skip


def work_size(sizes: IntArray, shapes: IntArray) -> int:
    """How many numbers a step writes at most, for `train_steps`."""
    rows, sources = shapes[:, :, ROWS].max(axis=0), shapes[:, :, SOURCES].max(axis=0)
    n_in, n_out = sizes[:-1], sizes[1:]
    forward = rows * (n_in + n_out) + sources * n_out
    backward = np.maximum(rows, sources) * (n_in + n_out) + sources * n_in + (n_in + 1) * n_out
    return int((forward + backward).sum())


@njit(cache=True, nogil=True)
def _mix(
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
    """out[at:] = rows first..first+rows-1 of the sparse matrix times dense[shift:]."""
    fresh = out[at : at + rows * width]
    for j in range(len(fresh)):
        fresh[j] = 0
    for r in range(rows):
        begin, end = indptr[first + r], indptr[first + r + 1]
        add_entries(out, at + r * width, width, begin, end, columns, values, dense, shift)


@njit(cache=True, nogil=True)
def _unmix(
    indptr: IntArray,
    first: int,
    rows: int,
    columns: IntArray,
    values: FloatArray,
    work: FloatArray,
    gradient: int,
    width: int,
    at: int,
    sources: int,
) -> None:
    """work[at:] (sources, width) = the transpose of those rows times work[gradient:]."""
    fresh = work[at : at + sources * width]
    for j in range(len(fresh)):
        fresh[j] = 0
    multiply_transposed(
        ZERO, width, indptr, first, rows, columns, values, work, gradient, width, work, at
    )
