"""A setting's value against the annotation of its field, and against its bounds."""

import math
from typing import Any, Literal, get_args, get_origin

from fastgcn.checks import plain
from fastgcn.errors import InputError, nearest


def as_plain(value: Any) -> Any:
    """Lists as tuples, and numpy's numbers, which parameter searches draw, as Python's."""
    if isinstance(value, list | tuple):
        return tuple(map(as_plain, value))
    return plain(value)


def check_kind(name: str, value: Any, annotation: Any) -> None:
    """The value is of the annotated kind: a choice, a switch, text, a number or several, or None.

    >>> check_kind("samples", "all", int | tuple[int, ...] | Literal["auto"])
    Traceback (most recent call last):
    fastgcn.errors.InputError: samples must be a whole number, a list of them or 'auto', got 'all'
    """
    if value is None and type(None) in get_args(annotation):
        return
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        if value not in choices:
            raise InputError(
                f"{name} must be one of {', '.join(choices)}, got {value!r}"
                + nearest(str(value), choices)
            )
    elif annotation is bool:
        require(isinstance(value, bool), name, "true or false", value)
    elif annotation is int:
        require(_is_int(value), name, "a whole number", value)
    elif annotation is float or annotation == float | None:
        require(_is_number(value), name, "a finite number", value)
    elif annotation is str:
        require(isinstance(value, str), name, "text", value)
    else:
        _check_several(name, value, get_args(annotation))


def _check_several(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """A number, or a list of numbers or one of the words that stand beside it."""
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    is_one, one = (_is_number, "finite") if float in kinds else (_is_int, "whole")
    lists = any(kind is ... or get_origin(kind) is tuple for kind in kinds)
    listed = lists and isinstance(value, tuple) and all(map(is_one, value))
    expected = [f"a {one} number", *(["a list of them"] if lists else []), *map(repr, words)]
    text = f"{', '.join(expected[:-1])} or {expected[-1]}"
    require(is_one(value) or value in words or listed, name, text, value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def require(condition: bool, name: str, expected: str, value: Any) -> None:
    if not condition:
        raise InputError(f"{name} must be {expected}, got {value!r}")


def at_least(name: str, value: float, least: int) -> None:
    if not value >= least:
        raise InputError(f"{name} must be at least {least}, got {value}")
