"""Names, classes and ids that would act on a terminal, a page or a spreadsheet are only text."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

from fastgcn import fit, save
from tests.cli_runner import run_cli
from tests.communities import communities, quick

Capture = pytest.CaptureFixture[str]

ESCAPES = "\x1b]0;owned\x07\x1b[31m\x9b2J"
NAME = f"[bold]graph[/bold] {ESCAPES}\u202eexe\nError: forged"
CLASSES = [f"[red]one {ESCAPES}", "=cmd|' /C calc'!A0", "</script><script>alert(1)</script>"]
IDS = ["=1+2", "@handle", "-5", "-x", "'=1", "+", "a,b", *(f"n{i}" for i in range(53))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a run whose every name is hostile."""
    path = tmp_path_factory.mktemp("hostile")
    graph = communities(name=NAME, class_names=CLASSES, node_ids=IDS)
    save(graph, path / "store")
    fit(graph, quick(), run_dir=path / "run")
    return path


def check_terminal(text: str) -> None:
    """Nothing in the text acts, and no line was forged."""
    assert not set("\x1b\x07\x9b\u202e") & set(text)
    assert not any(line.startswith("Error: forged") for line in text.splitlines())


COMMANDS = {
    "info": ["info", "store"],
    "evaluate": ["evaluate", "run", "store"],
    "train": ["train", "store", "--epochs", 2, "--hidden", 4, "--run-dir", "again"],
    "diagnose": ["diagnose", "store", "--out", "page.html"],
    "report": ["report", "run", "store"],
    "import": ["import", "store", "--out", "copy", "--force"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_terminal(
    folder: Path, command: list[object], capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    outcome = run_cli(capfd, *command)
    assert outcome.code == 0, outcome.err
    check_terminal(outcome.out + outcome.err)
    if command[0] in ("info", "evaluate"):
        for text in ("[bold]graph[/bold]", "\\x1b]0;owned", "[red]one"):
            assert text in outcome.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", f"missing{ESCAPES}"],
        ["info", "store", f"more{ESCAPES}"],
        [f"inf{ESCAPES}"],
        ["predict", "run", "store", "--out", "p.csv", "--nodes", f"n1,{ESCAPES}"],
        ["predict", "run", "store", "--out", f"{ESCAPES}/p.csv"],
    ],
)
def test_errors(
    folder: Path, arguments: list[object], capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    outcome = run_cli(capfd, *arguments)
    assert outcome.code in (1, 2)
    check_terminal(outcome.out + outcome.err)
    assert "\\x1b" in outcome.err


def test_json_is_printable_and_exact(folder: Path, capfd: Capture) -> None:
    outcome = run_cli(capfd, "info", folder / "store", "--json")
    check_terminal(outcome.out)
    found = json.loads(outcome.out)
    assert found["name"] == NAME
    assert set(found["class_counts"]) == set(CLASSES)


def test_a_real_terminal_gets_no_escape_of_a_file(folder: Path) -> None:
    """Colours are rich's own; what a file holds is visible and does nothing."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fastgcn", "info", str(folder / "store")]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # Linux's way to say that the other end is closed
            while some := os.read(ours, 1024):
                shown += some
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "]0;owned" in text
    assert "\x1b]0;owned" not in text
    assert not set("\x07\x9b\u202e") & set(text)


def test_the_report_holds_no_markup_of_a_file(folder: Path, capfd: Capture) -> None:
    page = folder / "hostile.html"
    assert run_cli(capfd, "report", folder / "run", folder / "store", "--out", page).code == 0
    text = page.read_text(encoding="utf-8")
    first, *others = text.split("<script")  # the page has one of its own, at its end
    assert len(others) == 1
    assert others[0].startswith('>\n"use strict";')
    assert others[0].rstrip().endswith("</html>")
    assert "&lt;script&gt;" in first
    assert not set("\x1b\x07\x9b\u202e") & set(text)


def ids_of(path: Path) -> list[str]:
    if path.suffix == ".csv":
        return [str(own) for own in pyarrow.csv.read_csv(path)["id"].to_pylist()]
    return [str(own) for own in pyarrow.parquet.read_table(path)["id"].to_pylist()]


def test_a_spreadsheet_calculates_nothing(folder: Path, capfd: Capture) -> None:
    for command in ("predict", "embed"):
        out = folder / f"{command}.csv"
        outcome = run_cli(capfd, command, folder / "run", folder / "store", "--out", out)
        assert outcome.code == 0, outcome.err
        assert "have an apostrophe in front" in outcome.err
        rows = out.read_text(encoding="utf-8").splitlines()[1:]
        cells = [cell.strip('"') for row in rows for cell in row.split(",")]
        assert not [cell for cell in cells if cell[:1] in "=@" and cell]
        assert ids_of(out)[:7] == ["'=1+2", "'@handle", "-5", "'-x", "''=1", "'+", "a,b"]
    assert set(pyarrow.csv.read_csv(folder / "predict.csv")["prediction"].to_pylist()) <= {
        CLASSES[0], "'" + CLASSES[1], CLASSES[2],
    }  # fmt: skip


def test_ids_of_predictions_name_the_same_nodes(folder: Path, capfd: Capture) -> None:
    run, store = folder / "run", folder / "store"
    assert run_cli(capfd, "predict", run, store, "--out", folder / "all.csv").code == 0
    (folder / "ids.txt").write_text("\n".join(ids_of(folder / "all.csv")), encoding="utf-8")
    again = folder / "again.parquet"
    outcome = run_cli(
        capfd, "predict", run, store, "--out", again, "--nodes", f"@{folder / 'ids.txt'}"
    )
    assert outcome.code == 0, outcome.err
    assert ids_of(again) == IDS
    one = folder / "one.parquet"
    assert run_cli(capfd, "predict", run, store, "--out", one, "--nodes", "'@handle,-x").code == 0
    assert ids_of(one) == ["@handle", "-x"]


def test_raw_and_parquet_keep_every_id(folder: Path, capfd: Capture) -> None:
    run, store = folder / "run", folder / "store"
    for name, flags in (("raw.csv", ["--raw"]), ("plain.parquet", [])):
        outcome = run_cli(capfd, "predict", run, store, "--out", folder / name, *flags)
        assert outcome.code == 0, outcome.err
        assert "apostrophe" not in outcome.err
        assert ids_of(folder / name) == IDS
