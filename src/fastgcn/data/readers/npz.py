"""`.npz` archives, `.npy` files, and the sparse matrices that scipy stores in archives.

What a file claims is compared with its own size and with the free memory before anything is
decompressed. Nothing is unpickled.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from fastgcn import npy
from fastgcn.arrays import AnyArray
from fastgcn.data.readers.parts import check_room
from fastgcn.errors import FormatError, InputError
from fastgcn.files import open_regular
from fastgcn.graph import sparse
from fastgcn.progress import progress

_HEAD = 1 << 12  # most bytes of the layout and the shape of a matrix


def read_npz(
    path: Path, required: Iterable[str], optional: Iterable[str] = (), *, most: int | None = None
) -> dict[str, Any]:
    """The named arrays of a `.npz` file, of at most `most` bytes each.

    Optional arrays are left out if the file lacks them, or if they hold Python objects: reading
    these means unpickling, which can run any code.
    """
    with _reading(path, "a .npz file"), open_regular(path) as file, ZipFile(file) as archive:
        there = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        _has_all(path, required, there)
        wanted = list(required)
        wanted += [name for name in optional if name in there and _plain(archive, there[name])]
        total = sum(there[name].file_size for name in wanted)
        check_room(path, 2 * total)  # the graph is made of copies
        arrays: dict[str, Any] = {}
        with progress(f"Reading {path.name}", total, "bytes") as advance:
            for name in wanted:
                arrays[name] = _read_member(archive, there[name], most, advance)
        return arrays


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Name the file in errors. zipfile raises many kinds of them, and all mean damage."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise FormatError(f"{path} cannot be read as {kind}: {reason}") from None


def _plain(archive: ZipFile, member: ZipInfo) -> bool:
    """True if the array holds no Python objects, by the type at the start of its header."""
    with archive.open(member) as file:
        return b"'descr': '|O'" not in file.read(64)


def _read_member(
    archive: ZipFile, member: ZipInfo, most: int | None, advance: Callable[[int], None]
) -> AnyArray:
    # Of other methods zipfile decompresses a block at once, however much it becomes.
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is compressed in a way that numpy does not read")
    if most is not None and member.file_size > most:
        raise ValueError(f"{member.filename} has {member.file_size:,} bytes, at most {most:,}")
    with archive.open(member) as file:
        try:
            array = npy.read_npy(cast(IO[bytes], _Counted(file, advance)), member.file_size)
            if file.read(1):  # this also compares the checksum, which lies at the end
                raise ValueError("it has bytes behind the array")
            _check_text(array)
        except ValueError as error:
            raise ValueError(f"{member.filename}: {error}") from None
    return array


def _check_text(array: AnyArray) -> None:
    """Check that text is of characters: Python raises a `SystemError` for other numbers."""
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = np.ascontiguousarray(array).reshape(-1).view(array.dtype.str[0] + "u4")
        if int(codes.max()) > sys.maxunicode or bool(((codes >= 0xD800) & (codes < 0xE000)).any()):
            raise ValueError("it has text that is not Unicode")


class _Counted:
    """The reading half of a file; reports the bytes read."""

    def __init__(self, file: IO[bytes], advance: Callable[[int], None]) -> None:
        self._file, self._advance = file, advance

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._advance(len(data))
        return data


def _has_all(path: Path, required: Iterable[str], there: Iterable[str]) -> None:
    missing = [name for name in required if name not in there]
    if missing:
        raise FormatError(
            f"{path} lacks the array {missing[0]!r}; it has {', '.join(sorted(there)) or 'none'}"
        )


def read_npy(path: Path) -> AnyArray:
    """The array of a `.npy` file, memory-mapped, because features may be larger than memory."""
    with _reading(path, "a .npy file"):
        with open_regular(path) as file:
            if file.read(4) == b"PK\x03\x04":
                raise FormatError(f"{path} must be a .npy file, but is a .npz archive")
        return npy.map_npy(path)


def read_sparse(path: Path) -> csr_array | csc_array | coo_array:
    """The matrix that `scipy.sparse.save_npz` wrote, in the same layout."""
    head = read_npz(path, ("format", "shape"), most=_HEAD)
    # Bytes today, UTF-32 text from scipy before 1.0: the same letters, with zeros between.
    layout = head["format"].tobytes().decode("latin1").replace("\0", "")
    if layout not in sparse.PARTS:
        raise FormatError(
            f"{path} holds a sparse matrix in layout {layout[:20]!r}, expected csr, csc or coo; "
            "save it again after .tocsr()"
        )
    arrays = read_npz(path, sparse.PARTS[layout])
    return checked_sparse(path, layout, sizes_of(head["shape"], path), arrays)


def sizes_of(shape: AnyArray, path: Path) -> tuple[int, int]:
    """The numbers of rows and columns from a stored shape."""
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise FormatError(
            f"{path}: a sparse matrix's shape must be two integers, "
            f"got {shape.dtype} of shape {shape.shape}"
        )
    return int(shape[0]), int(shape[1])


def checked_sparse(
    path: Path, layout: str, sizes: tuple[int, int], parts: Mapping[str, AnyArray]
) -> csr_array | csc_array | coo_array:
    """A matrix whose offsets and indices are known to be in range."""
    try:
        return sparse.sparse_from(layout, sizes, parts)
    except InputError as error:
        raise FormatError(f"{path} holds a damaged sparse matrix: {error}") from None
