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

from fastgcn.kernels.gpu.draw import DrawnVertices, Places

CHUNK = 1024
_BLOCK = 1024


@triton.jit
def _scan(
    rows, starts, shifts, chunk_rows, indices, values, place, there, words,  # what is looked at
    row_hits, chunk_hits, found, met, shares,  # what counting fills
    chunk_bases, numbers, weights, columns, entries, entry_rows,  # what filling reads, and fills
    n, size, t, all_rows, lead,
    EXACT_SELF: tl.constexpr, POWER: tl.constexpr, FILL: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Count the entries that were drawn, and note them as bits; or, with `FILL`, write them out.

    Most entries of a row were not drawn. Counting looks at a bit for each, and filling at those
    that were counted alone.
    """
    total = tl.load(starts + all_rows)
    chunks = tl.cdiv(total, CHUNK)
    for chunk in range(tl.program_id(0), chunks, tl.num_programs(0)):
        within = tl.arange(0, CHUNK)
        e = within.to(tl.int64) + chunk * CHUNK
        hit = e < total
        if FILL:
            bits = tl.load(found + chunk * (CHUNK // 32) + within // 32)
            hit = ((bits >> (within % 32)) & 1) != 0
        # The last row that begins at or before e.
        first, last = tl.load(chunk_rows + chunk), tl.load(chunk_rows + chunk + 1)
        low = tl.zeros((CHUNK,), tl.int32) + first
        high = tl.zeros((CHUNK,), tl.int32) + last
        span = last - first
        while span > 0:
            middle = (low + high + 1) // 2
            begun = tl.load(starts + middle) <= e
            low = tl.where(begun, middle, low)
            high = tl.where(begun, high, middle - 1)
            span = span // 2
        at = e + tl.load(shifts + low, mask=hit, other=0)
        column = tl.load(indices + at, mask=hit, other=0)
        k = (low // size).to(tl.int64)
        if FILL:
            drawn = hit
        else:
            bits = tl.load(there + k * words + column // 32, mask=hit, other=0)
            drawn = ((bits >> (column % 32)) & 1) != 0
        if EXACT_SELF:
            own = hit & (column == tl.load(rows + low, mask=hit, other=-1))
            drawn = drawn & (own == 0)
            hit = drawn | own
        else:
            hit = drawn
        slot = tl.load(place + k * n + column, mask=drawn, other=0)
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
            tl.store(entry_rows + position, low % size, mask=hit)
        else:
            tl.atomic_add(row_hits + low, 1, mask=hit)
            hits = hit.to(tl.int32)
            tl.store(chunk_hits + chunk, tl.sum(hits, 0))
            each = tl.reshape(hits, (CHUNK // 32, 32)) << tl.arange(0, 32)[None, :]
            word = chunk * (CHUNK // 32) + tl.arange(0, CHUNK // 32)
            tl.store(found + word, tl.sum(each, 1))
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
        columns, entries, entry_rows: of all blocks, concatenated; columns number a batch's
            sources, and rows those of the batch.
        sources: (K, lead+t) int32, vertex ids: the batch's own rows if `lead` is s and not 0,
            the drawn vertices with an edge to some row, and -1 for the rest.
        n_sources: (K,) int32, how many sources each batch has.
        numbers, weights, shares, row_hits, chunk_hits, chunk_begins, found: work space.
    """

    offsets: Tensor
    columns: Tensor
    entries: Tensor
    entry_rows: Tensor
    sources: Tensor
    n_sources: Tensor
    lead: int
    numbers: Tensor
    weights: Tensor
    shares: Tensor
    row_hits: Tensor
    chunk_hits: Tensor
    chunk_begins: Tensor
    found: Tensor

    @classmethod
    def empty(
        cls, count: int, size: int, t: int, lead: int, capacity: int, scanned: int,
        device: torch.device,
    ) -> "BlockBuffers":  # fmt: skip
        """For at most `capacity` entries found among at most `scanned`."""

        def zeros(shape: int | tuple[int, ...], dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        chunks = triton.cdiv(max(scanned, 1), CHUNK)
        return cls(
            offsets=zeros(count * size + 1),
            columns=zeros(max(capacity, 1)),
            entries=zeros(max(capacity, 1), torch.float32),
            entry_rows=zeros(max(capacity, 1)),
            sources=zeros((count, lead + t)) - 1,
            n_sources=zeros(count),
            lead=lead,
            numbers=zeros((count, t)),
            weights=zeros((count, t), torch.float32),
            shares=zeros((count, t), torch.float64),
            row_hits=zeros(count * size),
            chunk_hits=zeros(chunks),
            chunk_begins=torch.arange(chunks + 1, device=device) * CHUNK,
            found=zeros((chunks, CHUNK // 32)),
        )

    @property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        """The blocks of all batches, one below the other."""
        return self.offsets, self.columns, self.entries


def cut_blocks(
    rows: Tensor,
    matrix: tuple[Tensor, Tensor, Tensor],
    drawn: DrawnVertices,
    places: Places,
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
    indptr, indices, values = matrix
    starts, shifts = _row_starts(rows, indptr)
    all_rows = count * size
    chunk_rows = torch.searchsorted(starts, out.chunk_begins, right=True, out_int32=True)
    chunk_rows.sub_(1).clamp_(max=all_rows - 1)
    out.row_hits.zero_()
    out.chunk_hits.zero_()
    by_rows = not isinstance(q, Tensor)
    power = -1.0 if isinstance(q, Tensor) else float(q)
    if by_rows:
        out.shares.zero_()
    chunk_bases = out.chunk_hits

    def scan(*, fill: bool) -> None:
        _scan[(programs,)](
            rows, starts, shifts, chunk_rows, indices, values, *places, places.bits.shape[1],
            out.row_hits, out.chunk_hits, out.found, drawn.met, out.shares,
            chunk_bases, out.numbers, out.weights, out.columns, out.entries, out.entry_rows,
            places.first.shape[1], size, t, all_rows, out.lead,
            EXACT_SELF=exact_self, POWER=power, FILL=fill, CHUNK=CHUNK,
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


def _row_starts(rows: Tensor, indptr: Tensor) -> tuple[Tensor, Tensor]:
    """(K·s+1,) int64, where each row's entries begin in the list of all; and what (K·s,) is added
    to a place in the list for the place among the entries of Â."""
    flat = rows.reshape(-1)
    there = flat.clamp(min=0).long()
    begins = indptr[there]
    lengths = (indptr[there + 1] - begins) * (flat >= 0)
    starts = torch.zeros(len(flat) + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(lengths, 0, out=starts[1:])
    return starts, begins - starts[:-1]


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
