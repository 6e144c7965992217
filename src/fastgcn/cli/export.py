"""`fastgcn export`: a run's network as a file for torch or ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from fastgcn.cli.apply import RunPath
from fastgcn.cli.data import Json
from fastgcn.cli.output import emit_json, say, size


def export(
    run_path: RunPath,
    out: Annotated[Path, typer.Option("--out", show_default=False, help="File to write.")],
    format: Annotated[
        str | None,
        typer.Option(help="torch (.pt2) or onnx (.onnx); by default the ending of the file."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's network as one file: a neighbourhood goes in, probabilities come out."""
    from fastgcn.infer.export import INPUTS
    from fastgcn.infer.export import export as write
    from fastgcn.train.run import Run

    about = write(Run.load(run_path), out, format=format)
    n_bytes = out.stat().st_size
    if json:
        emit_json({"run": str(run_path), "out": str(out), "bytes": n_bytes, **about})
        return
    say(f"Written to {out} ({size(n_bytes)}); its inputs are {', '.join(INPUTS)}: docs/export.md")
