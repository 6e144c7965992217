"""Training steps on a CUDA device: Adam for any network, and a step of two layers in few kernels.

The step is that of `NetworkStep`. Its large products are torch's; everything between two of them
is one kernel.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources as OutOfResources  # raised by `NetworkStep`

from fastgcn.kernels.gpu.blocks import BlockBuffers
from fastgcn.kernels.gpu.dropout import kept


@triton.jit(do_not_specialize=["step"])
def _adam(
    step, weight, mean, square, gradient, decay, active, steps, count, rate,
    SOME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam (Kingma & Ba), L2 added to the gradient as torch does; the gradient is zero then."""
    if SOME:  # noqa: SIM102 (a constant of the compiler)
        if tl.load(active + step) == 0:
            return
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    w = tl.load(weight + place, mask=there, other=0.0)
    m = tl.load(mean + place, mask=there, other=0.0)
    s = tl.load(square + place, mask=there, other=0.0)
    g = tl.load(gradient + place, mask=there, other=0.0)
    g += tl.load(decay + place, mask=there, other=0.0) * w
    m = 0.9 * m + 0.1 * g
    s = 0.999 * s + 0.001 * g * g
    number = (tl.load(steps) + step + 1).to(tl.float64)
    first = 1.0 - tl.exp2(number * -0.15200309344504997)  # log2 of 0.9
    second = 1.0 - tl.exp2(number * -0.0014434168696687186)  # log2 of 0.999
    size = (rate / first).to(tl.float32)
    root = tl.sqrt(s) / tl.sqrt(second).to(tl.float32)
    tl.store(weight + place, w - size * m / (root + 1e-8), mask=there)
    tl.store(mean + place, m, mask=there)
    tl.store(square + place, s, mask=there)
    tl.store(gradient + place, w * 0, mask=there)


def adam(
    weight: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    decay: Tensor,
    steps: Tensor,
    rate: float,
    *,
    step: int = 0,
    active: Tensor | None = None,
) -> None:
    """Adam's step of weights (m,) with their moments and L2, after `steps` (1,) + `step` others.

    The gradient (m,) is zero afterwards. Nothing is done if `active` (K,) is 0 at `step`.
    """
    some = steps if active is None else active
    _adam[(triton.cdiv(len(weight), 512),)](
        step, weight, mean, square, gradient, decay, some, steps, len(weight), rate,
        SOME=active is not None, BLOCK=512,
    )  # fmt: skip


@triton.jit(do_not_specialize=["step"])
def _gather_rows(
    step, x, x_stride, beside, beside_stride, sources, n_sources, out, room, width, all_columns,
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
        tl.store(out + row[:, None] * all_columns + column[None, :], value, mask=inside)


@triton.jit
def _before_relu(z, bias, row, n, count, d, HAS_BIAS: tl.constexpr, NORM: tl.constexpr):
    """Of some rows: Z + b, its normalised rows, and 1 over their deviations."""
    there = (row < count)[:, None] & (n < d)[None, :]
    value = tl.load(z + row[:, None] * d + n[None, :], mask=there, other=0.0)
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
def _activate(
    step, z, bias, gamma, beta, n_sources, hidden, gradient, d, steps, seed, rate,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
    ROWS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """hidden = dropped(ReLU(norm(Z + b))) and gradient = 0, one row for each source."""
    count = tl.load(n_sources + step)
    first = tl.program_id(0) * ROWS
    if first < count:
        row, n = first + tl.arange(0, ROWS), tl.arange(0, BD)
        there, value, _ = _before_relu(z, bias, row, n, count, d, HAS_BIAS, NORM)
        value = tl.maximum(_normed(value, gamma, beta, n, d, NORM), 0.0)
        if DROP:
            value *= kept(tl.load(steps) + step, seed, 1, row, tl.arange(0, BD // 4), rate, BD)
        place = row[:, None] * d + n[None, :]
        tl.store(hidden + place, value, mask=there)
        tl.store(gradient + place, value * 0, mask=there)


@triton.jit(do_not_specialize=["step"])
def _activate_back(
    step, z, bias, gamma, beta, n_sources, gradient, by_bias, by_gamma, by_beta,
    room, d, steps, seed, rate,
    HAS_BIAS: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
    ROWS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """gradient: from that by `hidden` to that by Z, in place; rows without a source are zero.

    The gradients by the bias and by the norm's weights are added up.
    """
    count = tl.load(n_sources + step)
    row, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BD)
    place = row[:, None] * d + n[None, :]
    there, value, scale = _before_relu(z, bias, row, n, count, d, HAS_BIAS, NORM)
    g = tl.load(gradient + place, mask=there, other=0.0)
    g = tl.where(_normed(value, gamma, beta, n, d, NORM) > 0, g, 0.0)
    if DROP:
        g *= kept(tl.load(steps) + step, seed, 1, row, tl.arange(0, BD // 4), rate, BD)
    if NORM:
        tl.atomic_add(by_gamma + n, tl.sum(g * value, 0), mask=n < d)
        tl.atomic_add(by_beta + n, tl.sum(g, 0), mask=n < d)
        g = g * tl.load(gamma + n, mask=n < d, other=0.0)[None, :]
        g -= (tl.sum(g, 1) / d)[:, None] + value * (tl.sum(g * value, 1) / d)[:, None]
        g = tl.where(there, g * scale[:, None], 0.0)
    if HAS_BIAS:
        tl.atomic_add(by_bias + n, tl.sum(g, 0), mask=n < d)
    tl.store(gradient + place, g, mask=(row < room)[:, None] & (n < d)[None, :])


@triton.jit
def _mine(begin, end, e):
    """(rows, entries): True if an entry e belongs to a row."""
    return (e[None, :] >= begin[:, None]) & (e[None, :] < end[:, None])


@triton.jit(do_not_specialize=["step"])
def _loss_rows(
    step, offsets, columns, values, hidden, weight, own_weight, bias, labels, row_weights,
    joined, logit_gradient, hidden_gradient, by_bias, losses, size, d, d_all, classes,
    HAS_BIAS: tl.constexpr, OWN: tl.constexpr, MEMBERS: tl.constexpr, PRECISION: tl.constexpr,
    BR: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, BE: tl.constexpr,
):  # fmt: skip
    """From hidden rows to the loss and back, for one network of `MEMBERS`:

    mixed = adj·hidden, logits = mixed·W2 + own·R2 + b2, their weighted cross entropy, and its
    gradients by logits and, added up by source, by hidden rows. `joined` is [mixed | own]. Of a
    pair, each network reads its half of the hidden rows, the second has no R2, and both products
    count twice.
    """
    tile, member = tl.program_id(0), tl.program_id(1)
    offsets += step * size
    labels += step * size
    row_weights += step * size
    losses += (step * MEMBERS + member) * tl.num_programs(0)
    hidden += member * d
    hidden_gradient += member * d
    weight += member * d * classes
    joined += member * size * 2 * d
    logit_gradient += member * size * BC
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
            hidden + column[:, None] * d_all + n[None, :],
            mask=there[:, None] & (n < d)[None, :],
            other=0.0,
        )
        adj = tl.where(_mine(begin, end, e), value[None, :], 0.0)
        total += tl.dot(adj, h, input_precision="ieee")
    whole = (n < d)[:, None] & (c < classes)[None, :]
    w = tl.load(weight + n[:, None] * classes + c[None, :], mask=whole, other=0.0)
    logits = tl.dot(total, w, input_precision=PRECISION)
    rows = inside[:, None] & (n < d)[None, :]
    here = r[:, None] * d_all + n[None, :]
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
    tl.store(joined + r[:, None] * 2 * d + n[None, :], total, mask=rows)
    by_row = tl.dot(g, tl.trans(w), input_precision=PRECISION)
    for start in range(first, last, BE):
        e = start + tl.arange(0, BE)
        there = e < last
        column = tl.load(columns + e, mask=there, other=0)
        value = tl.load(values + e, mask=there, other=0.0)
        adj = tl.where(_mine(begin, end, e), value[None, :], 0.0)
        by_source = tl.dot(tl.trans(adj), by_row, input_precision="ieee")
        tl.atomic_add(
            hidden_gradient + column[:, None] * d_all + n[None, :],
            by_source,
            mask=there[:, None] & (n < d)[None, :],
        )
    if OWN:
        by_own = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        tl.atomic_add(hidden_gradient + here, by_own, mask=rows)


# Rows, columns and entries of the kernels' tiles, for an H200.
_GATHER = {"ROWS": 4, "COLUMNS": 512, "num_warps": 4}
_TILE_ENTRIES = 2048
_LOSS = {"BR": 16, "BE": 32, "num_warps": 8, "num_stages": 1}

# The widest row, and the most entries of W2 and R2, that one tile holds: an H200 has room for
# 512 x 64 and some rows.
_WIDEST, _LARGEST_TILE = 512, 1 << 15


def _padded(width: int) -> int:
    """The width of a tile that holds a whole row."""
    return max(16, int(triton.next_power_of_2(width)))


def fits_one_tile(d: int, classes: int, *, own: bool) -> bool:
    """True if a program can hold all of W2 and R2 (d, classes), and some rows beside them."""
    entries = _padded(d) * _padded(classes) * (1 + own)
    return d % 4 == 0 and max(d, classes) <= _WIDEST and entries <= _LARGEST_TILE


@dataclass(frozen=True)
class Known:
    """A parameter, and where its gradient is put."""

    weight: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class NetworkWeights:
    """The parameters of two layers; None for what a network does not have.

    Attributes:
        first: W1 (F, d), or [W1; R1] (2F, d).
        second: W2 (d, C), or [W2; R2] (2d, C).
        bias, gamma, beta: (d,) of the hidden rows, the latter two those of a layer norm.
        out_bias: (C,).
        members: 2 for a pair of networks, which has R1 and R2, and no norm.
    """

    first: Known
    second: Known
    bias: Known | None = None
    gamma: Known | None = None
    beta: Known | None = None
    out_bias: Known | None = None
    own: bool = False
    members: int = 1


class NetworkStep:
    """A step's losses and gradients, with its work space, for the network

        H = dropped(ReLU(norm(dropped([X | Y][sources]) [W1; R1] + b1)))
        logits = adj·H·W2 + H[own]·R2 + b2

    where Y, R1, R2, norm, biases and dropout may be missing. Batches have `size` rows and at most
    `sources` sources, of which the first `size` are the rows themselves if there is R2.
    `precision` "tf32" or "ieee" is that of products in kernels; torch's setting is that of others.
    What is dropped in step number i follows from `seed` and i, as in `CountedDropout`.
    """

    def __init__(
        self,
        x: Tensor,
        beside: Tensor | None,
        weights: NetworkWeights,
        size: int,
        sources: int,
        *,
        rates: tuple[float, float] = (0.0, 0.0),
        seed: int = 0,
        precision: str = "tf32",
    ) -> None:
        self.x, self.beside, self.weights, self.size = x, beside, weights, size
        self.rates, self.seed, self.precision = rates, seed % 2**62, precision
        self.width, device = x.shape[1], weights.first.weight.device
        self.columns, self.d = weights.first.weight.shape
        self.members, self.classes = weights.members, weights.second.weight.shape[1]
        self.half = self.d // self.members
        self.bd, self.bc = _padded(self.half), _padded(self.classes)
        self.tiles = triton.cdiv(size, _LOSS["BR"])
        # Two, so that the rows of the next step are gathered during this one.
        self.inputs = [torch.zeros((sources, self.columns), device=device) for _ in range(2)]
        self.z, self.hidden, self.gradient = (
            torch.zeros((sources, self.d), device=device) for _ in range(3)
        )
        self.joined = torch.zeros((self.members, size, 2 * self.half), device=device)
        self.logit_gradient = torch.zeros((self.members, size, self.bc), device=device)

    def gather(self, step: int, blocks: BlockBuffers, steps: Tensor) -> None:
        """Gather the input rows of batch number `step` among K. They do not depend on weights."""
        beside, room = self.x if self.beside is None else self.beside, blocks.sources.shape[1]
        grid = triton.cdiv(room, _GATHER["ROWS"]), triton.cdiv(self.columns, _GATHER["COLUMNS"])
        _gather_rows[grid](
            step, self.x, self.x.stride(0), beside, beside.stride(0),
            blocks.sources, blocks.n_sources, self.inputs[step % 2], room, self.width, self.columns,
            steps, self.seed, self.rates[0],
            BESIDE=self.beside is not None, DROP=self.rates[0] > 0, **_GATHER,
        )  # fmt: skip

    def __call__(
        self,
        step: int,
        blocks: BlockBuffers,
        labels: Tensor,
        row_weights: Tensor,
        steps: Tensor,
        losses: Tensor,
    ) -> None:
        """Losses and gradients of the batch whose rows were gathered, before which `steps` (1,)
        + `step` were taken.

        `labels` and `row_weights` (K, s): the weights of a batch sum to one and are zero where
        there is no row. `losses` (K, members, tiles) receives the loss, in parts to be added up.
        """
        known, x, room = self.weights, self.inputs[step % 2], blocks.sources.shape[1]
        torch.mm(x, known.first.weight, out=self.z)
        bias, gamma, beta, out_bias = (
            known.first if each is None else each
            for each in (known.bias, known.gamma, known.beta, known.out_bias)
        )
        bd = _padded(self.d)
        rows = max(1, _TILE_ENTRIES // bd)
        normed = self.z, bias.weight, gamma.weight, beta.weight, blocks.n_sources
        dropped = steps, self.seed, self.rates[1]
        kind = {
            "HAS_BIAS": known.bias is not None, "NORM": known.gamma is not None,
            "DROP": self.rates[1] > 0, "ROWS": rows, "BD": bd,
        }  # fmt: skip
        _activate[(triton.cdiv(room, rows),)](
            step, *normed, self.hidden, self.gradient, self.d, *dropped, **kind
        )
        w2, r2 = known.second.weight[: self.d], known.second.weight[self.d :]
        _loss_rows[(self.tiles, self.members)](
            step, *blocks.csr, self.hidden, w2, r2 if known.own else w2, out_bias.weight, labels,
            row_weights, self.joined, self.logit_gradient, self.gradient, out_bias.gradient, losses,
            self.size, self.half, self.d, self.classes,
            HAS_BIAS=known.out_bias is not None, OWN=known.own, MEMBERS=self.members,
            PRECISION=self.precision, **_LOSS, BD=self.bd, BC=self.bc,
        )  # fmt: skip
        _activate_back[(triton.cdiv(room, rows),)](
            step, *normed, self.gradient, bias.gradient, gamma.gradient, beta.gradient, room,
            self.d, *dropped, **kind,
        )  # fmt: skip
        self._weight_gradients(x)

    def _weight_gradients(self, x: Tensor) -> None:
        known, d, half, width = self.weights, self.d, self.half, self.width
        first, second = known.first.gradient, known.second.gradient
        by_logits = self.logit_gradient[:, :, : self.classes]
        if self.members == 1:
            used = self.joined[0] if known.own else self.joined[0, :, :d]
            torch.mm(used.T, by_logits[0], out=second)
            torch.mm(x.T, self.gradient, out=first)
            return
        # What would join the two networks of a pair, and the second one's own rows, have none.
        for member in range(2):
            rows = slice(member * half, (member + 1) * half)
            torch.mm(self.joined[member, :, :half].T, by_logits[member], out=second[rows])
        torch.mm(self.joined[0, :, half:].T, by_logits[0], out=second[d : d + half])
        torch.mm(x[:, :width].T, self.gradient, out=first[:width])
        first[width:, :half] = x[:, width:].T @ self.gradient[:, :half]


def logits_reference(weights: NetworkWeights, x: Tensor, adj: Tensor, own: int) -> list[Tensor]:
    """The logits of each network by plain torch, without dropout, from input rows x (k, F or 2F);
    the first `own` rows are those of the batch, whose convolution `adj` estimates."""
    first, second = weights.first.weight, weights.second.weight
    d = first.shape[1]
    z = x @ first + (0.0 if weights.bias is None else weights.bias.weight)
    if weights.gamma is not None and weights.beta is not None:
        z = torch.nn.functional.layer_norm(z, (d,), weights.gamma.weight, weights.beta.weight)
    hidden = torch.relu(z)
    half, found = d // weights.members, []
    for member in range(weights.members):
        rows = slice(member * half, (member + 1) * half)
        logits = adj @ hidden[:, rows] @ second[rows]
        if weights.own and member == 0:
            logits = logits + hidden[:own, rows] @ second[d:][rows]
        logits = logits * weights.members
        found.append(logits + (0.0 if weights.out_bias is None else weights.out_bias.weight))
    return found
