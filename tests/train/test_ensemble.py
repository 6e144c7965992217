"""Ensembles: networks that differ in their seeds, as one network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastgcn
from fastgcn import Graph, Run, embed, fit, predict, resume
from fastgcn.backends.exact import feature_rows, full_forward
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.graph.adjacency import NormalizedRows
from fastgcn.graph.edges import GraphEdges
from fastgcn.model import as_gcn, build_model
from fastgcn.report import run_report
from fastgcn.train import ensemble, loop
from fastgcn.train.divergence import NotFiniteError
from fastgcn.train.ensemble import networks_of, stack
from fastgcn.train.loop import fit_choice
from fastgcn.train.presets import resolve
from fastgcn.train.race import Choice
from fastgcn.train.side_by_side import train_side_by_side
from fastgcn.train.training import Training
from tests.cli_runner import run_cli
from tests.communities import communities, quick, weights_of

QUICK: dict[str, Any] = {
    "preset": "fast", "device": "cpu", "threads": 1, "epochs": 4, "early_stopping": "none",
}  # fmt: skip

NETWORKS: list[dict[str, Any]] = [
    {},
    {"bias": True, "skip": True, "input_skip": True, "norm": "layer", "hidden": (8, 6)},
    {"norm": "batch", "hidden": (8, 8), "jumping": "max", "precompute": False},
    {"pair": True, "skip": True, "input_skip": True, "bias": True, "hidden": (8, 4)},
    {"hidden": (), "bias": True, "feature_scaling": "standard"},
]


def logits(model: Any, graph: Graph) -> torch.Tensor:
    rows = NormalizedRows(GraphEdges(graph.csr), model.normalization)
    features = feature_rows(model, graph.features, None)
    return full_forward(model, rows, features, np.arange(graph.n_nodes))


@pytest.mark.parametrize("changes", NETWORKS, ids=str)
def test_its_logits_are_the_mean_of_its_networks(changes: dict[str, Any]) -> None:
    graph, config = communities(), quick(**changes)
    runs = [fit(graph, config.replace(seed=seed)) for seed in (0, 1, 2)]
    models = [as_gcn(run.model) for run in runs]
    whole = stack([model.state_dict() for model in models], config, models[0]).eval()
    assert whole.ensemble == 3
    mean = torch.stack([logits(model, graph) for model in models]).mean(0)
    torch.testing.assert_close(logits(whole, graph), mean, atol=1e-5, rtol=1e-5)
    last = config.layers - 1  # whose biases are added up, and all its weights if it is the first
    averaged = {f"layers.{last}.bias"} | ({"layers.0.weight"} if last == 0 else set())
    for found, model in zip(networks_of(whole, config), models, strict=True):
        for name, value in found.state_dict().items():
            if name not in averaged:
                torch.testing.assert_close(value, model.state_dict()[name], atol=1e-6, rtol=1e-6)


def test_a_run_of_three_is_the_mean_of_runs_from_their_seeds(tmp_path: Path) -> None:
    graph = communities()
    run = fit(graph, run_dir=tmp_path / "run", ensemble=3, calibrate=False, **QUICK)
    alone = [fit(graph, seed=seed, calibrate=False, **QUICK) for seed in (0, 1_000_003, 2_000_006)]
    mean = torch.stack([logits(each.model, graph) for each in alone]).mean(0)
    torch.testing.assert_close(logits(run.model, graph), mean, atol=1e-5, rtol=1e-5)
    assert [record["val_loss"] for record in run.history] == [
        record["val_loss"] for record in alone[0].history
    ]
    scores = [each.history[each.metrics["best_epoch"] - 1]["val_micro_f1"] for each in alone]
    assert run.metrics["ensemble"]["val_micro_f1"] == scores
    found = fastgcn.evaluate(run, graph, "test")
    assert run.metrics["test_loss"] == pytest.approx(found.loss, rel=1e-5)
    assert any("the mean of 3 networks" in sentence for sentence in run.metrics["notes"])
    assert embed(run, graph).shape[1] == 3 * embed(alone[0], graph).shape[1]


def test_it_is_kept_and_used_like_any_other(tmp_path: Path) -> None:
    graph = communities()
    run = fit(graph, run_dir=tmp_path / "run", ensemble=2, norm="layer", **QUICK)
    loaded = Run.load(tmp_path / "run")
    assert as_gcn(loaded.model).ensemble == 2
    np.testing.assert_array_equal(predict(loaded, graph), predict(run, graph))
    np.testing.assert_allclose(predict(run, graph, [3, 1]), predict(run, graph)[[3, 1]], rtol=1e-4)
    assert "of 4 kept, in the first of 2 networks" in repr(run)
    page = run_report(run, graph)
    assert "The model is the mean of 2 networks from different seeds" in page
    assert "This is the first of the 2 networks" in page
    assert fastgcn.explain(run, graph, 3).neighbors is not None
    sampled = predict(run, graph, [0, 1], samples=graph.n_nodes)
    assert sampled.shape == (2, graph.n_classes)


def test_a_layer_norm_is_of_one_network() -> None:
    """So a file must say how many networks it has: as one, it would predict something else."""
    graph = communities()
    run = fit(graph, ensemble=2, norm="layer", **QUICK)
    as_one = build_model(run.config, run.model.sizes, "classification")
    as_one.load_state_dict(run.model.state_dict())
    assert not torch.allclose(logits(as_one.eval(), graph), logits(run.model, graph), atol=1e-3)


def test_an_interruption_costs_the_further_networks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = communities()
    whole = fit(graph, ensemble=2, **QUICK)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_further", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(graph, run_dir=tmp_path / "run", ensemble=2, **QUICK)
    assert len(Run.load(tmp_path / "run").history) == 4  # the first network is there
    monkeypatch.setattr(Training, "epoch", _only_of_others(whole.config.seed))
    again = resume(tmp_path / "run", graph)
    assert weights_of(again.model) == weights_of(whole.model)


def _only_of_others(seed: int) -> Any:
    original = Training.epoch

    def epoch(training: Training) -> dict[str, Any]:
        assert training.config.seed != seed, "the first network is trained already"
        return original(training)

    return epoch


def test_a_network_whose_numbers_go_wrong_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = train_side_by_side

    def fail(running: Any, epochs: int, advance: Any) -> Any:
        return original(running, epochs, advance) | {1: NotFiniteError("the loss is nan")}

    monkeypatch.setattr(ensemble, "train_side_by_side", fail)
    run = fit(communities(), ensemble=3, progress=True, **QUICK)
    assert as_gcn(run.model).ensemble == 2
    assert "Left out network 2 of the ensemble, where the loss is nan" in capsys.readouterr().err


def test_a_callback_that_ends_the_run_ends_it() -> None:
    run = fit(communities(), ensemble=3, callbacks=[lambda record: record["epoch"] == 2], **QUICK)
    assert len(run.history) == 2
    assert "ensemble" not in run.metrics


def test_a_run_starts_from_all_networks_of_another(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = communities()
    fastgcn.save(graph, tmp_path / "store")
    first = fit(fastgcn.load(tmp_path / "store"), run_dir=tmp_path / "run", ensemble=2, **QUICK)
    still = {"learning_rate": 1e-12, "epochs": 1}
    config = first.config.replace(**still)
    again = fit(graph, config, model=first.model)
    assert as_gcn(again.model).ensemble == 2
    np.testing.assert_allclose(logits(again.model, graph), logits(first.model, graph), atol=1e-5)
    named = fit(graph, model=first.model, **QUICK | still | {"hidden": first.config.hidden})
    assert as_gcn(named.model).ensemble == 2
    done = run_cli(
        capfd, "train", tmp_path / "store", "--from", tmp_path / "run", "--epochs", "1",
        "--run-dir", tmp_path / "next", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert as_gcn(Run.load(tmp_path / "next").model).ensemble == 2


def test_what_cannot_be_an_ensemble_is_none() -> None:
    graph = communities()
    assert resolve(graph, None, {"jumping": "concat"}).ensemble == 1
    assert resolve(graph, None, {"aggregator": "attention"}).ensemble == 1
    with pytest.raises(InputError, match="ensemble = 3 needs jumping = 'none' or 'max'"):
        TrainConfig(ensemble=3, jumping="concat", aggregator="convolution")
    choice = Choice(quick(ensemble=2))
    with pytest.raises(InputError, match="ensemble = 2 is for a single process"):
        fit_choice(graph, choice, shard=object())  # type: ignore[arg-type]
