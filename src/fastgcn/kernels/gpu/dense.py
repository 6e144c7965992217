"""The dense products of a training step of two layers, for the rows that a batch has.

A batch has too few rows to keep a device busy by tiles of the result alone, so each product is cut
along its sum too: the first leaves parts, which are added up later; gradients are added atomically.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["step"])
def first_product(
    step, x, weight, n_sources, z, room, wide, d,
    PARTS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """z (PARTS, room, d): parts of x·W for the rows of a batch's sources.

    `wide`, the columns of x and the rows of W, is a multiple of BK.
    """
    count = tl.load(n_sources + step)
    first, part = tl.program_id(0) * BM, tl.program_id(2)
    if first < count:
        row, n = first + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
        span = tl.cdiv(wide, PARTS * BK) * BK
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(part * span, tl.minimum(wide, (part + 1) * span), BK):
            k = start + tl.arange(0, BK)
            a = tl.load(x + row[:, None] * wide + k[None, :], mask=(row < room)[:, None], other=0.0)
            b = tl.load(weight + k[:, None] * d + n[None, :], mask=(n < d)[None, :], other=0.0)
            total = tl.dot(a, b, total)
        inside = (row < count)[:, None] & (n < d)[None, :]
        tl.store(z + (part * room + row[:, None]) * d + n[None, :], total, mask=inside)


@triton.jit(do_not_specialize=["step"])
def first_gradient(
    step, x, gradient, n_sources, out, wide, columns, d, width, half,
    PIECES: tl.constexpr,
    BF: tl.constexpr, BN: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """out (columns, d) += xᵀ·gradient, over the rows of a batch's sources.

    Of a pair, the second network, from column `half` on, has no weights of rows from `width` on.
    """
    count = tl.load(n_sources + step)
    f, n = tl.program_id(0) * BF + tl.arange(0, BF), tl.program_id(1) * BN + tl.arange(0, BN)
    span = tl.cdiv(count, PIECES * BR) * BR
    first = tl.program_id(2) * span
    if first < count:
        total = tl.zeros((BF, BN), tl.float32)
        for start in range(first, tl.minimum(count, first + span), BR):
            row = start + tl.arange(0, BR)
            there = (row < count)[:, None]
            a = tl.load(x + row[:, None] * wide + f[None, :], mask=there & (f < wide)[None, :],
                        other=0.0)  # fmt: skip
            b = tl.load(gradient + row[:, None] * d + n[None, :], mask=there & (n < d)[None, :],
                        other=0.0)  # fmt: skip
            total = tl.dot(tl.trans(a), b, total)
        inside = (f < columns)[:, None] & (n < d)[None, :]
        inside &= (f < width)[:, None] | (n < half)[None, :]
        tl.atomic_add(out + f[:, None] * d + n[None, :], total, mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=["step"])
def second_gradients(
    step, hidden, by_narrow, by_logits, mixed, n_sources, out, by_bias, size, d, classes,
    HAS_BIAS: tl.constexpr, OWN: tl.constexpr, MEMBERS: tl.constexpr, PRECISION: tl.constexpr,
    BR: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out += the gradients by W2, hiddenᵀ·by_narrow, and by R2, own hidden rowsᵀ·by_logits.

    by_bias += the sum of by_logits. mixed = 0, for the next step.
    """
    count = tl.load(n_sources + step)
    n, c = tl.arange(0, BD), tl.arange(0, BC)
    first = tl.program_id(0) * BR
    if first < tl.maximum(count, size):
        row = first + tl.arange(0, BR)
        inside = (row < count)[:, None] & (n < d)[None, :]
        h = tl.trans(tl.load(hidden + row[:, None] * d + n[None, :], mask=inside, other=0.0))
        known = c[None, :] < classes
        for member in tl.static_range(MEMBERS):
            mine = (n // (d // MEMBERS) == member)[:, None] & known
            place = (row[:, None] * MEMBERS + member) * BC + c[None, :]
            g = tl.load(
                by_narrow + place, mask=(row < count)[:, None] & (c < BC)[None, :], other=0.0
            )
            found = tl.dot(h, g.to(h.dtype), input_precision=PRECISION)
            tl.atomic_add(out + n[:, None] * classes + c[None, :], found, mask=mine, sem="relaxed")
        if first < size:
            for member in tl.static_range(MEMBERS):
                place = (row[:, None] * MEMBERS + member) * BC + c[None, :]
                within = (row < size)[:, None] & (c < BC)[None, :]
                g = tl.load(by_logits + place, mask=within, other=0.0)
                tl.store(mixed + place, g * 0, mask=within)
                if HAS_BIAS:
                    tl.atomic_add(by_bias + c, tl.sum(g, 0) / MEMBERS, mask=c < classes)
                if OWN and member == 0:
                    mine = (n < d // MEMBERS)[:, None] & known
                    found = tl.dot(h, g.to(h.dtype), input_precision=PRECISION)
                    below = out + (d + n[:, None]) * classes + c[None, :]
                    tl.atomic_add(below, found, mask=mine, sem="relaxed")
