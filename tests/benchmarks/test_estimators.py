"""The comparison of estimators: what is measured is what is said."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.commands import app
from benchmarks.estimators import (
    MEMBERS,
    QUICK,
    TOLERANCE,
    Costs,
    Effort,
    cost_table,
    equal_time_samples,
    finding,
    gain_of,
    split_of,
)
from benchmarks.network import GradientErrors, TrainedNetwork, time_steps
from benchmarks.results import Measurement, Results

import fastgcn
from benchmarks import estimators, timing
from fastgcn import TrainConfig
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.model import as_gcn
from fastgcn.sampling.history import HistorySampler
from tests.cli_runner import run_cli

CONFIG = TrainConfig(hidden=8, samples=50, epochs=3, threads=1).complete()
SOME = tuple(
    member
    for member in MEMBERS
    if member.name in ("Algorithm 2", "stratified", "optimal", "LADIES, exact self, history")
)

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_PAUSE", 0.0)


@pytest.fixture(scope="module")
def network() -> TrainedNetwork:
    return TrainedNetwork(fastgcn.load("digits"), CONFIG, ages=[1, 2])


def test_the_command_measures_once_and_keeps_the_page(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimators, "MEMBERS", SOME)
    command = ["estimators", "--data", "digits", "--quick", "--json"]
    command += ["--results", str(tmp_path), "--docs", str(tmp_path)]
    first = run_cli(capfd, *command, commands=app)
    assert first.code == 0, first.err
    found = json.loads(first.out)
    members, costs, accuracy = found["sections"]
    assert [row[0] for row in members["tables"][0]["rows"]] == [m.name for m in SOME]
    assert [row[0] for row in accuracy["tables"][0]["rows"]] == [m.name for m in SOME]
    rows = costs["tables"][0]["rows"]
    assert [row[0] for row in rows] == [m.name for m in SOME]
    baseline = rows[0]
    assert baseline[5:8] == ["400", baseline[1], "1"]  # at its own time: its own t and error
    page, results = tmp_path / "estimators.md", tmp_path / "estimators.jsonl"
    text, lines = page.read_text(), results.read_bytes()
    assert "](figures/estimators-digits.svg)" in text
    assert (tmp_path / "figures" / "estimators-digits.svg").read_text().startswith("<svg")
    again = json.loads(run_cli(capfd, *command, commands=app).out)
    assert again == found | {"measured": 0}
    assert (page.read_text(), results.read_bytes()) == (text, lines)


def test_members_are_different_settings() -> None:
    configs = {member.config(CONFIG) for member in MEMBERS}
    assert len(configs) == len(MEMBERS) == len({member.name for member in MEMBERS})
    assert MEMBERS[0].config(CONFIG) == CONFIG
    assert MEMBERS[0].config(CONFIG, 7).samples == 7


def test_data_are_split_as_in_the_paper() -> None:
    splits = {"cora": "full", "reddit-sim": None, "digits": "random"}
    assert {data: split_of(data) for data in splits} == splits


def test_sample_sizes_hold_the_papers_and_no_more_than_the_graph_has() -> None:
    effort = Effort(sizes=(1 / 16, 4, 16))
    assert effort.samples(100, nodes=10_000) == [6, 100, 400, 1600]
    assert effort.samples(100, nodes=300) == [6, 100, 300]
    assert effort.samples(4, nodes=300) == [1, 4, 16, 64]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([1.0, 2.0, 3.0], 40),  # meets the limit exactly
        ([1.0, 1.5, 2.5], 100),  # half way from 40 to 160
        ([1.0, 1.2, 1.9], 160),  # beyond the largest, nothing is claimed
        ([2.1, 2.2, 3.0], None),
    ],
)
def test_equal_time(seconds: list[float], expected: int | None) -> None:
    by_size = dict(zip([10, 40, 160], seconds, strict=True))
    assert equal_time_samples(by_size, limit=2.0) == expected


def test_drawing_everyone_leaves_no_error(network: TrainedNetwork) -> None:
    everyone = network.trainer.data.adjacency.n
    errors = GradientErrors(network, batches=2)
    some = CONFIG.replace(draws="successive")
    exact = errors.measure(some.replace(samples=everyone), draws=2)
    assert exact["error"] == pytest.approx(0, abs=1e-9)
    assert exact["rows"] > 256
    few, many = (errors.measure(some.replace(samples=t), draws=20) for t in (25, 400))
    assert few["error"] > 4 * many["error"] > 0
    for found in (few, many):
        # Error is variance and squared bias; the variance is that over draws, less one.
        assert found["error"] >= found["variance"] * 19 / 20 * (1 - 1e-5)


def test_steps_in_between_change_no_error(network: TrainedNetwork) -> None:
    errors = GradientErrors(network, batches=2)
    config = CONFIG.replace(distribution="ladies", self_term="exact", history=True)
    before = errors.measure(config, draws=3)
    weights = {k: v.clone() for k, v in network.trainer.model.state_dict().items()}
    time_steps({"it": network.trainer_with(config)}, rounds=1, chunk_seconds=0.01)
    assert any((v != weights[k]).any() for k, v in network.trainer.model.state_dict().items())
    assert errors.measure(config, draws=3) == before
    assert GradientErrors(network, batches=2).measure(config, draws=3) == before


def test_history_is_as_old_as_it_is_kept(network: TrainedNetwork) -> None:
    trainer = ready(fastgcn.load("digits"), CONFIG)
    ages = {}
    for age in (3, 2, 1):
        inputs = trainer.data.rows(torch.arange(trainer.data.adjacency.n))
        ages[age] = torch.relu(inputs @ as_gcn(trainer.model).convolutions[0].weight.detach())
        trainer.train_epoch(3 - age)
    for age in (1, 2):
        config = CONFIG.replace(history=True, history_every=age)
        sampler = network.trainer_with(config).sampler
        assert isinstance(sampler, HistorySampler)
        assert sampler.sampler.samples == (50,)
        (kept,) = sampler.hidden
        assert kept is not None
        torch.testing.assert_close(kept, ages[age])
        assert not torch.allclose(kept, ages[age + 1])


def test_computing_all_rows_is_counted_where_it_is_done(network: TrainedNetwork) -> None:
    assert network.seconds_an_epoch(CONFIG) == 0
    each = network.seconds_an_epoch(CONFIG.replace(history=True))
    assert each > 0
    every_other = CONFIG.replace(history=True, history_every=2)
    assert network.seconds_an_epoch(every_other) == each / 2
    assert network.seconds_an_epoch(CONFIG.replace(distribution="optimal")) > 0


def test_trainers_take_turns(network: TrainedNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    train_on = CpuBackend.train_on

    def watched(self: CpuBackend, batches: Any) -> Any:
        turns.append(self.config.seed)
        return train_on(self, batches)

    monkeypatch.setattr(CpuBackend, "train_on", watched)
    trainers = {name: network.trainer_with(CONFIG.replace(seed=i)) for i, name in enumerate("ab")}
    found = time_steps(trainers, rounds=3, chunk_seconds=0.001)
    assert turns[-12:] == [0, 0, 1, 1] * 3  # each a run-in and a turn
    for result in found.values():
        assert len(result["chunks"]) == 3
        assert min(result["chunks"]) * 0.999 <= result["seconds_per_batch"]
        assert result["seconds_per_batch"] <= max(result["chunks"]) * 1.001
        assert result["batches_per_epoch"] == -(-1078 // 256)


def test_the_finding_names_the_best_that_is_as_quick() -> None:
    def member(name: str, error: float, there: float | None, t: int = 100) -> dict[str, Any]:
        equal = None if there is None else {"error": there, "standard_error": 0.02, "t": t}
        curve = [{"t": size} for size in (25, 100, 400)]
        own = {"standard_error": 0.02, "variance": error, "rows": 9, "seconds": 1.0}
        return {"member": name, "error": error, "equal": equal, "curve": curve, **own}

    costs: dict[str, Any] = {"data": "toy", "t": 100}
    costs["members"] = [member("Algorithm 2", 1.0, 1.0)]
    assert "no estimator's error is clearly below" in finding(costs)
    costs["members"] = [
        member("Algorithm 2", 1.0, 1.0),
        member("stratified", 0.9, 0.25),
        member("LADIES", 0.01, None),
    ]
    text = finding(costs)
    assert "that of stratified: 4 times below" in text
    assert "Not distinguishable" not in text
    assert "1 of 3 take longer" in text
    assert gain_of(costs, costs["members"][0]) == 1
    # Within the error of their difference, two are not ranked; at the largest size, it is a bound.
    costs["members"] += [member("Poisson", 0.9, 0.27), member("flat", 0.9, 0.2, t=400)]
    assert "that of flat: at least 5 times below its own." in finding(costs)
    costs["members"][-1]["equal"]["error"] = 0.24
    assert "Not distinguishable from it: stratified." in finding(costs)
    flat = cost_table(costs).rows[-1]
    assert (flat[5], flat[7]) == ("≥ 400", "≥ 4.17")


def test_equal_time_is_that_of_algorithm_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A step of the other takes 1 ms for every 100 vertices; Algorithm 2's 2 ms, give or take."""
    monkeypatch.setattr(estimators, "MEMBERS", SOME[:2])
    costs, results = Costs("digits", QUICK), Results(tmp_path / "r.jsonl")
    assert costs.t == 400
    times = {SOME[0].name: {"100": 1e-3, "400": 2e-3}, SOME[1].name: {"100": 1e-3, "400": 4e-3}}
    timed, *_ = costs.plan(results)
    results.measure(Measurement("", timed.key, lambda: {"members": times}, ("fastgcn.errors",)))
    sizes = [m.key["config"]["samples"] for m in costs.plan(results) if "config" in m.key]
    assert sizes == [100, 400, 100, 100 + int(300 * (2 * (1 + TOLERANCE) - 1) / 3), 400]
    assert TOLERANCE < 0.05
