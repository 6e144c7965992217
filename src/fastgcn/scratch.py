"""Arrays in files: arrays larger than memory, reserved disk space, pages that are unmapped."""

import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fastgcn.arrays import AnyArray
from fastgcn.errors import InputError
from fastgcn.memory import shown_bytes


def reserve(file: IO[bytes], size: int) -> None:
    """Make an open file this long, with its space on the disk.

    A full disk then raises an error here. Without it, writing through a memory map to a file
    with holes would kill the process.
    """
    if hasattr(os, "posix_fallocate") and size > 0:
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def make_room(file: IO[bytes], n_bytes: int, folder: Path, what: str) -> None:
    """`reserve`; a full disk raises an `InputError` that says so, and the file is emptied."""
    try:
        reserve(file, n_bytes)
    except OSError as error:
        file.truncate(0)
        raise InputError(
            f"{folder} has no room for {shown_bytes(n_bytes)} of {what} "
            f"({os.strerror(error.errno or 0)}); free some there, or allow more --memory"
        ) from None


# Tells the system not to read ahead; systems without this flag do.
_RANDOM = getattr(mmap, "MADV_RANDOM", None)


_DONTNEED = getattr(mmap, "MADV_DONTNEED", None)


class Room(NamedTuple):
    """Bytes of memory that an array may take, and the folder of files for larger ones."""

    n_bytes: int
    folder: Path

    def place(self, n_bytes: int) -> Path | None:
        """Where an array of this size goes: None for memory."""
        return None if n_bytes <= self.n_bytes else self.folder


class Scratch:
    """An array of `shape` whose rows are written once each and then read in any order.

    With a `folder`, the array lies in an unnamed file there, so that its space is freed however
    the process ends; `forget` unmaps the pages that were read. Without a `folder`, it is in
    memory, and `descriptor` is None.

    >>> rows = Scratch((3, 2), np.float32, Path("."))
    >>> rows.put(1, np.ones((2, 2), np.float32))
    >>> rows.put(0, np.zeros((1, 2), np.float32))
    >>> rows.array[:, 0].tolist()
    [0.0, 1.0, 1.0]
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, folder: Path | None) -> None:
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
        self._map: mmap.mmap | None = None
        self.descriptor: int | None = None
        n_bytes = shape[0] * self._row_bytes
        if folder is None or n_bytes == 0:
            self.array: AnyArray = np.empty(shape, dtype)
            return
        with tempfile.TemporaryFile(dir=folder) as file:
            make_room(file, n_bytes, folder, "what does not fit in memory")
            # Mapped shared and writable, though nothing writes through it: for compiled functions
            # a read-only array is another type, for which they would be compiled again.
            self._map = mmap.mmap(file.fileno(), n_bytes)
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        if _RANDOM is not None:
            self._map.madvise(_RANDOM)
        self.array = np.frombuffer(self._map, dtype).reshape(shape)

    def put(self, start: int, part: AnyArray) -> None:
        """Fill the rows from `start` on."""
        if self.descriptor is None:
            self.array[start : start + len(part)] = part
            return
        # Not through the map, whose pages would count as this process's memory.
        at = start * self._row_bytes
        left = np.ascontiguousarray(part, self.array.dtype).data.cast("B")
        while left:
            written = os.pwrite(self.descriptor, left, at)
            left, at = left[written:], at + written

    def forget(self) -> None:
        """Unmap the pages of the file; they come back when they are read again."""
        if self._map is not None and _DONTNEED is not None:
            self._map.madvise(_DONTNEED)
