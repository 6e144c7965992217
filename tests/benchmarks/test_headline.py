"""The headline scores: trained again, they lie in intervals made from the results on file."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.cases import Case
from benchmarks.commands import app
from benchmarks.headline import (
    FALSE_ALARM,
    Headline,
    check,
    default_headlines,
    paper_headlines,
    table,
)
from benchmarks.peers.accuracy import OURS, Cell, Plan, key
from benchmarks.results import Measurement, Results, code_hash

from fastgcn.train.presets import paper_cora
from tests.cli_runner import run_cli

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("real_data")
def test_cora_and_pubmed_score_as_on_file() -> None:
    """The paper's settings with two seeds; `make verify` has all headline rows."""
    results = Results(ROOT / "results" / "accuracy.jsonl")
    rows = paper_headlines(results, seeds=2, names=("FastGCN, importance",))
    assert [row.name.split(",")[0] for row in rows] == ["cora", "pubmed"]
    for verdict in check(rows):
        assert verdict.holds, verdict


def headline(recorded: dict[str, list[float]], new: dict[str, list[float]]) -> Headline:
    trainings = {
        split: [
            Measurement("", {"split": split, "seed": n}, partial(dict, test_micro_f1=v))
            for n, v in enumerate(scores)
        ]
        for split, scores in new.items()
    }
    return Headline("row", recorded, trainings)


def test_an_interval_is_that_of_the_t_test() -> None:
    """One split: s = 0.01, 4 recorded and 1 new score, 3 degrees; t(0.9995, 3) is 12.924."""
    row = headline({"a": [0.79, 0.79, 0.81, 0.81]}, {"a": [0.9]})
    s = (4 * 0.01**2 / 3) ** 0.5
    assert FALSE_ALARM == 0.001
    assert row.half_width() == pytest.approx(12.924 * s * (1 / 4 + 1) ** 0.5, rel=1e-4)
    (verdict,) = check([row])
    assert (verdict.now, verdict.holds) == (0.9, True)
    assert (verdict.low + verdict.high) / 2 == pytest.approx(0.8)


def test_a_worse_mean_leaves_its_interval_and_a_better_one_too() -> None:
    recorded = {split: [0.80 + 0.001 * k for k in range(5)] for split in "ab"}
    for shift, holds in ((-0.02, False), (0.0, True), (0.02, False)):
        new = {split: [0.802 + shift] for split in "ab"}
        (verdict,) = check([headline(recorded, new)])
        assert verdict.holds is holds
    assert table([verdict]).rows[0][-1] == "NO"


def test_splits_that_differ_do_not_widen_it() -> None:
    apart = {"a": [0.70, 0.71], "b": [0.90, 0.91]}
    alike = {"a": [0.80, 0.81], "b": [0.80, 0.81]}
    new = {"a": [0.8], "b": [0.8]}
    assert headline(apart, new).half_width() == pytest.approx(headline(alike, new).half_width())


def test_false_alarms_are_as_rare_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a rate of 5 %, 2,000 rows of normal scores: between 3 and 7 % leave (four errors)."""
    monkeypatch.setattr("benchmarks.headline.FALSE_ALARM", 0.05)
    rng, outside = np.random.default_rng(0), 0
    for _ in range(2000):
        old, now = rng.normal(size=(3, 4)), rng.normal(size=(3, 1))
        row = headline(dict(zip("abc", old.tolist(), strict=True)),
                       dict(zip("abc", now.tolist(), strict=True)))  # fmt: skip
        outside += abs(float(now.mean()) - row.mean) > row.half_width()
    assert 0.03 < outside / 2000 < 0.07


def on_file(path: Path, scores: dict[Cell, tuple[float, str]]) -> Results:
    """Scores of the default, each with the module that they depend on."""
    with path.open("w") as file:
        for cell, (score, module) in scores.items():
            code = {"of": [module], "hash": code_hash((module,))}
            line: dict[str, Any] = {"key": key(OURS, cell), "value": {"test_micro_f1": score}}
            file.write(json.dumps(line | {"code": code}) + "\n")
    return Results(path)


def test_scores_of_the_newest_code_alone_count(tmp_path: Path) -> None:
    new, old = "fastgcn.errors", "fastgcn.text"
    scores = {Cell("d", "random", 0, 0): (0.1, old), Cell("d", "random", 1, 0): (0.2, old)}
    for split, seed in ((0, 1), (0, 2), (1, 1)):
        scores[Cell("d", "random", split, seed)] = (0.8, new)
    results = on_file(tmp_path / "r.jsonl", scores)
    (row,) = default_headlines(results, ["d"], Plan(("d",), splits=2, seeds=3))
    assert row.recorded == {"0": [0.8, 0.8]}  # of split 1, one score: it says nothing of seeds
    assert [m.key["split_seed"] for m in row.trainings["0"]] == [0]


def test_the_rate_is_the_one_that_validation_chose(tmp_path: Path) -> None:
    """Test would choose the other one."""
    case = Case(label="FastGCN, importance", data="cora", split="full", config=paper_cora(),
                rates=(0.01, 0.001, 0.0001), seeds=10)  # fmt: skip
    with (tmp_path / "r.jsonl").open("w") as file:
        for rate, val, test in ((0.01, 0.9, 0.80), (0.001, 0.8, 0.90), (0.0001, 0.7, 0.70)):
            for seed in range(10):
                value = {"val_micro_f1": val, "test_micro_f1": test + 0.001 * seed}
                line = {"key": case.training(rate, seed).key, "value": value}
                file.write(json.dumps(line) + "\n")
    (row,) = paper_headlines(Results(tmp_path / "r.jsonl"), 3)
    assert row.mean == pytest.approx(0.8045)
    keys = [m.key["config"] for m in row.trainings["full"]]
    assert {config["learning_rate"] for config in keys} == {0.01}
    assert [config["seed"] for config in keys] == [0, 1, 2]


def test_the_command_fails_where_a_mean_has_left(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [headline({"a": [0.80, 0.81, 0.82]}, {"a": [score]}) for score in (0.81, 0.2)]
    monkeypatch.setattr("benchmarks.headline.default_headlines", lambda *_: [])
    for row, code in zip(rows, (0, 1), strict=True):
        monkeypatch.setattr("benchmarks.headline.paper_headlines", lambda *_, r=row, **__: [r])
        done = run_cli(capfd, "verify", "--jobs", 1, "--json", commands=app)
        assert done.code == code, done.err
        assert [each["holds"] for each in json.loads(done.out)["rows"]] == [code == 0]
        said = "row: the mean of test micro-F1 is now 0.2000, below its interval by the results"
        assert (said in done.err) == (code == 1)
    monkeypatch.undo()
    done = run_cli(capfd, "verify", "--results", tmp_path, commands=app)
    assert done.code == 1
    assert "no scores to hold new ones against" in done.err


def test_make_verify_runs_every_test_that_waits_for_it() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = makefile.split("\nverify: setup\n")[1].split("\n\n")[0].split()
    named = [ROOT / word for word in recipe if word.startswith("tests/")]
    for path in (ROOT / "tests").rglob("test_*.py"):
        waits = r"environ.*FASTGCN_VERIFY|FASTGCN_VERIFY.* in os|from tests\.thorough import"
        if re.search(waits, path.read_text("utf-8")) and path != Path(__file__):
            assert any(path == each or each in path.parents for each in named), path
