"""Sparse times dense on a CUDA device: blocks of a batch, and whole graphs."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries of a row that one program adds up; longer rows are shared by several.
SEGMENT = 2048
# Columns that are multiplied together, so few that what is gathered again and again stays in the
# cache, and entries that are on their way at once; found by trial on an H200.
_WIDTH, _ENTRIES = 64, 2


@triton.jit
def _scaled_rows(columns, values, h, h_stride, d, width, e, end):
    """(entries, d): for each entry e below `end` its row of h, times its value."""
    there = e < end
    column = tl.load(columns + e, mask=there, other=0).to(tl.int64)
    value = tl.load(values + e, mask=there, other=0.0)
    inside = there[:, None] & (d < width)[None, :]
    rows = tl.load(h + column[:, None] * h_stride + d[None, :], mask=inside, other=0.0)
    return rows.to(tl.float32) * value[:, None]


@triton.jit
def _mix_rows(
    offsets, columns, values, h, h_stride, out, out_stride, current, rows, width,
    ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    first = offsets + tl.load(current) * rows
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = d < width
    begin, end = tl.load(first + row), tl.load(first + row + 1)
    total = tl.zeros((WIDTH,), tl.float32)
    for start in range(begin, end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        total += tl.sum(_scaled_rows(columns, values, h, h_stride, d, width, e, end), 0)
    tl.store(out + row.to(tl.int64) * out_stride + d, total, mask=wide)


@triton.jit
def _unmix_rows(
    offsets, columns, values, gradient, g_stride, out, out_stride, current, rows, width,
    WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first = offsets + tl.load(current) * rows
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = d < width
    g = tl.load(gradient + row * g_stride + d, mask=wide, other=0.0)
    for e in range(tl.load(first + row), tl.load(first + row + 1)):
        column = tl.load(columns + e).to(tl.int64)
        tl.atomic_add(out + column * out_stride + d, g * tl.load(values + e), mask=wide)


@triton.jit
def _multiply(
    row_of, begins, ends, shared, columns, values, h, h_stride, out, out_stride, width,
    ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    segment = tl.program_id(0)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = d < width
    begin, end = tl.load(begins + segment), tl.load(ends + segment)
    total = tl.zeros((ENTRIES, WIDTH), tl.float32)
    for start in range(begin, end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        total += _scaled_rows(columns, values, h, h_stride, d, width, e, end)
    row = tl.load(row_of + segment).to(tl.int64)
    sums = tl.sum(total, 0)
    if tl.load(shared + segment) != 0:
        tl.atomic_add(out + row * out_stride + d, sums, mask=wide)
    else:
        tl.store(out + row * out_stride + d, sums, mask=wide)


@triton.jit
def _gather(x, x_stride, ids, out, out_stride, width, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    node = tl.load(ids + row).to(tl.int64)
    there = (d < width) & (d * 0 + node >= 0)
    values = tl.load(x + node * x_stride + d, mask=there, other=0.0)
    tl.store(out + row.to(tl.int64) * out_stride + d, values, mask=d < width)


def mix_rows(csr: tuple[Tensor, Tensor, Tensor], current: Tensor, rows: int, h: Tensor) -> Tensor:
    """(rows, d): the block number `current` (1,) of several that follow each other in `csr`,
    each of so many rows, times h."""
    offsets, columns, values = csr
    h = h.contiguous()
    out = torch.empty((rows, h.shape[1]), dtype=torch.float32, device=h.device)
    width = min(triton.next_power_of_2(h.shape[1]), 128)
    _mix_rows[(rows, triton.cdiv(h.shape[1], width))](
        offsets, columns, values, h, h.stride(0), out, out.stride(0), current, rows, h.shape[1],
        ENTRIES=8, WIDTH=width,
    )  # fmt: skip
    return out


def unmix_rows(
    csr: tuple[Tensor, Tensor, Tensor], current: Tensor, gradient: Tensor, sources: int
) -> Tensor:
    """(sources, d): the same block, transposed, times a gradient (rows, d)."""
    offsets, columns, values = csr
    gradient = gradient.contiguous()
    rows, d = gradient.shape
    out = torch.zeros((sources, d), dtype=torch.float32, device=gradient.device)
    width = min(triton.next_power_of_2(d), 128)
    _unmix_rows[(rows, triton.cdiv(d, width))](
        offsets, columns, values, gradient, d, out, d, current, rows, d, WIDTH=width
    )
    return out


class Segments(NamedTuple):
    """Pieces of the rows of a CSR matrix, each at most SEGMENT entries.

    Attributes:
        row, begin, end: the row that a piece is of, and its entries.
        shared: int32, whether there are others of its row.
        any_shared: whether that is so of any.
    """

    row: Tensor
    begin: Tensor
    end: Tensor
    shared: Tensor
    any_shared: bool


def segments(indptr: Tensor) -> Segments:
    lengths = indptr.diff()
    pieces = torch.clamp((lengths + SEGMENT - 1) // SEGMENT, min=1)
    row = torch.repeat_interleave(torch.arange(len(lengths), device=indptr.device), pieces)
    before = torch.cumsum(pieces, 0) - pieces
    number = torch.arange(len(row), device=indptr.device) - before[row]
    begin = indptr[row] + number * SEGMENT
    end = torch.minimum(begin + SEGMENT, indptr[row + 1])
    shared = (pieces[row] > 1).to(torch.int32)
    return Segments(row.to(torch.int32), begin, end, shared, bool(shared.any()))


def multiply(pieces: Segments, columns: Tensor, values: Tensor, h: Tensor, out: Tensor) -> None:
    """out (n, d) float32 = a CSR matrix by its `segments`, times h (m, d) of any float type.

    Column blocks one after the other: what is gathered of h again and again then fits the cache.
    """
    if pieces.any_shared:
        out.zero_()
    d = out.shape[1]
    width = min(triton.next_power_of_2(d), _WIDTH)
    _multiply[(len(pieces.row), triton.cdiv(d, width))](
        pieces.row, pieces.begin, pieces.end, pieces.shared, columns, values,
        h, h.stride(0), out, out.stride(0), d, ENTRIES=_ENTRIES, WIDTH=width, num_warps=1,
    )  # fmt: skip


def gather(x: Tensor, ids: Tensor, out: Tensor) -> Tensor:
    """out (len(ids), d) = rows of x, which may be pinned memory of the host; zeros for -1."""
    width = out.shape[1]
    grid = len(ids), triton.cdiv(width, 256)
    _gather[grid](x, x.stride(0), ids, out, out.stride(0), width, WIDTH=256)
    return out
