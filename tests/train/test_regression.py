"""Numbers to predict, from the graph to the run: learning, units, losses, resuming, refusals."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import fastgcn
from fastgcn import Graph, Run, Split, fit
from fastgcn.arrays import AnyArray
from fastgcn.backends.base import Learner
from fastgcn.backends.cpu import ready
from fastgcn.backends.data import row_losses
from fastgcn.backends.direct import DirectStep
from fastgcn.backends.steps import AutogradStep
from fastgcn.errors import FormatError, InputError
from fastgcn.metrics import Target, measure
from fastgcn.model import as_gcn
from fastgcn.train.race import choose
from tests.communities import communities, quick, weights_of
from tests.regression import numbers

OWN: dict[str, Any] = {"skip": True, "input_skip": True, "bias": True, "hidden": 8}
WAYS: dict[str, dict[str, Any]] = {
    "sampled": {"samples": 60, "batch_size": 50},
    "full pass": {"method": "gcn"},
    "full pass of X": {"method": "gcn", "precompute": False},
}


def targets_of(graph: Graph) -> AnyArray:
    assert graph.labels is not None
    return graph.labels


def test_it_beats_ridge_on_own_features_by_a_wide_margin() -> None:
    graph = numbers(n=1500)
    x, y, split = np.asarray(graph.features), targets_of(graph), graph.split
    ridge = Ridge().fit(x[split.train], y[split.train]).score(x[split.test], y[split.test])
    ways: list[dict[str, Any]] = [{}, {"samples": 300, "preset": "fast"}]
    for settings in ways:
        run = fit(graph, threads=1, **settings)
        assert run.metrics["test_r2"] > ridge + 0.35
        assert run.metrics["test_r2"] > 0.9
        assert "Trained as regression" in run.metrics["notes"][0]
    assert ridge < 0.6


def test_scores_are_those_of_scikit_learn_in_the_users_units() -> None:
    graph = numbers()
    run = fit(graph, quick(epochs=5))
    y, test = targets_of(graph), graph.split.test
    found = fastgcn.predict(run, graph, test)
    assert found.shape == (len(test),)
    assert found.dtype == np.float64
    scores = fastgcn.evaluate(run, graph, "test").scores()
    assert list(scores) == ["r2", "mae", "rmse", "loss"]
    assert scores["r2"] == pytest.approx(r2_score(y[test], found))
    assert scores["mae"] == pytest.approx(mean_absolute_error(y[test], found))
    assert scores["rmse"] == pytest.approx(root_mean_squared_error(y[test], found))
    scale = y[graph.split.train].std()
    assert scores["loss"] == pytest.approx(np.square((y[test] - found) / scale).mean())
    for name, value in scores.items():
        assert run.metrics[f"test_{name}"] == pytest.approx(value, rel=1e-5)
    target = run.model.target
    assert target is not None
    assert (target.mean, target.scale) == pytest.approx((y[graph.split.train].mean(), scale))


def test_large_targets_lose_no_digits() -> None:
    """A time in seconds, 1.7e9, has more digits than float32."""
    graph = numbers()
    shifted = numbers(labels=targets_of(graph) + 1.7e9)
    one, other = (fit(each, quick(epochs=3)) for each in (graph, shifted))
    nodes = graph.split.test
    expected = fastgcn.predict(one, graph, nodes)
    assert fastgcn.predict(other, shifted, nodes) - 1.7e9 == pytest.approx(expected, abs=1e-2)
    assert other.metrics["test_r2"] == pytest.approx(one.metrics["test_r2"], abs=1e-6)


def test_scores_of_numbers() -> None:
    truth, found = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.0])
    one = measure(found, truth, Target(5.0, 2.0))
    assert one.r2 == pytest.approx(r2_score(truth, found))
    assert one.loss == pytest.approx(np.square((truth - found) / 2).mean())
    huber = measure(found, truth, Target(0.0, 0.25, "huber"))
    expected = torch.nn.HuberLoss()(torch.tensor(found) / 0.25, torch.tensor(truth) / 0.25)
    assert huber.loss == pytest.approx(float(expected))
    assert measure(truth, np.full(3, 2.0), Target()).r2 == 0.0
    assert measure(np.full(3, 2.0), np.full(3, 2.0), Target()).r2 == 1.0


@pytest.mark.parametrize("loss", ["mse", "huber"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("network", [{}, OWN, OWN | {"pair": True}], ids=["plain", "own", "pair"])
def test_direct_steps_are_those_of_autograd(
    network: dict[str, Any], way: dict[str, Any], loss: str
) -> None:
    config = quick(**({"hidden": 8, "loss": loss} | network | way))
    backend = ready(numbers(), config)
    assert isinstance(backend.step, DirectStep)
    assert backend.data.labels.shape[1:] == (1,)
    batch = next(iter(backend.minibatches.singly(backend.minibatches.shuffled())))
    found = []
    for kind in (AutogradStep, DirectStep):
        learner = Learner(copy.deepcopy(backend.model), config, torch.device("cpu"))
        step = kind(as_gcn(learner.model), backend.loss, learner.optimizer)
        losses = [step(batch.blocks, batch.x, batch.labels) for _ in range(3)]
        found.append((losses, learner.state()))
    (first, by_autograd), (second, directly) = found
    assert first == pytest.approx(second, rel=1e-5)
    for name, value in by_autograd.items():
        scale = float(value.double().abs().max()) if value.numel() else 0.0
        torch.testing.assert_close(directly[name], value, rtol=1e-4, atol=1e-5 * scale + 1e-12)


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_the_gradient_is_that_of_finite_differences(loss: str) -> None:
    backend = ready(numbers(), quick(**OWN, loss=loss, method="gcn"))
    model, step = backend.model.double(), backend.loss
    batch = next(iter(backend.minibatches.singly(backend.minibatches.shuffled())))

    def value() -> torch.Tensor:
        x = batch.x.double() if isinstance(batch.x, torch.Tensor) else batch.x
        blocks = [block.to(torch.device("cpu")) for block in batch.blocks]
        for block in blocks:
            object.__setattr__(block, "csr", None)
        dense = [
            type(block)(block.dst, block.src, block.adj.to_dense().double()) for block in blocks
        ]
        result: torch.Tensor = step(model(dense, x), batch.labels.double())
        return result

    weight = as_gcn(model).convolutions[-1].weight
    (gradient,) = torch.autograd.grad(value(), [weight])
    with torch.no_grad():
        for place in ((0, 0), (3, 0)):
            values = []
            for sign in (1, -1):
                weight[place] += sign * 1e-5
                values.append(float(value()))
                weight[place] -= sign * 1e-5
            slope = (values[0] - values[1]) / 2e-5
            assert slope == pytest.approx(float(gradient[place]), rel=1e-5)


def test_row_losses_have_the_mean_of_the_loss() -> None:
    outputs, known = torch.randn(7, 1) * 3, torch.randn(7, 1)
    for loss in (torch.nn.MSELoss(), torch.nn.HuberLoss()):
        each = row_losses(loss, outputs, known)
        assert each.shape == (7,)
        torch.testing.assert_close(each.mean(), loss(outputs, known))


def test_a_full_sample_gives_the_loss_of_a_full_pass() -> None:
    """With every vertex drawn once by systematic draws of all, sampling adds nothing but noise;
    losses of sampled batches and of full passes agree before any step."""
    graph, settings = numbers(), {"hidden": 8, "batch_size": 10**6, "inductive": False}
    full = ready(graph, quick(**settings, method="gcn"))
    batched = ready(graph, quick(**settings, method="gcn-batched"))
    assert full.train_epoch(0).loss == pytest.approx(batched.train_epoch(0).loss, rel=1e-5)


def test_resuming_gives_the_same_bits(tmp_path: Path) -> None:
    graph = numbers()
    config = quick(epochs=6, loss="huber")
    whole = fit(graph, config, run_dir=tmp_path / "whole")
    half = tmp_path / "half"

    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(graph, config, run_dir=half, callbacks=[stop])
    so_far = Run.load(half)  # its best epoch before the interruption
    assert so_far.model.target == whole.model.target
    assert fastgcn.predict(so_far, graph, [1]).shape == (1,)
    resumed = fastgcn.resume(half, graph)
    assert weights_of(resumed.model) == weights_of(whole.model)
    assert resumed.metrics["test_r2"] == whole.metrics["test_r2"]


def test_a_run_is_read_back_and_earlier_versions_refuse_it(tmp_path: Path) -> None:
    graph = numbers()
    run = fit(graph, quick(epochs=2), run_dir=tmp_path / "run")
    again = Run.load(tmp_path / "run")
    assert again.model.task == "regression"
    assert again.model.target == run.model.target
    nodes = [1, 2, 3]
    assert fastgcn.predict(again, graph, nodes).tolist() == (
        fastgcn.predict(run, graph, nodes).tolist()
    )
    assert json.loads((tmp_path / "run" / "config.json").read_text())["schema"] == 2
    fit(communities(), quick(epochs=1), run_dir=tmp_path / "classes")
    assert json.loads((tmp_path / "classes" / "config.json").read_text())["schema"] == 1
    assert "r2" in repr(again)
    assert "R²" in again.plot()._repr_html_()
    with pytest.raises(InputError, match="predicts a number has no confusions"):
        again.confusion(graph)
    copied = again.save(tmp_path / "copy")
    assert Run.load(tmp_path / "copy").model.target == copied.model.target


def test_the_race_judges_by_r2() -> None:
    graph = numbers()
    choice = choose(graph, None, {"epochs": 40, "threads": 1})
    assert len(choice.tried) > 1
    assert {each.metric for each in choice.tried} == {"r2"}
    assert "val F1" not in "\n".join(choice.table())
    assert not choice.config.inductive


@pytest.mark.parametrize("metric", ["r2", "mae", "rmse", "loss"])
def test_validation_selects_by_the_metric(metric: str) -> None:
    run = fit(numbers(), quick(epochs=6, metric=metric, averaging=0.0))
    values = [record[f"val_{metric}"] for record in run.history]
    best = max(values) if metric == "r2" else min(values)
    assert run.history[run.metrics["best_epoch"] - 1][f"val_{metric}"] == best
    assert run.metrics["metric"] == metric


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"class_weight": "balanced"}, "class_weight = 'balanced' is for classes, and numbers has"),
        ({"metric": "macro_f1"}, "metric = 'macro_f1' is for classes.* choose r2, mae, rmse or"),
        ({"metric": "recall@10"}, "metric = 'recall@10' is for classes"),
    ],
)
def test_settings_of_classes_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(numbers(), quick(**settings))


@pytest.mark.parametrize("settings", [{"metric": "r2"}, {"loss": "huber"}, {"loss": "mse"}])
def test_settings_of_numbers_are_refused_for_classes(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(InputError, match=f"{name} = .* is for regression, and communities has cl"):
        fit(communities(), quick(**settings))


def test_equal_targets_are_refused() -> None:
    graph = numbers(labels=np.full(400, 0.1))
    with pytest.raises(InputError, match="all training nodes have the target 0.1, so there is not"):
        fit(graph, quick())


def test_a_model_that_is_worse_than_the_mean_is_said() -> None:
    noise = numbers(labels=np.random.default_rng(3).normal(size=400))
    run = fit(noise, quick(epochs=1, learning_rate=0.5, averaging=0.0))
    assert run.metrics["val_r2"] <= 0
    assert any("no better than a constant: its R² on the validation" in n
               for n in run.metrics["notes"])  # fmt: skip


def test_models_of_another_task_are_refused(tmp_path: Path) -> None:
    graph, classes = numbers(), communities(n=400)
    run = fit(graph, quick(epochs=1), run_dir=tmp_path / "run")
    same_width = numbers(labels=np.arange(400) % 3)
    with pytest.raises(InputError, match="predicts a number per node, numbers has one class per"):
        fastgcn.evaluate(run, same_width, "test")
    with pytest.raises(InputError, match="the model does not fit"):
        fit(classes, quick(epochs=1), model=run.model)
    with pytest.raises(InputError, match="predicts 1 number to predict, per node, numbers has 3"):
        from fastgcn.diagnose import diagnose

        diagnose(same_width, run.config, model=run.model)
    path = tmp_path / "run" / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"regression\\"', b'"multilabel\\"', 1))
    with pytest.raises(FormatError):
        Run.load(tmp_path / "run")


def test_diagnose_works_on_numbers() -> None:
    from fastgcn.diagnose import diagnose

    found = diagnose(numbers(), quick(samples=50, batch_size=64), targets=(0.5,))
    assert found.members


def test_what_a_graphs_labels_say() -> None:
    fields: dict[str, Any] = {"features": np.eye(4), "split": Split()}

    def of(labels: Any, **more: Any) -> Graph:
        return Graph.from_edges([0, 1], [1, 2], labels=labels, **fields, **more)

    assert of([0.5, 1.0, np.nan, 2.0]).task == "regression"
    assert of([[0.5], [1.0], [np.nan], [2.0]]).task == "regression"
    assert of([-5.0, 1.0, 2.0, 3.0]).task == "regression"
    whole = of([0.0, 1.0, np.nan, 1.0])
    assert whole.task == "classification"
    assert whole.labels is not None
    assert whole.labels.tolist() == [0, 1, -1, 1]
    forced = of([0, 1, 2, 1], task="regression")
    assert forced.regression
    assert (forced.n_classes, forced.n_outputs) == (0, 1)
    assert "a number to predict" in repr(forced)
    assert of([[0, 1]] * 4).task == "multilabel"
    assert of(None).task is None
    for labels, more, message in (
        ([np.inf, 0.5, 1, 2], {}, "must be finite, or NaN for none, but node 0 has inf"),
        ([[0.5, 1.0]] * 4, {}, "targets of a regression are one column"),
        ([0.5] * 4, {"class_names": ["a"]}, "labels must be integers"),
        ([0, 1, 0, 1], {"task": "regression", "class_names": ["a", "b"]}, "class_names are for"),
        ([0, 1, 0, 1], {"task": "ranking"}, "task must be one of classification, multilabel, reg"),
        (["a", "b", "a", "b"], {"task": "regression"}, "must be numbers, got <U1"),
    ):
        with pytest.raises(InputError, match=message):
            of(labels, **more)
    with pytest.raises(InputError, match="is in the train part of the split but has no label"):
        of([0.5, np.nan, 1, 2]).with_split(Split(train=np.array([1])))
