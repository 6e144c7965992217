"""Cutting blocks out of rows of Â: the entries of a batch's rows whose column was drawn.

The entries of all rows of K batches form one long list, which programs go through in chunks. So
the work of a program does not depend on the lengths of rows: one row of a hundred thousand
entries costs as much as a hundred thousand rows of one.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastgcn.kernels.gpu.draw import NOWHERE, DrawnVertices

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
class BlockBuffers:
    """Memory for the blocks of K batches of s rows, t vertices drawn for each.

    Attributes:
        offsets: (K·s+1,) int32, where the entries of each row begin.
        columns, entries: of all blocks, concatenated; columns number a batch's sources.
        sources: (K, lead+t) int32, vertex ids: the batch's own rows if `lead` is s and not 0,
            the drawn vertices with an edge to some row, and -1 for the rest.
        n_sources: (K,) int32, how many sources each batch has.
        numbers, weights, shares, row_hits, chunk_hits: work space.
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
    def empty(
        cls, count: int, size: int, t: int, lead: int, capacity: int, scanned: int,
        device: torch.device,
    ) -> "BlockBuffers":  # fmt: skip
        """For at most `capacity` entries found among at most `scanned`."""

        def zeros(shape: int | tuple[int, ...], dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            offsets=zeros(count * size + 1),
            columns=zeros(max(capacity, 1)),
            entries=zeros(max(capacity, 1), torch.float32),
            sources=zeros((count, lead + t)) - 1,
            n_sources=zeros(count),
            lead=lead,
            numbers=zeros((count, t)),
            weights=zeros((count, t), torch.float32),
            shares=zeros((count, t), torch.float64),
            row_hits=zeros(count * size),
            chunk_hits=zeros(triton.cdiv(max(scanned, 1), CHUNK)),
        )

    @property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        """The blocks of all batches, one below the other."""
        return self.offsets, self.columns, self.entries


def cut_blocks(
    rows: Tensor,
    matrix: tuple[Tensor, Tensor, Tensor],
    drawn: DrawnVertices,
    place: Tensor,
    q: Tensor | float,
    totals: Tensor,
    out: BlockBuffers,
    *,
    exact_self: bool,
    programs: int,
) -> None:
    """Fill `out` with the drawn columns of the rows (K, s) int32 of Â; -1 stands for no row.

    A vertex has the weight count·total/(t·q(u)), where `totals` (K,) are the sums of q. If q is
    a number p, q(u) is Σ |Â(v,u)|^p over the batch's own rows v. With `exact_self` the diagonal
    is not sampled but added in full, and `lead` must be s.
    """
    (count, size), t = rows.shape, drawn.vertices.shape[1]
    starts = _row_starts(rows, matrix[0])
    all_rows = count * size
    out.row_hits.zero_()
    out.chunk_hits.zero_()
    by_rows = not isinstance(q, Tensor)
    power = -1.0 if isinstance(q, Tensor) else float(q)
    if by_rows:
        out.shares.zero_()
    chunk_bases = out.chunk_hits

    def scan(*, fill: bool) -> None:
        _scan[(programs,)](
            rows, starts, *matrix, place,
            out.row_hits, out.chunk_hits, drawn.met, out.shares,
            chunk_bases, out.numbers, out.weights, out.columns, out.entries,
            place.shape[1], size, t, all_rows, out.lead,
            EXACT_SELF=exact_self, POWER=power, FILL=fill,
            STEPS=max(all_rows - 1, 1).bit_length(), NONE=NOWHERE, CHUNK=CHUNK,
        )  # fmt: skip

    scan(fill=False)
    torch.cumsum(out.row_hits, 0, dtype=torch.int32, out=out.offsets[1:])
    chunk_bases = torch.cumsum(out.chunk_hits, 0, dtype=torch.int32) - out.chunk_hits
    if out.lead:
        out.sources[:, : out.lead] = rows
    _number[(count,)](
        *drawn, out.shares if by_rows else q, out.shares, totals,
        out.sources, out.numbers, out.weights, out.n_sources, t, out.lead,
        out.lead + t, BY_ROWS=by_rows, BLOCK=_BLOCK,
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


def sampled_rows_reference(
    dense: Tensor, rows: Tensor, vertices: Tensor, q: Tensor | float, *, exact_self: bool
) -> Tensor:
    """(s, n): rows of Â (n, n) estimated from drawn vertices (t,), for row ids (s,), -1 for none.

    `q` (n,) sums to one; a number p stands for Σ |Â(v,u)|^p over these rows v, normalised.
    """
    there = rows >= 0
    mine = dense[rows.clamp(min=0).long()] * there[:, None]
    own = torch.zeros_like(mine)
    own[there, rows[there].long()] = mine[there, rows[there].long()]
    drawn_from = mine - own if exact_self else mine
    if not isinstance(q, Tensor):
        shares = torch.where(drawn_from != 0, drawn_from.double().abs() ** q, 0.0).sum(0)
        q = shares / shares.sum()
    counts = torch.bincount(vertices.long(), minlength=len(q)).to(q)
    weights = torch.where(counts > 0, counts / (len(vertices) * q), 0.0)
    return (drawn_from * weights).float() + (own if exact_self else 0.0)


def dense_block(blocks: BlockBuffers, k: int, size: int, n: int) -> Tensor:
    """(s, n): block number k, its columns numbered by vertex and not by source."""
    block = torch.zeros((size, n), device=blocks.entries.device)
    offsets = blocks.offsets[k * size : (k + 1) * size + 1].tolist()
    for row in range(size):
        for entry in range(offsets[row], offsets[row + 1]):
            block[row, blocks.sources[k, blocks.columns[entry]]] += blocks.entries[entry]
    return block
