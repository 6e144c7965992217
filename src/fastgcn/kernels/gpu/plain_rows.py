"""The paper's network from rows of ÂX to hidden rows, and from these to the loss and back."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["step"])
def hidden_rows(
    step, x, x_stride, sources, n_sources, weight, bias, hidden, gradient, room, width, d,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """hidden = ReLU(X[sources] W1 + b1), gradient = 0, of as many rows as there are sources."""
    count = tl.load(n_sources + step)
    sources += step * room
    first = tl.program_id(0) * BM
    if first < count:
        m = first + tl.arange(0, BM)
        n = tl.program_id(1) * BN + tl.arange(0, BN)
        node = tl.load(sources + m, mask=m < count, other=0).to(tl.int64)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, width, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(
                x + node[:, None] * x_stride + k[None, :], mask=(k < width)[None, :], other=0.0
            )
            b = tl.load(
                weight + k[:, None] * d + n[None, :],
                mask=(k < width)[:, None] & (n < d)[None, :],
                other=0.0,
            )
            total += tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision=PRECISION)
        if HAS_BIAS:
            total += tl.load(bias + n, mask=n < d, other=0.0)[None, :]
        there = (m < count)[:, None] & (n < d)[None, :]
        place = m[:, None] * d + n[None, :]
        tl.store(hidden + place, tl.maximum(total, 0.0), mask=there)
        tl.store(gradient + place, tl.zeros((BM, BN), tl.float32), mask=there)


@triton.jit
def _mine(begin, end, e):
    """(rows, entries): which of the entries e belong to which row."""
    return (e[None, :] >= begin[:, None]) & (e[None, :] < end[:, None])


@triton.jit(do_not_specialize=["step"])
def loss_rows(
    step, offsets, columns, values, hidden, weight, bias, labels, row_weights,
    mixed, logit_gradient, hidden_gradient, losses, size, d, classes,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BR: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, BE: tl.constexpr,
):  # fmt: skip
    """From hidden rows to the loss and back: mixed = adj·hidden, logits = mixed·W2 + b2, the
    weighted cross entropy, its gradients by logits and, added up by source, by hidden rows."""
    tile = tl.program_id(0)
    offsets += step * size
    labels += step * size
    row_weights += step * size
    losses += step * tl.num_programs(0)
    r = tile * BR + tl.arange(0, BR)
    n, c = tl.arange(0, BD), tl.arange(0, BC)
    inside = r < size
    begin = tl.load(offsets + r, mask=inside, other=0)
    end = tl.load(offsets + r + 1, mask=inside, other=0)
    first = tl.load(offsets + tile * BR)
    last = tl.load(offsets + tl.minimum(tile * BR + BR, size))
    total = tl.zeros((BR, BD), tl.float32)
    for start in range(first, last, BE):
        e = start + tl.arange(0, BE)
        there = e < last
        column = tl.load(columns + e, mask=there, other=0)
        value = tl.load(values + e, mask=there, other=0.0)
        h = tl.load(
            hidden + column[:, None] * d + n[None, :],
            mask=there[:, None] & (n < d)[None, :],
            other=0.0,
        )
        adj = tl.where(_mine(begin, end, e), value[None, :], 0.0)
        total += tl.dot(adj, h, input_precision="ieee")
    w = tl.load(
        weight + n[:, None] * classes + c[None, :],
        mask=(n < d)[:, None] & (c < classes)[None, :],
        other=0.0,
    )
    logits = tl.dot(total, w, input_precision=PRECISION)
    if HAS_BIAS:
        logits += tl.load(bias + c, mask=c < classes, other=0.0)[None, :]
    logits = tl.where((c < classes)[None, :], logits, float("-inf"))
    largest = tl.max(logits, 1)
    chances = tl.exp(logits - largest[:, None])
    normaliser = tl.sum(chances, 1)
    label = tl.load(labels + r, mask=inside, other=0)
    true = c[None, :] == label[:, None]
    row_weight = tl.load(row_weights + r, mask=inside, other=0.0)
    at_label = tl.sum(tl.where(true, logits, 0.0), 1)
    loss = row_weight * (largest + tl.log(normaliser) - at_label)
    tl.store(losses + tile, tl.sum(tl.where(inside, loss, 0.0), 0))
    g = (chances / normaliser[:, None] - tl.where(true, 1.0, 0.0)) * row_weight[:, None]
    tl.store(logit_gradient + r[:, None] * BC + c[None, :], g, mask=inside[:, None])
    tl.store(mixed + r[:, None] * BD + n[None, :], total, mask=inside[:, None])
    by_row = tl.dot(g, tl.trans(w), input_precision=PRECISION)
    for start in range(first, last, BE):
        e = start + tl.arange(0, BE)
        there = e < last
        column = tl.load(columns + e, mask=there, other=0)
        value = tl.load(values + e, mask=there, other=0.0)
        adj = tl.where(_mine(begin, end, e), value[None, :], 0.0)
        by_source = tl.dot(tl.trans(adj), by_row, input_precision="ieee")
        tl.atomic_add(
            hidden_gradient + column[:, None] * d + n[None, :],
            by_source,
            mask=there[:, None] & (n < d)[None, :],
        )
