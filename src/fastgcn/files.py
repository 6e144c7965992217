"""JSON in files: null stands for NaN and infinity."""

import json
import math
from typing import Any


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
