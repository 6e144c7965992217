"""Full passes on the device: the same losses, weights and scores as on the CPU, within rounding."""

from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Graph
from fastgcn.backends import choose_backend
from fastgcn.backends.cpu import ready
from fastgcn.backends.gpu.matrix import DeviceSparse, WholeBlock
from fastgcn.backends.gpu.steps import FullSteps
from fastgcn.errors import InputError
from fastgcn.train import race
from fastgcn.train.automatic import candidates
from tests.backends.gpu.on_device import SETTINGS, place, training
from tests.backends.gpu.small import DEVICE, matrix
from tests.communities import communities
from tests.thorough import some

FULL = SETTINGS.replace(method="gcn", bias=True, learning_rate=0.01)
OWN: dict[str, Any] = {"skip": True, "input_skip": True}


# Negative numbers too: labels of classes have none but -1.
NUMBERS = -5 + 7 * np.sin(np.arange(30.0)) ** 3


def graph_of(kind: str) -> Graph:
    more: dict[str, Any] = {"labels": NUMBERS, "class_names": None} if "numbers" in kind else {}
    return communities(
        n=30,
        sparse="sparse" in kind, multilabel="sets" in kind, directed="directed" in kind,
        weighted="weighted" in kind, **more,
    )  # fmt: skip


# The first few are enough to see that kernels, data and scores fit together.
PASSES: list[tuple[str, dict[str, Any]]] = [
    ("dense directed weighted", {**OWN, "pair": True, "feature_scaling": "standard"}),
    ("dense", {}),
    ("dense", {**OWN, "norm": "layer", "weight_decay": 0.01, "weight_decay_on": "all"}),
    ("dense", {**OWN, "inductive": False, "class_weight": "balanced"}),
    ("dense", {"precompute": False, "hidden": (8, 6), "jumping": "concat"}),
    ("dense", {"hidden": (), "inductive": False}),
    ("dense", {"inputs_dtype": "float16", "evaluation_graph": "joined"}),
    ("sparse", {**OWN, "pair": True, "precompute": False, "weight_decay": 0.01}),
    ("sparse weighted", {**OWN, "precompute": False, "feature_scaling": "row"}),
    ("sparse sets", {**OWN, "precompute": False, "inductive": False, "norm": "layer"}),
    ("sparse directed", {"precompute": False, "feature_scaling": "standard"}),
    ("sparse", {**OWN, "precompute": True}),
    ("sets", {"class_weight": "balanced"}),
    ("numbers", OWN),
    ("sparse numbers", {**OWN, "precompute": False, "inductive": False, "loss": "huber"}),
]


@pytest.mark.parametrize(("kind", "changes"), some(PASSES, every=3))
def test_full_passes_are_those_of_the_cpu(kind: str, changes: dict[str, Any]) -> None:
    graph, config = graph_of(kind), FULL.replace(**changes)
    there, here = training(graph, config), ready(graph, config)
    assert place(there).training.sampled is None
    close = 1e-3 if config.inputs_dtype == "float16" else 1e-4
    for epoch in range(2):
        record, want = there.epoch(), here.train_epoch(epoch)
        assert record["train_loss"] == pytest.approx(want.loss, rel=close)
        judged = here.evaluate("val")
        assert judged is not None
        assert record["val_loss"] == pytest.approx(judged.loss, rel=close)
        for name, value in judged.scores().items():
            assert record[f"val_{name}"] == pytest.approx(value, rel=close)
    for name, value in place(there).model.state_dict().items():
        want_value = here.model.state_dict()[name]
        torch.testing.assert_close(value.cpu(), want_value, rtol=2e-3, atol=2e-4)
    test = place(there).evaluate("test", last=True)
    assert test is not None
    assert here.evaluate("test", last=True).loss == pytest.approx(test.loss, rel=close)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_full_pass_with_dropout_learns_and_goes_on(kind: str) -> None:
    graph = graph_of(kind)
    changes = {**OWN, "pair": True, "dropout": 0.5, "precompute": kind == "dense"}
    learns = kind == "dense"  # in the interpreter, an epoch with sparse rows takes seconds
    config = FULL.replace(epochs=12 if learns else 3, learning_rate=0.05, **changes)
    whole = training(graph, config)
    first = whole.epoch()
    kept = whole.checkpoint()
    kept.tensors.update({name: value.clone() for name, value in kept.tensors.items()})
    wanted = whole.epoch()
    again = training(graph, config)
    kept.progress["history"] = [first]
    again.restore(kept)
    assert again.epoch()["train_loss"] == pytest.approx(wanted["train_loss"], rel=1e-5)
    while whole.has_more_epochs:
        last = whole.epoch()
    assert not learns or last["train_loss"] < 0.9 * first["train_loss"]
    steps = place(whole).training.steps
    assert isinstance(steps, FullSteps)
    assert steps.parameters.steps == len(whole.history)


def test_a_matrix_and_its_transpose() -> None:
    dense, small = matrix()
    block, h = WholeBlock.of(small), torch.randn(60, 5, device=DEVICE, requires_grad=True)
    g = torch.randn(60, 5, device=DEVICE)
    (found,) = torch.autograd.grad(block.mix(h), h, g)
    torch.testing.assert_close(found, dense.T @ g, rtol=1e-4, atol=1e-4)
    values = torch.rand_like(small.values)
    other = DeviceSparse(small.with_values(values))
    full = torch.zeros_like(dense)
    full[small.row.long(), small.indices.long()] = values
    torch.testing.assert_close(other @ h, full @ h, rtol=1e-4, atol=1e-4)
    (found,) = torch.autograd.grad(other @ h, h, g)
    torch.testing.assert_close(found, full.T @ g, rtol=1e-4, atol=1e-4)


def test_full_passes_need_the_features_on_the_device() -> None:
    with pytest.raises(InputError, match="need the features of communities on the GPU"):
        training(communities(), FULL.replace(features="host"))


@pytest.mark.parametrize(("sampled", "sparse"), some([(True, False), (False, True)], every=2))
def test_every_candidate_is_trained_on_the_device(
    sampled: bool, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race goes where the graph is; nothing in it is refused or done on the CPU."""
    said: list[str] = []
    monkeypatch.setattr("fastgcn.backends.choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr("fastgcn.backends.gpu.why_no_kernels", lambda: None)
    monkeypatch.setattr("fastgcn.backends.note", said.append)
    graph = communities(n=30, sparse=sparse)
    found = candidates(graph, sampled=sampled, device="cpu")
    for _, config in found:
        assert type(choose_backend(graph, config)).__name__ == "GpuBackend"
    assert said == []
    monkeypatch.undo()
    monkeypatch.setattr(race, "_FULL_ROUNDS", (1, 2, 3))
    monkeypatch.setattr(race, "_SAMPLED_ROUNDS", (1, 2, 3))
    shared: list[Any] = []

    def on_device(graph: Graph, config: Any, **given: Any) -> Any:
        shared.append(given["shared"])
        return place_of(graph, config, given["shared"])

    monkeypatch.setattr(race, "choose_backend", on_device)
    few = [each._replace(config=each.config.replace(hidden=8, samples=12) if sampled
                         else each.config.replace(hidden=8)) for each in found]  # fmt: skip
    choice = race.race(graph, few)
    assert len(choice.tried) == len(found)
    assert all(each is shared[0] for each in shared)
    assert choice.training is not None
    assert np.isfinite(choice.training.epoch()["val_loss"])


def place_of(graph: Graph, config: Any, shared: Any) -> Any:
    from fastgcn.backends.gpu.backend import GpuBackend

    return GpuBackend(graph, config, DEVICE, shared=shared)
