"""What a sampled block looks like: folded draws, empty columns, both layouts, any numbering."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgcn.samplers.layer
from fastgcn import Adjacency, FullSampler, Graph, LayerSampler, normalize, subgraph
from fastgcn.errors import InputError
from fastgcn.models import GCN
from tests.proofs.enumeration import (
    DISTRIBUTIONS,
    dense,
    points_of,
    scattered,
    scripted,
    tiny_graphs,
)
from tests.strategies import graphs

GRAPHS = tiny_graphs()
BATCH = torch.tensor([2, 0, 2])


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def full(adjacency: Adjacency, batch: torch.Tensor) -> Any:
    (block,) = FullSampler(adjacency, 1).sample(batch)
    return scattered(block, adjacency.n)


def test_repeated_draws_are_folded_into_one_column() -> None:
    """u drawn k times is one column of weight k/(t·q(u)) (eq. 10)."""
    sampler = LayerSampler(GRAPHS["weighted"], [5])
    q = sampler.probabilities()
    with scripted() as script:
        (block,) = script.run(sampler, BATCH, [points_of(q, [3, 0, 3, 3, 0])])
    assert block.src.tolist() == [0, 3]
    weight = np.array([2, 0, 0, 3]) / (5 * q)
    expected = dense(GRAPHS["weighted"])[BATCH.numpy()] * weight
    np.testing.assert_allclose(scattered(block, 4), expected, rtol=1e-6)


def test_each_layer_has_its_own_size_and_law() -> None:
    """Both are listed from the input up: blocks[0] is drawn by the first of each."""
    sampler = LayerSampler(GRAPHS["weighted"], [1, 3], distribution="optimal")
    sampler.set_row_norms([np.array([0, 0, 1, 0]), np.array([0, 1, 0, 0])])
    with scripted() as script:
        blocks = script.run(sampler, BATCH, [np.full(3, 0.5), np.full(1, 0.5)])
    assert [block.src.tolist() for block in blocks] == [[2], [1]]
    assert [int(sampler.probabilities(layer).argmax()) for layer in (0, 1)] == [2, 1]


@pytest.mark.parametrize("distribution", ["importance", "flat", "optimal"])
@pytest.mark.parametrize("replacement", [True, False])
def test_a_zero_column_is_never_drawn(distribution: Any, replacement: bool) -> None:
    """Nothing points to vertex 0 of this graph, so that its q is zero and it is not missed."""
    adjacency = GRAPHS["no loops"]
    sampler = LayerSampler(adjacency, [4], distribution=distribution, replacement=replacement)
    assert sampler.probabilities()[0] == 0
    for seed in range(50):
        (block,) = sampler.sample(BATCH, rng(seed))
        assert 0 not in block.src.tolist()
    if not replacement:  # all that can be drawn are, each with weight one
        np.testing.assert_array_equal(scattered(block, 4), full(adjacency, BATCH))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_more_samples_than_vertices(distribution: Any) -> None:
    """t > n is an ordinary draw with replacement; among neighbours without, it takes them all."""
    adjacency = GRAPHS["undirected"]
    (block,) = LayerSampler(adjacency, [1000], distribution=distribution).sample(BATCH, rng())
    assert len(block.src) == len(set(block.src.tolist())) <= adjacency.n
    everyone = LayerSampler(
        adjacency, [1000], distribution=distribution, replacement=False, neighbors_only=True
    )
    (block,) = everyone.sample(BATCH, rng())
    np.testing.assert_array_equal(scattered(block, 4), full(adjacency, BATCH))


def test_more_distinct_samples_than_vertices_are_refused() -> None:
    with pytest.raises(InputError, match="at most the 4 nodes"):
        LayerSampler(GRAPHS["undirected"], [5], replacement=False)


@settings(deadline=None, max_examples=40)
@given(graphs(), st.integers(1, 9), st.integers(0, 99), st.booleans())
def test_sparse_and_dense_blocks_are_equal(
    graph: Graph, t: int, seed: int, neighbors_only: bool
) -> None:
    sampler = LayerSampler(normalize(graph), [t, t], neighbors_only=neighbors_only)
    batch = torch.arange(graph.n_nodes)
    as_dense = sampler.sample(batch, rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastgcn.samplers.layer, "DENSE_ENTRIES", -1)
        as_sparse = sampler.sample(batch, rng(seed))
    for one, other in zip(as_dense, as_sparse, strict=True):
        assert (one.adj.layout, other.adj.layout) == (torch.strided, torch.sparse_csr)
        assert torch.equal(one.adj, other.adj.to_dense())
        assert torch.equal(one.src, other.src)
        assert one.empty_rows == other.empty_rows


@settings(deadline=None, max_examples=40)
@given(graphs(), st.data())
def test_renumbering_the_nodes_renumbers_the_block(graph: Graph, data: st.DataObject) -> None:
    """The same draws under another numbering give the same block under that numbering."""
    n = graph.n_nodes
    order = np.array(data.draw(st.permutations(range(n)), label="new order"))
    distribution: Any = data.draw(st.sampled_from(DISTRIBUTIONS), label="distribution")
    replacement = data.draw(st.booleans(), label="replacement")
    t = data.draw(st.integers(1, n), label="t")
    x = np.random.default_rng(0).uniform(0.5, 2, n)
    old = LayerSampler(normalize(graph), [t], distribution=distribution, replacement=replacement)
    new = LayerSampler(
        normalize(subgraph(graph, order)), [t], distribution=distribution, replacement=replacement
    )
    old.set_row_norms([x])
    new.set_row_norms([x[order]])
    np.testing.assert_allclose(new.probabilities(), old.probabilities()[order], rtol=1e-6)
    with scripted() as script:
        if replacement:
            drawn = data.draw(st.lists(st.integers(0, n - 1), min_size=t, max_size=t))
            place = np.argsort(order)[drawn]
            points = points_of(old.probabilities(), drawn)
            renumbered = points_of(new.probabilities(), place)
        else:
            points = np.random.default_rng(t).uniform(size=n)
            renumbered = points[order]
        (before,) = script.run(old, torch.arange(n), [points])
        (after,) = script.run(new, torch.arange(n), [renumbered])
    expected = scattered(before, n)[np.ix_(order, order)]
    np.testing.assert_allclose(scattered(after, n), expected, rtol=1e-5, atol=1e-7)


@settings(deadline=None, max_examples=15)
@given(graphs(), st.data())
def test_renumbering_the_nodes_renumbers_the_network(graph: Graph, data: st.DataObject) -> None:
    """Two layers over whole neighbourhoods: the outputs move with their nodes."""
    n = graph.n_nodes
    order = torch.tensor(data.draw(st.permutations(range(n)), label="new order"))
    model = GCN([3, 4, 2], rng=rng())

    def outputs(g: Graph) -> torch.Tensor:
        blocks = FullSampler(normalize(g), 2).sample(torch.arange(n))
        features = torch.from_numpy(np.asarray(g.features))
        result: torch.Tensor = model(blocks, features[blocks[0].src])
        return result.detach()

    renumbered = outputs(subgraph(graph, order.numpy()))
    torch.testing.assert_close(renumbered, outputs(graph)[order], rtol=1e-4, atol=1e-5)


def test_either_kind_of_generator_will_do() -> None:
    """A seeded generator of torch or of numpy; the same one twice gives the same block."""
    graph = Graph.from_edges(range(9), range(1, 10), features=np.zeros((10, 1)))
    sampler = LayerSampler(normalize(graph), [4])
    batch = torch.arange(10)
    for make in (torch.Generator().manual_seed, np.random.default_rng):
        (first,), (again,) = (sampler.sample(batch, make(5)) for _ in range(2))
        assert torch.equal(first.adj, again.adj)
        assert torch.equal(first.src, again.src)
