"""Results are kept, not measured again; validation alone chooses."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy import Case, preferred_rate, run_case, table
from benchmarks.commands import app as bench
from benchmarks.results import Results

from fastgcn import TrainConfig
from fastgcn.errors import FormatError
from tests.cli_runner import run_cli


def test_what_is_on_file_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results" / "r.jsonl"
    calls = []

    def how() -> dict[str, Any]:
        calls.append(1)
        return {"score": 0.5}

    assert Results(path).measure({"b": 1, "a": [2]}, how) == {"score": 0.5}
    assert Results(path).measure({"a": [2], "b": 1}, how) == {"score": 0.5}
    assert len(calls) == 1
    assert Results(path).get({"a": [3], "b": 1}) is None
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert record["key"] == {"a": [2], "b": 1}
    for name in ("fastgcn", "commit", "python", "torch", "processor", "cores", "gpu"):
        assert name in record["where"]


def test_a_line_cut_by_a_kill_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    Results(path).measure({"k": 1}, lambda: {"v": 1})
    with path.open("a") as file:
        file.write('{"key": {"k": 2}, "val')
    assert Results(path).get({"k": 1}) == {"v": 1}
    Results(path).measure({"k": 3}, lambda: {"v": 3})
    assert Results(path).get({"k": 1}) == {"v": 1}
    assert Results(path).get({"k": 3}) == {"v": 3}
    assert len(path.read_text().splitlines()) == 2


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("[1, 2]\n")
    with pytest.raises(FormatError, match="line 1, is not a result"):
        Results(path)


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ({0.01: [0.9, 0.9], 0.001: [0.8, 0.8]}, 0.01),
        ({0.01: [0.8, 0.8], 0.001: [0.9, 0.9]}, 0.001),
        ({0.01: [0.88, 0.92], 0.001: [0.89, 0.89], 0.0001: [0.87, 0.87]}, 0.001),
        ({0.01: [0.9]}, 0.01),
    ],
)
def test_preferred_rate(validation: dict[float, list[float]], expected: float) -> None:
    assert preferred_rate(validation) == expected


def test_a_case_summarises_its_seeds(tmp_path: Path) -> None:
    config = TrainConfig(hidden=8, samples=50, epochs=3).complete()
    case = Case("tiny", "digits", "random", config, published=0.9, rates=(0.05, 0.01))
    done: list[int] = []
    results = Results(tmp_path / "r.jsonl")
    summary = run_case(case, 2, results, done.append)
    assert len(done) == 4
    chosen = [
        json.loads(line)["value"]["test_micro_f1"]
        for line in (tmp_path / "r.jsonl").read_text().splitlines()
        if json.loads(line)["key"]["config"]["learning_rate"] == summary["learning_rate"]
    ]
    assert summary["test_micro_f1"] == pytest.approx(sum(chosen) / 2)
    head, (row,) = table([summary])
    assert len(row) == len(head)


def test_two_writers_do_not_lose_each_others_results(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = Results(path), Results(path)
    for number in range(3):
        first.measure({"a": number}, lambda: {"value": 1})
        second.measure({"b": number}, lambda: {"value": 2})
    again = Results(path)
    for number in range(3):
        assert again.get({"a": number}) == {"value": 1}
        assert again.get({"b": number}) == {"value": 2}


def test_quick_benchmarks_leave_measured_pages_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.speed import figures

    from benchmarks import family

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "measure", lambda *_: None)
    monkeypatch.setattr(family, "DATA", ())
    for name in ("speed", "estimators"):
        outcome = run_cli(capfd, name, "--quick", commands=bench)
        assert outcome.code == 0, outcome.err
        assert (tmp_path / "results" / "quick" / f"{name}.md").exists()
        assert not (tmp_path / "docs").exists()


def test_an_unknown_data_set_gets_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    outcome = run_cli(capfd, "accuracy", "--data", "mars", commands=bench)
    assert outcome.code == 1
    assert "data must be one of cora, pubmed" in outcome.err
