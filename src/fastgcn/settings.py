"""`Setting`: a type, a default, bounds and one sentence of help, declared once.

A dataclass declares its fields with `setting(...)`. The checks, the command's flags, the keys of a
TOML file, the JSON schema and the table in the docs are all made from that declaration.
"""

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from fastgcn.errors import FormatError, InputError, MissingFileError, nearest
from fastgcn.files import open_regular

# Each bound of a number: its test, its text in messages, its name in a JSON schema.
_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str, str]] = {
    "at_least": (operator.ge, "at least", "minimum"),
    "above": (operator.gt, "above", "exclusiveMinimum"),
    "at_most": (operator.le, "at most", "maximum"),
    "below": (operator.lt, "below", "exclusiveMaximum"),
}


_INT64 = 1 << 63


def _short(number: float) -> str:
    """A number of any size as text; Python refuses to write out a whole one of many digits."""
    if isinstance(number, int) and abs(number) > 1 << 128:
        return f"a number of {number.bit_length()} bits"
    return str(number)


@dataclass(eq=False, repr=False)
class Setting:
    """One setting. As the default of a dataclass field it marks a value that was not given.

    Attributes:
        default: its value if nothing else is chosen.
        help: one sentence, which also names the choices.
        group: the heading under which flags and docs list it.
        automatic: True if a run without this setting gets a value chosen for the graph instead
            of `default`.
        bounds: of the number, or of each number of a list: at_least, above, at_most, below.
        check_text: raises `InputError` for a text that is not allowed.
        own_flag: the flag of the command, if it is not the name with hyphens.
        name: the field's name.
        number: int or float if numbers are allowed.
        kind: bool or str if the value is a switch or free text.
        words: the words that are allowed.
        single, listed, optional: True if one number, a list of numbers, None are allowed.
    """

    default: Any
    help: str
    group: str
    automatic: bool
    bounds: dict[str, float]
    check_text: Callable[[str], object] | None = None
    own_flag: str | None = None
    name: str = field(init=False)
    number: type | None = field(init=False)
    kind: type | None = field(init=False)
    words: tuple[str, ...] = field(init=False)
    single: bool = field(init=False)
    listed: bool = field(init=False)
    optional: bool = field(init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        annotation = owner.__annotations__[name]
        origin: Any = get_origin(annotation)  # Union where a Literal is among the types
        kinds = get_args(annotation) if origin in (Union, UnionType) else (annotation,)
        self.words = tuple(w for k in kinds if get_origin(k) is Literal for w in get_args(k))
        self.listed = any(get_origin(kind) is tuple for kind in kinds)
        self.single = int in kinds or float in kinds
        self.optional = type(None) in kinds
        inner = [get_args(kind)[0] if get_origin(kind) is tuple else kind for kind in kinds]
        self.number = next((kind for kind in inner if kind in (int, float)), None)
        self.kind = next((kind for kind in inner if kind in (bool, str)), None)

    def __repr__(self) -> str:
        return "<automatic>" if self.automatic else repr(self.default)

    @property
    def flag(self) -> str:
        return self.own_flag or "--" + self.name.replace("_", "-")

    @property
    def flag_type(self) -> type:
        """The type of the flag's value before `parse`."""
        if self.number is not None and not self.listed and not self.words:
            return self.number
        return bool if self.kind is bool else str

    @property
    def default_text(self) -> str:
        """The default as text; `automatic` if it is chosen for the graph."""
        if self.automatic:
            return "automatic"
        text = json.dumps(self.default)
        return text.strip('"[]') or text

    @property
    def allowed(self) -> str:
        """The allowed values in words, with their bounds."""
        texts = [f"{_BOUNDS[name][1]} {limit}" for name, limit in self.bounds.items()]
        return ", ".join([self.expected(), *texts])

    def as_data(self) -> dict[str, Any]:
        """The declaration as plain data, ready for JSON."""
        return {
            "name": self.name,
            "flag": self.flag,
            "group": self.group,
            "default": self.default,
            "automatic": self.automatic,
            "allowed": self.allowed,
            "help": self.help,
        }

    def check(self, value: Any) -> None:
        """Raise `InputError` unless the value is of the right type and within the bounds."""
        if value is None and self.optional:
            return
        if self.words and self.number is None:
            if value not in self.words:
                hint = nearest(str(value), self.words)
                raise InputError(f"{self.name} must be {self.expected()}, got {value!r}{hint}")
            return
        numbers = value if self.listed and isinstance(value, tuple) else (value,)
        a_number = self.single or numbers is value
        if not (
            (self.kind is not None and isinstance(value, self.kind))
            or (isinstance(value, str) and value in self.words)
            or (self.number is not None and a_number and all(map(self._is_number, numbers)))
        ):
            raise InputError(f"{self.name} must be {self.expected()}, got {value!r}")
        if self.check_text is not None:
            self.check_text(value)
        if value not in self.words and self.number is not None:
            for number in numbers:
                self._check_bounds(number)

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, int):
            return not isinstance(value, bool)
        return self.number is float and isinstance(value, float) and math.isfinite(value)

    def _check_bounds(self, number: float) -> None:
        if not all(_BOUNDS[name][0](number, limit) for name, limit in self.bounds.items()):
            texts = (f"{_BOUNDS[name][1]} {limit}" for name, limit in self.bounds.items())
            raise InputError(f"{self.name} must be {' and '.join(texts)}, got {_short(number)}")
        if isinstance(number, int) and not -_INT64 <= number < _INT64:
            raise InputError(f"{self.name} must fit into 64 bits, got {_short(number)}")

    def expected(self, a_list: str = "a list of them") -> str:
        """The allowed values in words."""
        if self.words and self.number is None:
            return f"one of {', '.join(self.words)}"
        if self.kind is not None:
            return "true or false" if self.kind is bool else "text"
        one = "whole" if self.number is int else "finite"
        if not self.single:
            return f"a list of {one} numbers"
        expected = [f"a {one} number", *([a_list] if self.listed else []), *map(repr, self.words)]
        return " or ".join(filter(None, (", ".join(expected[:-1]), expected[-1])))

    def parse(self, text: str) -> Any:
        """The value of a flag such as `--samples 400,200` or `--samples auto`."""
        if self.number is None or text in self.words:
            return text
        numbers = _numbers(text, self.number, self.flag, self.expected("several with commas"))
        return numbers[0] if self.single and len(numbers) == 1 else numbers

    def schema(self) -> dict[str, Any]:
        """The setting as a JSON schema."""
        choices: list[dict[str, Any]] = [{"enum": list(self.words)}] if self.words else []
        if self.kind is not None:
            choices.append({"type": "boolean" if self.kind is bool else "string"})
        if self.number is not None:
            number: dict[str, Any] = {"type": "integer" if self.number is int else "number"}
            number |= {_BOUNDS[name][2]: limit for name, limit in self.bounds.items()}
            choices += [number] if self.single else []
            choices += [{"type": "array", "items": number}] if self.listed else []
        choices += [{"type": "null"}] if self.optional else []
        types = choices[0] if len(choices) == 1 else {"anyOf": choices}
        default = {} if self.automatic else {"default": self.default}
        return {"description": self.help} | types | default


def setting(
    default: Any,
    help: str,
    *,
    group: str,
    automatic: bool = False,
    check_text: Callable[[str], object] | None = None,
    flag: str | None = None,
    **bounds: float,
) -> Any:
    """Declare a field of a dataclass as a `Setting`."""
    return Setting(default, help, group, automatic, bounds, check_text, flag)


def schema(settings: Mapping[str, Setting], title: str) -> dict[str, Any]:
    """A JSON schema of these settings, with which editors check TOML and JSON files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": {name: each.schema() for name, each in settings.items()},
        "additionalProperties": False,
    }


def markdown_table(settings: Mapping[str, Setting]) -> str:
    """A table of these settings for the docs, with a heading for each group."""
    lines = ["| setting | meaning | default |", "|---|---|---|"]
    for group, members in groupby(settings.values(), lambda each: each.group):
        lines.append(f"| **{group}** | | |")
        for each in members:
            meaning = each.help.replace("|", "\\|")
            lines.append(f"| `{each.name}` | {meaning} | {each.default_text} |")
    return "\n".join(lines)


def whole_numbers(text: str, flag: str) -> int | list[int]:
    """The value of a flag such as `--samples 400` or `--samples 400,200`."""
    numbers = _numbers(text, int, flag, "a whole number or several with commas")
    return numbers[0] if len(numbers) == 1 else numbers


def _numbers(text: str, number: type, flag: str, expected: str) -> list[Any]:
    try:
        return [number(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{flag} must be {expected}, got {text!r}") from None


def as_plain(value: Any) -> Any:
    """Lists as tuples, and numpy's numbers, which parameter searches draw, as Python's."""
    if isinstance(value, list | tuple):
        return tuple(map(as_plain, value))
    # Does not import numpy, which takes longer to load than all of `fastgcn --help`.
    return value.item() if type(value).__module__ == "numpy" and not value.ndim else value


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        with open_regular(path) as file:
            return _parse_toml(file.read().decode("utf-8-sig"))
    except FileNotFoundError:
        raise MissingFileError(f"there is no config file {path}") from None
    except ValueError as error:
        raise FormatError(f"{path} is not valid TOML: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    """A TOML document; a `ValueError` says what is wrong with it."""
    import tomllib  # `--help` does without it

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Settings from texts KEY=VALUE in TOML's syntax; a word needs no quotes.

    >>> read_assignments(["hidden=[64, 64]", "norm=layer"])
    {'hidden': [64, 64], 'norm': 'layer'}
    """
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes KEY=VALUE, got {text!r}")
        try:
            values[key.strip()] = _parse_toml(f"value = {value}")["value"]
        except ValueError:
            values[key.strip()] = value.strip()
    return values
