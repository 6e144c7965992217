"""Training where the graph is: steps, scores and predictions against the CPU's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Graph, Split, embed, fit, predict
from fastgcn.backends import choose_backend
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.backends.evaluator import Evaluator
from fastgcn.backends.gpu import why_no_kernels, why_not
from fastgcn.backends.gpu.backend import GpuBackend
from fastgcn.backends.gpu.forward import apply_to_graph
from fastgcn.backends.gpu.matrix import DeviceMatrix
from fastgcn.backends.gpu.steps import AutogradSteps
from fastgcn.errors import InputError
from fastgcn.machine import choose_device, memory_of_device
from fastgcn.model import as_gcn
from fastgcn.train.divergence import NotFiniteError
from fastgcn.train.run import RunFolder
from tests.backends.gpu.on_device import SETTINGS, place, training
from tests.backends.gpu.small import DEVICE
from tests.communities import communities
from tests.thorough import some

NETWORKS: list[dict[str, Any]] = [
    {},
    {"bias": True, "class_weight": "balanced", "weight_decay": 0.001, "drop_last": True},
    {"dropout": 0.2, "draws": "systematic"},
    {"hidden": (8, 8), "distribution": "flat", "jumping": "concat"},
    {"precompute": False, "distribution": "optimal"},
    {"distribution": "ladies", "draws": "stratified", "self_term": "exact", "skip": True,
     "norm": "layer", "input_skip": True},
    {"distribution": "ladies", "draws": "stratified", "self_term": "exact", "skip": True,
     "input_skip": True, "pair": True, "dropout": (0.2, 0.5), "bias": True},
    {"features": "host", "input_skip": True, "evaluation_graph": "joined"},
    {"features": "host", "inputs_dtype": "float16", "inductive": False},
    {"feature_scaling": "standard", "normalization": "row"},
    {"hidden": (), "batch_size": 1_000},
    {"inputs_dtype": "bfloat16", "input_skip": True, "batch_size": 1_000},
]  # fmt: skip


@pytest.mark.parametrize("changes", some(NETWORKS, every=3), ids=str)
def test_every_network_trains_and_is_judged_as_on_the_cpu(changes: dict[str, Any]) -> None:
    graph = communities()
    config = SETTINGS.replace(**changes)
    there = training(graph, config)
    before = {name: value.clone() for name, value in place(there).model.state_dict().items()}
    record = there.epoch()
    assert np.isfinite(record["train_loss"])
    after = place(there).model.state_dict()
    assert all(not torch.equal(after[f"layers.{k}.weight"], before[f"layers.{k}.weight"])
               for k in range(config.layers))  # fmt: skip
    here = Evaluator(graph, config.replace(features="auto"), graph.split.val)(
        place(there).model.cpu()
    )
    assert record["val_loss"] == pytest.approx(here.loss, rel=1e-4)
    assert record["val_micro_f1"] == pytest.approx(here.micro_f1)
    place(there).model.to(DEVICE)
    want = Evaluator(graph, config.replace(features="auto"), graph.split.test)(
        place(there).model.cpu()
    )
    place(there).model.to(DEVICE)
    test = place(there).evaluate("test", last=True)
    assert test is not None
    assert test.scores() == pytest.approx(want.scores(), rel=1e-4)


def without_some_labels(*nodes: int) -> Graph:
    """Where these are in no part of the split that must have labels."""
    plain = communities()
    labels = plain.labels
    assert labels is not None
    train = np.setdiff1d(plain.split.train, nodes)
    known = np.where(np.isin(np.arange(plain.n_nodes), nodes), -1, labels)
    return communities(labels=known, split=Split(train, plain.split.val, plain.split.test))


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.1}, {"class_weight": "balanced"}])
def test_a_node_without_a_label_can_stand_in_for_no_row(changes: dict[str, Any]) -> None:
    """Node 0 does where a batch is not full; in transductive training it may have no label."""
    there = training(without_some_labels(0), SETTINGS.replace(inductive=False, **changes))
    batches = place(there).training.batches
    assert batches.size * batches.n_steps > batches.used
    assert np.isfinite(there.epoch()["train_loss"])


def test_nodes_without_labels_are_in_the_graph_that_is_judged_on() -> None:
    graph = without_some_labels(4, 9, 14)
    assert np.isin([4, 9, 14], graph.split.test).all()
    config = SETTINGS.replace(evaluation_graph="joined")
    there = training(graph, config)
    there.epoch()
    found = place(there).evaluate("test", last=True)
    assert found is not None
    want = Evaluator(graph, config, graph.split.test)(place(there).model.cpu())
    assert found.scores() == pytest.approx(want.scores(), rel=1e-4)


def test_an_epoch_visits_every_node_once() -> None:
    there = training(communities(), SETTINGS)
    batches = place(there).training.batches
    for epoch in range(2):
        batches.shuffle(epoch)
        seen = batches.order[batches.order >= 0]
        assert torch.equal(seen.sort().values, place(there).training.data.batch_nodes.sort().values)
    first = batches.order.clone()
    batches.shuffle(0)
    assert not torch.equal(first, batches.order)
    batches.shuffle(1)
    assert torch.equal(first, batches.order), "an epoch's order is its own whenever it is begun"
    assert sum(batches.sizes) == len(seen)


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.2, "batch_size": 1_000}])
def test_a_run_goes_on_from_its_checkpoint(changes: dict[str, Any]) -> None:
    graph, config = communities(), SETTINGS.replace(**changes)
    whole = training(graph, config)
    whole.epoch()
    kept = whole.checkpoint()
    kept.tensors.update({name: value.clone() for name, value in kept.tensors.items()})
    wanted = whole.epoch()
    again = training(graph, config)
    kept.progress["history"] = [whole.history[0]]
    again.restore(kept)
    found = again.epoch()
    assert found["train_loss"] == pytest.approx(wanted["train_loss"], rel=1e-5)
    assert found["val_loss"] == pytest.approx(wanted["val_loss"], rel=1e-5)


def test_label_sets_are_trained_on() -> None:
    graph = communities(multilabel=True, weighted=True, sparse=True)
    there = training(graph, SETTINGS.replace(class_weight="balanced"))
    record = there.epoch()
    here = Evaluator(graph, SETTINGS, graph.split.val)(place(there).model.cpu())
    assert record["val_loss"] == pytest.approx(here.loss, rel=1e-4)
    assert record["val_accuracy"] == pytest.approx(here.accuracy)


@pytest.mark.parametrize("loss", ["mse", "huber"])
@pytest.mark.parametrize("changes", [{}, {"inductive": False, "metric": "loss"}])
def test_numbers_are_trained_on_by_autograd(loss: str, changes: dict[str, Any]) -> None:
    """The kernels of a fused step know classes only. Negative targets stay negative, and the row
    that stands for none, that of node 0, may have no target."""
    numbers = -5 + 7 * np.sin(np.arange(60.0)) ** 3
    numbers[0] = np.nan
    graph = communities(
        labels=numbers, class_names=None, split=Split(*np.split(np.arange(1, 58), [35, 50]))
    )
    config = SETTINGS.replace(loss=loss, batch_size=16, **changes)
    there = training(graph, config)
    backend = place(there)
    assert isinstance(backend.training.steps, AutogradSteps)
    batches = backend.training.batches
    batches.shuffle(0)
    group = batches.draw()
    rows = group.rows[group.rows >= 0].long()
    assert torch.equal(group.labels[group.rows >= 0], backend.training.data.labels[rows])
    assert float(group.labels.min()) < 0
    record = there.epoch()
    here = Evaluator(graph, config, graph.split.val)(backend.model.cpu())
    for name, value in here.scores().items():
        assert record[f"val_{name}"] == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_rows_of_a_whole_graph(layers: int) -> None:
    graph = communities()
    run = fit(graph, SETTINGS.replace(skip=True, bias=True))
    nodes = np.array([5, 3, 3, 40])
    model = run.model.to(DEVICE)
    found = apply_to_graph(as_gcn(model), graph, nodes, layers).cpu().numpy()
    if layers == 2:
        found = model.probabilities(torch.from_numpy(found)).numpy()
        want = predict(model.cpu(), graph, nodes)
    else:
        want = embed(model.cpu(), graph, nodes, layer=layers)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_rows_of_all_nodes_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = communities()
    model = fit(graph, SETTINGS).model.to(DEVICE)
    every = np.arange(graph.n_nodes)
    want = apply_to_graph(as_gcn(model), graph, every[::-1].copy(), 2).flip(0)
    monkeypatch.setattr(DeviceMatrix, "some_rows", lambda *_: pytest.fail("they are"))
    torch.testing.assert_close(apply_to_graph(as_gcn(model), graph, every, 2), want)


def test_kernels_need_triton_and_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("fastgcn.backends.gpu.which", {"clang": "/usr/bin/clang"}.get)
    assert why_no_kernels() is None
    monkeypatch.setattr("fastgcn.backends.gpu.which", lambda _: None)
    assert why_no_kernels() == "Triton finds no C compiler here (install gcc or clang, or set CC)"
    assert why_not(SETTINGS) == why_no_kernels()
    monkeypatch.setenv("CC", "tcc")
    assert why_no_kernels() is None
    monkeypatch.setattr("fastgcn.backends.gpu.find_spec", lambda _: None)
    assert why_not(SETTINGS) == "there is no Triton here"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"draws": "poisson"}, "draws = 'poisson'"),
        ({"norm": "batch"}, "norm = 'batch'"),
        ({"history": True}, "history = true"),
        ({"neighbors_only": True}, "neighbors_only = true"),
        ({"method": "gcn"}, None),
        ({"method": "gcn", "norm": "batch"}, "norm = 'batch'"),
        ({"method": "gcn-batched"}, "method = 'gcn-batched'"),
        ({"pair": True, "skip": True, "input_skip": True}, None),
    ],
)
def test_what_cannot_be_recorded_is_said(
    changes: dict[str, Any], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastgcn.backends.gpu.why_no_kernels", lambda: None)
    assert why_not(SETTINGS.replace(**changes)) == reason


def test_where_training_happens_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("fastgcn.backends.note", said.append)
    monkeypatch.setattr("fastgcn.backends.choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr("fastgcn.backends.gpu.why_no_kernels", lambda: None)
    graph = communities()
    assert isinstance(choose_backend(graph, SETTINGS), GpuBackend)
    assert said == []
    other = choose_backend(graph, SETTINGS.replace(draws="poisson"))
    assert isinstance(other, CpuBackend)
    assert said == ["sampling on the CPU, because the device cannot: draws = 'poisson'"]


def test_too_little_memory_is_answered_with_what_to_lower() -> None:
    for error in (torch.OutOfMemoryError(), RuntimeError("CUDA error: out of memory")):
        with pytest.raises(InputError, match="--features host"), memory_of_device():
            raise error
    with pytest.raises(RuntimeError, match="something else"), memory_of_device():
        raise RuntimeError("something else")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, in Triton's interpreter
def test_a_loss_that_is_not_finite_stops_a_training_on_the_device() -> None:
    there = training(communities(), SETTINGS.replace(learning_rate=1e30))
    with pytest.raises(NotFiniteError, match="the loss is|a weight is not finite|the validation"):
        there.epoch()
    assert there.history == []
    assert there.best == {}


def test_a_device_beyond_those_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match="cuda:2 is not available: .* from 0 to 1"):
        choose_device("cuda:2")


def test_a_run_of_a_gpu_goes_on_where_dropout_has_another_generator(tmp_path: Path) -> None:
    """A CUDA generator's state is 16 bytes, which the CPU's does not take."""
    settings = SETTINGS.replace(device="cpu", dropout=0.5, epochs=1)
    graph = communities()
    fit(graph, settings, run_dir=tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    checkpoint = folder.load_checkpoint()
    assert checkpoint is not None
    checkpoint.tensors["dropout_rng"] = torch.zeros(16, dtype=torch.uint8)
    backend = ready(graph, settings.replace(epochs=2))
    backend.restore(checkpoint.tensors, 1)
    assert np.isfinite(backend.train_epoch(1).loss)
