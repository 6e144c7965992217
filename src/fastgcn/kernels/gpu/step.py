"""The paper's network from rows of ÂX to hidden rows, and from these to the loss and back."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from fastgcn.kernels.gpu.adam import Parameter, adam_update


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


__all__ = ["OutOfResources", "PlainStep", "has_room"]

# Tiles and warps, found by trial on an H200, for a few hundred sources and for thousands.
_HIDDEN = {"BM": 16, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 5}
_MANY_HIDDEN = {"BM": 16, "BN": 64, "BK": 128, "num_warps": 4, "num_stages": 5}
_ROWS = {"BR": 16, "BE": 32, "num_warps": 8, "num_stages": 1}
_UPDATE = {"BS": 64, "BK": 16, "BN": 64, "B2": 16, "num_warps": 4, "num_stages": 4}
_MANY_UPDATE = {"BS": 128, "BK": 16, "BN": 64, "B2": 16, "num_warps": 4, "num_stages": 2}
_MANY = 1024
# An H200 has 227 KB of memory for a program's tiles, of which those above take up to 200; others
# have 99. What loads nothing ahead takes less, and more time.
_FRUGAL = {"num_stages": 1}

# Widths of rows, and entries of W2, that are one tile: an H200 has room for 512 x 64 and some rows.
_WIDEST, _LARGEST_TILE = 512, 1 << 15


def _padded(width: int) -> int:
    """The width of a tile that holds a whole row."""
    return max(16, int(triton.next_power_of_2(width)))


def has_room(d: int, classes: int) -> bool:
    """Whether a program can hold all of W2 (d, classes), and some rows beside it."""
    return max(d, classes) <= _WIDEST and _padded(d) * _padded(classes) <= _LARGEST_TILE


class PlainStep:
    """Work space for steps on batches of `size` rows with at most `sources` sources.

    `precision` "tf32" or "ieee" is what products round to. Of x in bfloat16 they are products of
    bfloat16 where TF32 would do; float16 has not the range that gradients have, and is read
    as float32. `frugal` is for devices on which a step raises `OutOfResources` otherwise.
    """

    def __init__(
        self,
        x: Tensor,
        parameters: tuple[Parameter, Parameter | None, Parameter, Parameter | None],
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
        device = w1.weight.device

        def room(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        self.hidden, self.hidden_gradient = room(sources, self.d), room(sources, self.d)
        self.mixed, self.logit_gradient = room(size, self.bd), room(size, self.bc)
        self.tiles = triton.cdiv(size, _ROWS["BR"])

    def __call__(
        self,
        step: int,
        sources: Tensor,
        n_sources: Tensor,
        csr: tuple[Tensor, Tensor, Tensor],
        labels: Tensor,
        row_weights: Tensor,
        active: Tensor,
        steps: Tensor,
        losses: Tensor,
    ) -> None:
        """One step, number `step` of K batches, before which `steps` (1,) were taken.

        `sources` (K, room) and `csr` are those of a `Room`. `labels` and `row_weights` (K, s): a
        batch's weights sum to one, and are zero where there is no row; `active` (K,) is zero
        where the batch has no row at all. `losses` (K, tiles) take the loss, in parts.
        """
        common: dict[str, Any] = {"HAS_BIAS": self.has_bias, "PRECISION": self.precision}
        by_x = common | {"OPERAND": self.operand}
        room = sources.shape[1]
        hidden, update = self._tiles(room)
        hidden_rows[(triton.cdiv(room, hidden["BM"]), triton.cdiv(self.d, hidden["BN"]))](
            step, self.x, self.x.stride(0), sources, n_sources, self.w1.weight, self.b1.weight,
            self.hidden, self.hidden_gradient, room, self.width, self.d, **by_x, **hidden,
        )  # fmt: skip
        loss_rows[(self.tiles,)](
            step, *csr, self.hidden, self.w2.weight, self.b2.weight, labels, row_weights,
            self.mixed, self.logit_gradient, self.hidden_gradient, losses,
            self.size, self.d, self.classes, **common, **_ROWS, BD=self.bd, BC=self.bc,
        )  # fmt: skip
        tiles_n = triton.cdiv(self.d, update["BN"])
        tiles = triton.cdiv(self.width, update["BK"]) * tiles_n
        update_weights[(tiles + triton.cdiv(self.d, update["B2"]),)](
            step, self.x, self.x.stride(0), sources, n_sources, self.hidden, self.hidden_gradient,
            self.mixed, self.logit_gradient, active, steps,
            *self.w1.parts, *self.b1.parts, *self.w2.parts, *self.b2.parts,
            room, self.size, self.width, self.d, self.classes, tiles_n, tiles,
            self.rate, self.w1.decay, self.w2.decay,
            **by_x, **update, BD=self.bd, BC=self.bc,
        )  # fmt: skip

    def _tiles(self, room: int) -> tuple[dict[str, int], dict[str, int]]:
        """Those of the first kernel, and of the third."""
        many = room > _MANY and not self.frugal
        less = _FRUGAL if self.frugal else {}
        chosen = (_MANY_HIDDEN, _MANY_UPDATE) if many else (_HIDDEN, _UPDATE)
        hidden, update = (each | {"BN": min(each["BN"], self.bd)} | less for each in chosen)
        return hidden, update
