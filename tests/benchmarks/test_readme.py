"""The README's figures are those on file, and no missed bound is left out."""

from pathlib import Path

import pytest
from benchmarks.pages import Claim, Experiment, claims_table, sections
from benchmarks.readme import experiments
from benchmarks.results import Results

from fastgcn.report.page import Table

ROOT = Path(__file__).parents[2]


def test_missed_bounds_are_there_and_others_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [Claim(what="a step", value=70, at_most=60, unit=" µs"),
              Claim(what="an epoch", value=1, at_most=2),
              Claim(what="a lead", value=0.1, at_least=0.5)]  # fmt: skip
    other = Table(("", "s"), [("no claim", "no")], "T")
    some = Experiment(name="a", title="Speed", plan=lambda _: (),
                      show=lambda _: [claims_table(claims, "C"), other])  # fmt: skip
    monkeypatch.setattr("benchmarks.readme.speed.gpu_experiments", lambda _: [some])
    _, missed = sections(experiments(), Results(tmp_path / "r.jsonl"))
    (line,) = missed.content
    assert line == "* Speed: a step 70 µs (asked: at most 60 µs); a lead 0.1 (asked: at least 0.5)."


def test_every_page_with_claims_is_asked() -> None:
    """A `no` in a table of claims on a page of the docs is a missed bound in the README."""
    readme = (ROOT / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        rows = [line.split(" | ") for line in page.read_text("utf-8").splitlines()]
        for row in rows:
            if len(row) == 4 and row[-1].strip(" |") == "no" and row[2].startswith("at "):
                assert row[0].removeprefix("| ") in readme, (page.name, row)
