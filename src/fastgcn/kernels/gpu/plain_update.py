"""The weight gradients of the paper's network, and Adam's step along them."""

import triton
import triton.language as tl

from fastgcn.kernels.gpu.adam import adam_update


@triton.jit
def _update_first(
    x, x_stride, sources, count, hidden, hidden_gradient, w1, w1_mean, w1_square,
    b1, b1_mean, b1_square, tile, width, d, tiles_n, number, rate, decay,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
    BS: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A tile of W1: its gradient is X[sources]ᵀ times that of the hidden rows where ReLU let
    them through."""
    k = (tile // tiles_n) * BK + tl.arange(0, BK)
    n = (tile % tiles_n) * BN + tl.arange(0, BN)
    total = tl.zeros((BK, BN), tl.float32)
    for_bias = tl.zeros((BN,), tl.float32)
    for start in range(0, count, BS):
        m = start + tl.arange(0, BS)
        node = tl.load(sources + m, mask=m < count, other=0).to(tl.int64)
        there = (m < count)[:, None] & (n < d)[None, :]
        place = m[:, None] * d + n[None, :]
        h = tl.load(hidden + place, mask=there, other=0.0)
        g = tl.load(hidden_gradient + place, mask=there, other=0.0)
        g = tl.where(h > 0, g, 0.0)
        a = tl.load(
            x + node[:, None] * x_stride + k[None, :],
            mask=(m < count)[:, None] & (k < width)[None, :],
            other=0.0,
        )
        total += tl.dot(tl.trans(a.to(OPERAND)), g.to(OPERAND), input_precision=PRECISION)
        for_bias += tl.sum(g, 0)
    there = (k < width)[:, None] & (n < d)[None, :]
    place = k[:, None] * d + n[None, :]
    adam_update(w1, w1_mean, w1_square, place, there, total, number, rate, decay)
    if HAS_BIAS:  # noqa: SIM102 (known when it is compiled)
        if tile < tiles_n:
            adam_update(b1, b1_mean, b1_square, n, n < d, for_bias, number, rate, 0.0)


@triton.jit
def _update_second(
    mixed, logit_gradient, w2, w2_mean, w2_square, b2, b2_mean, b2_square,
    tile, size, d, classes, number, rate, decay,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BS: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, B2: tl.constexpr,
):  # fmt: skip
    """Some rows of W2: their gradient is mixedᵀ times that of the logits."""
    k = tile * B2 + tl.arange(0, B2)
    c = tl.arange(0, BC)
    total = tl.zeros((B2, BC), tl.float32)
    for_bias = tl.zeros((BC,), tl.float32)
    for start in range(0, size, BS):
        r = start + tl.arange(0, BS)
        inside = (r < size)[:, None]
        a = tl.load(mixed + r[:, None] * BD + k[None, :], mask=inside, other=0.0)
        g = tl.load(logit_gradient + r[:, None] * BC + c[None, :], mask=inside, other=0.0)
        total += tl.dot(tl.trans(a), g, input_precision=PRECISION)
        for_bias += tl.sum(g, 0)
    there = (k < d)[:, None] & (c < classes)[None, :]
    place = k[:, None] * classes + c[None, :]
    adam_update(w2, w2_mean, w2_square, place, there, total, number, rate, decay)
    if HAS_BIAS:  # noqa: SIM102
        if tile == 0:
            adam_update(b2, b2_mean, b2_square, c, c < classes, for_bias, number, rate, 0.0)


@triton.jit(do_not_specialize=["step"])
def update_weights(
    step, x, x_stride, sources, n_sources, hidden, hidden_gradient, mixed, logit_gradient,
    active, steps,
    w1, w1_mean, w1_square, b1, b1_mean, b1_square,
    w2, w2_mean, w2_square, b2, b2_mean, b2_square,
    room, size, width, d, classes, tiles_n, tiles, rate, decay1, decay2,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
    BS: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr, BC: tl.constexpr, B2: tl.constexpr,
):  # fmt: skip
    """The gradients of all parameters, and Adam's step along them, tile by tile."""
    if tl.load(active + step) == 0:
        return
    number = tl.load(steps) + step + 1
    tile = tl.program_id(0)
    if tile < tiles:
        _update_first(
            x, x_stride, sources + step * room, tl.load(n_sources + step), hidden, hidden_gradient,
            w1, w1_mean, w1_square, b1, b1_mean, b1_square,
            tile, width, d, tiles_n, number, rate, decay1, HAS_BIAS, PRECISION, OPERAND, BS, BK, BN,
        )  # fmt: skip
    else:
        _update_second(
            mixed, logit_gradient, w2, w2_mean, w2_square, b2, b2_mean, b2_square,
            tile - tiles, size, d, classes, number, rate, decay2,
            HAS_BIAS, PRECISION, BS, BD, BC, B2,
        )  # fmt: skip
