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
    """out = the rows of [x | beside] of a batch's sources, some entries dropped.

    A few programs take one tile after the other, and leave room for what runs beside them.
    """
    count = tl.load(n_sources + step)
    across = tl.cdiv(all_columns, COLUMNS)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS) * across, tl.num_programs(0)):
        row = tile // across * ROWS + tl.arange(0, ROWS)
        column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
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
            fours = tile % across * (COLUMNS // 4) + tl.arange(0, COLUMNS // 4)
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


@triton.jit
def _of_member(value, n, member, d, MEMBERS: tl.constexpr):
    """The columns of one network of `MEMBERS`; zero elsewhere."""
    if MEMBERS > 1:
        value = tl.where((n // (d // MEMBERS) == member)[None, :], value, 0.0)
    return value


@triton.jit
def _last_weights(weight, n, d, BC: tl.constexpr):
    """The first d rows of W2 or R2, padded."""
    c = tl.arange(0, BC)
    return tl.load(weight + n[:, None] * BC + c[None, :], mask=(n < d)[:, None], other=0.0)


@triton.jit(do_not_specialize=["step"])
def activate(
    step, z, bias, gamma, beta, n_sources, weight, own_weight, hidden, narrow, own, by_narrow,
    size, room, d, steps, seed, rate,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr, OWN: tl.constexpr,
    PARTS: tl.constexpr, MEMBERS: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """hidden = dropped(ReLU(norm(Z + b))), one row for each source; by_narrow = 0.

    `narrow` = hidden·W2 for each network, and `own` = hidden·R2 for the first `size` rows. Their
    rows are padded with zeros, as are all that have a column for each class.
    """
    count = tl.load(n_sources + step)
    first = tl.program_id(0) * ROWS
    if first < count:
        row, n, c = first + tl.arange(0, ROWS), tl.arange(0, BD), tl.arange(0, BC)
        # Loaded first, so that one waits for them and for Z together.
        w = _last_weights(weight, n, d, BC)
        if OWN:  # of a pair, the first network alone has R2
            wanted = tl.where(first < size, d // MEMBERS, 0)
            v = _last_weights(own_weight, n, wanted, BC)
        there, value, _ = _before_relu(z, bias, row, n, count, room, d, HAS_BIAS, NORM, PARTS)
        value = tl.maximum(_normed(value, gamma, beta, n, d, NORM), 0.0)
        if DROP:
            value *= kept(tl.load(steps) + step, seed, 1, row, tl.arange(0, BD // 4), rate, BD)
        value = tl.where(there, value, 0.0)
        tl.store(hidden + row[:, None] * d + n[None, :], value, mask=there)
        for member in tl.static_range(MEMBERS):
            mine = _of_member(value, n, member, d, MEMBERS)
            place = (row[:, None] * MEMBERS + member) * BC + c[None, :]
            inside = (row < count)[:, None] & (c < BC)[None, :]
            tl.store(narrow + place, tl.dot(mine, w, input_precision=PRECISION), mask=inside)
            tl.store(by_narrow + place, tl.zeros((ROWS, BC), tl.float32), mask=inside)
        if OWN:  # noqa: SIM102 (a constant of the compiler)
            if first < size:
                place = row[:, None] * BC + c[None, :]
                inside = (row < size)[:, None] & (c < BC)[None, :]
                tl.store(own + place, tl.dot(value, v, input_precision=PRECISION), mask=inside)


@triton.jit(do_not_specialize=["step"])
def mix_entries(
    step, offsets, rows, columns, values, narrow, mixed, size,
    MEMBERS: tl.constexpr, ENTRIES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """mixed += adj·narrow of each network, `ENTRIES` of adj at a time, whatever rows they are of.

    A row with a thousand entries takes no longer than a thousand rows with one.
    """
    begin, end = tl.load(offsets + step * size), tl.load(offsets + (step + 1) * size)
    member, c = tl.program_id(1), tl.arange(0, BC)
    for start in range(begin + tl.program_id(0) * ENTRIES, end, tl.num_programs(0) * ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        column = tl.load(columns + e, mask=e < end, other=0)
        value = tl.load(values + e, mask=e < end, other=0.0)
        row = tl.load(rows + e, mask=e < end, other=0)
        first, last = tl.load(rows + start), tl.load(rows + tl.minimum(start + ENTRIES, end) - 1)
        inside = (e < end)[:, None] & (c < BC)[None, :]
        place = (column[:, None] * MEMBERS + member) * BC + c[None, :]
        share = tl.load(narrow + place, mask=inside, other=0.0) * value[:, None]
        if first == last:
            of_row = mixed + (first * MEMBERS + member) * BC + c
            tl.atomic_add(of_row, tl.sum(share, 0), sem="relaxed")
        else:
            place = (row[:, None] * MEMBERS + member) * BC + c[None, :]
            tl.atomic_add(mixed + place, share, mask=inside, sem="relaxed")


@triton.jit
def _losses(
    row, there, member, mixed, own, bias, labels, row_weights, classes,
    HAS_BIAS: tl.constexpr, OWN: tl.constexpr, MEMBERS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Of some rows, for one network: the weighted cross entropy of their logits
    mixed + own + b2, and its gradient by logits.

    Of a pair, the second network has no own rows, and both products count twice.
    """
    c = tl.arange(0, BC)
    known = there[:, None] & (c < classes)[None, :]
    logits = tl.load(mixed + (row[:, None] * MEMBERS + member) * BC + c[None, :], mask=known)
    if OWN:
        mine = known & (member + c * 0 == 0)[None, :]
        logits += tl.load(own + row[:, None] * BC + c[None, :], mask=mine, other=0.0)
    logits *= MEMBERS
    if HAS_BIAS:
        logits += tl.load(bias + c, mask=c < classes, other=0.0)[None, :]
    logits = tl.where((c < classes)[None, :], tl.where(known, logits, 0.0), float("-inf"))
    label = tl.load(labels + row, mask=there, other=0)
    row_weight = tl.load(row_weights + row, mask=there, other=0.0)
    largest = tl.max(logits, 1)
    chances = tl.exp(logits - largest[:, None])
    normaliser = tl.sum(chances, 1)
    true = c[None, :] == label[:, None]
    at_label = tl.sum(tl.where(true, logits, 0.0), 1)
    loss = row_weight * (largest + tl.log(normaliser) - at_label) / MEMBERS
    g = (chances / normaliser[:, None] - tl.where(true, 1.0, 0.0)) * row_weight[:, None]
    return loss, g


@triton.jit(do_not_specialize=["step"])
def losses_back(
    step, offsets, rows, columns, values, mixed, own, bias, labels, row_weights,
    by_narrow, by_logits, losses, size, classes,
    HAS_BIAS: tl.constexpr, OWN: tl.constexpr, MEMBERS: tl.constexpr,
    ROWS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The rows' losses, their gradient by logits, and by_narrow += adjᵀ·by_logits.

    The first programs are for rows, the others for entries, which compute the gradient of their
    rows once more.
    """
    member, c = tl.program_id(1), tl.arange(0, BC)
    labels += step * size
    row_weights += step * size
    of_rows = tl.cdiv(size, ROWS)
    if tl.program_id(0) < of_rows:
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = row < size
        loss, g = _losses(
            row, there, member, mixed, own, bias, labels, row_weights, classes,
            HAS_BIAS, OWN, MEMBERS, BC,
        )  # fmt: skip
        tl.store(losses + (step * MEMBERS + member) * size + row, loss, mask=there)
        place = (row[:, None] * MEMBERS + member) * BC + c[None, :]
        tl.store(by_logits + place, g, mask=there[:, None] & (c < BC)[None, :])
    else:
        begin, end = tl.load(offsets + step * size), tl.load(offsets + (step + 1) * size)
        program, programs = tl.program_id(0) - of_rows, tl.num_programs(0) - of_rows
        for start in range(begin + program * ROWS, end, programs * ROWS):
            e = start + tl.arange(0, ROWS)
            there = e < end
            row = tl.load(rows + e, mask=there, other=0)
            column = tl.load(columns + e, mask=there, other=0)
            value = tl.load(values + e, mask=there, other=0.0)
            _, g = _losses(
                row, there, member, mixed, own, bias, labels, row_weights, classes,
                HAS_BIAS, OWN, MEMBERS, BC,
            )  # fmt: skip
            place = (column[:, None] * MEMBERS + member) * BC + c[None, :]
            inside = there[:, None] & (c < BC)[None, :]
            tl.atomic_add(by_narrow + place, g * value[:, None], mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=["step"])
def activate_back(
    step, z, bias, gamma, beta, n_sources, weight, own_weight, by_narrow, by_logits, gradient, sums,
    size, room, d, steps, seed, rate,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr, OWN: tl.constexpr,
    MEMBERS: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """gradient: that by Z of a batch's sources, from by_narrow·W2ᵀ, and by_logits·R2ᵀ of own rows.
    Rows without a source are zero.

    `sums` (programs, 3, d) are parts of the gradients by the bias, and by the norm's weights.
    """
    count = tl.load(n_sources + step)
    first = tl.program_id(0) * ROWS
    if first < count:
        row, n, c = first + tl.arange(0, ROWS), tl.arange(0, BD), tl.arange(0, BC)
        known = (row < count)[:, None] & (c < BC)[None, :]
        g = tl.zeros((ROWS, BD), tl.float32)
        w = tl.trans(_last_weights(weight, n, d, BC))
        if OWN:
            wanted = tl.where(first < size, d // MEMBERS, 0)
            v = tl.trans(_last_weights(own_weight, n, wanted, BC))
        there, value, scale = _before_relu(z, bias, row, n, count, room, d, HAS_BIAS, NORM, 1)
        for member in tl.static_range(MEMBERS):
            place = (row[:, None] * MEMBERS + member) * BC + c[None, :]
            back = tl.dot(
                tl.load(by_narrow + place, mask=known, other=0.0), w, input_precision=PRECISION
            )
            g += _of_member(back, n, member, d, MEMBERS)
        if OWN:  # noqa: SIM102 (a constant of the compiler)
            if first < size:
                mine = known & (row < size)[:, None]
                place = row[:, None] * MEMBERS * BC + c[None, :]
                g += tl.dot(
                    tl.load(by_logits + place, mask=mine, other=0.0), v, input_precision=PRECISION
                )
        g = tl.where(there & (_normed(value, gamma, beta, n, d, NORM) > 0), g, 0.0)
        if DROP:
            g *= kept(tl.load(steps) + step, seed, 1, row, tl.arange(0, BD // 4), rate, BD)
        part = sums + tl.program_id(0) * 3 * d + n
        if NORM:
            tl.store(part + d, tl.sum(g * value, 0), mask=n < d)
            tl.store(part + 2 * d, tl.sum(g, 0), mask=n < d)
            g = g * tl.load(gamma + n, mask=n < d, other=0.0)[None, :]
            g -= (tl.sum(g, 1) / d)[:, None] + value * (tl.sum(g * value, 1) / d)[:, None]
            g = tl.where(there, g * scale[:, None], 0.0)
        tl.store(part, tl.sum(g, 0), mask=n < d)
        place = gradient + row[:, None] * d + n[None, :]
        tl.store(place, g, mask=(row < room)[:, None] & (n < d)[None, :])
    else:
        row, n = first + tl.arange(0, ROWS), tl.arange(0, BD)
        place = gradient + row[:, None] * d + n[None, :]
        nothing = tl.zeros((ROWS, BD), tl.float32)
        tl.store(place, nothing, mask=(row < room)[:, None] & (n < d)[None, :])


@triton.jit(do_not_specialize=["step"])
def add_sums(
    step, sums, by_bias, by_gamma, by_beta, n_sources, d,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, EACH: tl.constexpr,
    ROWS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add up the parts of `activate_back`, of `EACH` rows, for some columns of one of the three."""
    count = tl.cdiv(tl.load(n_sources + step), EACH)
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
