"""Output of commands: JSON on stdout with `--json`, tables and progress for people otherwise."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastgcn.cli.ending import Stopped
from fastgcn.files import finite
from fastgcn.text import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from fastgcn.train.run import Run


def take_any_stream() -> None:
    """Let a command finish even if standard output or error is closed, or is not Unicode.

    Without standard error `print` would write to standard output, into the JSON.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def emit_json(value: dict[str, Any]) -> None:
    """Print the command's one JSON object; everything else goes to stderr.

    NaN and infinity, such as the loss of a training that diverged, are written as null.
    """
    # A terminal whose encoding is not UTF-8 may not have a character; then it is escaped.
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(printable_json(json.dumps(finite(value), ensure_ascii=not unicode, allow_nan=False)))


def say(text: str) -> None:
    """Print a line for people, on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def show_text(text: str) -> None:
    """Print a line that is part of the result, on stdout."""
    print(printable(text))


def console() -> "Console":
    """The console on stdout for tables; 100 columns wide if stdout is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def show_table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[Any]], *, text: Sequence[int] = ()
) -> None:
    """Print a table; the first column and those of `text` are left-aligned, others right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def cell(value: Any) -> Text:
        # Names are the user's own. In a `str`, rich would take [brackets] for markup.
        return Text(printable(str(value)))

    table = Table(
        title=cell(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=any(head),
    )
    for i, name in enumerate(head):
        table.add_column(cell(name), justify="left" if i in (0, *text) else "right")
    for row in rows:
        table.add_row(*map(cell, row))
    console().print(table)


def size(n_bytes: float) -> str:
    """A number of bytes as text, with a unit.

    >>> size(561_000_000)
    '561.0 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} bytes" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def show_result(run: "Run") -> None:
    """Print the tables at the end: scores, classes, time by purpose; and the run's folder."""
    result = run.metrics
    names = _NUMBERS if run.model.target is not None else _CLASSES
    rows = [
        (part, *(figure(name, result[f"{part}_{name}"]) for name in names))
        for part in _PARTS
        if f"{part}_loss" in result
    ]
    show_table(
        f"{result['dataset']}: {run.kept}",
        ("", *names.values()),
        rows,
    )
    _show_more(result)
    _show_decision(run)
    if "test_classes" in result:
        show_classes("test", result["test_classes"], run.class_names)
    purposes = ["precompute", "sampling", "compute", "evaluation"]
    if result.get("compiling_seconds", 0.0) > 0:
        purposes.insert(0, "compiling")
    total = sum(result[f"{purpose}_seconds"] for purpose in purposes)
    show_table(
        "Time",
        ("", "seconds", "share"),
        [
            (p, f"{result[f'{p}_seconds']:.2f}", f"{result[f'{p}_seconds'] / total:.0%}")
            for p in purposes
        ]
        + [("a batch", f"{result['seconds_per_batch']:.5f}", "")],
    )
    if run.path is not None:
        say(f"Run: {run.path}   next: fastgcn predict {run.path} --out predictions.csv")


_CLASSES = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "loss": "loss"}
_NUMBERS = {"r2": "R²", "mae": "MAE", "rmse": "RMSE", "loss": "loss"}


def figure(name: str, value: float) -> str:
    """A score as text; errors in the user's units have their leading digits."""
    return f"{value:.5g}" if name in ("mae", "rmse") else f"{value:.4f}"


_MORE = {
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "calibration_error": "calibration error",
    "loss_uncalibrated": "loss before calibration",
}


def _show_more(result: dict[str, Any]) -> None:
    """Print the scores that a run of an earlier version does not have, and what was decided."""
    found = {
        name.removeprefix(f"{part}_"): None
        for part in ("val", "test")
        for name in result
        if name.startswith(f"{part}_") and f"{part}_loss" in result
    }
    shown = [name for name in found if name in _MORE or name.startswith("recall@")]
    if shown:
        rows = [
            (_MORE.get(name, name), *(_figure(result.get(f"{part}_{name}")) for part in _PARTS))
            for name in shown
        ]
        show_table("More scores", ("", *_PARTS), rows)


def _show_decision(run: "Run") -> None:
    decision = run.model.decision
    if decision.temperature != 1.0:
        say(f"Probabilities are calibrated on validation: temperature {decision.temperature:g}")
    if decision.threshold != 0.5 and decision.positive is not None:
        names = run.class_names or ("0", "1")
        say(
            f"Threshold chosen on validation: {names[decision.positive]} is predicted from "
            f"probability {decision.threshold:.4f} on"
        )


_PARTS = ("val", "test")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def show_classes(part: str, classes: dict[str, list[float]], names: Any) -> None:
    """Print the scores by class on a part of the split."""
    count = len(classes["f1"])
    show_table(
        f"{part} nodes by class".capitalize(),
        ("class", "precision", "recall", "F1", "nodes"),
        [
            (
                names[c] if names is not None else c,
                *(f"{classes[score][c]:.3f}" for score in ("precision", "recall", "f1")),
                f"{classes['support'][c]:,}",
            )
            for c in range(count)
        ],
    )


class EpochView:
    """Shows the record of each epoch; if a run is interrupted, says how to continue it."""

    def __init__(self, epochs: int, run_dir: Path, *, show: bool) -> None:
        from fastgcn.train.callbacks import ShowEpochs

        self._run_dir = run_dir
        self._epochs = ShowEpochs(epochs, show=show)

    def __enter__(self) -> "EpochView":
        self._epochs.__enter__()
        return self

    def __call__(self, record: dict[str, Any]) -> None:
        self._epochs(record)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._epochs.__exit__(kind, error, trace)
        begun = (self._run_dir / "config.json").exists()
        if isinstance(error, Stopped) and begun:
            error.hint = f"continue with: fastgcn train --resume {self._run_dir}"
        elif isinstance(error, KeyboardInterrupt) and begun:
            say(f"Stopped with another process; continue: fastgcn train --resume {self._run_dir}")
