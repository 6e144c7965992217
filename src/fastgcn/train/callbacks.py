"""What is called with the record of each epoch: progress, and curves for TensorBoard."""

import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fastgcn.errors import InputError, MissingDependencyError

_USUAL = (
    "val_micro_f1", "val_macro_f1", "val_accuracy", "val_loss", "val_r2", "val_mae", "val_rmse",
)  # fmt: skip
_LINE_EVERY = 5.0  # seconds between plain lines


class ShowEpochs:
    """Shows the record of each epoch on standard error: a bar on a terminal, lines elsewhere."""

    def __init__(self, epochs: int, *, show: bool = True) -> None:
        self._epochs, self._show = epochs, show
        self._bar: Any = None
        self._task: Any = None
        self._next_line = 0.0
        self._last = ""
        self._validated: dict[str, Any] | None = None  # the last record with validation

    def __enter__(self) -> "ShowEpochs":
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
            self._task = self._bar.add_task("", total=self._epochs)
        return self

    def __call__(self, record: dict[str, Any]) -> None:
        text = f"loss {record['train_loss']:.4f}"
        if "val_loss" in record:
            self._validated = record
        if self._validated is not None:
            numbers = "val_r2" in self._validated
            name, shown = ("val_r2", "R²") if numbers else ("val_micro_f1", "F1")
            text += f"  val {shown} {self._validated[name]:.4f}"
            others = [n for n in self._validated if n.startswith("val_") and n not in _USUAL]
            text += "".join(f"  {name} {self._validated[name]:.4f}" for name in others)
            if self._validated is not record:
                text += f" (epoch {self._validated['epoch']})"
        text += f"  {1000 * record['seconds_per_batch']:.2f} ms a batch"
        self._last = f"epoch {record['epoch']}: {text}"
        if self._bar is not None:
            self._bar.update(self._task, completed=record["epoch"], description=text)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY
            self._line()

    def _line(self) -> None:
        print(self._last, file=sys.stderr, flush=True)
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
            self._line()


class TensorBoardLogger:
    """Writes each epoch's numbers as TensorBoard scalars; pass it to `fit` as one of `callbacks`.

    `train_loss` becomes the scalar `train/loss`, `val_micro_f1` becomes `val/micro_f1`; numbers
    of no part of the split keep their names. The step is the epoch. Logging to the same folder
    again hides its old records from the first new epoch on, so a resumed run shows one curve.

    >>> with TensorBoardLogger("logs") as log:                              # doctest: +SKIP
    ...     fastgcn.fit(graph, config, callbacks=[log])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; TensorBoard's events need a folder")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependencyError(
                "TensorBoard is not installed; pip install 'fastgcn[tensorboard]'"
            ) from error
        self._open: Any = SummaryWriter
        self._writer: Any = None

    def __call__(self, record: dict[str, Any]) -> None:
        """Write the record of one epoch."""
        step = record["epoch"]
        if self._writer is None:
            self._writer = self._open(str(self.folder), purge_step=step)
        for name, value in record.items():
            if name != "epoch":
                self._writer.add_scalar(_tag(name), value, step)

    def flush(self) -> None:
        """Make everything written so far visible to readers."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flush and close; a later record opens the folder again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> "TensorBoardLogger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _tag(name: str) -> str:
    part, _, rest = name.partition("_")
    return f"{part}/{rest}" if part in ("train", "val") else name
