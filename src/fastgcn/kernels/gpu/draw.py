"""Drawing the vertices of many batches at once, duplicates folded.

K batches are drawn together, t vertices each: `drawn` (K, t). `place` (K, n) int32 is work space,
filled with NOWHERE: while batch k's block is made, place[k, u] is the first draw that came up
with u, whose slot stands for all of them.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

NOWHERE = 2**31 - 1

# How t points in [0, 1) are taken; see samplers/draws.py.
INDEPENDENT, STRATIFIED, SYSTEMATIC = 0, 1, 2

_BLOCK = 256


@triton.jit
def _uniform(seed, counter):
    """float64 in [0, 1) with 53 random bits, for each counter (int64): Philox, without state."""
    # Not by `randint4x`, which takes counters of 64 bits for another generator in some versions.
    first, second = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    high, low, _, _ = tl.philox(seed, first, second, first * 0, first * 0)
    bits = (high.to(tl.uint64) << 21) | (low.to(tl.uint64) >> 11)
    return bits.to(tl.float64) * (1.0 / 9007199254740992.0)


@triton.jit
def _points(steps, seed, j, t, KIND: tl.constexpr):
    """The points of the batch that this program is for, numbered from `steps` on."""
    first = (tl.load(steps) + tl.program_id(0)) * t
    if KIND == 0:
        return _uniform(seed, first + j)
    if KIND == 1:
        spread = (_uniform(seed, first + j) + j) / t
    else:
        spread = (_uniform(seed, first + j * 0) + j) / t
    return tl.minimum(spread, 1.0 - 1.1102230246251565e-16)


@triton.jit
def _first_above(sums, target, low, high):
    """The first position in [low, high] whose running sum exceeds the target, else `high`."""
    while tl.max(high - low, 0) > 0:
        middle = (low + high) // 2
        above = tl.load(sums + middle) > target
        open_ = low < high
        high = tl.where(open_ & above, middle, high)
        low = tl.where(open_ & (above == 0), middle + 1, low)
    return low


@triton.jit
def _enter(drawn, counts, met, place, vertex, j, t, n, found):
    """Note what each draw j < t came up with, where anything was `found`."""
    k = tl.program_id(0).to(tl.int64)
    inside = j < t
    tl.store(drawn + k * t + j, vertex, mask=inside)
    tl.store(counts + k * t + j, 0, mask=inside)
    tl.store(met + k * t + j, 0, mask=inside)
    tl.atomic_min(place + k * n + vertex, j, mask=inside & found)


@triton.jit
def _draw_vertices(
    cumulative, guide, steps, seed, drawn, counts, met, place, n, slots, t,
    KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    point = _points(steps, seed, j, t, KIND)
    slot = tl.minimum((point * slots).to(tl.int32), slots - 1)
    low, high = tl.load(guide + slot), tl.load(guide + slot + 1)
    vertex = _first_above(cumulative, point * tl.load(cumulative + n - 1), low, high)
    _enter(drawn, counts, met, place, vertex, j, t, n, j < t)


@triton.jit
def _draw_entries(
    row_sums, rows, indptr, indices, entry_sums, steps, seed, drawn, counts, met, place, n, size, t,
    KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = row_sums + k * size
    total = tl.load(sums + size - 1)
    target = _points(steps, seed, j, t, KIND) * total
    zero = tl.zeros((BLOCK,), tl.int32)
    row = _first_above(sums, target, zero, zero + size - 1)
    before = tl.load(sums + row - 1, mask=row > 0, other=0.0)
    node = tl.maximum(tl.load(rows + k * size + row), 0)
    begin, end = tl.load(indptr + node), tl.load(indptr + node + 1)
    offset = tl.load(entry_sums + begin - 1, mask=begin > 0, other=0.0)
    last = tl.maximum(end - 1, begin)
    entry = _first_above(entry_sums, offset + (target - before), begin, last)
    # Where no row of a batch has an entry, nothing can be drawn, and no entry will be met.
    found = target * 0 + total > 0
    vertex = tl.load(indices + entry, mask=found & (j < t), other=0)
    _enter(drawn, counts, met, place, vertex, j, t, n, found)


@triton.jit
def _fold(drawn, counts, place, t, n, BLOCK: tl.constexpr):
    k = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < t
    vertex = tl.load(drawn + k * t + j, mask=inside, other=0)
    first = tl.load(place + k * n + vertex, mask=inside, other=0)
    # Nothing was drawn there: see _draw_entries.
    inside &= first < t
    tl.atomic_add(counts + k * t + first, 1, mask=inside)


@triton.jit
def _forget(drawn, place, t, n, NONE: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < t
    vertex = tl.load(drawn + k * t + j, mask=inside, other=0)
    tl.store(place + k * n + vertex, NONE, mask=inside)


class Drawn(NamedTuple):
    """What is drawn for K batches, each (K, t) int32.

    Attributes:
        vertices: in the order drawn, duplicates and all.
        counts: how often the vertex came up, in the slot of its first draw; zero in the others.
        met: whether some row of the batch has an entry there, in the same slot; set when blocks
            are cut.
    """

    vertices: Tensor
    counts: Tensor
    met: Tensor

    @classmethod
    def room(cls, count: int, t: int, device: torch.device) -> "Drawn":
        return cls(*(torch.zeros((count, t), dtype=torch.int32, device=device) for _ in range(3)))


def draw_vertices(
    law: tuple[Tensor, Tensor],
    steps: Tensor,
    seed: int,
    kind: int,
    draws: "Drawn",
    place: Tensor,
) -> None:
    """From one q, by its running sums (n,) float64 and their guide (slots+1,) int32, which says
    where each slot's share of [0, 1) begins. `steps` counts the batches before these.
    """
    (cumulative, guide), (drawn, counts, met) = law, draws
    t = drawn.shape[1]
    _draw_vertices[_grid(drawn)](
        cumulative, guide, steps, seed, drawn, counts, met, place,
        place.shape[1], len(guide) - 1, t, KIND=kind, BLOCK=_BLOCK,
    )  # fmt: skip
    _fold[_grid(drawn)](drawn, counts, place, t, place.shape[1], BLOCK=_BLOCK)


def draw_entries(
    row_sums: Tensor,
    rows: Tensor,
    matrix: tuple[Tensor, Tensor, Tensor],
    steps: Tensor,
    seed: int,
    kind: int,
    draws: "Drawn",
    place: Tensor,
) -> None:
    """The columns of entries of each batch's rows (K, s), by the power p of their magnitudes.

    `row_sums` (K, s) float64 are running sums over a batch's rows of Σ |Â(v,u)|^p; `matrix` is
    indptr, indices and the running sums of |Â(v,u)|^p over all entries (m,) float64.
    """
    (indptr, indices, entry_sums), (drawn, counts, met) = matrix, draws
    t, size = drawn.shape[1], rows.shape[1]
    _draw_entries[_grid(drawn)](
        row_sums, rows, indptr, indices, entry_sums, steps, seed, drawn, counts, met, place,
        place.shape[1], size, t, KIND=kind, BLOCK=_BLOCK,
    )  # fmt: skip
    _fold[_grid(drawn)](drawn, counts, place, t, place.shape[1], BLOCK=_BLOCK)


def forget(drawn: Tensor, place: Tensor) -> None:
    """Fill what was drawn in `place` with NOWHERE again."""
    _forget[_grid(drawn)](drawn, place, drawn.shape[1], place.shape[1], NONE=NOWHERE, BLOCK=_BLOCK)


def _grid(drawn: Tensor) -> tuple[int, int]:
    return drawn.shape[0], triton.cdiv(drawn.shape[1], _BLOCK)
