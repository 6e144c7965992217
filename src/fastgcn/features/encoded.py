"""`EncodedStore`: rows in a chosen precision, in memory or in a file with hot rows in memory."""

import os
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.errors import FormatError, InputError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

_ROWS_AT_ONCE = 1 << 15  # when hot rows are read


def units(width: int, dtype: str) -> int:
    """The number of int16 values in a row of this width."""
    return width * DTYPES[dtype].itemsize // 2


def check_range(rows: torch.Tensor, rounded: torch.Tensor) -> None:
    """Raise an `InputError` for numbers outside of float16's range."""
    lost = rounded.dtype == torch.float16 and not bool(torch.isfinite(rounded).all())
    if lost and bool(torch.isfinite(rows).all()):
        raise InputError(
            f"inputs_dtype = 'float16' holds numbers up to 65,504, but ÂX has "
            f"{float(rows.abs().max()):.3g}; use bfloat16 or float32, or scale the features"
        )


def encoded(rows: FloatArray, dtype: str) -> AnyArray:
    """(k, units) int16: the bits of float32 rows (k, width) in another precision.

    >>> encoded(np.ones((1, 2), np.float32), "bfloat16").tolist()
    [[16256, 16256]]
    """
    tensor = torch.from_numpy(rows).to(DTYPES[dtype])
    check_range(torch.from_numpy(rows), tensor)
    bits: AnyArray = tensor.view(torch.int16).numpy()
    return bits


class Bits(Protocol):
    """(n, units) int16, read by rows."""

    shape: tuple[int, int]
    on_disk: bool

    def keep_hot(self, ids: IntArray) -> None:
        """Hold these rows in memory."""
        ...

    def take(self, ids: IntArray) -> AnyArray: ...

    def between(self, start: int, stop: int) -> AnyArray: ...


class BitsInMemory:
    """The rows of an array."""

    on_disk = False

    def __init__(self, raw: AnyArray) -> None:
        self.raw, self.shape = raw, (int(raw.shape[0]), int(raw.shape[1]))

    def keep_hot(self, ids: IntArray) -> None:
        """Nothing to do: all rows are in memory."""

    def take(self, ids: IntArray) -> AnyArray:
        rows: AnyArray = torch.from_numpy(self.raw).index_select(0, torch.from_numpy(ids)).numpy()
        return rows

    def between(self, start: int, stop: int) -> AnyArray:
        return self.raw[start:stop].copy()


class BitsInFile:
    """The rows of an open file, some of them `keep_hot` in memory.

    They are read, not mapped: the system also maps pages around a row, and all of them would
    count as memory of this process. `owner` closes the file when it is deleted.
    """

    on_disk = True

    def __init__(self, descriptor: int, shape: tuple[int, int], owner: Any) -> None:
        self.descriptor, self.shape, self._owner = descriptor, shape, owner
        self._slots, self._hot = np.empty(0, np.int32), np.empty((0, shape[1]), np.int16)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def keep_hot(self, ids: IntArray) -> None:
        """Hold these rows in memory."""
        ids = np.sort(ids)
        hot = np.empty((len(ids), self.shape[1]), np.int16)
        for start in range(0, len(ids), _ROWS_AT_ONCE):
            hot[start : start + _ROWS_AT_ONCE] = self.take(ids[start : start + _ROWS_AT_ONCE])
        self._hot = hot
        self._slots = np.full(self.shape[0], -1, np.int32)
        self._slots[ids] = np.arange(len(ids), dtype=np.int32)

    def take(self, ids: IntArray) -> AnyArray:
        from fastgcn.kernels.rows import gather_rows  # loads numba

        # Allocated by torch, whose arrays always begin at the same offset in a cache line; the
        # rounding of products depends on it.
        out = torch.empty((len(ids), self.shape[1]), dtype=torch.int16).numpy()
        if not gather_rows(ids, self.descriptor, self._slots, self._hot, out):
            raise _unreadable()
        return out

    def between(self, start: int, stop: int) -> AnyArray:
        row_bytes = 2 * self.shape[1]
        out = np.empty((stop - start, self.shape[1]), np.int16)
        left, at = out.data.cast("B"), start * row_bytes
        while left:
            read = os.preadv(self.descriptor, [left], at)
            if read == 0:
                raise _unreadable()
            left, at = left[read:], at + read
        return out


def _unreadable() -> FormatError:
    return FormatError(
        "a file of ÂX could not be read: it was cut while in use, or its disk has failed; "
        "start again, and it is checked and repaired"
    )


class EncodedStore:
    """(n, width) rows kept as the `bits` of one precision and read as float32.

    >>> bits = BitsInMemory(encoded(np.eye(3, dtype=np.float32), "float16"))
    >>> EncodedStore(bits, "float16").take(np.array([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """

    def __init__(self, bits: Bits, dtype: str) -> None:
        self.bits, self.dtype = bits, dtype

    def __len__(self) -> int:
        return self.bits.shape[0]

    @property
    def width(self) -> int:
        return 2 * self.bits.shape[1] // DTYPES[self.dtype].itemsize

    @property
    def on_disk(self) -> bool:
        return self.bits.on_disk

    def take(self, ids: IntArray) -> Tensor:
        """(k, width) float32: the rows `ids`."""
        return self._decoded(self.bits.take(ids))

    def between(self, start: int, stop: int) -> Tensor:
        """(stop - start, width) float32: the rows start..stop-1."""
        return self._decoded(self.bits.between(start, stop))

    def keep_hot(self, ids: IntArray, n_bytes: int) -> None:
        """Hold the first of these rows in memory, as many as fit in `n_bytes`."""
        self.bits.keep_hot(ids[: n_bytes // (2 * self.bits.shape[1])])

    def _decoded(self, bits: AnyArray) -> Tensor:
        if not len(bits):  # a batch may reach no vertex, and torch has no view of no rows
            return torch.empty((0, self.width))
        return torch.from_numpy(bits).view(DTYPES[self.dtype]).float()
