"""Options are the keyword arguments of a reader; others are refused by name."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastgcn.errors import InputError, nearest


def check_options(
    function: Callable[..., Any], options: Mapping[str, Any], what: str, also: Iterable[str] = ()
) -> None:
    """Refuse what `function` takes no keyword for; `also` names what the caller deals with."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    listed = list(dict.fromkeys([*known, *also]))
    for option, value in options.items():
        if option not in known and option == "split":
            raise InputError(f"split must be 'random' for {what}, if given at all, got {value!r}")
        if option not in known:
            raise InputError(
                f"{what} has no option {option!r}{nearest(option, listed)} "
                f"(options are {', '.join(listed)})"
            )


def choice(value: str, allowed: Iterable[str], option: str) -> None:
    allowed = list(allowed)
    if value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else ""
        raise InputError(f"{option} must be one of {', '.join(allowed)}, got {value!r}{near}")
