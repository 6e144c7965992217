"""Drawing the vertices of K batches together, t vertices each; repeated draws are counted.

`Places` are work space, empty between calls. While the block of batch k is made, they say which
vertices were drawn, and which draw was the first that gave each; that draw's slot stands for all
draws of the vertex.
"""

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray

NOWHERE = 2**31 - 1

# How t points in [0, 1) are taken; see `fastgcn.sampling.draws`.
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
    """The points j of this program's batch, whose number is `steps` + program_id(0)."""
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
def _enter(drawn, counts, met, place, bits, vertex, j, t, n, words, found):
    """Store the vertex of each draw j < t; `found` is false if nothing could be drawn."""
    k = tl.program_id(0).to(tl.int64)
    inside = j < t
    tl.store(drawn + k * t + j, vertex, mask=inside)
    tl.store(counts + k * t + j, 0, mask=inside)
    tl.store(met + k * t + j, 0, mask=inside)
    tl.atomic_min(place + k * n + vertex, j, mask=inside & found)
    tl.atomic_or(bits + k * words + vertex // 32, 1 << (vertex % 32), mask=inside & found)


@triton.jit
def _draw_vertices(
    cumulative, guide, steps, seed, drawn, counts, met, place, bits, n, words, slots, t,
    KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    point = _points(steps, seed, j, t, KIND)
    slot = tl.minimum((point * slots).to(tl.int32), slots - 1)
    low, high = tl.load(guide + slot), tl.load(guide + slot + 1)
    vertex = _first_above(cumulative, point * tl.load(cumulative + n - 1), low, high)
    _enter(drawn, counts, met, place, bits, vertex, j, t, n, words, j < t)


@triton.jit
def _draw_entries(
    row_sums, rows, indptr, indices, entry_sums, steps, seed, drawn, counts, met, place, bits,
    n, words, size, t,
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
    # If no row of the batch has an entry, nothing is drawn.
    found = target * 0 + total > 0
    vertex = tl.load(indices + entry, mask=found & (j < t), other=0)
    _enter(drawn, counts, met, place, bits, vertex, j, t, n, words, found)


@triton.jit
def _fold(drawn, counts, place, t, n, BLOCK: tl.constexpr):
    k = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < t
    vertex = tl.load(drawn + k * t + j, mask=inside, other=0)
    first = tl.load(place + k * n + vertex, mask=inside, other=0)
    # If nothing was drawn (see _draw_entries), the place is still empty.
    inside &= first < t
    tl.atomic_add(counts + k * t + first, 1, mask=inside)


@triton.jit
def _clear(drawn, place, bits, t, n, words, NONE: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < t
    vertex = tl.load(drawn + k * t + j, mask=inside, other=0)
    tl.store(place + k * n + vertex, NONE, mask=inside)
    tl.store(bits + k * words + vertex // 32, 0, mask=inside)


class Places(NamedTuple):
    """What was drawn for K batches, by vertex.

    Attributes:
        first: (K, n) int32, the number of the first draw of a vertex; NOWHERE for the rest.
        bits: (K, n/32) int32, a bit for each vertex that was drawn. They are few enough bytes for
            the cache of a processor, unlike `first`.
    """

    first: Tensor
    bits: Tensor

    @classmethod
    def empty(cls, count: int, n: int, device: torch.device) -> "Places":
        first = torch.full((count, n), NOWHERE, dtype=torch.int32, device=device)
        words = triton.cdiv(n, 32)
        return cls(first, torch.zeros((count, words), dtype=torch.int32, device=device))


class DrawnVertices(NamedTuple):
    """What is drawn for K batches, each (K, t) int32.

    Attributes:
        vertices: in the order drawn, with repetitions.
        counts: how often the vertex was drawn, in the slot of its first draw; else zero.
        met: 1 in that slot if some row of the batch has an entry in the vertex's column. It is
            set when blocks are cut.
    """

    vertices: Tensor
    counts: Tensor
    met: Tensor

    @classmethod
    def empty(cls, count: int, t: int, device: torch.device) -> "DrawnVertices":
        return cls(*(torch.zeros((count, t), dtype=torch.int32, device=device) for _ in range(3)))


def draw_vertices(
    law: tuple[Tensor, Tensor],
    steps: Tensor,
    seed: int,
    kind: int,
    drawn: DrawnVertices,
    places: Places,
) -> None:
    """Draw from one q, given by its running sums (n,) float64 and their guide (slots+1,) int32.

    The guide says where the search for a point in each of the equal slots of [0, 1) begins.
    `steps` (1,) counts the batches before these.
    """
    cumulative, guide = law
    t = drawn.vertices.shape[1]
    _draw_vertices[_grid(drawn)](
        cumulative, guide, steps, seed, *drawn, *places,
        places.first.shape[1], places.bits.shape[1], len(guide) - 1, t, KIND=kind, BLOCK=_BLOCK,
    )  # fmt: skip
    _fold_draws(drawn, places)


def draw_entries(
    row_sums: Tensor,
    rows: Tensor,
    matrix: tuple[Tensor, Tensor, Tensor],
    steps: Tensor,
    seed: int,
    kind: int,
    drawn: DrawnVertices,
    places: Places,
) -> None:
    """Draw entries of each batch's rows (K, s) by |Â(v,u)|^p; their columns are the vertices.

    `row_sums` (K, s) float64 are running sums over a batch's rows of Σ |Â(v,u)|^p; `matrix` is
    indptr, indices and the running sums of |Â(v,u)|^p over all entries (m,) float64.
    """
    t, size = drawn.vertices.shape[1], rows.shape[1]
    _draw_entries[_grid(drawn)](
        row_sums, rows, *matrix, steps, seed, *drawn, *places,
        places.first.shape[1], places.bits.shape[1], size, t, KIND=kind, BLOCK=_BLOCK,
    )  # fmt: skip
    _fold_draws(drawn, places)


def _fold_draws(drawn: DrawnVertices, places: Places) -> None:
    first, t = places.first, drawn.vertices.shape[1]
    _fold[_grid(drawn)](drawn.vertices, drawn.counts, first, t, first.shape[1], BLOCK=_BLOCK)


def clear_places(drawn: DrawnVertices, places: Places) -> None:
    """Empty the places of the drawn vertices again."""
    (first, bits), t = places, drawn.vertices.shape[1]
    _clear[_grid(drawn)](
        drawn.vertices, first, bits, t, first.shape[1], bits.shape[1], NONE=NOWHERE, BLOCK=_BLOCK
    )


def _grid(drawn: DrawnVertices) -> tuple[int, int]:
    count, t = drawn.vertices.shape
    return count, triton.cdiv(t, _BLOCK)


_LOW = np.uint64(0xFFFFFFFF)


def uniforms_reference(seed: int, counters: IntArray) -> FloatArray:
    """float64 in [0, 1) for each counter: Philox 4x32 of ten rounds (Salmon et al., 2011).

    >>> uniforms_reference(0, np.arange(2)).shape
    (2,)
    """
    counter = np.asarray(counters, np.uint64)
    c = [counter & _LOW, counter >> np.uint64(32), *(np.zeros_like(counter) for _ in range(2))]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        high_a, high_b = a >> np.uint64(32), b >> np.uint64(32)
        c = [high_b ^ c[1] ^ key[0], b & _LOW, high_a ^ c[3] ^ key[1], a & _LOW]
        key = [(key[0] + np.uint64(0x9E3779B9)) & _LOW, (key[1] + np.uint64(0xBB67AE85)) & _LOW]
    bits = (c[0] << np.uint64(21)) | (c[1] >> np.uint64(11))
    return bits.astype(np.float64) / 2.0**53


def points_reference(seed: int, step: int, t: int, kind: int) -> FloatArray:
    """(t,) in [0, 1): the points of batch number `step`."""
    j, first = np.arange(t), step * t
    if kind == STRATIFIED:
        return (uniforms_reference(seed, first + j) + j) / t
    if kind == SYSTEMATIC:
        return (uniforms_reference(seed, np.full(t, first)) + j) / t
    return uniforms_reference(seed, first + j)
