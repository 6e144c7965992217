"""Mutations of arrays and of the files that hold them: `.npy`, `.npz`, `.safetensors`."""

import io
import json
import warnings
import zipfile
from random import Random
from typing import Any

import numpy as np
from numpy.lib import format as npy

from fastgcn.arrays import AnyArray
from tests.fuzz.mutate_bytes import extreme_word, mutate_bytes
from tests.fuzz.mutate_json import changed_json
from tests.fuzz.values import (
    FLOATS,
    HEADER_DTYPES,
    HEADER_ORDERS,
    HEADER_SHAPES,
    HEADERS,
    INTEGERS,
)

_CASTS = ("<i8", ">i8", "<i4", ">i4", "|i1", "|u1", "<u8", "<f2", "<f4", ">f4", "<f8", "<c8", "|b1",
          "<U3", "|S2", "<M8[s]", "<f16")  # fmt: skip


def mutate_array(array: AnyArray, rng: Random) -> AnyArray:
    """An array with one change of an element, its length, its shape or its type."""
    flat = array.reshape(-1).copy()
    n = flat.size
    at, to = (rng.choice((0, n - 1, rng.randrange(n))) for _ in "ab") if n else (0, 0)
    match rng.randrange(16):
        case 0 | 1 | 2 | 3 | 4 if n:
            flat[at] = _extreme(flat, at, rng)
        case 5 if n:
            flat[at], flat[to] = flat[to], flat[at]
        case 6 if n:
            flat[at] = flat[to]
        case 7:
            return array[::-1]
        case 8:
            return array[: rng.randrange(len(array) + 1)] if array.ndim else array
        case 9 if array.ndim and len(array):
            return np.concatenate([array, array[: rng.randrange(1, len(array) + 1)]])
        case 10 if array.ndim:
            return np.concatenate([array] * rng.choice((2, 3, 10)))
        case 11:
            return array.astype(rng.choice(_CASTS))
        case 12:
            return array.astype(array.dtype.newbyteorder())
        case 13:
            return rng.choice(
                (array[..., None], array[None], array.T, flat, np.asfortranarray(array))
            )
        case 14:
            flat[:] = flat[at] if n else 0
        case 15 if array.ndim:
            return array[:0]
    return flat.reshape(array.shape)


def _extreme(flat: AnyArray, at: int, rng: Random) -> Any:
    kind = flat.dtype.kind
    if kind in "iu":
        limits = np.iinfo(flat.dtype)
        near = int(flat[at]) + rng.choice((-1, 1, len(flat)))
        value = rng.choice(
            (limits.min, limits.max, near, near, len(flat), -len(flat), *INTEGERS[:9])
        )
        return min(max(value, limits.min), limits.max)
    if kind == "f":
        return rng.choice(FLOATS)
    return rng.choice((0, 1))


def npy_bytes(array: AnyArray) -> bytes:
    buffer = io.BytesIO()
    npy.write_array(buffer, array, allow_pickle=array.dtype.hasobject)
    return buffer.getvalue()


def mutate_npy(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    kind = rng.random()
    if kind < 0.12:
        return mutate_bytes(data, rng, other)
    if kind < 0.27:
        return _other_header(data, rng)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = npy.read_array(io.BytesIO(data), allow_pickle=False)
            return npy_bytes(mutate_array(array, rng))
    except Exception:  # changed before, and no array any more
        return mutate_bytes(data, rng, other)


def _other_header(data: bytes, rng: Random) -> bytes:
    """The same content under another header."""
    length = int.from_bytes(data[8:10], "little")
    try:
        fields = {key: repr(value) for key, value in eval(data[10 : 10 + length]).items()}  # noqa: S307
    except Exception:
        fields = {"descr": "'<i8'", "fortran_order": "False", "shape": "(8,)"}
    pools = {"descr": HEADER_DTYPES, "shape": HEADER_SHAPES, "fortran_order": HEADER_ORDERS}
    key = rng.choice(
        ("descr", "descr", "shape", "shape", "fortran_order", "remove", "raw", "version")
    )
    if key in pools:
        fields[key] = rng.choice(pools[key])
    elif key == "remove" and fields:
        del fields[rng.choice(list(fields))]
    header = ("{" + "".join(f"'{name}': {text}, " for name, text in fields.items()) + "}").encode()
    if key == "raw":
        header = rng.choice((*HEADERS, mutate_bytes(header, rng)))
    version = (
        rng.choice((b"\1\0", b"\2\0", b"\3\0", b"\0\0", b"\4\0", b"\1\1", b"\xff\xff"))
        if key == "version"
        else b"\1\0"
    )
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    size = len(header).to_bytes(2 if version == b"\1\0" else 4, "little")
    if rng.random() < 0.1:
        size = rng.choice((b"\0\0", b"\xff\xff", b"\xff\xff\xff\xff", extreme_word(rng)))
    return b"\x93NUMPY" + version + size + header + data[10 + length :]


_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def mutate_npz(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    if rng.random() < 0.2:
        return mutate_bytes(data, rng, other)
    try:
        members = _members(data)
    except Exception:  # changed before, and no archive any more
        return mutate_bytes(data, rng, other)
    if not members:
        return mutate_bytes(data, rng, other)
    at = rng.randrange(len(members))
    name, content = members[at]
    method = zipfile.ZIP_STORED
    match rng.randrange(12):
        case 0:
            del members[at]
        case 1:
            members.append((name, mutate_npy(content, rng)))
        case 2:
            members[at] = (
                rng.choice((name.upper(), name[:-4], "../" + name, "", "a/" + name, name + "\0")),
                content,
            )
        case 3:
            members[at] = name, rng.choice(members)[1]
        case 4:
            method = rng.choice(_METHODS)
            packed = _archive(members, method)
            return mutate_bytes(packed, rng) if rng.random() < 0.5 else packed
        case _:
            members[at] = name, mutate_npy(content, rng, rng.choice(members)[1])
    return _archive(members, method)


def _members(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(member.filename, archive.read(member)) for member in archive.infolist()]


def _archive(members: list[tuple[str, bytes]], method: int) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # two members of one name
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()


_TYPES = (
    "F32",
    "F64",
    "F16",
    "BF16",
    "I64",
    "I32",
    "U8",
    "BOOL",
    "F8_E4M3",
    "C64",
    "I128",
    "",
    "f32",
)


def mutate_safetensors(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError):
        header = None
    kind = rng.random()
    if not isinstance(header, dict) or kind < 0.15:
        return mutate_bytes(data, rng, other)
    content = data[8 + length :]
    if kind < 0.4 and content:
        with np.errstate(over="ignore"):
            word = np.array([rng.choice(FLOATS)], rng.choice(("<f4", "<f8"))).tobytes()
        if rng.random() < 0.4:
            word = extreme_word(rng)
        at = rng.randrange(len(content)) // len(word) * len(word)
        content = content[:at] + word + content[at + len(word) :]
        text = data[8 : 8 + length].decode()
    else:
        tensors = [
            value for value in header.values() if isinstance(value, dict) and "dtype" in value
        ]
        if tensors and kind < 0.55:
            tensor = rng.choice(tensors)
            tensor["dtype"] = rng.choice(_TYPES)
        elif tensors and kind < 0.7:
            _other_extent(rng.choice(tensors), rng)
        elif kind < 0.75:
            one, two = rng.choice(list(header)), rng.choice(list(header))
            header[one], header[two] = header[two], header[one]
        else:
            text = changed_json(header, rng)
            return _joined(text, content)
        text = json.dumps(header)
    return _joined(text, content)


def _other_extent(tensor: dict[str, Any], rng: Random) -> None:
    """Another shape or place of a tensor; where it can, one that takes as many bytes."""
    shape = tensor.get("shape")
    if isinstance(shape, list) and shape and rng.random() < 0.6:
        tensor["shape"] = rng.choice(
            (shape[::-1], [*shape, 1], shape[:-1], [1, *shape], [*shape[:-1], 0], [1 << 40, 0])
        )
    else:
        tensor["data_offsets"] = [rng.choice(INTEGERS), rng.choice(INTEGERS)]


def _joined(header: str, content: bytes) -> bytes:
    text = header.encode(errors="surrogatepass")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content
