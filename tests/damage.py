"""Structured damage to folders of arrays and manifests, and the check that nothing worse than one
of this package's errors comes of it."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.data.layout import npy_header
from fastgcn.errors import FastGCNError

Array = np.ndarray[Any, Any]

# What is done, and a function that does it to a folder.
Damage = tuple[str, Callable[[Path], object]]

LEAST, MOST = -(2**63), 2**63 - 1


def only_our_errors(what: str, use: Callable[[], object]) -> bool:
    """True if `use` works, False if it raises one of this package's errors, of one line."""
    try:
        use()
    except FastGCNError as error:
        if len(str(error).splitlines()) != 1:
            raise AssertionError(f"{what}: {error}") from error
        return False
    except BaseException as error:
        raise AssertionError(what) from error
    return True


def damaged_copies(
    whole: Path, copy: Path, cases: Iterable[Damage], inside: str = "."
) -> Iterator[str]:
    """Damage a copy of a folder in each way, in the folder `inside` it; yields what was done."""
    for what, damage in cases:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        damage(copy / inside)
        yield what


def file_damage(path: Path) -> Iterator[Damage]:
    """What can happen to any file."""
    name, size = path.name, path.stat().st_size
    yield f"{name} is missing", partial(_replace, name, lambda _: None)
    yield f"{name} is a pipe", partial(_replace, name, os.mkfifo)
    yield f"{name} is a folder", partial(_replace, name, Path.mkdir)
    yield f"{name} is a device", partial(_replace, name, partial(os.symlink, "/dev/zero"))
    for length in (0, 5, 60, 127, size - 2, size + 3):
        if length >= 0:
            yield f"{name} has {length} bytes", partial(_truncate, name, length)


def _replace(name: str, put: Callable[[Path], object], folder: Path) -> None:
    (folder / name).unlink()
    put(folder / name)


def _truncate(name: str, length: int, folder: Path) -> None:
    os.truncate(folder / name, length)


def array_damage(path: Path) -> Iterator[Damage]:
    """What can happen to one `.npy` file that a manifest describes."""
    yield from file_damage(path)
    yield from _headers(path.name, np.load(path))
    yield from value_damage(path.name, np.load(path))


def _headers(name: str, array: Array) -> Iterator[Damage]:
    good = npy_header(array.dtype, array.shape)
    replaced = {
        b"NUMPY": b"NUMPX",
        b"\x01\x00": b"\x09\x09",
        b"'descr'": b"'dexcr'",
        b"False": b"True ",
        b"'shape': (": b"'shape': (0, ",
        b"(": b"((",
        b"}": b"]",
        b"'shape': ": b"'shape': 9" + b"9" * 18 + b" or ",
    }
    for old, new in replaced.items():
        header = _sized(good.replace(old, new, 1), len(good))
        yield f"{name} has the header {new!r}", partial(_overwrite, name, header)
    yield f"{name} has a long header", partial(_overwrite, name, b"\x93NUMPY\x01\x00\xff\xff")
    for descr in (">i8", "<i4", "<f8", ">f4", "<u8", "|O", "|V8", "<U2", "<M8[s]", "<f3", ""):
        header = _sized(good.replace(array.dtype.str.encode(), descr.encode(), 1), len(good))
        yield f"{name} is of {descr!r}", partial(_overwrite, name, header)
        if descr in (">i8", "<i4", "<f8", ">f4", "<u8"):
            yield f"{name} and manifest are of {descr!r}", partial(_retype, name, descr)
    for shape in ((), (0,), (1,), (0, 0), (len(array), 1), (1, 2, 3), (2**40,)):
        yield f"{name} and manifest have the shape {shape}", partial(_reshape, name, shape)


def _sized(header: bytes, length: int) -> bytes:
    return header[:-1].ljust(length - 1)[: length - 1] + b"\n"


def value_damage(name: str, array: Array) -> Iterator[Damage]:
    """What the numbers of an array may become."""
    values: list[Any] = [np.nan, np.inf, -1, 0, 3e38]
    if array.dtype.kind == "b":
        values = [0, 1]
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        values = [limits.min, limits.max, -1, -2, 0, 59, 60, 2**31 - 1, 2**32, 2**32 + 1, 2**62]
        values = [value for value in values if limits.min <= value <= limits.max]
    for value in values:
        for place in (0, array.size // 2, -1, slice(None)):
            yield f"{name}[{place}] is {value}", partial(_put, name, place, value)
    yield f"{name} runs backwards", partial(_put, name, slice(None), array.reshape(-1)[::-1])
    if array.dtype == np.int64 and array.size > 5:  # differences do not show it: each step wraps
        yield f"{name} goes round", partial(_put, name, slice(0, 5), [0, MOST, LEAST, -1, 0])


def _put(name: str, place: int | slice, value: Any, folder: Path) -> None:
    array = np.load(folder / name, mmap_mode="r+")
    array.reshape(-1)[place] = value
    array.flush()


def _overwrite(name: str, start: bytes, folder: Path) -> None:
    with (folder / name).open("r+b") as file:
        file.write(start)


def _retype(name: str, descr: str, folder: Path) -> None:
    np.save(folder / name, np.load(folder / name).astype(descr))
    edit_manifest(folder, lambda m: m["arrays"][name[:-4]].update(dtype=descr))


def _reshape(name: str, shape: tuple[int, ...], folder: Path) -> None:
    array = np.load(folder / name)
    data = np.resize(array, shape) if np.prod(shape, dtype=float) < 1e6 else array
    (folder / name).write_bytes(npy_header(array.dtype, shape) + data.tobytes())
    edit_manifest(folder, lambda m: m["arrays"][name[:-4]].update(shape=list(shape)))


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = next(folder / n for n in ("graph.json", "part.json") if (folder / n).exists())
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


_RAW = {
    "nothing": b"",
    "deep": b"[" * 20_000 + b"]" * 20_000,
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "no text": b"\xff",
    "of many digits": b"9" * 5000,
}
_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    7,
    2**31,
    2**63,
    1.5,
    1e308,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[[]]],
]
_HERE = "<here>"


def json_damage(path: Path) -> Iterator[Damage]:
    """What can happen to one JSON file: each of its fields missing, or of another value."""
    name = path.name
    yield from file_damage(path)
    for what, raw in _RAW.items():
        yield f"{name} is {what}", partial(_write, name, raw)
    for place in _places(json.loads(path.read_text())):
        field = f"{name}: {'.'.join(map(str, place))}"
        yield f"{field} is missing", partial(_set, name, place, ..., b"")
        for value in _VALUES:
            yield f"{field} is {value!r}", partial(_set, name, place, value, b"")
        for what in ("deep", "of many digits"):
            yield f"{field} is {what}", partial(_set, name, place, _HERE, _RAW[what])
        yield f"{field} is NaN", partial(_set, name, place, _HERE, b"NaN")


def _write(name: str, data: bytes, folder: Path) -> None:
    (folder / name).write_bytes(data)


def _places(value: Any) -> Iterator[tuple[str | int, ...]]:
    """The path to each field; of a list, only to its first entry."""
    inside: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value[:1]))
    for key, each in inside:
        yield (key,)
        for rest in _places(each):
            yield (key, *rest)


def _set(name: str, place: tuple[str | int, ...], value: Any, raw: bytes, folder: Path) -> None:
    whole = inner = json.loads((folder / name).read_text())
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    text = json.dumps(whole).encode()
    (folder / name).write_bytes(text.replace(f'"{_HERE}"'.encode(), raw))
