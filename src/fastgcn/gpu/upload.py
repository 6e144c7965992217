"""Arrays and features from memory or a memory map to the device, in pinned chunks."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.errors import InputError
from fastgcn.features import FeatureRows
from fastgcn.mapped import forget
from fastgcn.memory import shown_bytes
from fastgcn.progress import progress
from fastgcn.types import AnyArray, FloatArray

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


def upload_rows(features: FeatureRows, out: Tensor) -> None:
    """out (n, F) on the device = all rows of the features, scaled, in order."""
    if isinstance(features.features, csr_array):
        for first, part in features.parts(_CHUNK_BYTES):
            _scatter(part, out[first : first + part.shape[0]])
        return
    plain = features.scaling == "none" and features.nodes is None

    def rows(first: int, stop: int) -> FloatArray:
        if plain and isinstance(features.features, np.ndarray):
            return features.features[first:stop]
        return features(np.arange(first, stop))

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
