"""`samples = "auto"`: the sizes found bring the error asked for, and a run keeps them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastgcn
from fastgcn import TrainConfig
from fastgcn.backends.data import prepare
from fastgcn.diagnose import choose_samples, resolve_samples
from fastgcn.errors import InputError
from fastgcn.sampling import layer_sampler
from tests.cli_runner import run_cli
from tests.communities import communities, quick
from tests.diagnose.test_diagnose_errors import network_of

GRAPH = communities(n=400, seed=2)
MEMBERS: list[dict[str, Any]] = [
    {},
    {"distribution": "uniform", "self_term": "exact"},
    {"distribution": "ladies", "draws": "poisson", "self_term": "exact"},
    {"distribution": "flat", "draws": "stratified"},
    {"distribution": "ladies", "draws": "successive"},
    {"distribution": "optimal", "draws": "systematic"},
    {"distribution": "flat", "input_skip": True},
]


def auto(**settings: Any) -> TrainConfig:
    return quick(samples="auto", **settings)


def fresh_error(config: TrainConfig, t: int) -> float:
    """The relative error over new batches and draws, by dense matrices."""
    network = network_of(GRAPH, config.replace(samples=t))
    adjacency = network.data.adjacency
    x = network.rows(0, np.arange(adjacency.n))
    exact = adjacency.to_scipy() @ x
    sampler = layer_sampler(config, adjacency, [t], own_rows=False)
    if config.distribution == "optimal":
        sampler.set_row_norms([np.linalg.norm(x, axis=1)])
    rng = torch.Generator().manual_seed(99)
    squares, totals = 0.0, 0.0
    for _ in range(600):
        batch = torch.randperm(adjacency.n, generator=rng)[: config.batch_size]
        (block,) = sampler.sample(batch, rng)
        estimate = block.adj.to_dense().numpy() @ x[block.src.numpy()]
        squares += float(np.square(estimate - exact[batch]).sum())
        totals += float(np.square(exact[batch]).sum())
    return float(np.sqrt(squares / totals))


@pytest.mark.parametrize("settings", MEMBERS, ids=lambda s: " ".join(map(str, s.values())))
def test_what_is_found_has_the_error_asked_for(settings: dict[str, Any]) -> None:
    """To a tenth: a search by draws ends within 5 % in the error or 10 % in t, with their noise."""
    config = auto(target_error=0.6, **settings)
    choice = choose_samples(GRAPH, config)
    (t,) = choice.samples
    assert t < 240, "fewer than all"
    assert choice.errors[0] == pytest.approx(0.6, rel=0.08)
    assert fresh_error(config, t) == pytest.approx(0.6, rel=0.1)


def test_a_smaller_error_takes_more() -> None:
    targets = (1.5, 0.9, 0.6, 0.45)
    sizes = [choose_samples(GRAPH, auto(target_error=target)).samples[0] for target in targets]
    assert sizes == sorted(set(sizes))
    # Independent draws: error² ∝ 1/t; the search ends within 1 % in the error.
    assert sizes[3] / sizes[1] == pytest.approx((0.9 / 0.45) ** 2, rel=0.1)


def test_never_more_than_all_nodes() -> None:
    choice = choose_samples(GRAPH, auto(target_error=1e-3))
    assert choice.samples == (240,)
    assert choice.errors[0] > 0.1
    assert "240 vertices" in choice.sentence(1e-3)
    assert "0.1 % asked for" in choice.sentence(1e-3)


def test_one_size_for_each_sampled_layer_and_the_same_each_time() -> None:
    config = auto(target_error=0.7, hidden=(8, 8), precompute=False)
    found = resolve_samples(GRAPH, config)
    assert isinstance(found.samples, tuple)
    assert len(found.samples) == 3
    assert found == resolve_samples(GRAPH, config)
    assert found.replace(samples="auto") == config


def test_settings_that_draw_nothing_are_left_alone() -> None:
    numbers = quick(samples=7)
    assert resolve_samples(GRAPH, numbers) is numbers
    batched = auto(method="gcn-batched")
    assert resolve_samples(GRAPH, batched) is batched
    assert resolve_samples(GRAPH, auto(hidden=())).layer_samples == ()
    fastgcn.fit(GRAPH, auto(method="gcn-batched", epochs=1))


def test_a_run_keeps_the_numbers(tmp_path: Path) -> None:
    config = auto(target_error=0.6, epochs=2)
    run = fastgcn.fit(GRAPH, config, run_dir=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["config"]["samples"]
    assert tuple(kept) == run.config.samples == choose_samples(GRAPH, config).samples
    assert fastgcn.fit(GRAPH, config).metrics["val_loss"] == run.metrics["val_loss"]


def test_a_graph_that_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    bare = GRAPH.with_split(fastgcn.Split(val=GRAPH.split.train))
    with pytest.raises(InputError, match="has no training nodes"):
        fastgcn.fit(bare, auto(), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_says_what_was_chosen(tmp_path: Path, capfd: Any) -> None:
    outcome = run_cli(
        capfd, "train", "digits", "--samples", "auto", "--set", "target_error=0.8", "--hidden", 8,
        "--epochs", 1, "--run-dir", tmp_path / "r", "--json",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    (t,) = json.loads((tmp_path / "r" / "config.json").read_text())["config"]["samples"]
    assert f"samples = auto: {t:,} vertices, for a relative error of" in outcome.err
    assert f"sampling of {t:,} vertices" in outcome.err


def test_the_initial_network_is_the_one_that_is_trained() -> None:
    """Other weights, other errors: the seed's own are used."""
    data = prepare(GRAPH, quick(), None)
    assert len(data.batch_nodes) == 240
    sizes = {choose_samples(GRAPH, auto(target_error=0.6, seed=seed)).samples for seed in range(4)}
    assert len(sizes) > 1


def test_some_nodes_standardise_the_features_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 of 240 training nodes: the columns' deviations are known to a tenth, and t about so."""
    config = auto(feature_scaling="standard", target_error=0.6)
    (by_all,) = choose_samples(GRAPH, config).samples
    monkeypatch.setattr("fastgcn.diagnose.auto._MEASURED_NODES", 80)
    (by_some,) = choose_samples(GRAPH, config).samples
    assert by_some != by_all
    assert by_some == pytest.approx(by_all, rel=0.2)
