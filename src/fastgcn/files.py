"""Read JSON within limits, and only files that are files; null stands for NaN and infinity."""

import errno
import json
import math
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

JSON_BYTES = 1 << 26  # of a whole document: it takes about twenty times as much as objects
_JSON_DEPTH = 32
_JSON_DIGITS = 40  # of an integer: seeds have up to 39


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read; anything else in its place (a pipe, a folder, ...) is a `ValueError`.

    A pipe would block until someone writes to it, a device may never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link to itself, a socket
            raise ValueError("it is not a regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    # `open` keeps the path as the name, which numpy keeps with a memory map.
    return open(str(path), "rb", opener=lambda *_: descriptor)


_BINARY = getattr(os, "O_BINARY", 0)  # Windows


def read_json(path: Path, limit: int = JSON_BYTES) -> Any:
    """The JSON value of a file; a `ValueError` says what is wrong with it."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return parse_json(file.read(min(size, limit + 1)), limit)


def parse_json(data: bytes | str, limit: int = JSON_BYTES) -> Any:
    """A JSON value whose size, depth and integers are limited; a `ValueError` says what is wrong.

    >>> parse_json('{"nodes": 3}')
    {'nodes': 3}
    >>> parse_json("[" * 100 + "]" * 100)
    Traceback (most recent call last):
    ...
    ValueError: it is nested more than 32 deep
    """
    if len(data) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = json.loads(text, parse_int=_short_integer)
    except RecursionError:
        raise ValueError(f"it is nested more than {_JSON_DEPTH} deep") from None
    level: list[Any] = [[value]]
    for _ in range(_JSON_DEPTH + 1):
        boxes = (box.values() if isinstance(box, dict) else box for box in level)
        level = [each for box in boxes for each in box if isinstance(each, dict | list)]
        if not level:
            return value
    raise ValueError(f"it is nested more than {_JSON_DEPTH} deep")


def _short_integer(digits: str) -> int:
    if len(digits) > _JSON_DIGITS:
        raise ValueError(f"it has an integer of {len(digits):,} digits")
    return int(digits)


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON with null for NaN and infinities, such as the loss of a training that diverged.

    >>> dumps({"loss": float("nan"), "f1": [0.5]})
    '{"loss": null, "f1": [0.5]}'
    """
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """Replace each NaN and infinity by None."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_nan(value: Any) -> Any:
    """Replace each None by NaN; for values in which only numbers can be null.

    >>> with_nan(json.loads('{"loss": null}'))
    {'loss': nan}
    """
    if isinstance(value, dict):
        return {key: with_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_nan(each) for each in value]
    return math.nan if value is None else value
