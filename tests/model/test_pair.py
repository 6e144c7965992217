"""Two networks in one: their mean is the model, and nothing joins them."""

from typing import Any

import pytest
import torch

from fastgcn import Graph, TrainConfig, fit, predict
from fastgcn.backends.cpu import ready
from fastgcn.errors import InputError
from fastgcn.model import GCN, as_gcn
from tests.communities import communities, quick

PAIR: dict[str, Any] = {"pair": True, "skip": True, "input_skip": True}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": 8, "bias": True},
        {"hidden": (8, 6)},
        {"hidden": 8, "precompute": False, "bias": True},
        {"hidden": 8, "method": "gcn"},
        {"hidden": 8, "method": "gcn", "precompute": False, "bias": True},
    ],
    ids=["sampled", "deep", "nothing precomputed", "full pass", "full pass of X"],
)
def test_the_model_is_the_mean_of_both_networks(settings: dict[str, Any], sparse: bool) -> None:
    graph = communities(sparse=sparse)
    config = quick(**PAIR, **settings)
    backend = ready(graph, config)
    minibatches = backend.minibatches
    for batch in minibatches.singly(minibatches.shuffled()):
        one = backend.model(batch.blocks, batch.x)
        first, second = backend.model.member_logits(batch.blocks, batch.x)
        assert not torch.allclose(first, second)
        torch.testing.assert_close((first + second) / 2, one)
    assert_separate(as_gcn(fit(graph, config).model))


def assert_separate(model: GCN) -> None:
    """No weight joins the halves, and only the first half has own rows."""
    for number, layer in enumerate(model.convolutions):
        n_in, n_out = (width // 2 for width in layer.weight.shape)
        assert layer.own_weight is not None
        own, weight = layer.own_weight, layer.weight
        last = number == len(model.convolutions) - 1
        if number > 0:
            assert not own[n_in:].any()
        if not last:
            assert not own[:, n_out:].any()
        if number > 0 and not last:
            assert not weight[:n_in, n_out:].any()
            assert not weight[n_in:, :n_out].any()
        assert weight.any()


def test_each_network_starts_as_it_would_alone() -> None:
    pair = GCN([5000, 40, 3], skip=True, input_skip=True, pair=True)
    alone = GCN([5000, 20, 3], skip=True, input_skip=True)
    for mine, other, share in zip(pair.convolutions, alone.convolutions, (1, 0.5), strict=True):
        ours, theirs = mine.weight.detach(), other.weight.detach()
        ours = ours[ours != 0]
        assert float(ours.std()) == pytest.approx(share * float(theirs.std()), rel=0.2)


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_pair_learns_and_predicts(multilabel: bool) -> None:
    graph: Graph = communities(n=300, multilabel=multilabel)
    run = fit(graph, quick(**PAIR, hidden=16, epochs=30, learning_rate=0.01, method="gcn"))
    assert run.metrics["test_micro_f1"] > 0.9
    assert predict(run, graph).shape == (300, 3)


@pytest.mark.parametrize(
    ("settings", "need"),
    [
        ({"skip": False}, "skip = true"),
        ({"norm": "layer"}, "norm = 'none'"),
        ({"hidden": 7}, "even hidden widths"),
        ({"hidden": ()}, "even hidden widths"),
        ({"jumping": "max"}, "jumping = 'none'"),
    ],
)
def test_what_a_pair_needs(settings: dict[str, Any], need: str) -> None:
    with pytest.raises(InputError, match=f"two networks in one, needs {need}"):
        TrainConfig(**(PAIR | settings)).complete()
