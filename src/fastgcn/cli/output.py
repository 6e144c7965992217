"""How commands speak: JSON on stdout when asked for, tables for people otherwise."""

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastgcn.files import finite

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


_LINE_EVERY = 5.0  # seconds between plain lines


class EpochView:
    """Shows each epoch's record; an interrupted run is told how to go on."""

    def __init__(self, epochs: int, tensorboard: Path | None, run_dir: Path, *, show: bool) -> None:
        self.epochs, self.run_dir = epochs, run_dir
        self._bar: Any = None
        self._task: Any = None
        self._next_line = 0.0
        self._last = ""
        self._judged: dict[str, Any] | None = None  # the last record with validation
        self._show = show
        self._diverged = False
        self._log: Any = None
        if tensorboard is not None:
            from fastgcn.train.callbacks import TensorBoardLogger

            self._log = TensorBoardLogger(tensorboard)

    def __enter__(self) -> "EpochView":
        if self._show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("epoch {task.completed}/{task.total}"),
                BarColumn(bar_width=30),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self.epochs)
        return self

    def __call__(self, record: dict[str, Any]) -> None:
        if self._log is not None:
            self._log(record)
        if not self._diverged and not math.isfinite(record["train_loss"]):
            self._diverged = True
            say(
                f"Note: the training loss is not finite (epoch {record['epoch']}): the weights "
                "have diverged; try a smaller --learning-rate."
            )
        text = f"loss {record['train_loss']:.4f}"
        if "val_micro_f1" in record:
            self._judged = record
        if self._judged is not None:
            text += f"  val F1 {self._judged['val_micro_f1']:.4f}"
            if self._judged is not record:
                text += f" (epoch {self._judged['epoch']})"
        text += f"  {1000 * record['seconds_per_batch']:.2f} ms a batch"
        self._last = f"epoch {record['epoch']}: {text}"
        if self._bar is not None:
            self._bar.update(self._task, completed=record["epoch"], description=text)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY
            say(self._last)
            self._last = ""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._last:
            say(self._last)
        if self._log is not None:
            self._log.close()
        if kind is KeyboardInterrupt:
            say(f"Stopped. Continue with: fastgcn train --resume {self.run_dir}")
