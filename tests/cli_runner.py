"""Runs the real `main` in this process: what it prints, and its exit code."""

import sys
from dataclasses import dataclass

import pytest
import typer

from fastgcn.cli import app, main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run_cli(
    capfd: pytest.CaptureFixture[str], *args: object, commands: typer.Typer = app
) -> Outcome:
    """`fastgcn ARGS`; anything that is not an exit is a traceback a user would have seen."""
    capfd.readouterr()
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fastgcn", *map(str, args)])
        try:
            main(commands)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    captured = capfd.readouterr()
    return Outcome(code, captured.out, captured.err)
