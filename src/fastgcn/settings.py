"""What a setting is: a type, a default, bounds and one sentence of help, declared once.

A dataclass declares its fields with `setting(...)`. The checks, the command's flags, the keys of a
TOML file, the JSON schema and the table in the docs are all made from that declaration.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from fastgcn.errors import FormatError, InputError, MissingFileError, nearest


class Setting:
    """One setting. As the default of a dataclass field it marks a value that was not given.

    Attributes:
        name: set when the class that declares the setting is made.
        default: its value where nothing else is chosen.
        help: one sentence, which also names the choices.
        group: the heading under which flags and docs list it.
        automatic: whether the automatic choice decides it, so that `default` is not what a run
            without this setting gets.
        at_least, above, at_most, below: bounds of the number, or of each number of a list.
        check_text: raises `InputError` for a text that is not allowed.
        flag: the flag of the command, where it is not the name with hyphens.
        number: int or float where numbers are allowed.
        kind: bool or str where the value is a switch or free text.
        words: the words that are allowed.
        single, listed, optional: whether one number, a list of numbers, and None are allowed.
    """

    name = ""
    kind: type | None = None
    number: type | None = None

    def __init__(
        self,
        default: Any,
        help: str,
        *,
        group: str,
        automatic: bool = False,
        at_least: float | None = None,
        above: float | None = None,
        at_most: float | None = None,
        below: float | None = None,
        check_text: Callable[[str], object] | None = None,
        flag: str | None = None,
    ) -> None:
        self.default, self.help, self.group, self.automatic = default, help, group, automatic
        self.at_least, self.above, self.at_most, self.below = at_least, above, at_most, below
        self.check_text, self._flag = check_text, flag

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
        return "auto" if self.automatic else repr(self.default)

    @property
    def flag(self) -> str:
        return self._flag or "--" + self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """Raise `InputError` unless the value is of the right type and within the bounds."""
        if value is None and self.optional:
            return
        if self.words and self.number is None:
            if value not in self.words:
                raise InputError(
                    f"{self.name} must be one of {', '.join(self.words)}, got {value!r}"
                    + nearest(str(value), self.words)
                )
            return
        numbers = value if self.listed and isinstance(value, tuple) else (value,)
        a_number = self.single or numbers is value
        if not (
            (self.kind is not None and isinstance(value, self.kind))
            or (isinstance(value, str) and value in self.words)
            or (self.number is not None and a_number and all(map(self._is_number, numbers)))
        ):
            raise InputError(f"{self.name} must be {self._expected()}, got {value!r}")
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
        bounds = self.bounds
        if not all(holds(number) for holds, _ in bounds):
            texts = " and ".join(text for _, text in bounds)
            raise InputError(f"{self.name} must be {texts}, got {number}")

    @property
    def bounds(self) -> list[tuple[Callable[[float], bool], str]]:
        """Each bound as a test of a number and as a text."""
        found: list[tuple[Callable[[float], bool], str]] = []
        if (least := self.at_least) is not None:
            found.append((lambda number: number >= least, f"at least {least}"))
        if (open_least := self.above) is not None:
            found.append((lambda number: number > open_least, f"above {open_least}"))
        if (most := self.at_most) is not None:
            found.append((lambda number: number <= most, f"at most {most}"))
        if (open_most := self.below) is not None:
            found.append((lambda number: number < open_most, f"below {open_most}"))
        return found

    def _expected(self, a_list: str = "a list of them") -> str:
        """What a value can be, for messages."""
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
        numbers = _numbers(text, self.number, self.flag, self._expected("several with commas"))
        return numbers[0] if self.single and len(numbers) == 1 else numbers

    def schema(self) -> dict[str, Any]:
        """The setting as a JSON schema."""
        choices: list[dict[str, Any]] = [{"enum": list(self.words)}] if self.words else []
        if self.kind is not None:
            choices.append({"type": "boolean" if self.kind is bool else "string"})
        if self.number is not None:
            limits = {
                "minimum": self.at_least,
                "exclusiveMinimum": self.above,
                "maximum": self.at_most,
                "exclusiveMaximum": self.below,
            }
            number = {"type": "integer" if self.number is int else "number"} | {
                name: limit for name, limit in limits.items() if limit is not None
            }
            choices += [number] if self.single else []
            choices += [{"type": "array", "items": number}] if self.listed else []
        choices += [{"type": "null"}] if self.optional else []
        types = choices[0] if len(choices) == 1 else {"anyOf": choices}
        default = {} if self.automatic else {"default": self.default}
        return {"description": self.help} | types | default


def setting(default: Any, help: str, **options: Any) -> Any:
    """Declare a field of a dataclass as a `Setting`, whose options these are."""
    return Setting(default, help, **options)


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
    # Without numpy, which takes longer to load than all of `fastgcn --help`.
    return value.item() if type(value).__module__ == "numpy" and not value.ndim else value


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise MissingFileError(f"there is no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not valid TOML: {error}") from None


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
            values[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            values[key.strip()] = value.strip()
    return values


def check_device(device: str) -> None:
    """Raise `InputError` unless the text names a device.

    >>> check_device("cuda:1")
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"device must be auto, cpu or cuda[:N], got {device!r}")
