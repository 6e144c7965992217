"""`fastgcn reproduce`: the paper's tables and figures, measured here, as one page."""

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgcn.cli.data import Json
from fastgcn.cli.output import emit_json, say

if TYPE_CHECKING:
    from fastgcn.report.page import Section


def reproduce(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            help="all, or some of datasets, table2, figure2, figure3, table3, total-time, "
            "accuracy-vs-time, original-split, convergence, variance."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes instead of most of an hour, on less.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds 0..N-1 of every training, slow or not.")
    ] = None,
    reddit: Annotated[
        str | None,
        typer.Option(help="A name or path of Reddit; without it, the stand-in reddit-sim."),
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of result files; what they have is not measured again.")
    ] = Path("results"),
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the figures (.svg) and the tables (.md).")
    ] = Path("reproduction"),
    json: Json = False,
) -> None:
    """Measure the paper's tables and figures here, and show them beside the paper's numbers."""
    from benchmarks.paper import reproduce as paper
    from benchmarks.paper import scale as scales
    from benchmarks.paper.kept import Kept

    names = paper.chosen(experiments or [])
    scale = scales.quick() if quick else scales.full()
    if seeds is not None:
        scale = scales.with_seeds(scale, seeds)
    if reddit is not None:
        scale = scales.with_large(scale, reddit)
    kept = Kept(results)
    with _View() as view:
        measured = paper.measure(names, scale, kept, view)
    sections = paper.present(names, scale, kept)
    files = paper.write(sections, scale, out)
    report = next(path for path in files if path.suffix == ".html")
    if json:
        emit_json(
            {
                "scale": scale.name,
                "experiments": names,
                "measured": measured,
                "results": str(kept.results.path),
                "report": str(report),
                "files": [str(path) for path in files],
                "sections": [_plain(section) for section in sections],
            }
        )
    else:
        say(f"Measured {measured}, the rest was on file in {kept.results.path}.")
        say(f"Report: {report}")


def _plain(section: "Section") -> dict[str, Any]:
    """A section's tables and sentences as plain data."""
    from fastgcn.report.page import Table

    return {
        "id": section.id,
        "title": section.title,
        "tables": [
            {"caption": part.caption, "head": part.head, "rows": part.rows}
            for part in section.content
            if isinstance(part, Table)
        ],
        "text": [part for part in section.content if isinstance(part, str)],
    }


class _View:
    """Which measurement is under way, and how many are left: a bar on a terminal, or lines."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "_View":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.completed}/{task.total}"),
                BarColumn(bar_width=20),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("")
        return self

    def __call__(self, done: int, total: int, label: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=label)
        else:
            say(f"{done + 1} of {total}: {label}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if kind is KeyboardInterrupt:
            say("Stopped. What was measured is on file; the same command goes on from there.")
