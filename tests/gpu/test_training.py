"""Training where the graph is: steps, scores and predictions against the CPU's."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Graph, TrainConfig, embed, fit, predict
from fastgcn.errors import InputError
from fastgcn.gpu import why_not
from fastgcn.gpu.data import features_fit
from fastgcn.gpu.forward import apply_to_graph
from fastgcn.gpu.steps import AutogradSteps, FusedSteps, _Parameters
from fastgcn.gpu.workshop import OnDevice
from fastgcn.judge import Judge
from fastgcn.machine import memory_of_device
from fastgcn.trainer import Trainer
from fastgcn.workshop import OneProcess, choose_workshop
from tests.communities import communities
from tests.gpu.small import DEVICE

SETTINGS = TrainConfig(
    hidden=8, samples=12, batch_size=24, epochs=2, products="float32", device="cpu"
)


def trainer(graph: Graph, config: TrainConfig) -> Trainer:
    return Trainer(graph, config, None, OnDevice(graph, config, DEVICE))


def place(there: Trainer) -> OnDevice:
    assert isinstance(there.workshop, OnDevice)
    return there.workshop


NETWORKS: list[dict[str, Any]] = [
    {},
    {"bias": True, "class_weight": "balanced", "weight_decay": 0.001, "drop_last": True},
    {"dropout": 0.2, "draws": "systematic"},
    {"hidden": (8, 8), "distribution": "flat", "jumping": "concat"},
    {"precompute": False, "distribution": "optimal"},
    {"distribution": "ladies", "draws": "stratified", "self_term": "exact", "skip": True,
     "norm": "layer", "input_skip": True},
    {"features": "host", "input_skip": True, "evaluation_graph": "joined"},
    {"features": "host", "inputs_dtype": "float16", "inductive": False},
    {"feature_scaling": "standard", "normalization": "row"},
]  # fmt: skip


@pytest.mark.parametrize("changes", NETWORKS, ids=[str(number) for number in range(len(NETWORKS))])
def test_every_network_trains_and_is_judged_as_on_the_cpu(changes: dict[str, Any]) -> None:
    graph = communities()
    config = SETTINGS.replace(**changes)
    there = trainer(graph, config)
    before = {name: value.clone() for name, value in there.model.state_dict().items()}
    record = there.epoch()
    assert np.isfinite(record["train_loss"])
    after = there.model.state_dict()
    assert all(not torch.equal(after[f"layers.{k}.weight"], before[f"layers.{k}.weight"])
               for k in range(config.layers))  # fmt: skip
    here = Judge(graph, config.replace(features="auto"), graph.split.val)(there.model.cpu())
    assert record["val_loss"] == pytest.approx(here.loss, rel=1e-4)
    assert record["val_micro_f1"] == pytest.approx(here.micro_f1)
    there.model.to(DEVICE)
    test = there.workshop.judge("test", once=True)
    assert test is not None
    want = Judge(graph, config.replace(features="auto"), graph.split.test)(there.model.cpu())
    assert test(there.model.to(DEVICE)).scores() == pytest.approx(want.scores(), rel=1e-4)


def test_fused_steps_are_those_of_autograd() -> None:
    graph = communities()
    kinds = []
    for kind in (FusedSteps, AutogradSteps):
        there = trainer(graph, SETTINGS.replace(bias=True))
        parameters = _Parameters(there.model, there.optimizer)
        group = place(there).group
        group.shuffle(0)
        if kind is FusedSteps:
            kind(there.model, parameters, place(there).device_data, group, "ieee").run()
        else:
            data = place(there).device_data
            AutogradSteps(there.model, there.loss, parameters, data, group, there.dropout_rng).run()
        kinds.append((there.model.state_dict(), group.losses.clone(), parameters.steps))
    (fused, losses, steps), (plain, others, count) = kinds
    assert steps == count == len(losses.view(-1))
    torch.testing.assert_close(losses, others, rtol=1e-4, atol=1e-5)
    for name, value in fused.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-3, atol=1e-5)


def test_an_epoch_visits_every_node_once() -> None:
    there = trainer(communities(), SETTINGS)
    group = place(there).group
    for epoch in range(2):
        group.shuffle(epoch)
        seen = group.order[group.order >= 0]
        assert torch.equal(seen.sort().values, place(there).device_data.batch_nodes.sort().values)
    first = group.order.clone()
    group.shuffle(0)
    assert not torch.equal(first, group.order)
    group.shuffle(1)
    assert torch.equal(first, group.order), "an epoch's order is its own whenever it is begun"
    assert sum(group.sizes) == len(seen)


def test_a_run_goes_on_from_its_checkpoint() -> None:
    graph = communities()
    whole = trainer(graph, SETTINGS)
    whole.epoch()
    kept = whole.checkpoint()
    kept.tensors.update({name: value.clone() for name, value in kept.tensors.items()})
    wanted = whole.epoch()
    again = trainer(graph, SETTINGS)
    again.restore(kept, [whole.history[0]])
    found = again.epoch()
    assert found["train_loss"] == pytest.approx(wanted["train_loss"], rel=1e-5)
    assert found["val_loss"] == pytest.approx(wanted["val_loss"], rel=1e-5)


def test_label_sets_are_trained_on() -> None:
    graph = communities(multilabel=True, weighted=True, sparse=True)
    there = trainer(graph, SETTINGS.replace(class_weight="balanced"))
    record = there.epoch()
    here = Judge(graph, SETTINGS, graph.split.val)(there.model.cpu())
    assert record["val_loss"] == pytest.approx(here.loss, rel=1e-4)
    assert record["val_accuracy"] == pytest.approx(here.accuracy)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_rows_of_a_whole_graph(layers: int) -> None:
    graph = communities()
    run = fit(graph, SETTINGS.replace(skip=True, bias=True))
    nodes = np.array([5, 3, 3, 40])
    model = run.model.to(DEVICE)
    found = apply_to_graph(model, graph, nodes, layers).cpu().numpy()
    if layers == 2:
        found = torch.softmax(torch.from_numpy(found), 1).numpy()
        want = predict(model.cpu(), graph, nodes)
    else:
        want = embed(model.cpu(), graph, nodes, layer=layers)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"draws": "poisson"}, "draws = 'poisson'"),
        ({"norm": "batch"}, "norm = 'batch'"),
        ({"history": True}, "history = true"),
        ({"neighbors_only": True}, "neighbors_only = true"),
        ({"method": "gcn"}, "method = 'gcn'"),
    ],
)
def test_what_cannot_be_recorded_is_said(changes: dict[str, Any], reason: str | None) -> None:
    assert why_not(SETTINGS.replace(**changes)) == reason


def test_where_training_happens_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("fastgcn.workshop.note", said.append)
    monkeypatch.setattr("fastgcn.workshop.choose_device", lambda _: torch.device("cuda"))
    graph = communities()
    assert isinstance(choose_workshop(graph, SETTINGS, None), OnDevice)
    assert said == []
    other = choose_workshop(graph, SETTINGS.replace(draws="poisson"), None)
    assert isinstance(other, OneProcess)
    assert said == ["sampling on the CPU, for the device cannot: draws = 'poisson'"]


def test_too_little_memory_is_answered_with_what_to_lower() -> None:
    with pytest.raises(InputError, match="--features host"), memory_of_device():
        raise torch.OutOfMemoryError


def test_features_that_do_not_fit_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("fastgcn.gpu.data.note", said.append)
    graph, cuda = communities(), torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10_000, 10_000))
    assert not features_fit(graph, SETTINGS, cuda)
    assert said[0].startswith("the features stay in the host's memory")
    assert features_fit(graph, SETTINGS.replace(features="device"), cuda)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 40, 1 << 40))
    assert features_fit(graph, SETTINGS, cuda)
    assert said[1].startswith("the features are on the device")
    assert not features_fit(graph, SETTINGS.replace(features="host"), cuda)


@pytest.mark.parametrize("features", ["device", "host"])
def test_numbers_that_half_precision_lacks_are_refused(features: str) -> None:
    graph = communities()
    large = dataclasses.replace(graph, features=graph.features * 1e6)
    config = SETTINGS.replace(inputs_dtype="float16", features=features)
    with pytest.raises(InputError, match="holds numbers up to 65,504"):
        trainer(large, config)
