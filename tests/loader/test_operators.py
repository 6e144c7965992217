"""Every operator of the page: exact where nothing is drawn, right on average where it is."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.utils import add_self_loops

import fastgcn
from fastgcn import Graph, LayerBatch, LayerLoader, convolve
from fastgcn.errors import InputError
from tests.loader.networks import OPERATORS, Net, operator


@pytest.fixture(scope="module")
def cora(real_data: Path) -> Graph:  # noqa: ARG001
    return fastgcn.load("cora")


@pytest.fixture(scope="module")
def small() -> Graph:
    """300 nodes, four of them alone, with a hub."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 296, (2, 900))
    source[:60] = 0
    return Graph.from_edges(
        source,
        target,
        features=rng.normal(size=(300, 6)),
        labels=rng.integers(0, 3, 300),
        split=fastgcn.Split(train=np.arange(200), val=np.arange(200, 300)),
    )


def whole_graph(name: str, net: Net, graph: Graph, conv: nn.Module, x: Tensor) -> Tensor:
    """The operator on the whole graph, as PyG runs it."""
    data = graph.to_pyg()
    ends, nodes = data.edge_index, torch.arange(graph.n_nodes)
    if name == "GCNConv":
        with_norm = copy.deepcopy(conv)
        with_norm.normalize = with_norm.add_self_loops = True  # type: ignore[assignment]
        return with_norm(x, ends)  # type: ignore[no-any-return]
    if name.startswith("GAT"):
        ends = add_self_loops(ends, num_nodes=graph.n_nodes)[0]
    return conv(x, ends, **net.further(conv, nodes, nodes, ends))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "torch"])
def test_without_sampling_an_operator_is_that_of_the_whole_graph(name: str, small: Graph) -> None:
    net = Net(name, small).eval()
    loader = LayerLoader(
        small, (1, 1), 70, sampler="full", nodes="all", shuffle=False, **OPERATORS[name]
    )
    with torch.no_grad():
        h = x = torch.from_numpy(np.asarray(small.features))
        for number, conv in enumerate(net.convs):
            h = whole_graph(name, net, small, conv, h)
            h = h.relu() if number == 0 else h
        batches = torch.cat([net(batch.x, batch.blocks) for batch in loader])
    inferred = loader.infer(net.layer)
    assert len(x) == 300
    assert torch.allclose(batches, h, atol=2e-5)
    assert torch.allclose(inferred, h, atol=2e-5)
    assert torch.allclose(loader.infer(net.layer, batch_size=17), h, atol=2e-5)
    assert torch.allclose(loader.infer(net.layer, nodes="val"), h[200:], atol=2e-5)


def errors(name: str, graph: Graph, t: int, repetitions: int) -> tuple[Tensor, Tensor]:
    """(300, 4) each: the mean of a sampled layer less the exact one, and that mean's error."""
    torch.manual_seed(1)
    conv, net = operator(name, 6, 4).eval(), Net(name, graph)
    options = {"nodes": "all", "shuffle": False, "num_workers": 0, **OPERATORS[name]}
    exact = LayerLoader(graph, (1,), 300, sampler="full", **options)
    drawn = LayerLoader(graph, (t,), 300, **options)

    def apply(batch: LayerBatch) -> Tensor:
        (block,) = batch.blocks
        if name == "torch":
            return conv(batch.x, block)  # type: ignore[no-any-return]
        further = net.further(conv, block.src, block.dst, block.edge_index)
        return convolve(conv, batch.x, block, **further)

    with torch.no_grad():
        (wanted,) = [apply(batch) for batch in exact]
        found = torch.stack([apply(b) for _ in range(repetitions) for b in drawn]).double()
    return found.mean(0) - wanted, found.std(0) / repetitions**0.5


@pytest.mark.parametrize("name", [name for name in OPERATORS if not name.startswith("GAT")])
def test_a_sampled_sum_or_mean_is_unbiased(name: str, small: Graph) -> None:
    error, noise = errors(name, small, t=150, repetitions=100)
    # 1,200 entries: the largest exceeds 6 once in 400,000 fair samplers.
    assert float((error / noise.clamp_min(1e-6)).abs().max()) < 6


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_the_bias_of_a_sampled_attention_falls_with_the_samples(name: str, small: Graph) -> None:
    few, many = (errors(name, small, t, 60)[0].abs().mean() for t in (100, 1600))
    assert float(many) < 0.25 * float(few)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_network_of_the_operator_learns_cora(name: str, cora: Graph) -> None:
    net = Net(name, cora)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    loader = LayerLoader(cora, (400, 400), 256, **OPERATORS[name])
    for _ in range(4):
        for batch in loader:
            assert batch.y is not None
            loss = nn.functional.cross_entropy(net(batch.x, batch.blocks), batch.y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    logits = loader.infer(net.layer, nodes="val")
    known = torch.from_numpy(np.asarray(cora.labels)[cora.split.val])
    assert float((logits.argmax(1) == known).float().mean()) > 0.7
    assert net.training


def test_a_mean_of_edges_alone_is_biased_and_the_weighted_one_is_not(small: Graph) -> None:
    """What the weights are for: PyG's mean over drawn neighbours is off by many errors."""
    conv = pyg.SAGEConv(6, 4).eval()
    options: dict[str, Any] = {"nodes": "all", "shuffle": False, "normalization": "neighbors"}
    with torch.no_grad():
        (all_of_it,) = LayerLoader(small, (1,), 300, sampler="full", **options)
        wanted = convolve(conv, all_of_it.x, all_of_it.blocks[0])
        plain, weighted = [], []
        loader = LayerLoader(small, (60,), 300, sampler="importance", **options)
        for _ in range(150):
            (batch,) = loader
            (block,) = batch.blocks
            own = block.own(batch.x)
            plain.append(conv((batch.x, own), block.edge_index, size=block.size))
            weighted.append(convolve(conv, batch.x, block))

    def worst(found: list[Tensor]) -> float:
        each = torch.stack(found).double()
        noise = each.std(0) / len(found) ** 0.5
        return float(((each.mean(0) - wanted) / noise.clamp_min(1e-6)).abs().max())

    assert worst(weighted) < 6 < worst(plain)


@pytest.mark.parametrize(
    ("conv", "options", "message"),
    [
        (pyg.GATConv(6, 4), {}, "add_self_loops=False"),
        (pyg.GATConv(6, 4, add_self_loops=False), {}, "normalization='none', self_loops=True"),
        (pyg.GCNConv(6, 4), {}, "normalize=False"),
        (pyg.SAGEConv(6, 4), {}, "normalization='neighbors'"),
        (pyg.SAGEConv(6, 4, aggr="max"), {"normalization": "neighbors"}, "aggr='mean' or 'sum'"),
        (pyg.TransformerConv(6, 4), {}, "TransformerConv cannot take the weights"),
        (nn.Linear(6, 4), {}, "block.mix"),
        (pyg.SAGEConv(6, 4).to("meta"), {"normalization": "neighbors"}, "device='meta'"),
    ],
)
def test_an_operator_that_would_be_wrong_is_refused(
    small: Graph, conv: nn.Module, options: dict[str, Any], message: str
) -> None:
    batch = next(iter(LayerLoader(small, (50,), **options)))
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        convolve(conv, batch.x, batch.blocks[0])


def test_any_operator_runs_on_all_neighbours(small: Graph) -> None:
    torch.manual_seed(0)
    ends = small.to_pyg().edge_index
    x = torch.from_numpy(np.asarray(small.features))
    loader = LayerLoader(small, (1,), sampler="full", normalization="none")
    for conv in (pyg.TransformerConv(6, 4), pyg.SAGEConv(6, 4, aggr="max")):
        found = loader.infer([lambda h, block, conv=conv: convolve(conv, h, block)])
        assert torch.allclose(found, conv(x, ends), atol=2e-5)


def test_dropout_of_an_attention_comes_after_its_weights(small: Graph) -> None:
    conv = pyg.GATConv(6, 4, dropout=0.5, add_self_loops=False).train()
    loader = LayerLoader(
        small, (1,), 300, sampler="full", nodes="all", shuffle=False, normalization="none",
        self_loops=True,
    )  # fmt: skip
    (batch,) = loader
    with torch.no_grad():
        found = [convolve(conv, batch.x, batch.blocks[0]) for _ in range(200)]
        wanted = convolve(conv.eval(), batch.x, batch.blocks[0])
    each = torch.stack(found).double()
    noise = each.std(0) / len(found) ** 0.5
    assert float(((each.mean(0) - wanted) / noise.clamp_min(1e-6)).abs().max()) < 6
    assert conv.dropout == 0.5
