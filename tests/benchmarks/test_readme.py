"""The README's figures are those on file, and no missed bound is left out."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy import paper_cases
from benchmarks.pages import Claim, Experiment, claims_table, sections
from benchmarks.peers.accuracy import OURS, Cell, key
from benchmarks.peers.networks import KINDS
from benchmarks.readme import experiments
from benchmarks.results import Results

from fastgcn.report.page import Table

ROOT = Path(__file__).parents[2]


def test_missed_bounds_are_there_and_others_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [Claim(what="a step", value=70, at_most=60, unit=" µs"),
              Claim(what="an epoch", value=1, at_most=2),
              Claim(what="beside these", value=1),
              Claim(what="a lead", value=0.1, at_least=0.5)]  # fmt: skip
    other = Table(("", "s"), [("no claim", "no")], "T")
    some = Experiment(name="a", title="Speed", plan=lambda _: (),
                      show=lambda _: [claims_table(claims, "C"), other])  # fmt: skip
    monkeypatch.setattr("benchmarks.readme.speed.gpu_experiments", lambda _: [some])
    *_, missed = sections(experiments(), Results(tmp_path / "r.jsonl"))
    (rows,) = missed.content
    assert isinstance(rows, Table)
    assert rows.caption == "1 of 3 bounds that were set are met; these are not"
    assert rows.rows == [
        ("Speed", "a step", "70 µs", "at most 60 µs"),
        ("Speed", "a lead", "0.1", "at least 0.5"),
    ]


def test_wins_and_ties_are_counted_and_the_papers_scores_stand_beside_ours(
    tmp_path: Path,
) -> None:
    leads = {"cora": (0.02, 0.02), "acm": (0.02, -0.02), "pubmed": (-0.01, -0.01)}
    with (tmp_path / "r.jsonl").open("w") as file:

        def write(key: Any, **value: float) -> None:
            file.write(json.dumps({"key": key, "value": value}) + "\n")

        for data, by_split in leads.items():
            for split, lead in enumerate(by_split):
                cell = Cell(data, "random", split, 0)
                for who in (OURS, *KINDS):
                    test = 0.8 + (lead if who == OURS else 0)
                    write(key(who, cell), val_micro_f1=0.5, test_micro_f1=test)
        for case in paper_cases(10):
            if case.label == "FastGCN, importance":
                for rate in case.rates:  # test would choose the smallest rate
                    for seed in range(10):
                        measured = case.training(rate, seed).key
                        write(measured, val_micro_f1=rate, test_micro_f1=0.87 - rate)
    head, paper, _ = sections(experiments(), Results(tmp_path / "r.jsonl"))
    said, rows, *_ = head.content
    assert said == ("**Of 3 graphs, `fastgcn train` is better on 1, tied on 1 and worse on 1.**")
    assert isinstance(rows, Table)
    assert [row[3] for row in rows.rows] == [
        "+2.00 ± 0.00", "-1.00 ± 0.00", "+0.00 ± 2.00, a tie",
    ]  # fmt: skip
    (row,) = paper.content[0].rows  # type: ignore[union-attr]
    assert row[1:] == ("0.860 ± 0.000", "0.850", "0.860 ± 0.000", "0.880")


def test_every_page_with_claims_is_asked() -> None:
    """A `no` in a table of claims on a page of the docs is a missed bound in the README."""
    readme = (ROOT / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        rows = [line.split(" | ") for line in page.read_text("utf-8").splitlines()]
        for row in rows:
            if len(row) == 4 and row[-1].strip(" |") == "no" and row[2].startswith("at "):
                assert row[0].removeprefix("| ") in readme, (page.name, row)
