"""Write files atomically: a reader finds the old file or the new one, also after a kill."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastgcn.errors import InputError


def write_bytes(path: Path, data: bytes) -> None:
    replace_file(path, lambda temporary: temporary.write_bytes(data))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file beside `path`, then rename it to `path`."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file to write, such as {path / 'FILE'}")
    # Always the same name, so that the next write replaces a file that a kill left behind.
    temporary = path.with_name(f".{path.name}.partial")
    try:
        write(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
