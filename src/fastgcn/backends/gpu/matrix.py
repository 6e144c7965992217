"""Â on the device: made there from a graph's edges, and multiplied there."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fastgcn.graph.adjacency import Normalization
from fastgcn.graph.csr import CSR, damaged
from fastgcn.kernels.gpu.mix import mix_rows, unmix_rows
from fastgcn.kernels.gpu.scan import Room
from fastgcn.kernels.products import mixing_first_pays

if TYPE_CHECKING:
    from fastgcn.kernels.gpu.mix import Segments


from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import AnyArray, FloatArray
from fastgcn.errors import InputError
from fastgcn.features.store import NodeFeatures
from fastgcn.memory import shown_bytes
from fastgcn.progress import progress
from fastgcn.scratch import forget

_CHUNK_BYTES = 1 << 25


# Chunks on their way: some are read by threads while others travel.
_BUFFERS = 6


# Rows on the device begin at multiples of this many bytes, for wide loads.
_ALIGNED_BYTES = 64


def row_stride(width: int, dtype: torch.dtype) -> int:
    """Entries from one row to the next."""
    unit = _ALIGNED_BYTES // dtype.itemsize
    return -(-width // unit) * unit


def empty_rows(n: int, width: int, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    """(n, width), rows aligned; pinned on the host if `device` is None."""
    shape = n, row_stride(width, dtype)
    if device is not None:
        return torch.empty(shape, dtype=dtype, device=device)[:, :width]
    try:
        pinned = torch.empty(shape, dtype=dtype, pin_memory=torch.cuda.is_available())
    except RuntimeError as error:  # of the host, for which torch has no error of its own
        raise InputError(
            f"the host has no {shown_bytes(n * shape[1] * dtype.itemsize)} of memory to pin for "
            "features that are not on the GPU; use --device cpu, which can keep them on disk"
        ) from error
    return pinned[:, :width]


def aligned(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The same rows, of this type, so aligned."""
    if rows.dtype == dtype and rows.stride() == (row_stride(rows.shape[1], dtype), 1):
        return rows
    out = empty_rows(rows.shape[0], rows.shape[1], dtype, rows.device)
    out.copy_(rows)
    return out


def upload(array: AnyArray, device: torch.device) -> Tensor:
    """A 1-D array on the device."""
    out = torch.empty(len(array), dtype=_torch_type(array.dtype), device=device)
    _stream(lambda first, stop: array[first:stop], array.itemsize, out)
    forget(array)
    return out


def upload_rows(features: NodeFeatures, out: Tensor) -> None:
    """out (n, F) on the device = all rows of the features, scaled, in order."""
    if isinstance(features.features, csr_array):
        for first, part in features.parts(_CHUNK_BYTES):
            _scatter(part, out[first : first + part.shape[0]])
        return
    plain = features.scaling == "none" and features.nodes is None

    def rows(first: int, stop: int) -> FloatArray:
        if plain and isinstance(features.features, np.ndarray):
            return features.features[first:stop]
        return features.between(first, stop).numpy()

    _stream(rows, 4 * features.width, out)
    features.forget()


def _scatter(part: "FloatArray | csr_array", out: Tensor) -> None:
    if not isinstance(part, csr_array):
        out.copy_(torch.from_numpy(np.ascontiguousarray(part)))
        return
    out.zero_()
    row = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
    where = [
        torch.from_numpy(np.asarray(ids, np.int64)).to(out.device) for ids in (row, part.indices)
    ]
    values = torch.from_numpy(np.asarray(part.data, np.float32)).to(out.device, out.dtype)
    out.index_put_((where[0], where[1]), values)


def _stream(read: Callable[[int, int], AnyArray], row_bytes: int, out: Tensor) -> None:
    """out = read(0, len(out)), in chunks: read by threads into pinned memory, sent from there."""
    step = max(1, _CHUNK_BYTES // max(row_bytes, 1))
    chunks = [(first, min(first + step, len(out))) for first in range(0, len(out), step)]
    on_device = out.device.type == "cuda"
    buffers: list[Tensor | None] = [None] * _BUFFERS
    sent: list[torch.cuda.Event | None] = [None] * _BUFFERS

    def fill(number: int) -> Tensor:
        rows = np.asarray(read(*chunks[number]))
        if not on_device:
            return torch.from_numpy(rows.copy())
        slot = number % _BUFFERS
        if (event := sent[slot]) is not None:
            event.synchronize()
        if buffers[slot] is None:
            shape = (min(step, len(out)), *rows.shape[1:])
            buffers[slot] = torch.empty(shape, dtype=_torch_type(rows.dtype), pin_memory=True)
        room = buffers[slot]
        assert room is not None
        np.copyto(room[: len(rows)].numpy(), rows)
        return room[: len(rows)]

    with (
        ThreadPoolExecutor(_BUFFERS - 2) as pool,
        progress("Moving to the device", len(out), "rows") as advance,
    ):
        waiting = [pool.submit(fill, number) for number in range(min(_BUFFERS - 1, len(chunks)))]
        for number, (first, stop) in enumerate(chunks):
            rows = waiting[number].result()
            out[first:stop].copy_(rows, non_blocking=True)
            if on_device:
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
                sent[number % _BUFFERS] = event
            # Only now may the chunk that takes this buffer next be read into it.
            if len(waiting) < len(chunks):
                waiting.append(pool.submit(fill, len(waiting)))
            advance(stop - first)
    if on_device:
        torch.cuda.current_stream(out.device).synchronize()


def _torch_type(dtype: "np.dtype[np.generic]") -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


@dataclass(frozen=True)
class DeviceEdges:
    """A graph's CSR on the device; `weights` None where all are one."""

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None

    @classmethod
    def of(cls, csr: CSR, device: torch.device) -> "DeviceEdges":
        indptr = upload(csr.indptr, device).to(torch.int64)
        indices = upload(csr.indices, device).to(torch.int32)
        n = len(indptr) - 1
        if n and bool((indptr.diff() < 0).any()):
            raise damaged(csr.indptr, "its rows are not in order")
        if len(indices) and bool(((indices < 0) | (indices >= n)).any()):
            raise damaged(csr.indices, f"it names a column outside of 0..{n - 1:,}")
        weights = None if csr.weights is None else upload(csr.weights, device).to(torch.float32)
        return cls(indptr, indices, weights)

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def rows(self) -> Tensor:
        """(m,) int32: the row of each entry."""
        ids = torch.arange(self.n, dtype=torch.int32, device=self.indptr.device)
        return torch.repeat_interleave(ids, self.indptr.diff(), output_size=len(self.indices))

    def induced(self, nodes: Tensor) -> "DeviceEdges":
        """The edges among `nodes`, ascending, renumbered 0..k-1."""
        number = torch.full((self.n,), -1, dtype=torch.int32, device=nodes.device)
        number[nodes] = torch.arange(len(nodes), dtype=torch.int32, device=nodes.device)
        row, column = number[self.rows], number[self.indices]
        kept = (row >= 0) & (column >= 0)
        lengths = torch.bincount(row[kept], minlength=len(nodes))
        return DeviceEdges(
            _offsets(lengths), column[kept], None if self.weights is None else self.weights[kept]
        )

    def normalized(self, kind: Normalization) -> "DeviceMatrix":
        """Â, as `adjacency.normalize` makes it; a row's loop is its first entry."""
        indptr, indices, weights = self.indptr, self.indices, self.weights
        if weights is None:
            weights = torch.ones(len(indices), device=indices.device)
        row = self.rows
        if kind != "neighbors":
            n = self.n
            ids = torch.arange(n, dtype=torch.int32, device=row.device)
            place = torch.arange(len(indices), device=row.device) + row + 1
            with_loops = torch.empty(len(indices) + n, dtype=torch.int32, device=row.device)
            loop_at = indptr[:-1] + ids
            with_loops[place], with_loops[loop_at] = indices, ids
            values = torch.ones(len(with_loops), device=row.device)
            values[place] = weights
            rows = torch.empty_like(with_loops)
            rows[place], rows[loop_at] = row, ids
            indptr = indptr + torch.arange(n + 1, device=row.device)
            indices, weights, row = with_loops, values, rows
        sums = torch.zeros(self.n, dtype=torch.float64, device=row.device)
        sums.index_add_(0, row, weights.double())
        factors = torch.where(sums > 0, sums.rsqrt() if kind == "symmetric" else 1 / sums, 0.0)
        scaled = factors[row] * weights
        if kind == "symmetric":
            scaled *= factors[indices]
        return DeviceMatrix(indptr, indices, scaled.float(), row)


@dataclass(frozen=True)
class DeviceMatrix:
    """An (s, n) sparse matrix by rows; `row` (m,) int32 is the row of each entry."""

    indptr: Tensor
    indices: Tensor
    values: Tensor
    row: Tensor

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.indptr, self.indices, self.values

    def magnitudes(self, power: float, *, diagonal: bool) -> Tensor:
        """(m,) float64: |Â(v,u)|^power of each entry, zero on the diagonal unless wanted."""
        powers = self.values.double().abs() ** power
        return powers if diagonal else powers * (self.indices != self.row)

    def largest_rows(self, count: int) -> int:
        """The most entries that so many rows can have together."""
        lengths = self.indptr.diff()
        return int(torch.topk(lengths, min(count, len(lengths))).values.sum())

    @cached_property
    def _pieces(self) -> "Segments":
        from fastgcn.kernels.gpu.mix import segments

        return segments(self.indptr)

    def times(self, h: Tensor, out: Tensor | None = None) -> Tensor:
        """(s, d) float32: the product with rows h (n, d)."""
        from fastgcn.kernels.gpu.mix import multiply

        if h.stride(1) != 1 or h.stride(0) * h.element_size() % 16:
            h = aligned(h, h.dtype)
        if out is None:
            out = torch.empty((self.n, h.shape[1]), dtype=torch.float32, device=h.device)
        multiply(self._pieces, self.indices, self.values, h, out)
        return out

    def some_rows(self, nodes: Tensor) -> "DeviceMatrix":
        """The rows of `nodes`, columns as they are."""
        lengths = self.indptr.diff()[nodes]
        indptr = _offsets(lengths)
        row = torch.repeat_interleave(
            torch.arange(len(nodes), device=nodes.device), lengths, output_size=int(indptr[-1])
        )
        place = torch.arange(len(row), device=nodes.device) - indptr[row]
        entry = self.indptr[nodes][row] + place
        return DeviceMatrix(indptr, self.indices[entry], self.values[entry], row.int())


def _offsets(lengths: Tensor) -> Tensor:
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets


@dataclass(frozen=True)
class GroupBlock:
    """The block of one of K batches, `current` (1,) saying which; shapes are those of the room."""

    room: Room
    rows: int
    current: Tensor
    mix_first_only: bool = False

    @property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.room.offsets, self.room.columns, self.room.entries

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        """As if there were as many entries as rows, most of which meet few of the drawn."""
        sources = self.room.sources.shape[1]
        return bool(mixing_first_pays(self.rows, self.rows, sources, n_in, n_out))

    def mix(self, h: Tensor) -> Tensor:
        return cast(Tensor, _Mix.apply(h, self))  # type: ignore[no-untyped-call]

    def own_rows(self, h: Tensor) -> Tensor:
        return h[: self.rows]


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, block: GroupBlock) -> Tensor:
        ctx.block, ctx.sources = block, len(h)
        return mix_rows(block.csr, block.current, block.rows, h)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        block: GroupBlock = ctx.block
        return unmix_rows(block.csr, block.current, gradients[0], ctx.sources), None


@dataclass(frozen=True)
class WholeBlock:
    """All rows of Â, or those of `nodes` with the columns of all."""

    matrix: DeviceMatrix
    columns: int
    nodes: Tensor | None
    mix_first_only: bool = False

    @classmethod
    def of(cls, matrix: DeviceMatrix, nodes: Tensor | None = None) -> "WholeBlock":
        return cls(matrix if nodes is None else matrix.some_rows(nodes), matrix.n, nodes)

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        entries = len(self.matrix.indices)
        return bool(mixing_first_pays(entries, self.matrix.n, self.columns, n_in, n_out))

    def mix(self, h: Tensor) -> Tensor:
        return self.matrix.times(h)

    def own_rows(self, h: Tensor) -> Tensor:
        return h if self.nodes is None else h[self.nodes]
