"""What is called with the record of each epoch: `Callback`, stopping, keeping weights, progress.

Loggers, which are callbacks too, lie in `fastgcn.train.loggers`.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fastgcn.errors import InputError, nearest
from fastgcn.metrics import better
from fastgcn.train.run_files import safetensors_bytes
from fastgcn.writing import write_bytes

if TYPE_CHECKING:
    from fastgcn.train.run import Run
    from fastgcn.train.training import Training

_USUAL = (
    "val_micro_f1", "val_macro_f1", "val_accuracy", "val_loss", "val_r2", "val_mae", "val_rmse",
)  # fmt: skip
_LINE_EVERY = 5.0  # seconds between plain lines


class Callback:
    """Told of a training: when it starts, after each epoch, and when it ends.

    Pass it to `fit` or `resume` as one of `callbacks`; a plain function that takes the record of an
    epoch will do too. Override what you need:

    * `start(training, earlier)`: before the first epoch. `training` has `config`, `history` and
      `backend.model`; `earlier` are the records of epochs before a resume.
    * `__call__(record)`: after each epoch; True ends the run there.
    * `end(run)`: after the last one; `run` is None if the training was interrupted or has failed.

    >>> class Losses(Callback):
    ...     def start(self, training, earlier):
    ...         self.seen = [record["train_loss"] for record in earlier]
    ...     def __call__(self, record):
    ...         self.seen.append(record["train_loss"])
    >>> import fastgcn
    >>> losses = Losses()
    >>> run = fastgcn.fit(fastgcn.load("digits"), epochs=2, callbacks=[losses])
    >>> len(losses.seen)
    2
    """

    def start(self, training: "Training", earlier: Sequence[Mapping[str, Any]]) -> None:
        """Called before the first epoch."""

    def __call__(self, record: dict[str, Any]) -> bool | None:
        """Called with the record of each epoch; True ends the run."""

    def end(self, run: "Run | None") -> None:
        """Called when the training has ended."""

    def close(self) -> None:
        """Let go of files; called at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def told(
    callbacks: Sequence[Any], training: "Training", earlier: Sequence[Mapping[str, Any]]
) -> "Iterator[Callable[[Run], Run]]":
    """Tell callbacks of the start and the end; call what it yields with the finished run."""
    begun = [each for each in callbacks if isinstance(each, Callback)]
    finished: list[Run] = []

    def finish(run: "Run") -> "Run":
        finished.append(run)
        return run

    try:
        for each in begun:
            each.start(training, earlier)
        yield finish
    finally:
        for each in begun:
            each.end(finished[0] if finished else None)


class EarlyStop(Callback):
    """Ends a run after `patience` epochs in which `monitor` has not become better by `min_delta`.

    `monitor` is a name of the epochs' records, such as `val_loss`, `val_macro_f1` or `train_loss`.
    The settings `early_stopping` and `patience` watch what validation selects by; this watches
    anything else. The weights that are kept are those that validation selects, in any case.

    >>> stop = EarlyStop("train_loss", patience=2)
    >>> [stop({"epoch": e, "train_loss": loss}) for e, loss in enumerate((3.0, 2.0, 2.5, 2.0), 1)]
    [False, False, False, True]
    """

    def __init__(
        self, monitor: str = "val_loss", *, patience: int = 20, min_delta: float = 0.0
    ) -> None:
        if patience < 1 or not min_delta >= 0:
            raise InputError(
                "patience must be at least 1 and min_delta at least 0, got "
                f"{patience!r} and {min_delta!r}"
            )
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self._metric = monitor.partition("_")[2] or monitor
        self._best, self._best_at, self._first = -float("inf"), 0, 1

    def start(self, training: "Training", earlier: Sequence[Mapping[str, Any]]) -> None:
        """Watch a new training, or one that goes on after `earlier` epochs."""
        self._best, self._best_at = -float("inf"), 0
        self._first = training.backend.validate_every
        for record in earlier:
            self(dict(record))

    def __call__(self, record: dict[str, Any]) -> bool:
        """True if there was no better epoch for long enough."""
        epoch = record["epoch"]
        if self.monitor not in record:
            if self._best_at or epoch < self._first:
                return False
            names = [name for name in record if name != "epoch"]
            raise InputError(
                f"EarlyStop watches {self.monitor!r}, which the epochs do not have"
                f"{nearest(self.monitor, names)}; they have {', '.join(names)}"
            )
        value = better(self._metric, record[self.monitor])
        if not self._best_at or value > self._best + self.min_delta:
            self._best, self._best_at = value, epoch
        return bool(epoch - self._best_at >= self.patience)


class KeepWeights(Callback):
    """Writes the network's weights after every `every` epochs: `FOLDER/epoch-00010.safetensors`.

    A run's own folder keeps only the best epoch and what resuming needs. `last` deletes all but
    the last so many files. Of the epochs in a race of candidates, only the last can be written.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, every: int = 10, last: int | None = None
    ) -> None:
        if every < 1 or (last is not None and last < 1):
            raise InputError(f"every and last must be at least 1, got {every!r} and {last!r}")
        self.folder, self.every, self.last = Path(folder), every, last
        self._training: Training | None = None
        self._written: list[Path] = []

    def start(self, training: "Training", earlier: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        """Make the folder."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; weights need a folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._training = training

    def __call__(self, record: dict[str, Any]) -> None:
        """Write the weights, if it is their turn."""
        training = self._training
        # A race has trained its winner further than its first records.
        if training is None or record["epoch"] != len(training.history):
            return
        if record["epoch"] % self.every:
            return
        state = training.backend.model.state_dict()
        tensors = {name: t.detach().cpu().contiguous() for name, t in state.items()}
        path = self.folder / f"epoch-{record['epoch']:05}.safetensors"
        write_bytes(path, safetensors_bytes(tensors, {"record": json.dumps(record)}))
        self._written.append(path)
        while self.last is not None and len(self._written) > self.last:
            self._written.pop(0).unlink(missing_ok=True)

    def end(self, run: "Run | None") -> None:  # noqa: ARG002
        """Forget the training."""
        self._training = None


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
