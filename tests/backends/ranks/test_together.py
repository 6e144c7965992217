"""Ranks in processes of their own: what they compute is what one process computes."""

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

from fastgcn import embed, fit, predict
from fastgcn.graph.graph import own_ids
from fastgcn.train.loop import resume
from fastgcn.train.run import Run
from tests.backends.ranks.compared import CASES, FACTS, WITH_THREE
from tests.backends.ranks.launch import run_ranks
from tests.backends.ranks.scenario import SEEDS, continue_to, interrupted, named, with_dropout
from tests.cli_runner import run_cli
from tests.communities import communities, quick

Scenes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    """What two and three ranks found, and where; played once, however many workers test."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "scenes"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "commands.json").exists():
            done = run_ranks(3, "-m", "tests.backends.ranks.scenario", folder, _free_port())
            assert done.returncode == 0, done.stderr
    found = {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in ("two", "three", "commands")
    }
    return found | {"folder": {"path": folder}}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_are_one_process(case: str, fact: str, scenes: Scenes) -> None:
    assert scenes["two"]["cases"][case][fact] <= 2e-6


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("case", WITH_THREE)
def test_three_ranks_are_one_process(case: str, fact: str, scenes: Scenes) -> None:
    assert scenes["three"]["cases"][case][fact] <= 2e-6


def numbers(history: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    return np.array([[v for k, v in record.items() if "seconds" not in k] for record in history])


def test_a_checkpoint_of_two_ranks_continues_on_one_and_on_three(
    scenes: Scenes, tmp_path: Path
) -> None:
    assert scenes["two"]["epochs"] == 2
    whole = fit(communities(), interrupted())
    continue_to(scenes["folder"]["path"] / "begun", tmp_path / "run", interrupted())
    alone = resume(tmp_path / "run", communities())
    assert len(alone.history) == 4
    np.testing.assert_allclose(numbers(alone.history), numbers(whole.history), rtol=1e-5)
    np.testing.assert_allclose(
        numbers(scenes["three"]["history"]), numbers(whole.history), rtol=1e-5
    )
    for name, weights in scenes["three"]["weights"].items():
        expected = whole.model.state_dict()[name].numpy()
        np.testing.assert_allclose(np.array(weights), expected, atol=1e-5)
    assert Run.load(scenes["folder"]["path"] / "continued").metrics["ranks"] == 3


def test_ranks_whose_numbers_go_wrong_stop_together(scenes: Scenes) -> None:
    said, folder = scenes["two"]["diverging"], scenes["folder"]["path"]
    assert said["at once"].endswith("no epoch before it can be kept")
    assert not (folder / "once").exists()
    assert said["later"].startswith("training diverged in epoch 2, where ")
    run = Run.load(folder / "stopped")
    assert run.stopped is not None
    assert np.isfinite(predict(run, communities())).all()
    assert "outputs are not finite for" in said["outputs"]


def test_ranks_validate_as_rarely_as_one_process(scenes: Scenes) -> None:
    assert scenes["two"]["validated"] == [3, 4]


@pytest.mark.parametrize("parts", ["from parts", "from five parts"])
def test_shards_train_as_the_graph_they_were_cut_from(parts: str, scenes: Scenes) -> None:
    found, graph = scenes["two"][parts], named()
    expected = fit(graph, quick())
    for name, value in found["metrics"].items():
        if "seconds" not in name and name in expected.metrics and isinstance(value, int | float):
            assert value == pytest.approx(expected.metrics[name], rel=1e-5), name
    test = graph.split.test
    assert found["ids"] == own_ids(graph, test)
    for rows, theirs in [
        ("probabilities", predict(expected, graph, test)),
        ("hidden", embed(expected, graph, test)),
        ("features", embed(expected, graph, test, layer=0)),
    ]:
        np.testing.assert_allclose(found[rows], theirs, atol=1e-5)
    assert "--nodes must be all, unlabelled, train, val or test, got '3'" in found["ids refused"]
    assert found["samples refused"].startswith("samples and memory are for a single process")
    assert found["layer refused"] == "layer must lie in -2..2 for this network, got 9"
    assert found["nothing asked"] == "nodes must name at least one node, got none"


def test_commands_under_torchrun(
    scenes: Scenes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = scenes["folder"]["path"]
    run, store = folder / "continued", folder / "store"
    alone = json.loads(run_cli(capfd, "evaluate", run, store, "--json").out)
    together = scenes["commands"]["evaluate"]
    for name in ("loss", "calibration_error"):  # sums of probabilities, which round differently
        assert together.pop(name) == pytest.approx(alone.pop(name))
    assert together == alone
    assert scenes["commands"]["predict"]["nodes"] == alone["nodes"]
    run_cli(capfd, "predict", run, store, "--nodes", "test", "--out", tmp_path / "p.csv")
    ours, theirs = (
        pyarrow.csv.read_csv(path).to_pydict() for path in (folder / "p.csv", tmp_path / "p.csv")
    )
    assert list(ours) == list(theirs)
    for name in ours:
        if name.startswith("p_"):
            np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5)
        else:
            assert ours[name] == theirs[name]


def test_hidden_rows_under_torchrun(
    scenes: Scenes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = scenes["folder"]["path"]
    for ending in ("npy", "csv"):
        out = tmp_path / f"e.{ending}"
        command = ("embed", folder / "continued", folder / "store", "--layer", 1, "--nodes", "test")
        assert run_cli(capfd, *command, "--out", out).code == 0
    np.testing.assert_allclose(
        np.load(folder / "e.npy"), np.load(tmp_path / "e.npy"), atol=1e-5, strict=True
    )
    ours, theirs = (pyarrow.csv.read_csv(path / "e.csv").to_pydict() for path in (folder, tmp_path))
    assert ours.pop("id") == theirs.pop("id")
    assert list(ours) == list(theirs)
    for name, column in ours.items():
        np.testing.assert_allclose(column, theirs[name], atol=1e-5)


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("mixed", "part-1 is a part of another graph, or of another sharding, than others"),
        ("mixed apart", "all ranks must have the same data: rank 0 has fingerprint = "),
        ("otherwise-cut", "part-1 is a part of another graph, or of another sharding, than others"),
        ("otherwise-cut apart", "all ranks must have the same data: rank 0 has bounds = "),
        ("missing", "part-1 is missing: this process needs that part of the graph"),
        ("only-here apart", "only-here-1 has no part of a graph: this process needs one"),
        ("one-part", "can be shared by at most 1 of the 2 processes; start that many, or shard"),
    ],
)
def test_wrong_parts_are_refused(folder: str, sentence: str, scenes: Scenes) -> None:
    assert scenes["two"]["refused parts"]["good"] == ""
    assert scenes["two"]["refused parts"]["five-parts"] == ""
    assert sentence in scenes["two"]["refused parts"][folder]


def test_ranks_with_different_settings_are_refused(scenes: Scenes) -> None:
    said = scenes["two"]["refused settings"]
    assert said == "all ranks must have the same settings: rank 0 has seed = 0, rank 1 1"


def test_with_dropout_scores_are_alike(scenes: Scenes) -> None:
    """Masks differ, so that scores do, but not on average: Welch's test at 4 sd (6e-5)."""
    graph = communities(n=150)
    alone = np.array([fit(graph, with_dropout(seed)).metrics["test_micro_f1"] for seed in SEEDS])
    together = np.array(scenes["two"]["scores"])
    spread = np.sqrt((alone.var(ddof=1) + together.var(ddof=1)) / len(SEEDS))
    assert abs(alone.mean() - together.mean()) <= 4 * spread + 0.01
    assert min(alone.mean(), together.mean()) > 0.7
