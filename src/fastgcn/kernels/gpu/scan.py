"""Cutting blocks out of rows of Â: which entries of a batch's rows have a drawn column.

The entries of all rows of K batches are gone through as one long list, chunk after chunk by as
many programs as the device runs at once, so that a row of a hundred thousand entries is no more
work for any of them than a hundred thousand rows of one.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastgcn.kernels.gpu.draw import NOWHERE, Drawn

CHUNK = 1024
_BLOCK = 1024


@triton.jit
def _scan(
    rows, starts, indptr, indices, values, place,  # what is looked at
    row_hits, chunk_hits, met, shares,  # what counting fills
    chunk_bases, numbers, weights, columns, entries,  # what filling reads, and fills
    n, size, t, all_rows, lead,
    EXACT_SELF: tl.constexpr, POWER: tl.constexpr, FILL: tl.constexpr,
    STEPS: tl.constexpr, NONE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    total = tl.load(starts + all_rows)
    chunks = tl.cdiv(total, CHUNK)
    for chunk in range(tl.program_id(0), chunks, tl.num_programs(0)):
        e = tl.arange(0, CHUNK).to(tl.int64) + chunk * CHUNK
        inside = e < total
        # The last row that begins at or before e.
        low = tl.zeros((CHUNK,), tl.int32)
        high = low + all_rows - 1
        for _ in range(STEPS):
            middle = (low + high + 1) // 2
            begun = tl.load(starts + middle) <= e
            low = tl.where(begun, middle, low)
            high = tl.where(begun, high, middle - 1)
        node = tl.load(rows + low, mask=inside, other=0)
        at = tl.load(indptr + node) + e - tl.load(starts + low)
        column = tl.load(indices + at, mask=inside, other=0)
        k = (low // size).to(tl.int64)
        slot = tl.load(place + k * n + column, mask=inside, other=NONE)
        drawn = slot != NONE
        hit = drawn
        if EXACT_SELF:
            own = inside & (column == node)
            drawn = drawn & (column != node)
            hit = drawn | own
        slot = tl.where(drawn, slot, 0)
        if FILL:
            position = tl.load(chunk_bases + chunk) + tl.cumsum(hit.to(tl.int32), 0) - 1
            weight = tl.load(weights + k * t + slot, mask=drawn, other=0.0)
            number = lead + tl.load(numbers + k * t + slot, mask=drawn, other=0)
            if EXACT_SELF:
                weight = tl.where(own, 1.0, weight)
                number = tl.where(own, low % size, number)
            value = tl.load(values + at, mask=hit, other=0.0)
            tl.store(columns + position, number, mask=hit)
            tl.store(entries + position, value * weight, mask=hit)
        else:
            tl.atomic_add(row_hits + low, 1, mask=hit)
            tl.store(chunk_hits + chunk, tl.sum(hit.to(tl.int32), 0))
            tl.store(met + k * t + slot, 1, mask=drawn)
            if POWER >= 0:
                value = tl.abs(tl.load(values + at, mask=drawn, other=1.0).to(tl.float64))
                if POWER == 2:
                    value *= value
                elif POWER != 1:
                    value = tl.exp(POWER * tl.log(value))
                tl.atomic_add(shares + k * t + slot, value, mask=drawn)


@triton.jit
def _number(
    drawn, counts, met, q, shares, totals, sources, numbers, weights, n_sources, t, lead, width,
    BY_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64)
    total = tl.load(totals + k)
    so_far = 0
    for start in range(0, t, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < t
        wanted = tl.load(met + k * t + j, mask=inside, other=0)
        vertex = tl.load(drawn + k * t + j, mask=inside, other=0)
        number = so_far + tl.cumsum(wanted, 0) - wanted
        count = tl.load(counts + k * t + j, mask=inside, other=0).to(tl.float64)
        if BY_ROWS:
            share = tl.load(shares + k * t + j, mask=wanted > 0, other=1.0)
        else:
            share = tl.load(q + vertex, mask=wanted > 0, other=1.0)
        weight = count * total / (t * share)
        tl.store(numbers + k * t + j, number, mask=inside)
        tl.store(weights + k * t + j, weight.to(tl.float32), mask=inside)
        tl.store(sources + k * width + lead + number, vertex, mask=wanted > 0)
        so_far += tl.sum(wanted, 0)
    for start in range(0, t, BLOCK):
        j = start + tl.arange(0, BLOCK)
        tl.store(sources + k * width + lead + j, -1, mask=(j >= so_far) & (j < t))
    tl.store(n_sources + k, lead + so_far)


@dataclass(frozen=True)
class Room:
    """Where the blocks of K batches of s rows go, t vertices drawn for each.

    Attributes:
        offsets: (K·s+1,) int32, where the entries of each row begin.
        columns, entries: of all blocks, one's behind the other's; columns count a batch's sources.
        sources: (K, lead+t) int32, first the batch's own rows where `lead` is s and not 0, then
            the drawn vertices that some row meets, then -1.
        n_sources: (K,) int32, of these how many there are.
    """

    offsets: Tensor
    columns: Tensor
    entries: Tensor
    sources: Tensor
    n_sources: Tensor
    lead: int
    numbers: Tensor
    weights: Tensor
    shares: Tensor
    row_hits: Tensor
    chunk_hits: Tensor

    @classmethod
    def make(
        cls, count: int, size: int, t: int, lead: int, capacity: int, looked_at: int,
        device: torch.device,
    ) -> "Room":  # fmt: skip
        """For at most `capacity` entries found among at most `looked_at`."""

        def room(shape: int | tuple[int, ...], dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            offsets=room(count * size + 1),
            columns=room(max(capacity, 1)),
            entries=room(max(capacity, 1), torch.float32),
            sources=room((count, lead + t)) - 1,
            n_sources=room(count),
            lead=lead,
            numbers=room((count, t)),
            weights=room((count, t), torch.float32),
            shares=room((count, t), torch.float64),
            row_hits=room(count * size),
            chunk_hits=room(triton.cdiv(max(looked_at, 1), CHUNK)),
        )


def cut_blocks(
    rows: Tensor,
    matrix: tuple[Tensor, Tensor, Tensor],
    draws: Drawn,
    place: Tensor,
    q: Tensor | float,
    totals: Tensor,
    room: Room,
    *,
    exact_self: bool,
    programs: int,
) -> None:
    """Fill `room` with what is drawn of the rows (K, s) int32 of Â, -1 for no row.

    A vertex weighs count·total/(t·q(u)), `totals` (K,) being the sums of q; a number p for q
    stands for Σ |Â(v,u)|^p over the batch's own rows v. With `exact_self` the diagonal is not
    sampled but added in full, and `lead` must be s.
    """
    (indptr, indices, values), (drawn, counts, met) = matrix, draws
    (count, size), t = rows.shape, drawn.shape[1]
    starts = _row_starts(rows, indptr)
    all_rows = count * size
    room.row_hits.zero_()
    room.chunk_hits.zero_()
    by_rows = not isinstance(q, Tensor)
    power = -1.0 if isinstance(q, Tensor) else float(q)
    if by_rows:
        room.shares.zero_()
    chunk_bases = room.chunk_hits

    def scan(*, fill: bool) -> None:
        _scan[(programs,)](
            rows, starts, indptr, indices, values, place,
            room.row_hits, room.chunk_hits, met, room.shares,
            chunk_bases, room.numbers, room.weights, room.columns, room.entries,
            place.shape[1], size, t, all_rows, room.lead,
            EXACT_SELF=exact_self, POWER=power, FILL=fill,
            STEPS=max(all_rows - 1, 1).bit_length(), NONE=NOWHERE, CHUNK=CHUNK,
        )  # fmt: skip

    scan(fill=False)
    torch.cumsum(room.row_hits, 0, dtype=torch.int32, out=room.offsets[1:])
    chunk_bases = torch.cumsum(room.chunk_hits, 0, dtype=torch.int32) - room.chunk_hits
    if room.lead:
        room.sources[:, : room.lead] = rows
    _number[(count,)](
        drawn, counts, met, room.shares if by_rows else q, room.shares, totals,
        room.sources, room.numbers, room.weights, room.n_sources, t, room.lead,
        room.lead + t, BY_ROWS=by_rows, BLOCK=_BLOCK,
    )  # fmt: skip
    scan(fill=True)


def _row_starts(rows: Tensor, indptr: Tensor) -> Tensor:
    """(K·s+1,) int64: where each row's entries begin in the list of all."""
    flat = rows.reshape(-1)
    there = flat.clamp(min=0).long()
    lengths = (indptr[there + 1] - indptr[there]) * (flat >= 0)
    starts = torch.zeros(len(flat) + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(lengths, 0, out=starts[1:])
    return starts
