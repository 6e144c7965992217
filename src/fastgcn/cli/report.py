"""`fastgcn report`: a run as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from fastgcn.cli.apply import Data, RunPath, Threads, held_to, open_run
from fastgcn.cli.data import Json, Seed, SplitName
from fastgcn.cli.output import emit_json, say


def report(
    run_path: RunPath,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; RUN/report.html by default.")
    ] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write a self-contained HTML page on a run: curves, classes, degrees, map, time, settings."""
    from fastgcn.replace_file import write_text
    from fastgcn.report import run_report

    run, graph = open_run(run_path, data, split, split_seed)
    place = out or run_path / "report.html"
    with held_to(threads):
        html = run_report(run, graph)
    write_text(place, html)
    if json:
        emit_json({"run": str(run_path), "out": str(place), "bytes": len(html.encode())})
    else:
        say(f"Report written to {place}")
