"""Training steps without autograd: matrix products, what lies between them, and Adam.

On the paper's sizes the matrix products of a step take some 100 µs, and recording and replaying
them with autograd three times as long again. Tests compare with autograd.
"""

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.blas import multiply
from fastgcn.kernels.products import ZERO, add_entries, multiply_transposed


@njit(cache=True, nogil=True)
def add_bias_relu(out: FloatArray, bias: FloatArray, relu: bool) -> None:
    """out = σ(out + bias) in place, flat; `bias` may be empty; σ is ReLU if `relu`."""
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
    """The derivative of `add_bias_relu`: `gradient` becomes that of its input, and `for_bias` that
    of the bias, which may be empty; all flat."""
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
        if top == low:  # the many rows with no edge to any drawn vertex
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
    """The largest and smallest of x; a separate loop, which the compiler can vectorise."""
    top, low = x[0], x[0]
    for j in range(len(x)):
        top, low = max(top, x[j]), min(low, x[j])
    return top, low


@njit(cache=True, nogil=True, fastmath=True)
def exponentials(x: FloatArray, powers: IntArray) -> None:
    """x = exp(x) in place for x <= 0, to a relative error of 1e-7·(1 + |x|); at least 2^-126.

    exp(x) = 2^k·2^f with k whole and 0 <= f < 1. 2^k is made by writing k into a float's exponent,
    2^f by a Chebyshev polynomial of degree 6. Unlike calls of exp, these loops become vector
    instructions. `powers` is work space.
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


# The order of a layer's products: HW without a block, Â(HW), (ÂH)W, or HW of sparse rows H.
NO_BLOCK, WEIGHT_FIRST, MIX_FIRST, SPARSE_INPUT = 0, 1, 2, 3

# Columns of `shapes`: a layer's order, as above; the output and input rows of its block; and the
# first row of the block in its matrix or, without a block, the first row of x.
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
    and empty without a block. Rows of all batches are concatenated in `x`, `labels` and each
    layer's matrix. `parameters` are the weights of all layers and then the biases, perhaps
    empty; their first and their second moments; `decays` (2L,) their L2. Adam's steps count
    from `number`. `work` has `work_size` numbers.
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
    """Fill `work` up to the position returned. outs[l] and factors[l] are the positions of layer
    l's input rows: the output of layer l - 1, and the rows that W multiplies; -1 for x."""
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
                sgemm, (count, n_in, n_out), given, at, n_in, False, weight, ZERO, False, False,
                work, end,
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
    """Update the parameters from the gradient of the logits; `work` is free from `end` on."""
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
                sgemm, (n_in, count, n_out), given, at, n_in, True, work, gradient, False, False,
                work, for_weight,
            )  # fmt: skip
        if layer > 0:
            multiply(
                sgemm, (count, n_out, n_in), work, gradient, n_out, False, weight, ZERO, True,
                False, work, end,
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
    multiply_transposed(indptr, first, rows, columns, values, work, gradient, width, work, at)
