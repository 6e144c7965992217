"""A loss or weight that is not finite stops a run, and no such model is called finished."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fastgcn import (
    DivergedError,
    FastGCNClassifier,
    Graph,
    Run,
    embed,
    evaluate,
    fit,
    predict,
    predict_new,
    resume,
)
from fastgcn.backends.cpu import CpuBackend
from fastgcn.diagnose.diagnosis import diagnose
from fastgcn.errors import FormatError, InputError
from fastgcn.features.extremes import Extreme, extreme
from fastgcn.model import all_finite, as_gcn
from fastgcn.report import run_report
from tests.cli_runner import run_cli
from tests.communities import communities, quick

Capture = pytest.CaptureFixture[str]

# With this, the network diverges in its first epoch.
AT_ONCE: dict[str, Any] = {"learning_rate": 1e30}


def scaled(by: float, **kind: Any) -> Graph:
    graph = communities(**kind)
    return replace(graph, features=(graph.features * by).astype(np.float32))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bias": True, "norm": "batch"},
        {"method": "gcn", "precompute": False},
        {"method": "gcn-batched"},
        {"method": "graphsage-mean", "precompute": False, "normalization": "neighbors",
         "fanouts": (2, 2)},
        {"history": True},
        {"distribution": "optimal"},
        {"averaging": 0.9},
        {"early_stopping": "none", "validate_every": 100},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("multilabel", [False, True])
def test_a_run_that_diverges_at_once_leaves_nothing(
    settings: dict[str, Any], multilabel: bool, tmp_path: Path
) -> None:
    with pytest.raises(DivergedError) as caught:
        fit(communities(multilabel=multilabel), quick(**AT_ONCE | settings), run_dir=tmp_path / "r")
    assert caught.value.run is None
    said = str(caught.value)
    assert said.startswith("training diverged in epoch 1, where ")
    assert "lower learning_rate, which is 1e+30" in said
    assert said.endswith("no epoch before it can be kept")
    assert not (tmp_path / "r").exists()


def test_files_of_others_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(DivergedError):
        fit(communities(), quick(**AT_ONCE), run_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_large_features_get_a_hint_of_their_own() -> None:
    graph = replace(scaled(1e30), feature_names=list("abcdef"))
    with pytest.raises(DivergedError, match=r"feature 'a' of node 41 is 4\.7572e\+30: scale the "):
        fit(graph, quick())
    assert fit(graph, quick(feature_scaling="standard")).stopped is None
    with pytest.raises(DivergedError, match="standard; and lower learning_rate, which is 1e"):
        fit(graph, quick(**AT_ONCE))
    with pytest.raises(InputError, match="divide them by a constant first"):
        fit(scaled(5e37), quick(feature_scaling="row"))


@pytest.fixture
def stopped(tmp_path: Path) -> Run:
    """The best epoch of a run that diverged in its second one."""
    said = "epoch 1, the best before it, is kept in"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(DivergedError, match=said) as caught:
        poison_epoch(2, patch)
        fit(communities(), quick(epochs=9), run_dir=tmp_path / "stopped")
    run: Run = caught.value.run
    return run


def test_the_best_epoch_before_is_kept_and_says_so(stopped: Run) -> None:
    assert stopped.path is not None
    result = json.loads((stopped.path / "result.json").read_text())
    assert result["stopped"].startswith("training diverged in epoch 2, where the loss is nan")
    assert (result["epochs"], result["best_epoch"]) == (1, 1)
    loaded = Run.load(stopped.path)
    assert loaded.stopped == stopped.stopped == result["stopped"]
    assert len(loaded.history) == 1
    graph = communities()
    np.testing.assert_array_equal(predict(loaded, graph), predict(stopped, graph))
    assert np.isfinite(predict(loaded, graph)).all()
    assert f"This run is not finished: {loaded.stopped}" in run_report(loaded, graph)


def test_a_run_that_diverged_is_not_continued(stopped: Run, capfd: Capture) -> None:
    assert stopped.path is not None
    with pytest.raises(InputError, match="cannot be continued: training diverged in epoch 2"):
        resume(stopped.path, communities())
    outcome = run_cli(capfd, "train", "--resume", stopped.path)
    assert outcome.code == 1
    assert "cannot be continued" in outcome.err


def test_what_the_commands_say(tmp_path: Path, capfd: Capture) -> None:
    train = ["train", "digits", "--run-dir", tmp_path / "r", "--hidden", 8, "--json"]
    outcome = run_cli(capfd, *train, "--learning-rate", "1e30")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines()[-1] == (
        "Error: training diverged in epoch 1, where the validation loss is nan; lower "
        "learning_rate, which is 1e+30; no epoch before it can be kept"
    )
    assert not (tmp_path / "r").exists()
    with pytest.MonkeyPatch.context() as patch:
        poison_epoch(3, patch)
        outcome = run_cli(capfd, *train, "--epochs", 5, "--validate-every", 1)
    assert (outcome.code, outcome.out) == (1, "")
    assert "training diverged in epoch 3, where the loss is nan" in outcome.err
    assert f"the best before it, is kept in {tmp_path / 'r'}" in outcome.err
    out = tmp_path / "p.csv"
    for command in ("predict", "embed"):
        outcome = run_cli(capfd, command, tmp_path / "r", "--out", out)
        assert outcome.code == 0
        assert f"{tmp_path / 'r'} is not a finished run: training diverged in" in outcome.err
        assert "nan" not in out.read_text()


def poison_epoch(number: int, patch: pytest.MonkeyPatch) -> None:
    """A weight becomes NaN before the epoch with this number."""
    usual = CpuBackend.train_epoch

    def train_epoch(backend: CpuBackend, epoch: int) -> Any:
        if epoch + 1 == number:
            with torch.no_grad():
                as_gcn(backend.model).convolutions[-1].weight[0, 0] = math.nan
        return usual(backend, epoch)

    patch.setattr(CpuBackend, "train_epoch", train_epoch)


@pytest.mark.parametrize("settings", [{}, {"averaging": 0.5}, {"early_stopping": "none"}], ids=str)
def test_the_kept_weights_are_those_of_a_shorter_run(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fit(communities(), quick(epochs=3, validate_every=1, **settings))
    poison_epoch(4, monkeypatch)
    with pytest.raises(DivergedError) as caught:
        fit(communities(), quick(epochs=9, validate_every=1, **settings))
    run: Run = caught.value.run
    assert [record["epoch"] for record in run.history] == [1, 2, 3]
    np.testing.assert_array_equal(predict(run, communities()), predict(expected, communities()))
    assert run.metrics["test_micro_f1"] == expected.metrics["test_micro_f1"]


def test_an_epoch_ends_with_the_first_loss_that_is_not_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poison_epoch(1, monkeypatch)
    backend = CpuBackend(communities(n=4_000), quick(batch_size=2))
    backend.prepare()
    trained = backend.train_epoch(0)
    assert math.isnan(trained.loss)
    assert trained.batches < 2_400 / 2


def test_validation_nodes_with_bad_features_stop_the_run() -> None:
    graph = communities()
    features = graph.features.copy()
    features[graph.split.val[0]] = math.nan
    with pytest.raises(DivergedError, match=r"the validation loss is nan; feature 0 of node 3 is"):
        fit(graph._replaced(features=features), quick())


def test_test_nodes_with_bad_features_have_no_scores() -> None:
    graph = communities()
    features = graph.features.copy()
    features[graph.split.test] = math.nan
    run = fit(graph._replaced(features=features), quick(evaluation_graph="joined"))
    assert run.stopped is None
    assert "val_micro_f1" in run.metrics
    assert "test_micro_f1" not in run.metrics


def test_a_state_that_is_not_finite_is_not_continued(tmp_path: Path) -> None:
    def stop(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fastgcn.train.loop._CHECKPOINT_EVERY", 0)
        fit(communities(), quick(), run_dir=tmp_path / "r", callbacks=[stop])
    spoil(tmp_path / "r" / "state.safetensors", "best.layers.0.weight")
    with pytest.raises(FormatError, match="holds numbers that are not finite; delete it to train"):
        resume(tmp_path / "r", communities())


def spoil(path: Path, name: str) -> None:
    """Make an entry of a tensor NaN, as in a run of an earlier version that diverged."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata: dict[str, str] = file.metadata()
    del metadata["sha256"]  # which earlier versions do not have
    tensors = load_file(path)
    tensors[name].view(-1)[0] = math.nan
    save_file(tensors, path, metadata)


def test_a_diverged_run_of_an_earlier_version_is_refused(tmp_path: Path, capfd: Capture) -> None:
    fit(communities(), quick(), run_dir=tmp_path / "r")
    spoil(tmp_path / "r" / "model.safetensors", "layers.1.weight")
    uses: list[Callable[[], Run]] = [
        lambda: Run.load(tmp_path / "r"),
        lambda: resume(tmp_path / "r", communities()),
    ]
    for use in uses:
        with pytest.raises(FormatError, match="has weights that are not finite, because its tra"):
            use()
    for command in (["predict", "--out", "p.csv"], ["embed", "--out", "p.csv"], ["report"]):
        outcome = run_cli(capfd, command[0], tmp_path / "r", *command[1:])
        assert outcome.code == 1
        assert "has weights that are not finite" in outcome.err


def test_a_network_with_weights_that_are_not_finite_is_not_used() -> None:
    graph, run = communities(), fit(communities(), quick())
    with torch.no_grad():
        as_gcn(run.model).convolutions[0].weight[0, 0] = math.inf
    for use in (
        lambda: predict(run.model, graph),
        lambda: embed(run, graph, [0]),
        lambda: predict(run, graph, samples=5),
        lambda: evaluate(run, graph, "test"),
        lambda: predict_new(run, graph, features=np.ones((1, 6)), source=[60], target=[0]),
    ):
        with pytest.raises(InputError, match="the network's weights are not finite"):
            use()


def test_outputs_are_finite_or_refused() -> None:
    graph, run = communities(), fit(communities(), quick())
    with torch.no_grad():
        as_gcn(run.model).convolutions[0].weight.fill_(1e30)
    huge = scaled(1e30)
    cause = r"not finite for .*, first for node \d+; feature 0 of node 41 is 4\.7572e\+30, which"
    for use in (
        lambda: predict(run, huge),
        lambda: embed(run, huge, [41]),
        lambda: predict(run, huge, samples=30),
        lambda: evaluate(run, huge, "test"),
    ):
        with pytest.raises(InputError, match=cause):
            use()
    with pytest.raises(InputError, match="1 of 1 nodes, first for node 60; feature 0 of node 60 "):
        predict_new(run, graph, features=np.full((1, 6), 1e30), source=[60], target=[0])
    with pytest.raises(InputError, match="first for node 'x'; feature 0 of node 41 is 4"):
        predict_new(run, huge, features=np.ones((1, 6)), source=["x"], target=[41], node_ids=["x"])
    with torch.no_grad():
        as_gcn(run.model).convolutions[1].weight.fill_(1e30)
    with pytest.raises(InputError, match="its weights are too large: train again with a lower"):
        predict(run, graph)


def test_features_of_a_damaged_store_are_named() -> None:
    graph, run = communities(), fit(communities(), quick())
    features = graph.features.copy()
    features[7, 2] = math.nan
    damaged = graph._replaced(features=features)
    with pytest.raises(InputError, match="feature 2 of node 7 is nan: fill or drop such values"):
        predict(run, damaged)
    with pytest.raises(DivergedError, match="feature 2 of node 7 is nan: fill or drop such values"):
        fit(damaged, quick(inductive=False))


def test_the_classifier_is_not_fitted() -> None:
    classifier = FastGCNClassifier(**AT_ONCE, hidden=8, samples=20)
    with pytest.raises(DivergedError, match="lower learning_rate, which is"):
        classifier.fit(communities())
    assert not hasattr(classifier, "run_")
    classifier = FastGCNClassifier(hidden=8, samples=20, epochs=2).fit(communities())
    with torch.no_grad():
        as_gcn(classifier.run_.model).convolutions[0].weight.fill_(math.nan)
    for use in (classifier.predict, classifier.predict_proba, classifier.transform):
        with pytest.raises(InputError, match="weights are not finite"):
            use([0])


def test_errors_of_a_network_that_overflows_are_not_measured() -> None:
    for scale in (1e30, 5e37):
        with pytest.raises(InputError, match=r"errors cannot be measured; feature 0 of node 41 is"):
            diagnose(scaled(scale), quick())


@pytest.mark.parametrize("sparse", [False, True])
def test_the_feature_farthest_from_zero(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastgcn.features.extremes._AT_ONCE", 7)
    graph = communities(sparse=sparse)
    features: Any = graph.features.toarray() if sparse else graph.features.copy()  # type: ignore[union-attr]
    for value in (-50.0, math.inf, math.nan):
        features[31, 4] = value
        given = type(graph.features)(features) if sparse else features
        found = extreme(given)
        assert found[1:] == (31, 4)
        np.testing.assert_equal(found.value, value)
    assert extreme(np.zeros((0, 3), np.float32)) == Extreme(0.0, 0, 0)


def test_finite_is_told_by_sums() -> None:
    weights = [torch.full((9, 9), 3e38), torch.zeros(0), torch.zeros(2, dtype=torch.int64)]
    assert all_finite(weights), "no sum overflows"
    for bad in (math.nan, math.inf, -math.inf):
        assert not all_finite([*weights, torch.tensor([0.0, bad])])
    assert not all_finite([torch.tensor([math.inf, -math.inf])])
