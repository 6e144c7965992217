"""The training loop, setting by setting."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

import fastgcn.backends.evaluator
import fastgcn.backends.exact
from fastgcn import (
    Graph,
    LayerSampler,
    authors_code,
    evaluate,
    fit,
    load,
    open_store,
    resume,
    save,
    subgraph,
)
from fastgcn.arrays import FloatArray
from fastgcn.backends.cpu import ready
from fastgcn.backends.data import make_loss
from fastgcn.backends.evaluator import Evaluator
from fastgcn.errors import InputError
from fastgcn.features.plan import Budget
from fastgcn.machine import thread_count
from fastgcn.model import Dropout, as_gcn
from fastgcn.train.training import should_stop
from tests.communities import communities, quick, weights_of, with_only_training, without_times
from tests.strategies import split_of


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Products of a few rows are not worth the threads, least of all on a busy machine."""
    with thread_count(1):
        yield


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": ()},
        {},
        {"hidden": (16, 8), "samples": (20, 30)},
        {"precompute": False},
        {"hidden": (16, 8), "precompute": False},
        {"distribution": "uniform"},
        {"distribution": "flat", "draws": "successive"},
        {"distribution": "optimal", "precompute": False},
        {"neighbors_only": True},
        {"dropout": 0.3, "bias": True},
        {"inductive": False},
        {"multilabel": True, "class_weight": "balanced"},
        {"multilabel": True, "hidden": (16, 8), "precompute": False},
    ],
    ids=str,
)
def test_it_learns(settings: dict[str, Any]) -> None:
    settings = dict(settings)
    graph = communities(multilabel=settings.pop("multilabel", False))
    run = fit(graph, quick(**({"epochs": 20, "learning_rate": 0.03, "hidden": 16} | settings)))
    assert run.history[-1]["train_loss"] < run.history[0]["train_loss"]
    assert evaluate(run, graph, range(60)).micro_f1 > 0.9


def test_digits() -> None:
    run = fit(load("digits"), quick(hidden=32, samples=100, batch_size=256, epochs=15))
    assert run.metrics["test_micro_f1"] > 0.93


SEEDED = quick(dropout=0.2, hidden=(8, 8), precompute=False)


def test_one_seed_gives_one_result() -> None:
    graph = communities()
    first, second = fit(graph, SEEDED), fit(graph, SEEDED)
    assert weights_of(first.model) == weights_of(second.model)
    assert without_times(first.metrics) == without_times(second.metrics)
    assert [*map(without_times, first.history)] == [*map(without_times, second.history)]
    other = fit(graph, SEEDED.replace(seed=1))
    assert all(
        weight != weights_of(first.model)[name] for name, weight in weights_of(other.model).items()
    )


def test_the_global_generators_are_left_alone() -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()
    fit(communities(), SEEDED)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert str(np.random.get_state()) == str(numpy_before)


def test_the_global_generators_decide_nothing() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = fit(communities(), SEEDED)
        torch.manual_seed(2)
        assert weights_of(fit(communities(), SEEDED).model) == weights_of(first.model)


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "batches"),
    [(10, False, 4), (10, True, 3), (12, True, 3), (36, True, 1), (99, True, 1), (99, False, 1)],
)
def test_batches_of_36_nodes(batch_size: int, drop_last: bool, batches: int) -> None:
    run = fit(communities(), quick(batch_size=batch_size, drop_last=drop_last, epochs=2))
    assert run.metrics["batches"] == 2 * batches


def test_every_training_node_is_in_one_batch_an_epoch() -> None:
    trainer = ready(communities(), quick(batch_size=10))
    first, second = (torch.cat([*trainer.minibatches.shuffled()]) for _ in range(2))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(36))
    assert first.tolist() != second.tolist()


def test_balanced_classes_weigh_as_in_scikit_learn() -> None:
    graph = communities()
    trainer = ready(graph, quick(class_weight="balanced"))
    assert graph.labels is not None
    labels = graph.labels[graph.split.train]
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    weights: Any = trainer.loss.weight
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert make_loss(trainer.data, graph, quick()).weight is None


def test_balanced_labels_weigh_by_how_many_nodes_lack_them() -> None:
    """Of 36 training nodes 9 have the first label, none the second, all the third."""
    labels = np.zeros((60, 3), dtype=bool)
    labels[communities().split.train[::4], 0] = True
    labels[:, 2] = True
    graph = communities(labels=labels)
    loss = ready(graph, quick(class_weight="balanced")).loss
    weights: Any = loss.pos_weight
    np.testing.assert_allclose(weights, [27 / 9, 36 / 1, 1 / 36], rtol=1e-6)


def test_dropout_zeroes_and_rescales_while_training_alone() -> None:
    """Of 10,000 entries a share p is dropped, within five standard deviations.

    The share is a multiple of 2^-16, and what is kept grows by the inverse of what is left.
    """
    dropout, ones = Dropout([0.0, 0.3]), torch.ones(100, 100)
    dropout.rng = torch.Generator().manual_seed(0)
    out = dropout(ones, 1)
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - round(0.3 * 2**16) / 2**16)])
    assert abs((out == 0).float().mean().item() - 0.3) < 5 * (0.3 * 0.7 / 10_000) ** 0.5
    assert not torch.equal(dropout(ones, 1), out)
    assert torch.equal(dropout(ones, 0), ones)
    assert torch.equal(dropout.eval()(ones, 1), ones)
    assert weights_of(fit(communities(), quick(dropout=0.5)).model) != weights_of(
        fit(communities(), quick()).model
    )


@pytest.mark.parametrize("precompute", [True, False])
def test_optimal_probabilities_follow_the_model(precompute: bool) -> None:
    """q(u) ∝ ‖Â(:,u)‖·‖H(u)W‖ under the weights at the start of the epoch (Thm 3)."""
    graph = communities()
    settings = quick(hidden=(5, 7), distribution="optimal", precompute=precompute)
    trainer = ready(graph, settings)
    trainer.train_epoch(0)
    weights = [layer.weight.detach().numpy().copy() for layer in as_gcn(trainer.model).convolutions]
    sampler = trainer.sampler
    assert isinstance(sampler, LayerSampler)
    first_q = sampler.probabilities(0).copy()
    trainer.train_epoch(1)
    adj = trainer.data.adjacency.to_scipy().toarray()
    h: FloatArray = np.asarray(graph.features)[graph.split.train]
    layers = []
    for weight in weights:
        q = np.linalg.norm(adj, axis=0) * np.linalg.norm(h @ weight, axis=1)
        layers.append(q / q.sum())
        h = np.maximum(adj @ h @ weight, 0)
    for number, expected in enumerate(layers[precompute:]):
        got = sampler.probabilities(number)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)
    assert not np.array_equal(first_q, sampler.probabilities(0))


def test_optimal_sampling_survives_rows_that_are_all_zero() -> None:
    graph = replace(communities(), features=np.zeros((60, 6)))
    trainer = ready(graph, quick(distribution="optimal", precompute=False))
    trainer.train_epoch(0)
    assert isinstance(trainer.sampler, LayerSampler)
    assert trainer.sampler.probabilities(0).sum() == pytest.approx(1)


def test_the_authors_program_judges_on_training_and_test_nodes() -> None:
    graph = communities()
    run = fit(graph, authors_code(quick()).replace(epochs=5))
    joined = np.union1d(graph.split.train, graph.split.test)
    expected = evaluate(run, subgraph(graph, joined), "test")
    assert run.metrics["test_loss"] == pytest.approx(expected.loss, rel=1e-5)
    assert run.metrics["test_micro_f1"] == expected.micro_f1
    assert run.metrics["test_loss"] != pytest.approx(evaluate(run, graph, "test").loss, rel=1e-3)


def test_the_weights_of_the_best_epoch_are_kept() -> None:
    graph = communities()
    for seed in range(20):  # the first seed that is not trivial
        settings = quick(epochs=40, learning_rate=0.1, early_stopping="none", seed=seed)
        run = fit(graph, settings)
        best = run.metrics["best_epoch"]
        if 1 < best < 40:
            break
    assert 1 < best < 40
    assert weights_of(run.model) == weights_of(fit(graph, settings.replace(epochs=best)).model)
    record = run.history[best - 1]
    assert record["epoch"] == best
    for name, value in evaluate(run, graph, "val").scores().items():
        if f"val_{name}" not in record:  # found once, of the weights kept
            continue
        assert run.metrics[f"val_{name}"] == record[f"val_{name}"]
        assert value == pytest.approx(record[f"val_{name}"], rel=1e-5)


def test_without_validation_the_last_weights_are_kept() -> None:
    graph = with_only_training(communities())
    trainer = ready(graph, quick())
    for epoch in range(3):
        trainer.train_epoch(epoch)
    run = fit(graph, quick())
    assert weights_of(run.model) == weights_of(trainer.model)
    assert run.metrics["best_epoch"] == run.metrics["epochs"] == 3
    assert not any(name.startswith(("val_", "test_")) for name in run.metrics)


def test_training_stops_when_the_rule_says_so() -> None:
    settings = quick(epochs=200, early_stopping="patience", patience=3, learning_rate=0.1)
    run = fit(communities(), settings)
    assert len(run.history) < 200
    stops = [n for n in range(1, 201) if should_stop(run.history[:n], settings)]
    assert stops[0] == len(run.history)


def test_on_epoch_sees_every_record() -> None:
    seen: list[dict[str, Any]] = []
    run = fit(communities(), quick(), callbacks=[seen.append])
    assert seen == run.history
    assert [record["epoch"] for record in seen] == [1, 2, 3]
    assert seen[0].keys() >= {"train_loss", "val_loss", "val_micro_f1", "empty_rows", "seconds"}


def test_what_does_not_fit_in_memory_is_trained_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = communities()
    usual = fit(graph, quick(hidden=(8, 8)))
    monkeypatch.setattr(Budget, "left", lambda _: 0)
    monkeypatch.chdir(tmp_path)
    from_disk = fit(graph, quick(hidden=(8, 8)))
    assert weights_of(from_disk.model) == weights_of(usual.model)
    for got, expected in zip(from_disk.history, usual.history, strict=True):
        assert got["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-5)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize("hidden", [(), 8, (8, 8)])
@pytest.mark.parametrize("input_skip", [False, True])
def test_what_judges_keep_changes_nothing(
    hidden: Any, input_skip: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, settings = communities(), quick(hidden=hidden, input_skip=input_skip)
    model = fit(graph, settings).model
    part = graph.split.val[::-1]
    in_memory = Evaluator(graph, settings, part)(model)
    once = Evaluator(graph, settings, part, once=True)(model)
    monkeypatch.setattr(fastgcn.backends.evaluator, "_KEPT_BYTES", 0)
    kept = Evaluator(graph, settings, part, folder=tmp_path)
    nowhere = Evaluator(graph, settings, part, folder=tmp_path / "missing")
    for scores in (once, kept(model), kept(model), nowhere(model)):
        assert scores.loss == pytest.approx(in_memory.loss, rel=1e-5)
        assert scores.micro_f1 == in_memory.micro_f1
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_store_trains_as_memory_does(tmp_path: Path, multilabel: bool) -> None:
    graph = communities(multilabel=multilabel, weighted=True)
    save(graph, tmp_path / "store")
    stored = fit(open_store(tmp_path / "store"), quick(precompute=False))
    usual = fit(graph, quick(precompute=False))
    assert weights_of(stored.model) == weights_of(usual.model)
    assert without_times(stored.metrics) == without_times(usual.metrics)


@pytest.mark.parametrize(
    ("graph", "settings", "message"),
    [
        (communities(), {"samples": 37}, "samples must be at most the 36 nodes of the training"),
        (
            communities(),
            {"samples": 61, "inductive": False},
            "samples must be at most the 60 nodes of the training graph, got 61",
        ),
        (communities(labels=None, split=split_of()), {}, "communities has no labels"),
        (communities(split=split_of(val=[1])), {}, "communities has no training nodes; give it"),
        (
            replace(communities(), features=np.zeros((60, 0))),
            {},
            "the nodes of communities have no features",
        ),
        pytest.param(
            communities(),
            {"device": "cuda"},
            "device cuda is not available: there is no CUDA device here; use cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device"),
        ),
    ],
)
def test_what_cannot_be_trained(
    graph: Graph, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    for run_dir in (None, tmp_path / "run"):
        with pytest.raises(InputError) as refused:
            fit(graph, quick(**settings), run_dir=run_dir)
        assert message in str(refused.value)
    assert not (tmp_path / "run").exists(), "a refused run leaves nothing behind"


def test_a_run_folder_is_not_written_over(tmp_path: Path) -> None:
    graph = communities()
    fit(graph, quick(), run_dir=tmp_path / "run")
    with pytest.raises(InputError, match="holds a run already; continue it with --resume"):
        fit(graph, quick(), run_dir=tmp_path / "run")
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="cannot be a run's folder: a file is in its place"):
            fit(graph, quick(), run_dir=place)


def test_a_run_is_not_resumed_on_other_data(tmp_path: Path) -> None:
    def stop(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(communities(), quick(), run_dir=tmp_path / "run", callbacks=[stop])
    with pytest.raises(InputError, match="was trained on other data: communities does not have"):
        resume(tmp_path / "run", communities(seed=1))
    assert len(resume(tmp_path / "run", communities()).history) == 3
