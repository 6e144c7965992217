"""Speed: what is timed is what is said, and the plain program is no straw man."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.commands import app
from benchmarks.pages import NOT_YET, Claim
from benchmarks.processes import STATUS, fresh
from benchmarks.results import Results

import fastgcn
from benchmarks import plain_authors, speed, timing
from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_PAUSE", 0.0)


def claims_of(show: Callable[[speed.Records], speed.Shown], records: Any) -> list[Claim]:
    """What a figure claims of records that have been through a file."""
    claims, table = show(json.loads(json.dumps(records)))
    assert table.rows
    return claims


def test_costs_are_those_of_a_training() -> None:
    found = speed.costs(data="digits", preset="paper", device="cpu", epochs=3, repeats=2)
    assert 0 < found["step"] < found["epoch"] < found["to_best"] < found["whole"]
    assert found["precompute"] < found["to_near"] <= found["to_best"]
    assert found["predict"] > 0
    assert 0 < found["test_micro_f1"] < 1


def test_eight_threads_are_compared_with_one() -> None:
    few = {"1": {"fit": 60.0, "val_micro_f1": 0.9}, "2": {"fit": 40.0, "val_micro_f1": 0.9}}
    many = few | {"8": {"fit": 24.0, "val_micro_f1": 0.9}}
    (claim,) = claims_of(speed.show_threads, {"2": few, "8": many})
    assert (claim.value, claim.met) == (2.5, False)
    assert claims_of(speed.show_threads, {"2": few}) == []


def test_threads_are_measured_where_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (threads,) = (e for e in speed.cpu_experiments(speed.FULL) if e.name == "threads")
    results = Results(tmp_path / "speed.jsonl")
    for cores, expected in ((1, []), (2, [[1, 2]]), (16, [[1, 2], [1, 2, 4, 8]])):
        monkeypatch.setattr("benchmarks.results.cores", lambda cores=cores: cores)
        asked = [m.key["threads"] for m in threads.plan(results) if results.lacks(m)]
        assert asked == expected


def test_memory_is_compared_with_what_is_needed() -> None:
    graph = fastgcn.load("digits")
    rows = 4 * len(graph.split.train) * graph.n_features
    assert (
        rows < speed.needed_bytes("digits") < rows + graph.indices.nbytes + graph.indptr.nbytes * 2
    )
    record: dict[str, Any] = dict.fromkeys((*speed._TIMES, "step"), 1.0)
    record |= {"test_micro_f1": 0.9, "needed": 1e9, "peak": 2e9}
    work = {"input_bytes": 0, "other_bytes": 0, "operations": 1, "launches": 0}
    rates = {"input_bandwidth": 1, "other_bandwidth": 1, "peak": 4, "launch": 0}
    record |= {"work": work, "rates": rates}
    (claim,) = claims_of(speed.show_costs, {"reddit-sim, paper": record, "cora, paper": record})
    assert (claim.value, claim.met) == (2.0, False)
    on_device = record | {"device_bytes": 3e6}
    step, best, near = claims_of(speed.show_costs, {"reddit-sim, paper": on_device})
    assert (step.value, step.met) == (1e6, False)
    assert (best.met, near.met) == (True, False)
    _, table = speed.show_costs({"cora, paper": on_device})
    assert table.rows[0][-2] == "3"
    assert table.rows[0][1:4] == ("1,000", "250", "4")  # a step, its floor, and their ratio


def test_trainings_have_the_same_epochs() -> None:
    found = speed.measure_training(data="digits", rounds=1, epochs=3)
    assert found["ours"]["epochs"] == found["plain"]["epochs"] == 3
    assert 0 < found["ours"]["test_micro_f1"] < 1
    (claim,) = claims_of(speed.show_trainings, {"digits": found})
    assert claim.value == found["ours"]["seconds"] / found["plain"]["seconds"]


def test_the_plain_program_learns() -> None:
    config = fastgcn.paper_cora().replace(learning_rate=0.05, hidden=32)
    found = plain_authors.train(fastgcn.load("digits"), config, epochs=60)
    assert found["epochs"] == 60
    assert found["test_micro_f1"] > 0.9


def _some_work(given: int) -> dict[str, int]:
    return {"given": given}


@pytest.mark.skipif(not STATUS.exists(), reason="peak memory is read from Linux's /proc")
def test_a_process_of_its_own_says_its_memory() -> None:
    found = fresh(_some_work, 3)
    assert found["given"] == 3
    assert 0 < found["anonymous"] <= found["peak"]
    assert found["seconds"] > 0


def test_a_first_start_finds_no_kernels_and_the_next_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def python(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        assert arguments[:5] == ["-m", "fastgcn", "train", "digits", "--epochs"]
        folder = Path(environment["NUMBA_CACHE_DIR"])
        folder.mkdir(exist_ok=True)
        seen.append(os.listdir(folder))  # noqa: PTH208
        (folder / "kernel").touch()

    monkeypatch.setattr(speed, "_python", python)
    found = speed.measure_first_start(data="digits", processes=3)
    assert seen == [[], ["kernel"]] * 3
    assert set(found) == {"cold", "warm"}
    starts = {"interpreter": 0.1, "import": 0.2, "help": 0.4}
    records = {"starts": starts, "digits": {"cold": 3.0, "warm": 4.0}}
    claims = claims_of(speed.show_startup, records)
    assert [claim.met for claim in claims] == [False, True, True]


def test_the_command_measures_once(capfd: Capture, tmp_path: Path) -> None:
    folders = ["--quick", "--json", "--results", str(tmp_path), "--docs", str(tmp_path)]
    outcome = run_cli(capfd, "speed", "trainings", *folders, commands=app)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["measured"] == 1
    (section,) = found["sections"]
    assert section["tables"][0]["rows"][0][0] == (
        "digits, the paper's settings: seconds of ours / of a plain program"
    )
    text = (tmp_path / "speed.md").read_text()
    assert text.count(speed.STAND_INS) == 1
    assert text.count(NOT_YET) == len(speed.cpu_experiments(speed.QUICK)) - 1
    again = json.loads(run_cli(capfd, "speed", "trainings", *folders, commands=app).out)
    assert again == found | {"measured": 0}
    assert (tmp_path / "speed.md").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["startp"], "no experiment 'startp'; did you mean 'startup'?"),
        (["--device", "tpu"], "device must be cpu or cuda, got 'tpu'"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str], message: str, capfd: Capture, tmp_path: Path
) -> None:
    folders = ["--results", tmp_path, "--docs", tmp_path]
    outcome = run_cli(capfd, "speed", *arguments, *folders, commands=app)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.startswith("Error: ")
