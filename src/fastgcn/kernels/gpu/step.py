"""Training steps on a CUDA device: Adam for any network, and a fused step for the paper's network.

The fused step takes three kernels: from rows of ÂX to hidden rows; from these to the loss and
back; and from the gradients to new weights.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources as OutOfResources  # raised by `FusedStep`

from fastgcn.kernels.gpu.blocks import BlockBuffers


@triton.jit
def _adam_update(weight, mean, square, place, there, gradient, number, rate, decay):
    """Adam's update of some entries (Kingma & Ba), L2 added to the gradient as torch does."""
    w = tl.load(weight + place, mask=there, other=0.0)
    m = tl.load(mean + place, mask=there, other=0.0)
    s = tl.load(square + place, mask=there, other=0.0)
    g = gradient + decay * w
    m = 0.9 * m + 0.1 * g
    s = 0.999 * s + 0.001 * g * g
    steps = number.to(tl.float64)
    first = 1.0 - tl.exp2(steps * -0.15200309344504997)  # log2 of 0.9
    second = 1.0 - tl.exp2(steps * -0.0014434168696687186)  # log2 of 0.999
    size = (rate / first).to(tl.float32)
    root = tl.sqrt(s) / tl.sqrt(second).to(tl.float32)
    tl.store(weight + place, w - size * m / (root + 1e-8), mask=there)
    tl.store(mean + place, m, mask=there)
    tl.store(square + place, s, mask=there)


@triton.jit
def _adam_entries(weight, mean, square, gradient, steps, count, rate, decay, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    g = tl.load(gradient + place, mask=there, other=0.0)
    _adam_update(weight, mean, square, place, there, g, tl.load(steps) + 1, rate, decay)


@dataclass(frozen=True)
class AdamParameter:
    """A parameter, its two moments, and its L2."""

    weight: Tensor
    mean: Tensor
    square: Tensor
    decay: float

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight, self.mean, self.square


def adam(parameter: AdamParameter, gradient: Tensor, steps: Tensor, rate: float) -> None:
    """Adam's step along a gradient, after `steps` (1,) others."""
    weight, mean, square = (part.view(-1) for part in parameter.parts)
    _adam_entries[(triton.cdiv(len(weight), 1024),)](
        weight, mean, square, gradient.contiguous().view(-1), steps, len(weight), rate,
        parameter.decay, BLOCK=1024,
    )  # fmt: skip


@triton.jit(do_not_specialize=["step"])
def hidden_rows(
    step, x, x_stride, sources, n_sources, weight, bias, hidden, gradient, room, width, d,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """hidden = ReLU(X[sources] W1 + b1) and gradient = 0, one row for each source."""
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
    """(rows, entries): True if an entry e belongs to a row."""
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


@triton.jit
def _update_first(
    x, x_stride, sources, count, hidden, hidden_gradient, w1, w1_mean, w1_square,
    b1, b1_mean, b1_square, tile, width, d, tiles_n, number, rate, decay,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
    BS: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Update a tile of W1. Its gradient is X[sources]ᵀ times that of the hidden rows, which is
    zero where ReLU was zero."""
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
    _adam_update(w1, w1_mean, w1_square, place, there, total, number, rate, decay)
    if HAS_BIAS:  # noqa: SIM102 (a constant of the compiler)
        if tile < tiles_n:
            _adam_update(b1, b1_mean, b1_square, n, n < d, for_bias, number, rate, 0.0)


@triton.jit
def _update_second(
    mixed, logit_gradient, w2, w2_mean, w2_square, b2, b2_mean, b2_square,
    tile, size, d, classes, number, rate, decay,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BS: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, B2: tl.constexpr,
):  # fmt: skip
    """Update some rows of W2. Their gradient is mixedᵀ times that of the logits."""
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
    _adam_update(w2, w2_mean, w2_square, place, there, total, number, rate, decay)
    if HAS_BIAS:  # noqa: SIM102
        if tile == 0:
            _adam_update(b2, b2_mean, b2_square, c, c < classes, for_bias, number, rate, 0.0)


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
    """Adam's step for all parameters: each program computes one tile's gradient and update."""
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


# Tiles and warps, found by trial on an H200, for a few hundred sources and for thousands.
_HIDDEN = {"BM": 16, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 5}
_MANY_HIDDEN = {"BM": 16, "BN": 64, "BK": 128, "num_warps": 4, "num_stages": 5}
_ROWS = {"BR": 16, "BE": 32, "num_warps": 8, "num_stages": 1}
_UPDATE = {"BS": 64, "BK": 16, "BN": 64, "B2": 16, "num_warps": 4, "num_stages": 4}
_MANY_UPDATE = {"BS": 128, "BK": 16, "BN": 64, "B2": 16, "num_warps": 4, "num_stages": 2}
_MANY = 1024
# A program has 227 KB of shared memory on an H200, of which the tiles above take up to 200, and
# 99 KB on most other GPUs. With one stage nothing is loaded ahead: less memory, more time.
_FRUGAL = {"num_stages": 1}

# The widest row, and the most entries of W2, that one tile holds: an H200 has room for 512 x 64
# and some rows.
_WIDEST, _LARGEST_TILE = 512, 1 << 15


def _padded(width: int) -> int:
    """The width of a tile that holds a whole row."""
    return max(16, int(triton.next_power_of_2(width)))


def fits_one_tile(d: int, classes: int) -> bool:
    """True if a program can hold all of W2 (d, classes), and some rows beside it."""
    return max(d, classes) <= _WIDEST and _padded(d) * _padded(classes) <= _LARGEST_TILE


class FusedStep:
    """A training step of adj·ReLU(X W1 + b1)·W2 + b2, with its work space.

    Batches have `size` rows and at most `sources` sources. `precision` "tf32" or "ieee" is that
    of products. With "tf32", x in bfloat16 is multiplied in bfloat16. Float16, whose range is
    too small for gradients, is always converted to float32. `frugal` is for devices on which a
    step otherwise raises `OutOfResources`.
    """

    def __init__(
        self,
        x: Tensor,
        parameters: tuple[AdamParameter, AdamParameter | None, AdamParameter, AdamParameter | None],
        size: int,
        sources: int,
        rate: float,
        *,
        precision: str = "tf32",
        frugal: bool = False,
    ) -> None:
        self.x, self.rate, self.precision, self.frugal = x, rate, precision, frugal
        narrow = x.dtype == torch.bfloat16 and precision == "tf32"
        self.operand = tl.bfloat16 if narrow else tl.float32
        w1, b1, w2, b2 = parameters
        self.w1, self.b1, self.w2, self.b2 = w1, b1 or w1, w2, b2 or w2
        self.has_bias = b1 is not None
        (self.width, self.d), self.classes = w1.weight.shape, w2.weight.shape[1]
        self.size = size
        self.bd, self.bc = _padded(self.d), _padded(self.classes)
        self.hidden, self.hidden_gradient, self.mixed, self.logit_gradient = (
            torch.zeros(shape, device=w1.weight.device)
            for shape in [(sources, self.d)] * 2 + [(size, self.bd), (size, self.bc)]
        )
        self.tiles = triton.cdiv(size, _ROWS["BR"])

    def __call__(
        self,
        step: int,
        blocks: BlockBuffers,
        labels: Tensor,
        row_weights: Tensor,
        active: Tensor,
        steps: Tensor,
        losses: Tensor,
    ) -> None:
        """The step of batch number `step` among K, before which `steps` (1,) were taken.

        `labels` and `row_weights` (K, s): the weights of a batch sum to one and are zero where
        there is no row. `active` (K,) is zero where the batch has no row at all. `losses`
        (K, tiles) receives the loss, in parts to be added up.
        """
        common: dict[str, Any] = {"HAS_BIAS": self.has_bias, "PRECISION": self.precision}
        by_x = common | {"OPERAND": self.operand}
        room = blocks.sources.shape[1]
        hidden, update = self._tiles(room)
        inputs = step, self.x, self.x.stride(0), blocks.sources, blocks.n_sources
        hidden_rows[(triton.cdiv(room, hidden["BM"]), triton.cdiv(self.d, hidden["BN"]))](
            *inputs, self.w1.weight, self.b1.weight, self.hidden, self.hidden_gradient,
            room, self.width, self.d, **by_x, **hidden,
        )  # fmt: skip
        loss_rows[(self.tiles,)](
            step, *blocks.csr, self.hidden, self.w2.weight, self.b2.weight, labels, row_weights,
            self.mixed, self.logit_gradient, self.hidden_gradient, losses,
            self.size, self.d, self.classes, **common, **_ROWS, BD=self.bd, BC=self.bc,
        )  # fmt: skip
        tiles_n = triton.cdiv(self.d, update["BN"])
        tiles = triton.cdiv(self.width, update["BK"]) * tiles_n
        update_weights[(tiles + triton.cdiv(self.d, update["B2"]),)](
            *inputs, self.hidden, self.hidden_gradient, self.mixed, self.logit_gradient,
            active, steps, *self.w1.parts, *self.b1.parts, *self.w2.parts, *self.b2.parts,
            room, self.size, self.width, self.d, self.classes, tiles_n, tiles,
            self.rate, self.w1.decay, self.w2.decay,
            **by_x, **update, BD=self.bd, BC=self.bc,
        )  # fmt: skip

    def _tiles(self, room: int) -> tuple[dict[str, int], dict[str, int]]:
        """The settings of the first and of the third kernel."""
        many = room > _MANY and not self.frugal
        less = _FRUGAL if self.frugal else {}
        chosen = (_MANY_HIDDEN, _MANY_UPDATE) if many else (_HIDDEN, _UPDATE)
        hidden, update = (each | {"BN": min(each["BN"], self.bd)} | less for each in chosen)
        return hidden, update


def loss_reference(
    parameters: list[Tensor | None], x: Tensor, adj: Tensor, labels: Tensor, row_weights: Tensor
) -> Tensor:
    """The loss of adj·ReLU(X W1 + b1)·W2 + b2 by plain torch; `parameters` are W1, b1, W2, b2."""
    w1, b1, w2, b2 = parameters
    assert w1 is not None
    assert w2 is not None
    hidden = torch.relu(x @ w1 + (0.0 if b1 is None else b1))
    logits = adj @ hidden @ w2 + (0.0 if b2 is None else b2)
    each = torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none")
    return (each * row_weights).sum()
