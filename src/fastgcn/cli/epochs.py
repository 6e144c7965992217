"""What is seen while training: a live bar on a terminal, plain lines elsewhere."""

import math
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fastgcn.cli.output import say

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
            from fastgcn.tensorboard import TensorBoardLogger

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
