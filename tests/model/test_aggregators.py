"""Mean, sum, max and attention: equal to the textbook without sampling, and tending to it with."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor, nn

import fastgcn
from fastgcn import FullSampler, Graph, LayerSampler, Run, TrainConfig, normalize
from fastgcn.aggregators import AttentionLayer, MaxLayer
from fastgcn.errors import InputError
from fastgcn.model import as_gcn
from fastgcn.sampling.block import Block
from tests.communities import communities

GRAPH = communities(n=40)
WEIGHTED = communities(n=40, weighted=True)


def layer(kind: str, n_in: int = 6, n_out: int = 8) -> nn.Module:
    rng = torch.Generator().manual_seed(1)
    if kind == "max":
        return MaxLayer(n_in, n_out, own=True, rng=rng)
    return AttentionLayer(n_in, n_out, heads=4, own=True, rng=rng)


def whole(graph: Graph, kind: str) -> Block:
    """All rows of the graph, as the aggregator's normalisation has them."""
    adjacency = normalize(graph, "row" if kind == "attention" else "neighbors")
    (block,) = FullSampler(adjacency, 1).sample(torch.arange(graph.n_nodes))
    return block


def neighbors(graph: Graph, v: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    here = slice(graph.indptr[v], graph.indptr[v + 1])
    ids = graph.indices[here]
    return ids, np.ones(len(ids)) if graph.weights is None else graph.weights[here]


def textbook(kind: str, part: nn.Module, graph: Graph, x: np.ndarray[Any, Any]) -> Any:
    """The layer's formula, node by node."""
    w = {name: value.detach().double().numpy() for name, value in part.named_parameters()}
    rows = []
    for v in range(graph.n_nodes):
        ids, weights = neighbors(graph, v)
        if kind == "max":
            pooled = np.maximum(x[ids] @ w["pool_weight"] + w["pool_bias"], 0)
            out = pooled.max(axis=0, initial=0) @ w["weight"]
        else:
            ids, weights = np.append(ids, v), np.append(weights, 1.0)
            sent = (x[ids] @ w["source_weight"]).reshape(len(ids), 4, 2)
            asked = (x[v] @ w["query_weight"]).reshape(4, 2)
            both = sent + asked
            score = (np.where(both > 0, both, 0.2 * both) * w["attention"]).sum(axis=2)
            alpha = softmax(score + np.log(weights)[:, None], axis=0)
            out = (alpha[:, :, None] * sent).sum(axis=0).reshape(-1)
        rows.append(out + x[v] @ w["own_weight"] + w["bias"])
    return np.array(rows)


@pytest.mark.parametrize("graph", [GRAPH, WEIGHTED], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["max", "attention"])
def test_without_sampling_a_layer_is_the_textbooks(kind: str, graph: Graph) -> None:
    part, x = layer(kind), graph.features
    found = part(torch.from_numpy(x), whole(graph, kind)).detach().numpy()
    np.testing.assert_allclose(found, textbook(kind, part, graph, x), rtol=1e-5, atol=1e-5)


def test_attention_is_that_of_pyg() -> None:
    conv = pytest.importorskip("torch_geometric.nn").GATv2Conv(6, 2, heads=4, bias=True)
    part = cast(AttentionLayer, layer("attention"))
    part.own_weight = None
    with torch.no_grad():
        for linear, weight in ((conv.lin_l, part.source_weight), (conv.lin_r, part.query_weight)):
            linear.weight.copy_(weight.T)
            linear.bias.zero_()
        conv.att.copy_(part.attention[None])
    x = torch.from_numpy(GRAPH.features)
    degrees = np.diff(GRAPH.indptr)
    target = torch.from_numpy(np.repeat(np.arange(GRAPH.n_nodes), degrees))
    edges = torch.stack([torch.from_numpy(GRAPH.indices.astype(np.int64)), target])
    torch.testing.assert_close(part(x, whole(GRAPH, "attention")), conv(x, edges))


@pytest.mark.parametrize("aggregator", ["mean", "sum"])
def test_mean_and_sum_are_those_of_pyg(aggregator: str) -> None:
    sage = pytest.importorskip("torch_geometric.nn").SAGEConv
    run = fastgcn.fit(GRAPH, aggregator=aggregator, preset="fast", epochs=2, hidden=8, norm="none",
                      pair=False)  # fmt: skip
    statistics = run.model.feature_statistics
    assert statistics is not None
    h = torch.from_numpy((GRAPH.features - statistics.mean) * statistics.scale)
    target = torch.from_numpy(np.repeat(np.arange(GRAPH.n_nodes), np.diff(GRAPH.indptr)))
    edges = torch.stack([torch.from_numpy(GRAPH.indices.astype(np.int64)), target])
    with torch.no_grad():
        for number, mine in enumerate(as_gcn(run.model).convolutions):
            conv = sage(*mine.weight.shape, aggr=aggregator)
            assert mine.own_weight is not None
            assert mine.bias is not None
            conv.lin_l.weight.copy_(mine.weight.T)
            conv.lin_l.bias.copy_(mine.bias)
            conv.lin_r.weight.copy_(mine.own_weight.T)
            h = conv(h if number == 0 else torch.relu(h), edges)
        expected = run.model.predictions(h).numpy()
    np.testing.assert_allclose(fastgcn.predict(run, GRAPH), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["max", "attention"])
def test_gradients_are_those_of_small_differences(kind: str) -> None:
    part, rng = layer(kind).double(), torch.Generator().manual_seed(2)
    x = torch.randn(40, 6, generator=rng, dtype=torch.float64).requires_grad_()  # off the kinks
    block = whole(WEIGHTED, kind)
    assert torch.autograd.gradcheck(
        lambda *_: part(x, block), (x, *part.parameters()), fast_mode=True
    )


def gradient(part: nn.Module, blocks: list[Block]) -> Tensor:
    (block,) = blocks
    x = torch.from_numpy(GRAPH.features)[block.src]
    loss = part(x, block).square().mean()
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(part.parameters()))])


@pytest.mark.parametrize("kind", ["max", "attention"])
def test_the_more_are_drawn_the_nearer_the_gradient_is(kind: str) -> None:
    part = layer(kind)
    adjacency = normalize(GRAPH, "row" if kind == "attention" else "neighbors")
    batch, rng = torch.arange(0, 40, 4), torch.Generator().manual_seed(0)
    exact = gradient(part, FullSampler(adjacency, 1).sample(batch))
    errors = []
    for t in (5, 40, 4000):
        sampler = LayerSampler(adjacency, [t], own_rows=True, distribution="uniform")
        drawn = [gradient(part, sampler.sample(batch, rng)) for _ in range(30)]
        errors.append(float((torch.stack(drawn).mean(0) - exact).norm() / exact.norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def test_the_largest_of_a_sample_is_never_above_that_of_all() -> None:
    part, adjacency = cast(MaxLayer, layer("max")), normalize(GRAPH, "neighbors")
    with torch.no_grad():  # the output is then the largest entries themselves
        part.weight.copy_(torch.eye(8))
        part.own_weight = None
    batch = torch.arange(GRAPH.n_nodes)
    x = torch.from_numpy(GRAPH.features)
    everything = part(x, whole(GRAPH, "max"))
    (block,) = LayerSampler(adjacency, [10], own_rows=True).sample(batch, torch.Generator())
    some = part(x[block.src], block)
    assert bool((some <= everything + 1e-6).all())
    assert bool((some < everything - 1e-3).any())


@pytest.mark.parametrize("kind", ["max", "attention"])
@pytest.mark.parametrize("changes", [{"method": "gcn"}, {"samples": 20, "batch_size": 16}])
def test_they_learn_are_kept_and_predict_new_nodes(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"aggregator": kind, "preset": "fast", "epochs": 15}
    run = fastgcn.fit(GRAPH, run_dir=tmp_path / "run", dropout=0.2, **settings | changes)
    assert run.metrics["test_micro_f1"] > 0.5
    again = Run.load(tmp_path / "run")
    found = fastgcn.predict(run, GRAPH)
    np.testing.assert_array_equal(fastgcn.predict(again, GRAPH), found)
    # The last node, taken out and added again, is predicted as it was.
    kept = fastgcn.subgraph(GRAPH, np.arange(39))
    ids, _ = neighbors(GRAPH, 39)
    new = fastgcn.predict_new(
        run, kept, features=GRAPH.features[39:], source=np.full(len(ids), 39), target=ids
    )
    np.testing.assert_allclose(new[0], found[39], rtol=1e-4, atol=1e-6)


def test_a_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregator": "attention", "preset": "fast", "samples": 20, "batch_size": 16, "epochs": 6,
        "dropout": 0.3,
    }  # fmt: skip

    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    once = fastgcn.fit(GRAPH, **settings)
    with pytest.raises(KeyboardInterrupt):
        fastgcn.fit(GRAPH, run_dir=tmp_path / "run", callbacks=[stop], **settings)
    resumed = fastgcn.resume(tmp_path / "run", GRAPH)
    for name, value in once.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"aggregator": "sum", "normalization": "row"}, "needs normalization = 'sum'"),
        ({"aggregator": "attention", "hidden": 6}, "hidden widths that heads = 4 divides"),
        ({"aggregator": "max", "pair": True}, "needs pair = false"),
        ({"aggregator": "max", "norm": "batch"}, "needs norm = 'none' or 'layer'"),
        ({"aggregator": "max", "distribution": "optimal"}, "another distribution than 'optimal'"),
        ({"aggregator": "attention", "method": "graphsage-mean"}, "needs"),
        ({"aggregator": "pool"}, "aggregator must be"),
    ],
)
def test_what_does_not_fit_is_said(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fastgcn.fit(GRAPH, epochs=1, **settings)


def test_what_needs_convolutions_says_so() -> None:
    run = fastgcn.fit(GRAPH, aggregator="max", preset="fast", epochs=1)
    with pytest.raises(InputError, match="explain is for networks of convolutions"):
        fastgcn.explain(run, GRAPH, 0)
    with pytest.raises(InputError, match="gives logits only"):
        fastgcn.embed(run, GRAPH)
    assert not TrainConfig(aggregator="max").is_linear
