"""A strict parser of `.npy` headers; arrays are mapped from files, or read from streams, by it.

numpy evaluates a header as Python source and trusts what it says about types and sizes. Here a
header must match a small grammar, its type must be one that is read, and its shape must fit the
file, in Python integers, before any array is made. Errors are `ValueError`s that say what is
wrong; callers add the name of the file.
"""

import math
import os
import re
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fastgcn.arrays import AnyArray
from fastgcn.files import open_regular

_MAGIC = b"\x93NUMPY"
_LONGEST = 10_000  # bytes of a header, as in numpy
_MOST_DIMENSIONS = 32
_ENTRY = re.compile(
    rb"\s*'(?P<key>[a-z_]{1,16})'\s*:\s*"
    rb"(?:'(?P<text>[^'\\]{0,64})'|(?P<flag>True|False)|\((?P<shape>[0-9L,\s]*)\))"
    rb"\s*(?:,|(?=\}))"
)
_SHAPE = re.compile(rb"(?:\s*\d{1,19}L?\s*,)*\s*(?:\d{1,19}L?\s*)?")
_DTYPE = re.compile(r"[<>|=]?([a-zA-Z])(\d{1,7})")
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}


class Header(NamedTuple):
    """What a header says; `start` is where the array's bytes begin in the file."""

    dtype: "np.dtype[np.generic]"
    shape: tuple[int, ...]
    fortran: bool
    start: int

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> Header:
    """Parse the header at the position of `file`, which ends up behind it.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros((3, 2), np.float32)), file.seek(0)
    (None, 0)
    >>> read_header(file).shape
    (3, 2)
    """
    start = _read(file, 8)
    if start[:6] != _MAGIC:
        raise ValueError("it does not begin like a .npy file")
    version = tuple(start[6:])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"its format version is {version[0]}.{version[1]}, not 1.0 to 3.0")
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(_read(file, width), "little")
    if length > _LONGEST:
        raise ValueError(f"its header has {length:,} bytes; more than {_LONGEST:,} are not read")
    text = _read(file, length)
    return Header(*_fields(text), 8 + width + length)


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ValueError("it ends within its header")
    return data


def _fields(text: bytes) -> "tuple[np.dtype[np.generic], tuple[int, ...], bool]":
    """Type, shape and order from a header such as
    `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }`.
    """
    found: dict[bytes, re.Match[bytes]] = {}
    inner = text.strip()
    place = 1
    while (entry := _ENTRY.match(inner, place)) is not None and entry["key"] not in found:
        found[entry["key"]] = entry
        place = entry.end()
    if (
        inner[:1] != b"{"
        or inner[place:].strip() != b"}"
        or sorted(found) != [b"descr", b"fortran_order", b"shape"]
        or found[b"descr"]["text"] is None
        or found[b"fortran_order"]["flag"] is None
        or found[b"shape"]["shape"] is None
    ):
        shown = inner[:80].decode("ascii", "replace")
        raise ValueError(f"its header must have descr, fortran_order and shape, got {shown!r}")
    dtype = _dtype(found[b"descr"]["text"].decode("ascii", "replace"))
    shape = _shape(found[b"shape"]["shape"])
    if math.prod(max(size, 1) for size in shape) * max(dtype.itemsize, 1) >= 2**63:
        raise ValueError(f"its header names an array of shape {shape}, which nothing can hold")
    return dtype, shape, found[b"fortran_order"]["flag"] == b"True"


def _dtype(descr: str) -> "np.dtype[np.generic]":
    if descr.lstrip("|") == "O":
        raise ValueError("it holds Python objects, and reading these can run any code")
    match = _DTYPE.fullmatch(descr)
    if match is None or (match[1] not in "SU" and int(match[2]) not in _SIZES.get(match[1], ())):
        raise ValueError(f"its type {descr!r} is not read here; save it as numbers")
    return np.dtype(descr)


def _shape(text: bytes) -> tuple[int, ...]:
    if _SHAPE.fullmatch(text) is None or text.count(b",") > _MOST_DIMENSIONS:
        raise ValueError("its header has no valid shape")
    return tuple(int(digits) for digits in re.findall(rb"\d+", text))


def map_npy(path: Path, *, strict: bool = False) -> AnyArray:
    """The array of a file, memory-mapped read-only.

    With `strict`, the file must be one that this package writes: in C order, aligned, in the
    machine's byte order, and without bytes behind the array.
    """
    with open_regular(path) as file:
        header = read_header(file)
        size, needed = os.fstat(file.fileno()).st_size, header.start + header.n_bytes
        if size < needed or (strict and size != needed):
            raise ValueError(
                f"it has {size:,} bytes, but its header says {needed:,}: it was cut off or changed"
            )
        if strict and (header.fortran or header.start % 16 or not header.dtype.isnative):
            raise ValueError("its header is not one that fastgcn writes")
        if header.n_bytes == 0:  # cannot be mapped
            return np.empty(header.shape, header.dtype)
        mapped: AnyArray = np.memmap(
            file,
            header.dtype,
            "r",
            offset=header.start,
            shape=header.shape,
            order="F" if header.fortran else "C",
        )
    # Compiled code wants aligned arrays; another program may have written a shorter header.
    return mapped if mapped.flags.aligned else np.array(mapped)


def read_npy(file: IO[bytes], size: int) -> AnyArray:
    """The array in a stream of `size` bytes, such as a member of a zip archive.

    Memory is taken as bytes arrive: what a header claims is not believed.
    """
    header = read_header(file)
    if size < header.start + header.n_bytes:
        raise ValueError(
            f"it has {size:,} bytes, but its header says {header.start + header.n_bytes:,}"
        )
    data = bytearray()
    while len(data) < header.n_bytes:
        piece = file.read(min(1 << 24, header.n_bytes - len(data)))
        if not piece:
            raise ValueError("it was cut off")
        data += piece
    flat: AnyArray = np.frombuffer(data, header.dtype, count=math.prod(header.shape))
    return flat.reshape(header.shape, order="F" if header.fortran else "C")
