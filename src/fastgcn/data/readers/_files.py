"""The pieces that published data sets are made of: `.npz`, `.npy`, sparse matrices, JSON.

Every function here names the file when it cannot be read, and none of them unpickles.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from scipy.sparse import coo_array, csc_array, csr_array

from fastgcn.arrays import AnyArray
from fastgcn.errors import FormatError, MissingFileError
from fastgcn.progress import progress

# What zipfile, zlib and numpy raise on damaged files. MemoryError and OverflowError: a damaged
# header may claim an array of any size.
_UNREADABLE = (
    ValueError,
    TypeError,
    EOFError,
    OSError,
    BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    OverflowError,
)


def need(folder: Path, *names: str) -> list[Path]:
    """The files of these names in `folder`, all there."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise MissingFileError(
            f"{folder} lacks {' and '.join(missing)}; "
            f"the data set consists of {', '.join(names)}: get the missing file as well"
        )
    return [folder / name for name in names]


def read_npz(path: Path, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """The named arrays of a `.npz` file.

    Optional ones are left out where the file has none, and where they hold Python objects:
    those could only be had by unpickling, which could run anything.
    """
    required, optional = tuple(required), tuple(optional)
    try:
        with ZipFile(path) as archive:
            there = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            _has_all(path, required, there)
            wanted = list(required)
            wanted += [name for name in optional if name in there and _plain(archive, there[name])]
            arrays: dict[str, Any] = {}
            total = sum(there[name].file_size for name in wanted)
            with progress(f"Reading {path.name}", total, "bytes") as advance:
                for name in wanted:
                    arrays[name] = _read_member(archive, there[name], advance)
            return arrays
    except FormatError:
        raise
    except _UNREADABLE as error:
        raise FormatError(f"{path} cannot be read as a .npz file: {_reason(error)}") from None


def _plain(archive: ZipFile, member: ZipInfo) -> bool:
    """Whether an array holds no Python objects, by the type at the start of its header."""
    with archive.open(member) as file:
        return b"'descr': '|O'" not in file.read(64)


def _read_member(archive: ZipFile, member: ZipInfo, advance: Callable[[int], None]) -> AnyArray:
    with archive.open(member) as file:
        try:
            array: AnyArray = npy.read_array(_Counted(file, advance), allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{member.filename}: {error}") from None
    return array


class _Counted:
    """A file that reports the bytes read from it."""

    def __init__(self, file: IO[bytes], advance: Callable[[int], None]) -> None:
        self._file, self._advance = file, advance

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._advance(len(data))
        return data


def _has_all(path: Path, required: Iterable[str], there: Iterable[str]) -> None:
    missing = [name for name in required if name not in there]
    if missing:
        raise FormatError(
            f"{path} lacks the array {missing[0]!r}; it has {', '.join(sorted(there)) or 'none'}"
        )


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def read_npy(path: Path) -> AnyArray:
    """The array of a `.npy` file, memory-mapped: features may be larger than memory."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _UNREADABLE as error:
        raise FormatError(f"{path} cannot be read as a .npy file: {_reason(error)}") from None
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{path} must be a .npy file, but is a .npz archive")
    return array


def read_sparse(path: Path) -> csr_array | csc_array | coo_array:
    """What `scipy.sparse.save_npz` wrote, in the layout it was written in."""
    head = read_npz(path, ("format", "shape"))
    # Bytes today, UTF-32 text from scipy before 1.0: the same letters but for the zeros.
    layout = head["format"].tobytes().decode("latin1").replace("\0", "")
    parts = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
    if layout not in parts:
        raise FormatError(
            f"{path} holds a sparse matrix in layout {layout!r}, expected csr, csc or coo; "
            "save it again after .tocsr()"
        )
    arrays = read_npz(path, ("data", *parts[layout]))
    if layout == "coo":
        return _checked_coo(path, head["shape"], arrays)
    return checked_compressed(path, layout, head["shape"], arrays)


def checked_compressed(
    path: Path, layout: str, shape: AnyArray, parts: Mapping[str, AnyArray]
) -> csr_array | csc_array:
    """A CSR or CSC matrix whose indices are known to be in range.

    scipy itself does not look, and its compiled loops would then read outside the arrays.
    """
    kind = csr_array if layout == "csr" else csc_array
    _check_kinds(path, parts)
    sizes = _two_sizes(path, shape)
    try:
        matrix = kind((parts["data"], parts["indices"], parts["indptr"]), shape=sizes)
        matrix.check_format(full_check=True)
    except (ValueError, IndexError, OverflowError) as error:
        raise FormatError(f"{path} holds a sparse matrix that is not whole: {error}") from None
    return matrix


def _checked_coo(path: Path, shape: AnyArray, parts: Mapping[str, AnyArray]) -> coo_array:
    _check_kinds(path, parts)
    sizes = _two_sizes(path, shape)
    try:
        return coo_array((parts["data"], (parts["row"], parts["col"])), shape=sizes)
    except (ValueError, IndexError, OverflowError) as error:
        raise FormatError(f"{path} holds a sparse matrix that is not whole: {error}") from None


def _check_kinds(path: Path, parts: Mapping[str, AnyArray]) -> None:
    for name, array in parts.items():
        kinds = "fiub" if name == "data" else "iu"
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise FormatError(
                f"{path}: the sparse matrix's {name} must be a 1-D array of "
                f"{'numbers' if name == 'data' else 'integers'}, "
                f"got {array.dtype} of shape {array.shape}"
            )


def _two_sizes(path: Path, shape: AnyArray) -> tuple[int, int]:
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise FormatError(f"{path}: a sparse matrix's shape must be two integers, got {shape}")
    return int(shape[0]), int(shape[1])


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise FormatError(f"{path} cannot be read as JSON: {_reason(error)}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path} must hold an object, got {type(value).__name__}")
    return value
