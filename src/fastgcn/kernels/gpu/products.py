"""Sparse times dense on a CUDA device: the blocks of a batch, and the matrices of whole graphs."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastgcn.errors import InputError
from fastgcn.memory import shown_bytes

# The most entries of a row that one program adds up; longer rows are divided among several. A small
# matrix has shorter pieces, so that there are about this many of them and none is waited for.
SEGMENT, _LEAST_SEGMENT, _PIECES = 2048, 64, 8192
# Columns multiplied together, few enough that rows gathered repeatedly stay in the cache; and
# entries loaded at once. Both were found by trial on an H200.
_WIDTH, _ENTRIES = 64, 2
# Rows with fewer entries than this on average are short.
_SHORT = 16
# Rows on the device begin at multiples of this many bytes, for wide loads.
_ALIGNED_BYTES = 64


def row_stride(width: int, dtype: torch.dtype) -> int:
    """Entries from the begin of one aligned row to that of the next."""
    unit = _ALIGNED_BYTES // dtype.itemsize
    return -(-width // unit) * unit


def empty_rows(n: int, width: int, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    """(n, width) with aligned rows; in pinned memory of the host if `device` is None."""
    shape = n, row_stride(width, dtype)
    if device is not None:
        return torch.empty(shape, dtype=dtype, device=device)[:, :width]
    try:
        pinned = torch.empty(shape, dtype=dtype, pin_memory=torch.cuda.is_available())
    except RuntimeError as error:  # torch has no error of its own for the host's memory
        raise InputError(
            f"the host has no {shown_bytes(n * shape[1] * dtype.itemsize)} of memory to pin for "
            "features that are not on the GPU; use --device cpu, which can keep them on disk"
        ) from error
    return pinned[:, :width]


def aligned(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The same rows in this type and aligned; a copy only if they are not so already."""
    if rows.dtype == dtype and rows.stride() == (row_stride(rows.shape[1], dtype), 1):
        return rows
    out = empty_rows(rows.shape[0], rows.shape[1], dtype, rows.device)
    out.copy_(rows)
    return out


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
    """(rows, d): block number `current` (1,) of those stored one after the other in `csr`, times h.

    Every block has `rows` rows.
    """
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
    """(sources, d): the transpose of the same block, times a gradient (rows, d)."""
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
    """The rows of a CSR matrix in pieces of at most SEGMENT entries, less in a small matrix.

    Attributes:
        row, begin, end: the row of each piece, and the range of its entries.
        shared: int32, 1 if its row has other pieces too.
        any_shared: True if any row has more than one piece.
    """

    row: Tensor
    begin: Tensor
    end: Tensor
    shared: Tensor
    any_shared: bool


def segments(indptr: Tensor, entries: int) -> Segments:
    """Those of a matrix of so many entries."""
    most = min(SEGMENT, max(_LEAST_SEGMENT, int(triton.next_power_of_2(entries // _PIECES))))
    lengths = indptr.diff()
    pieces = torch.clamp((lengths + most - 1) // most, min=1)
    row = torch.repeat_interleave(torch.arange(len(lengths), device=indptr.device), pieces)
    before = torch.cumsum(pieces, 0) - pieces
    number = torch.arange(len(row), device=indptr.device) - before[row]
    begin = indptr[row] + number * most
    end = torch.minimum(begin + most, indptr[row + 1])
    shared = (pieces[row] > 1).to(torch.int32)
    return Segments(row.to(torch.int32), begin, end, shared, bool(shared.any()))


def multiply(pieces: Segments, columns: Tensor, values: Tensor, h: Tensor, out: Tensor) -> None:
    """out (n, d) float32 = a CSR matrix by its `segments`, times h (m, d) of any float type.

    Blocks of columns are computed one after the other, so that the part of h that is gathered
    repeatedly fits the cache.
    """
    if pieces.any_shared:
        out.zero_()
    d = out.shape[1]
    # Where rows are short, programs are waited for, not the cache.
    most = _WIDTH if len(columns) > _SHORT * len(pieces.row) else 4 * _WIDTH
    width = min(triton.next_power_of_2(d), most)
    _multiply[(len(pieces.row), triton.cdiv(d, width))](
        pieces.row, pieces.begin, pieces.end, pieces.shared, columns, values,
        h, h.stride(0), out, out.stride(0), d, ENTRIES=_ENTRIES, WIDTH=width, num_warps=1,
    )  # fmt: skip


def multiply_reference(indptr: Tensor, indices: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """A CSR matrix times h, in float64 by plain torch."""
    row = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=h.device), indptr.diff())
    out = torch.zeros((len(indptr) - 1, h.shape[1]), dtype=torch.float64, device=h.device)
    return out.index_add_(0, row, values.double()[:, None] * h.double()[indices.long()])


def gather(x: Tensor, ids: Tensor, out: Tensor) -> Tensor:
    """out (len(ids), d) = rows of x, zeros for id -1; x may be in pinned memory of the host."""
    width = out.shape[1]
    grid = len(ids), triton.cdiv(width, 256)
    _gather[grid](x, x.stride(0), ids, out, out.stride(0), width, WIDTH=256)
    return out
