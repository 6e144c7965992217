"""The comparison of estimators: what is measured is what is said, and the page is kept whole."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.as_written import AsWritten
from benchmarks.commands import app as bench
from benchmarks.estimators import equal_time_samples
from benchmarks.family import MEMBERS, Effort, subject
from benchmarks.gradients import GradientErrors
from benchmarks.rounds import time_steps
from benchmarks.trained_network import TrainedNetwork

import fastgcn
from benchmarks import estimators, estimators_page
from fastgcn import TrainConfig
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.sampling import LayerSampler
from fastgcn.sampling.draws import Law
from fastgcn.sampling.history import HistorySampler
from tests.cli_runner import run_cli

CONFIG = TrainConfig(hidden=8, samples=50, epochs=3, threads=1)
SOME = tuple(
    member
    for member in MEMBERS
    if member.name in ("Algorithm 2", "stratified", "optimal", "LADIES, exact self, history")
)

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def network() -> TrainedNetwork:
    return TrainedNetwork(fastgcn.load("digits"), CONFIG, ages=[1, 2])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "MEMBERS", SOME)
    monkeypatch.setattr(estimators_page, "MEMBERS", SOME)


def compare(capfd: Capture, folder: Path) -> dict[str, Any]:
    files = ["--results", folder / "results.jsonl", "--docs", folder / "page.md"]
    outcome = run_cli(
        capfd, "estimators", "--data", "digits", "--quick", "--json", *files, commands=bench
    )
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


@pytest.mark.usefixtures("few")
def test_the_command_measures_once_and_keeps_the_page(capfd: Capture, tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    begin, end = estimators_page.BEGIN, estimators_page.END
    page.write_text(f"# Mine\n\nBefore.\n\n{begin}\nold figures\n{end}\n\nAfter.\n")
    found = compare(capfd, tmp_path)
    (costs,) = found["costs"]
    assert [each["member"] for each in costs["members"]] == [member.name for member in SOME]
    for each in costs["members"]:
        assert [point["t"] for point in each["curve"]] == [100, 400]
        assert all(point["error"] > 0 and point["seconds"] > 0 for point in each["curve"])
    baseline = costs["members"][0]
    assert baseline["equal_time"]["t"] == 400
    assert estimators_page.gain_of(costs, baseline) == 1
    assert costs["written"]["rows"] > baseline["rows"]
    assert costs["written"]["seconds"] > 0
    assert [each["case"] for each in found["accuracy"]] == [member.name for member in SOME]

    text = page.read_text()
    assert text.startswith("# Mine\n\nBefore.\n\n")
    assert text.endswith(f"{end}\n\nAfter.\n")
    assert "old figures" not in text
    for member in SOME:
        assert text.count(f"| {member.name} |") == 3  # settings, costs, accuracy
    assert text.count("| Algorithm 2 as written |") == 1
    assert "](figures/estimators-digits.svg)" in text
    assert (tmp_path / "figures" / "estimators-digits.svg").read_text().startswith("<svg")

    lines = results.read_bytes()
    assert compare(capfd, tmp_path) == found
    assert results.read_bytes() == lines
    assert page.read_text() == text


def test_a_page_without_a_place_is_refused_before_anything_is_measured(
    capfd: Capture, tmp_path: Path
) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    page.write_text("# Something else\n")
    outcome = run_cli(capfd, "estimators", "--results", results, "--docs", page, commands=bench)
    assert outcome.code == 1
    assert "must hold the line <!-- measured: begin -->" in outcome.err
    assert page.read_text() == "# Something else\n"
    assert not results.exists()


def test_members_are_different_settings() -> None:
    configs = {member.config(CONFIG) for member in MEMBERS}
    assert len(configs) == len(MEMBERS) == len({member.name for member in MEMBERS})
    assert MEMBERS[0].config(CONFIG) == CONFIG
    assert MEMBERS[0].config(CONFIG, 7).samples == 7


def test_what_is_measured_on_which_data() -> None:
    assert (subject("cora").accuracy, subject("cora").split) == (True, "full")
    assert (subject("reddit-sim").accuracy, subject("reddit-sim").split) == (False, None)
    assert subject("pubmed").config == fastgcn.paper_pubmed()


def test_sample_sizes_hold_the_papers_and_no_more_than_the_graph_has() -> None:
    effort = Effort(
        sizes=(1 / 16, 4, 16), network_epochs=1, batches=1, draws=2, rounds=1, chunk_seconds=0.01,
        seeds=1,
    )  # fmt: skip
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


def test_a_look_at_all_rows_is_counted_where_there_is_one(network: TrainedNetwork) -> None:
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
    assert turns[-6:] == [0, 1] * 3
    for result in found.values():
        assert len(result["chunks"]) == 3
        assert result["batches_per_chunk"] >= 3
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
            "equal_time": None if there is None else {"error": there},
            "written_time": None if written is None else {"error": written},
        }

    costs: dict[str, Any] = {"data": "toy", "t": 100, "written": {"seconds": 0.002}}
    costs["members"] = [member("Algorithm 2", 1.0, 1.0, 1.0)]
    assert estimators_page.finding(costs).count("no estimator's error is clearly below") == 2
    costs["members"] = [
        member("Algorithm 2", 1.0, 1.0, 0.8),
        member("stratified", 0.9, 0.25, 0.2),
        member("LADIES", 0.01, None, 0.1),
    ]
    text = estimators_page.finding(costs)
    assert "that of stratified: 4 times below" in text
    assert "1 of 3 take longer" in text
    assert "At the 2.00 ms that it takes" in text
    assert "that of LADIES: 10 times below" in text
