"""What a sampled block looks like: folded draws, empty columns, both layouts, any numbering."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn import Adjacency, FullSampler, Graph, LayerSampler, normalize, subgraph
from fastgcn.errors import InputError
from fastgcn.model import GCN
from fastgcn.sampling.check import check_blocks, tiny_graphs
from tests.proofs.enumeration import (
    BY_POINTS,
    DISTRIBUTIONS,
    DRAWS,
    dense,
    points_of,
    replay,
    scattered,
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
    (block,) = replay(sampler, BATCH, [points_of(q, [3, 0, 3, 3, 0])])
    assert sorted(block.src.tolist()) == [0, 3]
    weight = np.array([2, 0, 0, 3]) / (5 * q)
    expected = dense(GRAPHS["weighted"])[BATCH.numpy()] * weight
    np.testing.assert_allclose(scattered(block, 4), expected, rtol=1e-6)


def test_each_layer_has_its_own_size_and_law() -> None:
    """Both are listed from the input up: blocks[0] is drawn by the first of each."""
    sampler = LayerSampler(GRAPHS["weighted"], [1, 3], distribution="optimal")
    sampler.set_row_norms([np.array([0, 0, 1, 0]), np.array([0, 1, 0, 0])])
    blocks = replay(sampler, BATCH, [np.full(3, 0.5), np.full(1, 0.5)])
    assert [block.src.tolist() for block in blocks] == [[2], [1]]
    assert [int(sampler.probabilities(layer).argmax()) for layer in (0, 1)] == [2, 1]


@pytest.mark.parametrize("distribution", ["importance", "flat", "optimal"])
@pytest.mark.parametrize("draws", DRAWS)
def test_a_zero_column_is_never_drawn(distribution: Any, draws: Any) -> None:
    """Nothing points to vertex 0 of this graph, so that its q is zero and it is not missed."""
    adjacency = GRAPHS["no loops"]
    sampler = LayerSampler(adjacency, [4], distribution=distribution, draws=draws)
    assert sampler.probabilities()[0] == 0
    for seed in range(50):
        (block,) = sampler.sample(BATCH, rng(seed))
        assert 0 not in block.src.tolist()
    if draws in ("successive", "poisson"):  # all that can be drawn are, each with weight one
        np.testing.assert_array_equal(scattered(block, 4), full(adjacency, BATCH))


def test_vertices_that_no_row_meets_are_left_out() -> None:
    """3 is joined to nobody here: drawn for rows 0 and 2, it would be multiplied by zero."""
    sampler = LayerSampler(GRAPHS["undirected"], [2])
    (block,) = replay(sampler, BATCH, [points_of(sampler.probabilities(), [3, 0])])
    assert block.src.tolist() == [0]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_more_samples_than_vertices(distribution: Any) -> None:
    """t > n is an ordinary draw with replacement; without replacement, it takes all."""
    adjacency = GRAPHS["undirected"]
    (block,) = LayerSampler(adjacency, [1000], distribution=distribution).sample(BATCH, rng())
    assert len(block.src) == len(set(block.src.tolist())) <= adjacency.n
    for draws in ("successive", "poisson"):
        everyone = LayerSampler(
            adjacency, [1000], distribution=distribution, draws=draws, neighbors_only=True
        )
        (block,) = everyone.sample(BATCH, rng())
        np.testing.assert_array_equal(scattered(block, 4), full(adjacency, BATCH))


def test_more_distinct_samples_than_vertices_are_refused() -> None:
    with pytest.raises(InputError, match="at most the 4 nodes"):
        LayerSampler(GRAPHS["undirected"], [5], draws="successive")


@settings(deadline=None, max_examples=60)
@given(graphs(), st.data())
def test_blocks_of_any_graph_fit_the_network(graph: Graph, data: st.DataObject) -> None:
    """Whatever the options: ids, shapes and order are what the layers count on."""
    options: dict[str, Any] = {
        "distribution": data.draw(st.sampled_from([*DISTRIBUTIONS, "ladies"])),
        "draws": data.draw(st.sampled_from(DRAWS)),
        "self_term": data.draw(st.sampled_from(["sampled", "exact"])),
        "own_rows": data.draw(st.booleans()),
        "neighbors_only": data.draw(st.booleans()),
    }
    n = graph.n_nodes
    t = data.draw(st.integers(1, n))
    sampler = LayerSampler(normalize(graph), [t, t], **options)
    batch = torch.tensor(data.draw(st.permutations(range(n)))[: data.draw(st.integers(1, n))])
    blocks = sampler.sample(batch, rng(data.draw(st.integers(0, 99))))
    own_rows = options["own_rows"] or options["self_term"] == "exact"
    check_blocks(blocks, batch, n, own_rows=own_rows)
    assert len(blocks) == 2


@settings(deadline=None, max_examples=40)
@given(graphs(), st.integers(1, 9), st.integers(0, 99))
def test_sparse_and_dense_blocks_are_equal(graph: Graph, t: int, seed: int) -> None:
    """`mix`, its gradient and the count of empty rows are those of the dense matrix."""
    (block,) = LayerSampler(normalize(graph), [t]).sample(torch.arange(graph.n_nodes), rng(seed))
    as_dense = replace(block, adj=block.adj.to_dense())
    h, weight = torch.randn(len(block.src), 2, generator=rng(1)), torch.arange(2.0)
    results = []
    for one in (block, as_dense):
        rows = h.clone().requires_grad_()
        mixed = one.mix(rows)
        (mixed @ weight).sum().backward()  # type: ignore[no-untyped-call]
        assert rows.grad is not None
        results.append(torch.cat([mixed.detach(), rows.grad]))
    torch.testing.assert_close(*results)
    assert block.empty_rows == as_dense.empty_rows


@pytest.mark.parametrize("options", [{"own_rows": True}, {"self_term": "exact"}], ids=str)
def test_own_rows_lead(options: Any) -> None:
    """`src` begins with `dst`, drawn or not, and `own_rows` finds them in a layer's input."""
    sampler = LayerSampler(GRAPHS["weighted"], [2], **options)
    (block,) = replay(sampler, [2, 1], [np.array([0.99, 0.99])])  # 3 is drawn, and only 3
    assert block.src.tolist() == [2, 1, 3]
    h = torch.arange(3.0)[:, None]
    assert block.own_rows(h).tolist() == [[0.0], [1.0]]
    in_full = scattered(block, 4)[[0, 1], [2, 1]]
    expected = dense(GRAPHS["weighted"])[[2, 1], [2, 1]] if "self_term" in options else [0, 0]
    np.testing.assert_allclose(in_full, expected)


@pytest.mark.parametrize("own", [{}, {"own_rows": True}, {"self_term": "exact"}], ids=str)
@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(
    "law",
    [
        {},
        {"neighbors_only": True},
        {"distribution": "ladies"},
        {"distribution": "ladies", "power": 1.0},
    ],
    ids=str,
)
def test_many_batches_at_once_are_one_after_the_other(own: Any, draws: Any, law: Any) -> None:
    """The same blocks from the same generator, batches of other sizes included."""
    graph = Graph.from_edges(range(39), range(1, 40), features=np.zeros((40, 1)))
    sampler = LayerSampler(normalize(graph), [6], draws=draws, **own, **law)
    order = torch.randperm(40, generator=rng(3))
    batches = [order[start : start + 12] for start in range(0, 40, 12)]
    one, other = rng(1), rng(1)
    together = sampler.sample_many(batches, one)
    assert sampler.draws_together == (draws in BY_POINTS)
    for batch, (block,) in zip(batches, together, strict=True):
        (alone,) = sampler.sample(batch, other)
        assert torch.equal(block.dst, alone.dst)
        assert torch.equal(block.src, alone.src)
        assert torch.equal(block.adj.to_dense(), alone.adj.to_dense())
    assert torch.equal(one.get_state(), other.get_state())


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("distribution", ["flat", "ladies", "optimal"])
def test_a_sampler_that_draws_otherwise_is_like_a_new_one(distribution: Any, draws: Any) -> None:
    graph, norms = GRAPHS["weighted"], [np.array([0.3, 2.0, 0.0, 1.0])] * 2
    first = LayerSampler(graph, [1, 1], distribution=distribution, self_term="exact")
    new = LayerSampler(graph, [3, 2], distribution=distribution, draws=draws, self_term="exact")
    first.set_row_norms(norms)
    new.set_row_norms(norms)
    batch = torch.tensor([2, 0])
    pairs = zip(
        first.drawing([3, 2], draws).sample(batch, rng()), new.sample(batch, rng()), strict=True
    )
    for ours, theirs in pairs:
        assert torch.equal(ours.src, theirs.src)
        assert torch.equal(ours.adj.to_dense(), theirs.adj.to_dense())
    assert first.samples == (1, 1)
    with pytest.raises(InputError, match="samples must be at least 1, got 0"):
        first.drawing([0, 1], draws)


def test_many_batches_at_once_are_for_one_layer() -> None:
    """With more layers they are sampled one after the other."""
    sampler = LayerSampler(GRAPHS["weighted"], [2, 2])
    assert not sampler.draws_together
    many = sampler.sample_many([BATCH, BATCH], rng())
    assert [len(blocks) for blocks in many] == [2, 2]


@pytest.mark.parametrize("options", [{"own_rows": True}, {"self_term": "exact"}], ids=str)
def test_a_node_that_leads_cannot_come_twice(options: Any) -> None:
    with pytest.raises(InputError, match="each node once"):
        LayerSampler(GRAPHS["weighted"], [2], **options).sample(BATCH, rng())
    with pytest.raises(InputError, match="each node once"):
        LayerSampler(GRAPHS["weighted"], [2], **options).sample_many([BATCH], rng())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "ladys"}, "distribution must be one of .* did you mean 'ladies'"),
        ({"draws": "poison"}, "draws must be one of .* did you mean 'poisson'"),
        ({"self_term": "full"}, "self_term must be one of sampled, exact, got 'full'"),
        ({"power": -1.0}, "power must lie between 0 and 16, got -1.0"),
        ({"distribution": "flat", "power": 17.0}, "power must lie between 0 and 16, got 17"),
        ({"distribution": "ladies", "power": np.inf}, "power must lie between 0 and 16, got inf"),
        ({"distribution": "ladies", "power": np.nan}, "power must lie between 0 and 16, got nan"),
        ({"draws": "poisson", "correct_weights": False}, "is for independent and successive"),
    ],
)
def test_options_that_do_not_exist_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LayerSampler(GRAPHS["weighted"], [2], **options)


def test_q_of_the_rows_must_be_asked_for_with_rows() -> None:
    sampler = LayerSampler(GRAPHS["weighted"], [2], distribution="ladies")
    with pytest.raises(InputError, match="depends on the rows above: give rows"):
        sampler.probabilities()


@settings(deadline=None, max_examples=40)
@given(graphs(), st.data())
def test_renumbering_the_nodes_renumbers_the_block(graph: Graph, data: st.DataObject) -> None:
    """The same draws under another numbering give the same block under that numbering."""
    n = graph.n_nodes
    order = np.array(data.draw(st.permutations(range(n)), label="new order"))
    distribution: Any = data.draw(st.sampled_from(DISTRIBUTIONS), label="distribution")
    draws: Any = data.draw(st.sampled_from(["independent", "successive"]), label="draws")
    t = data.draw(st.integers(1, n), label="t")
    x = np.random.default_rng(0).uniform(0.5, 2, n)
    old = LayerSampler(normalize(graph), [t], distribution=distribution, draws=draws)
    new = LayerSampler(
        normalize(subgraph(graph, order)), [t], distribution=distribution, draws=draws
    )
    old.set_row_norms([x])
    new.set_row_norms([x[order]])
    np.testing.assert_allclose(new.probabilities(), old.probabilities()[order], rtol=1e-6)
    points, renumbered = [], []
    if draws == "independent" or t < np.count_nonzero(old.probabilities()):
        vertices = st.lists(
            st.integers(0, n - 1), min_size=t, max_size=t, unique=draws == "successive"
        )
        drawn = data.draw(vertices, label="drawn")
        points = [points_of(old.probabilities(), drawn)]
        renumbered = [points_of(new.probabilities(), np.argsort(order)[drawn])]
    (before,) = replay(old, torch.arange(n), points)
    (after,) = replay(new, torch.arange(n), renumbered)
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
        assert torch.equal(first.adj.to_dense(), again.adj.to_dense())
        assert torch.equal(first.src, again.src)
