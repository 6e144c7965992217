"""What validation decides beside the weights: the metric, a temperature and a threshold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    roc_auc_score,
)

from fastgcn import Graph, Run, Split, evaluate, fit, predict
from fastgcn.errors import InputError
from fastgcn.metrics import Decision, average_precision, roc_auc, scored
from fastgcn.train.decision import decide, fit_temperature, fit_threshold
from fastgcn.train.run_files import read_safetensors, safetensors_bytes
from tests.communities import communities

QUICK: dict[str, Any] = {"preset": "fast", "device": "cpu", "threads": 1, "epochs": 6}
RNG = np.random.default_rng(0)


def rare(n: int = 400, *, tell: float = 1.0, seed: int = 0) -> Graph:
    """Two classes of which "bad" has one node in twenty; features tell them apart by `tell`."""
    rng = np.random.default_rng(seed)
    bad = np.zeros(n, bool)
    bad[rng.permutation(n)[: n // 20]] = True
    order = np.argsort(~bad, kind="stable")  # each part gets its share of both classes
    turn = np.empty(n, int)
    turn[order] = np.arange(n) % 4
    parts = (np.flatnonzero(part) for part in (turn < 2, turn == 2, turn == 3))
    source, target = rng.integers(n, size=(2, n))
    same = bad[source] == bad[target]
    return Graph.from_edges(
        source[same],
        target[same],
        features=rng.normal(size=(n, 5)) + tell * bad[:, None],
        labels=np.where(bad, 0, 1),
        class_names=["bad", "good"],
        split=Split(*parts),
        name="rare",
    )


def test_more_scores_are_those_of_scikit_learn() -> None:
    truth = RNG.integers(2, size=200)
    chance = np.clip(0.3 * truth + 0.7 * RNG.random(200), 0, 1)
    rows, decision = np.stack([1 - chance, chance], 1), Decision(positive=1, threshold=0.4)
    names = ("roc_auc", "average_precision", "balanced_accuracy", "f1", "recall@20", "recall@10%")
    more = scored(rows, truth, decision, names).more
    guess = chance >= 0.4
    assert more["roc_auc"] == pytest.approx(roc_auc_score(truth, chance))
    assert more["average_precision"] == pytest.approx(average_precision_score(truth, chance))
    assert more["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, guess))
    assert more["f1"] == pytest.approx(f1_score(truth, guess))
    first = np.argsort(-chance)[:20]
    assert more["recall@20"] == more["recall@10%"] == truth[first].sum() / truth.sum()


def test_many_classes_have_the_mean_over_classes() -> None:
    truth, rows = RNG.integers(4, size=300), RNG.dirichlet(np.ones(4), 300)
    rows[np.arange(300), truth] += 0.3
    rows /= rows.sum(1, keepdims=True)
    more = scored(rows, truth, Decision(), ("roc_auc", "recall@2", "recall@9", "f1")).more
    expected = roc_auc_score(truth, rows, multi_class="ovr", average="macro")
    assert more["roc_auc"] == pytest.approx(expected)
    two = np.argsort(-rows, 1)[:, :2]
    assert more["recall@2"] == pytest.approx((two == truth[:, None]).any(1).mean())
    assert more.keys() == {"roc_auc", "recall@2"}  # the others are not defined


def test_the_calibration_error_is_zero_for_frequencies_and_large_for_false_certainty() -> None:
    truth = np.repeat([0, 0, 0, 1], 50)
    right, sure = np.tile([0.75, 0.25], (200, 1)), np.tile([1.0, 0.0], (200, 1))
    assert scored(right, truth, Decision(), ("calibration_error",)).more[
        "calibration_error"
    ] == pytest.approx(0)
    assert scored(sure, truth, Decision(), ("calibration_error",)).more[
        "calibration_error"
    ] == pytest.approx(0.25)


@pytest.mark.parametrize("several", [False, True])
def test_a_temperature_undoes_false_certainty(several: bool) -> None:
    logits = 2 * RNG.normal(size=(3_000, 4))
    if several:
        labels = RNG.random(logits.shape) < 1 / (1 + np.exp(-logits))
    else:
        labels = (logits + RNG.gumbel(size=logits.shape)).argmax(1)
    assert fit_temperature(5 * logits, labels) == pytest.approx(5, rel=0.15)
    assert fit_temperature(logits, labels) == pytest.approx(1, rel=0.15)


@pytest.mark.parametrize("several", [False, True])
def test_nodes_that_are_all_right_do_not_make_a_network_sure_of_everything(several: bool) -> None:
    logits = RNG.normal(size=(50, 3))
    assert fit_temperature(logits, logits > 0 if several else logits.argmax(1)) == 1.0


def test_a_temperature_that_only_fits_noise_is_not_taken() -> None:
    kept = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=(8, 3))
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        kept += fit_temperature(logits, labels) == 1.0
    assert kept >= 10


def test_the_threshold_is_the_best_of_all() -> None:
    truth = RNG.random(500) < 0.1
    chance = np.clip(0.25 * truth + 0.3 * RNG.random(500), 0, 1)
    for metric, average in {"roc_auc": "binary", "macro_f1": "macro"}.items():
        found = fit_threshold(chance, truth, metric)
        best = max(f1_score(truth, chance >= t, average=average) for t in np.unique(chance))
        assert f1_score(truth, chance >= found, average=average) == pytest.approx(best)
    found = fit_threshold(chance, truth, "balanced_accuracy")
    best = max(balanced_accuracy_score(truth, chance >= t) for t in np.unique(chance))
    assert balanced_accuracy_score(truth, chance >= found) == pytest.approx(best)
    assert fit_threshold(chance, truth, "micro_f1") == 0.5
    assert fit_threshold(chance[:20], np.arange(20) < 2, "f1") == 0.5  # too few to choose by


def test_the_class_left_of_the_threshold_is_the_other_one() -> None:
    logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    decision = decide(logits, np.array([0, 1]), Decision(positive=0), "f1", calibrate=False)
    assert decision == Decision(positive=0)
    rows = torch.tensor([[0.3, 0.7], [0.2, 0.8]])
    for positive, threshold, expected in ((0, 0.25, [0, 1]), (1, 0.75, [0, 1]), (1, 0.5, [1, 1])):
        chosen = Decision(positive=positive, threshold=threshold)
        assert chosen.classes(rows).tolist() == chosen.classes(rows.numpy()).tolist() == expected


@pytest.mark.parametrize("metric", ["loss", "macro_f1", "roc_auc", "recall@2"])
def test_validation_selects_by_the_metric(metric: str) -> None:
    run = fit(communities(), metric=metric, **QUICK)
    values = [record[f"val_{metric}"] for record in run.history]
    best = min(values) if metric == "loss" else max(values)
    assert values[run.metrics["best_epoch"] - 1] == best
    assert run.metrics["metric"] == metric


def test_a_race_is_judged_by_the_metric() -> None:
    run = fit(communities(n=150, sparse=True), metric="loss", device="cpu", threads=1)
    tried = run.metrics["choice"]["tried"]
    assert {each["metric"] for each in tried} == {"loss"}
    assert all(each["score"] <= -each["value"] for each in tried)


@pytest.fixture
def _spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a command, whose notes are printed."""
    monkeypatch.setattr("fastgcn.progress._plain", True)


@pytest.mark.usefixtures("_spoken")
def test_a_rare_class_is_found_and_said(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = rare(800, tell=2.0)
    run = fit(graph, run_dir=tmp_path / "run", **(QUICK | {"epochs": 15}))
    assert run.metrics["metric"] == "average_precision"
    assert "selects by average_precision" in run.metrics["notes"][0]
    assert run.metrics["notes"][0] in capfd.readouterr().err
    assert run.model.decision.positive == 0
    assert run.metrics["test_classes"]["recall"][0] > 0
    loaded = Run.load(tmp_path / "run")
    assert loaded.model.decision == run.model.decision
    assert loaded.metrics["decision"] == run.metrics["decision"]
    np.testing.assert_array_equal(predict(loaded, graph), predict(run, graph))
    scores = evaluate(loaded, graph, "test", also=("roc_auc", "recall@5%")).scores()
    for name, value in scores.items():
        assert run.metrics[f"test_{name}"] == pytest.approx(value, rel=1e-5), name


def test_the_loss_before_and_after_calibration_is_kept() -> None:
    graph = communities(n=200)
    assert graph.labels is not None
    labels = graph.labels.copy()
    wrong = np.random.default_rng(0).random(200) < 0.15  # so that no network is always right
    labels[wrong] = (labels[wrong] + 1) % 3
    graph = replace(graph, labels=labels)
    run = fit(graph, **(QUICK | {"epochs": 6, "early_stopping": "none", "metric": "accuracy"}))
    plain = fit(
        graph,
        **(QUICK | {"epochs": 6, "early_stopping": "none", "metric": "accuracy"}),
        calibrate=False,
    )
    assert run.model.decision.temperature != 1.0
    assert plain.model.decision.temperature == 1.0
    assert run.metrics["val_loss"] < run.metrics["val_loss_uncalibrated"]
    for part in ("val", "test"):
        assert run.metrics[f"{part}_loss_uncalibrated"] == pytest.approx(
            plain.metrics[f"{part}_loss"]
        )
        assert run.metrics[f"{part}_micro_f1"] == plain.metrics[f"{part}_micro_f1"]


def test_a_run_of_an_earlier_version_has_no_decision(tmp_path: Path) -> None:
    fit(rare(), run_dir=tmp_path / "run", **QUICK)
    path = tmp_path / "run/model.safetensors"
    tensors, metadata = read_safetensors(path, ())
    del metadata["decision"], metadata["sha256"]
    path.write_bytes(safetensors_bytes(tensors, metadata))
    assert Run.load(tmp_path / "run").model.decision == Decision()


@pytest.mark.parametrize("text", ['{"temperature": 0}', "[]", '{"temperature": -1.0}', "3"])
def test_a_damaged_decision_is_refused(tmp_path: Path, text: str) -> None:
    fit(rare(), run_dir=tmp_path / "run", **QUICK)
    path = tmp_path / "run/model.safetensors"
    tensors, metadata = read_safetensors(path, ())
    del metadata["sha256"]
    whole = json.loads(metadata["decision"])
    given = json.loads(text)
    metadata["decision"] = json.dumps(whole | given if isinstance(given, dict) else given)
    path.write_bytes(safetensors_bytes(tensors, metadata))
    with pytest.raises(InputError, match=r"decision|damaged"):
        Run.load(tmp_path / "run")


def test_a_single_class_is_refused() -> None:
    graph = communities(labels=np.zeros(60, int), class_names=["only"])
    with pytest.raises(InputError, match="all training nodes are of one class"):
        fit(graph, **QUICK)


@pytest.mark.usefixtures("_spoken")
def test_a_model_that_is_no_better_than_a_guess_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    graph = rare(tell=0.0)
    graph = Graph.from_edges(
        [0], [1], features=RNG.normal(size=(400, 3)), labels=graph.labels, split=graph.split
    )
    run = fit(graph, metric="accuracy", **QUICK)
    assert "no better than a guess" in run.metrics["notes"][-1]
    assert "commonest class" in capfd.readouterr().err


@pytest.mark.parametrize("metric", ["auc", "recall@0", "recall@", "recall@101%", "recall@-1", ""])
def test_a_name_that_is_no_metric_is_refused(metric: str) -> None:
    with pytest.raises(InputError, match="metric must be"):
        fit(communities(), metric=metric, **QUICK)


@pytest.mark.parametrize("metric", ["f1", "recall@4", "recall@5%"])
def test_a_metric_that_is_not_defined_for_the_graph_is_refused(metric: str) -> None:
    with pytest.raises(InputError, match="not defined for these validation nodes"):
        fit(communities(), metric=metric, **QUICK)


def test_rankings_are_scikit_learns() -> None:
    """Also where scores are equal."""
    rng = np.random.default_rng(0)
    for digits in (1, 8):
        truth = rng.random(500) < 0.2
        found = (rng.random(500) * 0.7 + truth * 0.3).round(digits)
        assert roc_auc(truth, found) == pytest.approx(roc_auc_score(truth, found), abs=1e-12)
        expected = average_precision_score(truth, found)
        assert average_precision(truth, found) == pytest.approx(expected, abs=1e-12)
