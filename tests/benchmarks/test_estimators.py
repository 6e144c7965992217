"""The comparison of estimators: what is measured is what is said."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.commands import app
from benchmarks.estimators import MEMBERS, Effort, equal_time_samples, finding, gain_of, split_of
from benchmarks.network import AsWritten, GradientErrors, TrainedNetwork, time_steps

import fastgcn
from benchmarks import estimators, timing
from fastgcn import TrainConfig
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.sampling import LayerSampler
from fastgcn.sampling.draws import Law
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
    assert [row[0] for row in rows] == ["Algorithm 2 as written", *(m.name for m in SOME)]
    baseline = rows[1]
    assert baseline[5:8] == ["400", baseline[1], "1"]  # at its own time: its own t and error
    assert float(rows[0][3]) > float(baseline[3])  # as written, all drawn rows are computed
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
    assert equal_time_samples([10, 40, 160], seconds, limit=2.0) == expected


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
        ages[age] = torch.relu(inputs @ trainer.model.convolutions[0].weight.detach())
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


def test_as_written_computes_all_that_is_drawn_and_estimates_the_same(
    network: TrainedNetwork,
) -> None:
    adjacency, t = network.trainer.data.adjacency, 20
    batches = list(islice(network.trainer.minibatches.shuffled(), 3))
    usual, written = (
        next(kind(adjacency, [t]).sample_groups(batches, np.random.default_rng(0)))
        for kind in (LayerSampler, AsWritten)
    )
    points = np.random.default_rng(0).random((3, t))
    law = Law.of(LayerSampler(adjacency, [t]).probabilities())
    unmet = 0
    for mine, other, each in zip(usual.blocks(), written.blocks(), points, strict=True):
        drawn, _ = law.at(each, np.full(adjacency.n, -1, np.int32))
        assert sorted(other.src.tolist()) == sorted(drawn.tolist())
        assert torch.equal(other.src[: len(mine.src)], mine.src)
        assert torch.equal(other.adj.to_dense()[:, : len(mine.src)], mine.adj.to_dense())
        assert not other.adj.to_dense()[:, len(mine.src) :].any()
        unmet += len(other.src) - len(mine.src)
    assert unmet > 0
    assert AsWritten(adjacency, [t]).sample(batches[0], np.random.default_rng(0))


def test_the_finding_names_the_best_that_is_as_quick() -> None:
    def member(
        name: str, error: float, there: float | None, written: float | None = None
    ) -> dict[str, Any]:
        return {
            "member": name,
            "error": error,
            "equal": None if there is None else {"error": there},
            "written": None if written is None else {"error": written},
        }

    costs: dict[str, Any] = {"data": "toy", "t": 100, "written": {"seconds": 0.002}}
    costs["members"] = [member("Algorithm 2", 1.0, 1.0, 1.0)]
    assert finding(costs).count("no estimator's error is clearly below") == 2
    costs["members"] = [
        member("Algorithm 2", 1.0, 1.0, 0.8),
        member("stratified", 0.9, 0.25, 0.2),
        member("LADIES", 0.01, None, 0.1),
    ]
    text = finding(costs)
    assert "that of stratified: 4 times below" in text
    assert "1 of 3 take longer" in text
    assert "At the 2.00 ms that it takes" in text
    assert "that of LADIES: 10 times below" in text
    assert gain_of(costs, costs["members"][0]) == 1
