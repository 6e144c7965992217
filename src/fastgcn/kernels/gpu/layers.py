"""The kernels of a training step of two layers: what happens between two of its large products."""

import triton
import triton.language as tl

from fastgcn.kernels.gpu.dropout import kept


@triton.jit(do_not_specialize=["step"])
def gather_rows(
    step, x, x_stride, beside, beside_stride, sources, n_sources, out, out_stride,
    room, width, all_columns,
    steps, seed, rate,
    BESIDE: tl.constexpr, DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """out = the rows of [x | beside] of a batch's sources, some entries dropped."""
    count = tl.load(n_sources + step)
    first = tl.program_id(0) * ROWS
    if first < count:
        row = first + tl.arange(0, ROWS)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        node = tl.load(sources + step * room + row, mask=row < count, other=-1).to(tl.int64)
        there = (node >= 0)[:, None]
        left = there & (column < width)[None, :]
        value = tl.load(x + node[:, None] * x_stride + column[None, :], mask=left, other=0.0)
        value = value.to(tl.float32)
        if BESIDE:
            right = there & ((column >= width) & (column < all_columns))[None, :]
            place = node[:, None] * beside_stride + column[None, :] - width
            value += tl.load(beside + place, mask=right, other=0.0).to(tl.float32)
        if DROP:
            fours = tl.program_id(1) * (COLUMNS // 4) + tl.arange(0, COLUMNS // 4)
            value *= kept(tl.load(steps) + step, seed, 0, row, fours, rate, COLUMNS)
        inside = (row < count)[:, None] & (column < all_columns)[None, :]
        tl.store(out + row[:, None] * out_stride + column[None, :], value, mask=inside)


@triton.jit
def _before_relu(
    z, bias, row, n, count, room, d,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Of some rows: Z + b, its normalised rows, and 1 over their deviations.

    Z is the sum of `PARTS` matrices, and the first of them afterwards.
    """
    there = (row < count)[:, None] & (n < d)[None, :]
    place = z + row[:, None] * d + n[None, :]
    value = tl.load(place, mask=there, other=0.0)
    if PARTS > 1:
        for part in tl.static_range(1, PARTS):
            value += tl.load(place + part * room * d, mask=there, other=0.0)
        tl.store(place, value, mask=there)
    if HAS_BIAS:
        value += tl.load(bias + n, mask=n < d, other=0.0)[None, :]
    scale = tl.full((row.shape[0],), 1.0, tl.float32)
    if NORM:
        centred = tl.where(
            there, value - (tl.sum(tl.where(there, value, 0.0), 1) / d)[:, None], 0.0
        )
        scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / d + 1e-5)
        value = centred * scale[:, None]
    return there, value, scale


@triton.jit
def _normed(value, gamma, beta, n, d, NORM: tl.constexpr):
    if NORM:
        value = value * tl.load(gamma + n, mask=n < d, other=0.0)[None, :]
        value += tl.load(beta + n, mask=n < d, other=0.0)[None, :]
    return value


@triton.jit(do_not_specialize=["step"])
def activate(
    step, z, bias, gamma, beta, n_sources, hidden, gradient, joined, size, room, d,
    steps, seed, rate,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr, PARTS: tl.constexpr,
    MEMBERS: tl.constexpr, ROWS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """hidden = dropped(ReLU(norm(Z + b))), one row for each source. gradient = joined = 0."""
    each, half = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BD)
    for member in tl.static_range(MEMBERS):
        start = joined + (member * size + each)[:, None] * (2 * d // MEMBERS) + half[None, :]
        inside = (each < size)[:, None] & (half < d // MEMBERS)[None, :]
        tl.store(start, tl.zeros((ROWS, BD), tl.float32), mask=inside)
    count = tl.load(n_sources + step)
    first = tl.program_id(0) * ROWS
    if first < count:
        row, n = first + tl.arange(0, ROWS), tl.arange(0, BD)
        there, value, _ = _before_relu(z, bias, row, n, count, room, d, HAS_BIAS, NORM, PARTS)
        value = tl.maximum(_normed(value, gamma, beta, n, d, NORM), 0.0)
        if DROP:
            value *= kept(tl.load(steps) + step, seed, 1, row, tl.arange(0, BD // 4), rate, BD)
        place = row[:, None] * d + n[None, :]
        tl.store(hidden + place, value, mask=there)
        tl.store(gradient + place, value * 0, mask=there)


@triton.jit(do_not_specialize=["step"])
def activate_back(
    step, z, bias, gamma, beta, n_sources, gradient, sums, room, d, steps, seed, rate,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
    ROWS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """gradient: from that by `hidden` to that by Z, in place; rows without a source are zero.

    `sums` (programs, 3, d) are parts of the gradients by the bias, and by the norm's weights.
    """
    count = tl.load(n_sources + step)
    row, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BD)
    place = row[:, None] * d + n[None, :]
    there, value, scale = _before_relu(z, bias, row, n, count, room, d, HAS_BIAS, NORM, 1)
    g = tl.load(gradient + place, mask=there, other=0.0)
    g = tl.where(_normed(value, gamma, beta, n, d, NORM) > 0, g, 0.0)
    if DROP:
        g *= kept(tl.load(steps) + step, seed, 1, row, tl.arange(0, BD // 4), rate, BD)
    sums += tl.program_id(0) * 3 * d + n
    if NORM:
        tl.store(sums + d, tl.sum(g * value, 0), mask=n < d)
        tl.store(sums + 2 * d, tl.sum(g, 0), mask=n < d)
        g = g * tl.load(gamma + n, mask=n < d, other=0.0)[None, :]
        g -= (tl.sum(g, 1) / d)[:, None] + value * (tl.sum(g * value, 1) / d)[:, None]
        g = tl.where(there, g * scale[:, None], 0.0)
    tl.store(sums, tl.sum(g, 0), mask=n < d)
    tl.store(gradient + place, g, mask=(row < room)[:, None] & (n < d)[None, :])


@triton.jit
def add_sums(
    sums, by_bias, by_gamma, by_beta, count, d,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add up the `count` parts of `activate_back`, for some columns of one of the three."""
    which, n = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((ROWS, BN), tl.float32)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < count)[:, None] & (n < d)[None, :]
        place = sums + row[:, None] * 3 * d + which * d + n[None, :]
        total += tl.load(place, mask=inside, other=0.0)
    whole = tl.sum(total, 0)
    if HAS_BIAS:
        tl.store(by_bias + n, whole, mask=(n < d) & (which + n * 0 == 0))
    if NORM:
        tl.store(by_gamma + n, whole, mask=(n < d) & (which + n * 0 == 1))
        tl.store(by_beta + n, whole, mask=(n < d) & (which + n * 0 == 2))


@triton.jit(do_not_specialize=["step"])
def mix(
    step, offsets, columns, values, hidden, joined, size, d, d_all,
    ENTRIES: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The left half of `joined`, which is zero, = adj·hidden, for a row and a network each.

    A row of many entries is divided among several programs.
    """
    row, member, n = tl.program_id(0), tl.program_id(1), tl.arange(0, BD)
    offsets += step * size
    begin, end = tl.load(offsets + row), tl.load(offsets + row + 1)
    first = begin + tl.program_id(2) * ENTRIES
    if first < end:
        total = tl.zeros((ENTRIES, BD), tl.float32)
        for start in range(first, end, tl.num_programs(2) * ENTRIES):
            e = start + tl.arange(0, ENTRIES)
            column = tl.load(columns + e, mask=e < end, other=0)
            value = tl.load(values + e, mask=e < end, other=0.0)
            place = hidden + column[:, None] * d_all + member * d + n[None, :]
            inside = (e < end)[:, None] & (n < d)[None, :]
            total += tl.load(place, mask=inside, other=0.0) * value[:, None]
        out = joined + (member * size + row) * 2 * d + n
        if end - begin > ENTRIES:
            tl.atomic_add(out, tl.sum(total, 0), mask=n < d)
        else:
            tl.store(out, tl.sum(total, 0), mask=n < d)


@triton.jit(do_not_specialize=["step"])
def unmix(
    step, offsets, columns, values, by_row, gradient, size, d, d_all,
    ENTRIES: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """gradient += adjᵀ·by_row, divided in the same way."""
    row, member, n = tl.program_id(0), tl.program_id(1), tl.arange(0, BD)
    offsets += step * size
    end = tl.load(offsets + row + 1)
    first = tl.load(offsets + row) + tl.program_id(2) * ENTRIES
    if first < end:
        g = tl.load(by_row + (member * size + row) * d + n, mask=n < d, other=0.0)
        for start in range(first, end, tl.num_programs(2) * ENTRIES):
            e = start + tl.arange(0, ENTRIES)
            column = tl.load(columns + e, mask=e < end, other=0)
            value = tl.load(values + e, mask=e < end, other=0.0)
            place = gradient + column[:, None] * d_all + member * d + n[None, :]
            inside = (e < end)[:, None] & (n < d)[None, :]
            tl.atomic_add(place, g[None, :] * value[:, None], mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=["step"])
def loss_rows(
    step, hidden, weight, own_weight, bias, labels, row_weights,
    joined, logit_gradient, by_row, gradient, by_bias, losses, size, d, d_all, classes,
    HAS_BIAS: tl.constexpr, OWN: tl.constexpr, MEMBERS: tl.constexpr, PRECISION: tl.constexpr,
    BR: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """From mixed rows to the loss and back, for one network of `MEMBERS`:

    logits = mixed·W2 + own·R2 + b2, their weighted cross entropy, and its gradients by logits, by
    mixed rows and by own rows. `joined` is [mixed | own]. Of a pair, each network reads its half
    of the hidden rows, the second has no R2, and both products count twice.
    """
    tile, member = tl.program_id(0), tl.program_id(1)
    labels += step * size
    row_weights += step * size
    losses += (step * MEMBERS + member) * tl.num_programs(0)
    weight += member * d * classes
    joined += member * size * 2 * d
    by_row += member * size * d
    logit_gradient += member * size * BC
    r = tile * BR + tl.arange(0, BR)
    n, c = tl.arange(0, BD), tl.arange(0, BC)
    inside = r < size
    whole = (n < d)[:, None] & (c < classes)[None, :]
    rows = inside[:, None] & (n < d)[None, :]
    here = r[:, None] * d_all + member * d + n[None, :]
    w = tl.load(weight + n[:, None] * classes + c[None, :], mask=whole, other=0.0)
    mixed = tl.load(joined + r[:, None] * 2 * d + n[None, :], mask=rows, other=0.0)
    logits = tl.dot(mixed, w, input_precision=PRECISION)
    if OWN:
        # Of a pair, the first network alone has R2.
        has = whole & ((n * 0 + member) == 0)[:, None]
        v = tl.load(own_weight + n[:, None] * classes + c[None, :], mask=has, other=0.0)
        own = tl.load(hidden + here, mask=rows, other=0.0)
        logits += tl.dot(own, v, input_precision=PRECISION)
        tl.store(joined + r[:, None] * 2 * d + d + n[None, :], own, mask=rows)
    logits *= MEMBERS
    if HAS_BIAS:
        logits += tl.load(bias + c, mask=c < classes, other=0.0)[None, :]
    logits = tl.where((c < classes)[None, :], logits, float("-inf"))
    largest = tl.max(logits, 1)
    chances = tl.exp(logits - largest[:, None])
    normaliser = tl.sum(chances, 1)
    label = tl.load(labels + r, mask=inside, other=0)
    true = c[None, :] == label[:, None]
    row_weight = tl.load(row_weights + r, mask=inside, other=0.0) / MEMBERS
    at_label = tl.sum(tl.where(true, logits, 0.0), 1)
    loss = row_weight * (largest + tl.log(normaliser) - at_label)
    tl.store(losses + tile, tl.sum(tl.where(inside, loss, 0.0), 0))
    g = (chances / normaliser[:, None] - tl.where(true, 1.0, 0.0)) * row_weight[:, None]
    if HAS_BIAS:
        tl.atomic_add(by_bias + c, tl.sum(g, 0), mask=c < classes)
    g *= MEMBERS
    tl.store(logit_gradient + r[:, None] * BC + c[None, :], g, mask=inside[:, None])
    back = tl.dot(g, tl.trans(w), input_precision=PRECISION)
    tl.store(by_row + r[:, None] * d + n[None, :], back, mask=rows)
    if OWN:
        # The first sources are the batch's own rows, to whose gradient nothing was added yet.
        tl.store(gradient + here, tl.dot(g, tl.trans(v), input_precision=PRECISION), mask=rows)
