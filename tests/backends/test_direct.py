"""Steps without autograd against steps by autograd."""

import copy
import math
from typing import Any

import pytest
import torch

from fastgcn.backends.base import Learner
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.backends.direct import DirectStep
from fastgcn.backends.steps import AutogradStep
from fastgcn.model import as_gcn
from tests.communities import communities, quick

OWN: dict[str, Any] = {"skip": True, "input_skip": True}
NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "own rows": OWN | {"bias": True},
    "own rows above": {"skip": True},
    "layer norm": OWN | {"norm": "layer", "bias": True},
    "deep": OWN | {"norm": "layer", "hidden": (9, 7), "bias": True},
    "pair": OWN | {"pair": True, "bias": True, "hidden": 12},
    "deep pair": OWN | {"pair": True, "hidden": (10, 6), "bias": True},
    "all in one layer": OWN | {"hidden": ()},
}
WAYS: dict[str, dict[str, Any]] = {
    "sampled": {"samples": 20, "batch_size": 30},
    "sampled, nothing precomputed": {"samples": 20, "batch_size": 30, "precompute": False},
    "full pass": {"method": "gcn"},
    "full pass of X": {"method": "gcn", "precompute": False},
}


@pytest.mark.parametrize("dropout", [0.0, (0.2, 0.5)])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_losses_and_gradients_are_those_of_autograd(
    network: dict[str, Any], way: dict[str, Any], sparse: bool, dropout: Any
) -> None:
    if network.get("hidden") == () and dropout:
        dropout = 0.3
    settings = {"hidden": 8, "dropout": dropout, "weight_decay": 1e-3, "weight_decay_on": "all"}
    config = quick(**(settings | network | way))
    backend = ready(communities(sparse=sparse), config)
    batch = next(iter(backend.minibatches.singly(backend.minibatches.shuffled())))
    found = {}
    for kind in (AutogradStep, DirectStep):
        learner = Learner(copy.deepcopy(backend.model), config, torch.device("cpu"))
        step = kind(as_gcn(learner.model), backend.loss, learner.optimizer)
        losses = [step(batch.blocks, batch.x, batch.labels) for _ in range(3)]
        # The first moment after one step is a tenth of the gradient: Adam hides its size.
        found[kind] = losses, learner.state()
    (first, by_autograd), (second, directly) = found.values()
    assert first == pytest.approx(second, rel=1e-5)
    assert by_autograd.keys() == directly.keys()
    assert any(name.startswith("adam.") for name in directly)
    for name, value in by_autograd.items():
        scale = float(value.double().abs().max()) if value.numel() else 0.0
        torch.testing.assert_close(directly[name], value, rtol=1e-4, atol=1e-5 * scale + 1e-12)


@pytest.mark.parametrize("multilabel", [False, True])
def test_class_weights_and_label_sets(multilabel: bool) -> None:
    graph = communities(multilabel=multilabel)
    weight = "none" if multilabel else "balanced"
    config = quick(**OWN, hidden=8, method="gcn", class_weight=weight)
    losses = []
    for kind in (AutogradStep, DirectStep):
        backend = ready(graph, config)
        backend.step = kind(as_gcn(backend.model), backend.loss, backend.learner.optimizer)
        losses.append([backend.train_epoch(number).loss for number in range(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][0] > losses[0][-1]


def test_the_default_network_takes_this_step() -> None:
    backend = ready(communities(), quick(**OWN, norm="layer", hidden=8, method="gcn"))
    assert isinstance(backend, CpuBackend)
    assert isinstance(backend.step, DirectStep)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_numbers_that_are_not_finite_are_not_hidden(norm: str) -> None:
    """A ReLU that makes NaN zero would hide a training that diverges."""
    backend = ready(communities(), quick(**OWN, norm=norm, hidden=8, method="gcn"))
    with torch.no_grad():
        as_gcn(backend.model).convolutions[0].weight[0, 0] = torch.nan
    assert math.isnan(backend.train_epoch(0).loss)
