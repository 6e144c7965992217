"""How commands speak: JSON on stdout when asked for, tables for people otherwise."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastgcn.strict_json import finite

if TYPE_CHECKING:
    from rich.console import Console


def take_any_stream() -> None:
    """Let a command finish where standard output or error is closed, or is not Unicode.

    Without standard error `print` would write to standard output, into the JSON.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def emit_json(value: dict[str, Any]) -> None:
    """The command's one JSON object; everything else goes to stderr.

    JSON has no word for a number that is none, such as the loss of a training that diverged: null.
    """
    # Escapes stand for what the terminal's encoding may not have.
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(finite(value), ensure_ascii=not unicode, allow_nan=False))


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def console() -> "Console":
    """Where tables are printed: stdout, without forced colours or wrapping of plain output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def show_table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table with its first column left-aligned and the others right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Texts, for names are the user's own: a string with [brackets] would be taken for markup.
    table = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=any(head),
    )
    for i, name in enumerate(head):
        table.add_column(Text(name), justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console().print(table)


def size(n_bytes: float) -> str:
    """Bytes for people.

    >>> size(561_000_000)
    '561.0 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} bytes" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"
