"""GraphSAGE's neighbour sampling: a kernel against its plain reference, and an unbiased mean."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fastgcn import Graph, normalize
from fastgcn.arrays import IntArray
from fastgcn.kernels.counter_random import sample_neighbors
from fastgcn.model import GraphConvolution
from fastgcn.sampling import FullSampler
from fastgcn.sampling.neighborhood import NeighborSampler
from fastgcn.train.presets import graphsage
from tests.strategies import graphs

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def reference(graph: Graph, rows: list[int], k: int, seed: int) -> list[list[int]]:
    """What `sample_neighbors` does, in plain Python."""
    table = []
    for i, v in enumerate(rows):
        neighbors = graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()
        degree, state, drawn = len(neighbors), mix((seed + GOLDEN * (i + 1)) & MASK), []
        for j in range(k):
            if degree == 0:
                drawn.append(-1)
            elif degree <= k and j < degree:
                drawn.append(neighbors[j])
            else:
                state = (state + GOLDEN) & MASK
                bits = mix(state) >> 32
                if degree <= k:
                    drawn.append(neighbors[bits * degree >> 32])
                else:
                    top = degree - k + j
                    pick = neighbors[bits * (top + 1) >> 32]
                    drawn.append(neighbors[top] if pick in drawn else pick)
        table.append(drawn)
    return table


def kernel(graph: Graph, rows: list[int], k: int, seed: int) -> IntArray:
    out = np.empty((len(rows), k), dtype=np.int64)
    nodes = np.array(rows, dtype=np.int64)
    sample_neighbors(graph.indptr, graph.indices, nodes, k, seed, out)
    return out


@given(graphs(), st.data())
def test_the_kernel_is_its_reference(graph: Graph, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, graph.n_nodes - 1), min_size=1, max_size=9))
    k, seed = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2**62))
    assert kernel(graph, rows, k, seed).tolist() == reference(graph, rows, k, seed)


def test_the_number_of_threads_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    star = Graph.from_edges(np.zeros(50, int), np.arange(1, 51), features=np.zeros((51, 1)))
    rows = [0] * 64
    monkeypatch.setattr("fastgcn.kernels.counter_random._WORTH_SHARING", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = kernel(star, rows, 7, 5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    np.testing.assert_array_equal(kernel(star, rows, 7, 5), alone)


def test_every_neighbour_is_as_likely_as_any_other() -> None:
    """A hub of degree 12, 3 neighbours at a time; a false alarm in a million seeds."""
    star = Graph.from_edges(np.zeros(12, int), np.arange(1, 13), features=np.zeros((13, 1)))
    drawn = kernel(star, [0] * 20_000, 3, 1)
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    assert chisquare(np.bincount(drawn.reshape(-1))[1:]).pvalue > 1e-6


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("k", [2, 4, 9])
def test_the_mean_is_unbiased(include_self: bool, k: int) -> None:
    """The mean of many blocks is the row mean of Â, for rows shorter and longer than k.

    Without the node itself exactly so; with it, among 1 + k that are averaged it counts once
    whatever its degree, as in GraphSAGE. 4,000 draws; 5 standard errors are one false alarm in
    about two million entries.
    """
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 9, 30), rng.integers(0, 9, 30), features=np.zeros((10, 1))
    )
    sampler = NeighborSampler(graph.csr, [k], include_self=include_self)
    torch_rng = torch.Generator().manual_seed(3)
    mean, square, batch = np.zeros((10, 10)), np.zeros((10, 10)), torch.arange(10)
    for _ in range(4000):
        (block,) = sampler.sample(batch, torch_rng)
        dense = np.zeros((10, 10))
        dense[:, block.src.numpy()] = block.adj.to_dense().numpy()
        mean += dense / 4000
        square += dense**2 / 4000
    expected = normalize(graph, "neighbors").to_scipy().toarray()
    if include_self:
        lonely = np.diff(graph.indptr) == 0
        expected = expected * k / (k + 1) + np.eye(10) / (k + 1)
        expected[lonely] = np.eye(10)[lonely]
    error = np.sqrt(np.maximum(square - mean**2, 0) / 4000)
    assert (np.abs(mean - expected) <= 5 * error + 1e-5).all()


@given(graphs(), st.integers(0, 2**32))
def test_src_begins_with_dst(graph: Graph, seed: int) -> None:
    sampler = NeighborSampler(graph.csr, [2, 3], include_self=False)
    batch = torch.arange(graph.n_nodes).flip(0)
    blocks = sampler.sample(batch, torch.Generator().manual_seed(seed))
    assert blocks[-1].dst.tolist() == batch.tolist()
    assert blocks[0].dst.tolist() == blocks[1].src.tolist()
    for block in blocks:
        assert len(set(block.src.tolist())) == len(block.src)
        assert block.src[: len(block.dst)].tolist() == block.dst.tolist()


@pytest.mark.parametrize("include_self", [True, False], ids=["gcn", "mean"])
def test_a_layer_is_that_of_pyg(include_self: bool) -> None:
    """With fan-outs above every degree and no repeats the layer is PyG's SAGEConv, exactly."""
    conv = pytest.importorskip("torch_geometric.nn").SAGEConv
    edges = np.array([[0, 0, 0, 1, 2, 4], [1, 2, 3, 2, 3, 5]])
    graph = Graph.from_edges(*edges, features=np.random.default_rng(0).standard_normal((7, 5)))
    kind: Any = "row" if include_self else "neighbors"
    every = torch.arange(graph.n_nodes)
    (block,) = FullSampler(normalize(graph, kind), 1).sample(every)
    layer = GraphConvolution(5, 3, bias=False, rng=torch.Generator(), own=0 if include_self else 5)
    theirs = conv(5, 3, aggr="mean", root_weight=not include_self, bias=False)
    with torch.no_grad():
        theirs.lin_l.weight.copy_(layer.weight.T)
        if layer.own_weight is not None:
            theirs.lin_r.weight.copy_(layer.own_weight.T)
        sources = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
        pairs = torch.from_numpy(np.stack([graph.indices, sources]).astype(np.int64))
        if include_self:
            pairs = torch.cat([pairs, torch.stack([every, every])], dim=1)
        x = torch.from_numpy(graph.features)
        assert torch.allclose(layer(x[block.src], block), theirs(x, pairs), atol=1e-6)


def test_fanouts_count_from_the_input_up() -> None:
    """10 neighbours of a batch node and 25 of each of those, as GraphSAGE's program draws them."""
    n = 200
    source, target = np.triu_indices(n, 1)
    graph = Graph.from_edges(source, target, features=np.ones((n, 1)))
    config = graphsage("mean")
    sampler = NeighborSampler(graph.csr, config.fanouts, include_self=False)
    lower, upper = sampler.sample(torch.arange(3), torch.Generator().manual_seed(0))
    assert [len(block.edge_weight) // len(block.dst) for block in (lower, upper)] == [25, 10]
    assert torch.equal(lower.dst, upper.src)
