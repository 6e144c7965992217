"""Checks of JSON values against a schema that is written as Python values.

A check is a function of a value and of the field's name; it raises a `ValueError` that names the
field, what was expected and what came. `record`, `list_of` and `mapping` build checks from checks.
The manifests of stores, shards and runs are each one `record`.

>>> check = record({"nodes": integer(1), "names": optional(list_of(text()))})
>>> check({"nodes": 3, "names": None}, "")
>>> check({"nodes": -1, "names": None}, "")
Traceback (most recent call last):
...
ValueError: nodes must be an integer from 1 to 4611686018427387904, got -1
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastgcn.errors import FormatError, MissingFileError
from fastgcn.files import read_json

Check = Callable[[Any, str], None]

# No count or size is larger, and sums and products with 2 stay within 64 bits.
MOST = 1 << 62
_SHOWN = 60  # most characters of a value in a message


def refuse(field: str, expected: str, value: Any) -> ValueError:
    """The error for a field that is not as expected."""
    shown = ascii(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    return ValueError(f"{field or 'it'} must be {expected}, got {shown}")


def integer(low: int = 0, high: int = MOST) -> Check:
    def check(value: Any, field: str) -> None:
        if type(value) is not int or not low <= value <= high:
            raise refuse(field, f"an integer from {low} to {high}", value)

    return check


def number(value: Any, field: str) -> None:
    """Any number; also null, which stands for NaN and infinity."""
    if value is not None and type(value) not in (int, float):
        raise refuse(field, "a number", value)


def boolean(value: Any, field: str) -> None:
    if type(value) is not bool:
        raise refuse(field, "true or false", value)


def text(longest: int = 1 << 16) -> Check:
    """Text that can be written as UTF-8."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, str) or len(value) > longest:
            raise refuse(field, f"text of at most {longest} characters", value)
        # JSON can hold halves of characters, which no terminal and no file takes.
        if re.search("[\ud800-\udfff]", value):
            raise refuse(field, "text without halves of characters", value)

    return check


def matching(pattern: str, expected: str) -> Check:
    def check(value: Any, field: str) -> None:
        if not isinstance(value, str) or re.fullmatch(pattern, value, re.ASCII) is None:
            raise refuse(field, expected, value)

    return check


digest = matching("[0-9a-f]{64}", "a SHA-256 sum of 64 digits")


def optional(check: Check) -> Check:
    """null, or what `check` takes."""

    def either(value: Any, field: str) -> None:
        if value is not None:
            check(value, field)

    return either


def list_of(check: Check, *, shortest: int = 0, longest: int = MOST) -> Check:
    def check_all(value: Any, field: str) -> None:
        if not isinstance(value, list) or not shortest <= len(value) <= longest:
            length = f" of at least {shortest} entries" if shortest else ""
            length += f" of at most {longest} entries" if longest < MOST else ""
            raise refuse(field, f"a list{length}", value)
        for i, each in enumerate(value):
            check(each, f"{field}[{i}]")

    return check_all


def mapping(check: Check, keys: Check | None = None) -> Check:
    """An object whose values all pass `check`, and whose keys pass `keys`."""
    of_keys = text() if keys is None else keys

    def check_all(value: Any, field: str) -> None:
        if not isinstance(value, dict):
            raise refuse(field, "an object", value)
        for key, each in value.items():
            of_keys(key, f"a key of {field or 'it'}")
            check(each, _inside(field, key))

    return check_all


def record(required: Mapping[str, Check], more: Mapping[str, Check] | None = None) -> Check:
    """An object with these keys, and perhaps those of `more`; any other key may be there too."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, dict):
            raise refuse(field, "an object", value)
        missing = [key for key in required if key not in value]
        if missing:
            raise ValueError(f"{field or 'it'} lacks {', '.join(missing)}")
        for key, each in {**required, **(more or {})}.items():
            if key in value:
                each(value[key], _inside(field, key))

    return check


def anything(value: Any, field: str) -> None:
    """Any JSON value whose texts can be written as UTF-8."""
    if isinstance(value, str):
        text()(value, field)
    elif isinstance(value, list):
        list_of(anything)(value, field)
    elif isinstance(value, dict):
        mapping(anything)(value, field)


def _inside(field: str, key: str) -> str:
    return f"{field}.{key}" if field else key


def read_checked(path: Path, check: Check, *, absent: str, remedy: str) -> Any:
    """The JSON value of a file that passes `check`; no file: an error that says `absent`."""
    value = read_any(path, absent)
    validate(value, check, path, remedy)
    return value


def read_any(path: Path, absent: str) -> Any:
    """The JSON value of a file; no file: an error that says `absent`."""
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(absent) from None
    except ValueError as error:
        raise FormatError(f"{path} is not valid JSON: {error}") from None


def validate(value: Any, check: Check, path: Path, remedy: str) -> None:
    """Raise a `FormatError` that names the file and the field, unless `value` passes."""
    try:
        check(value, "")
    except ValueError as error:
        reason = str(error).removeprefix("it ")
        if reason.startswith("lacks "):
            raise FormatError(f"{path} {reason}; {remedy}") from None
        raise FormatError(f"{path} is damaged: {error}; {remedy}") from None
