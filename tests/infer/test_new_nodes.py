"""New nodes are predicted as they would be on the whole enlarged graph, reading only near them."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array

from fastgcn import GCN, Graph, embed, embed_new, explain, fit, predict, predict_new
from fastgcn.data.tables.new_rows import read_new_nodes
from fastgcn.errors import InputError
from fastgcn.graph.ids import TextIds
from tests.communities import communities, quick
from tests.strategies import graphs
from tests.tables import write


@st.composite
def joins(draw: st.DrawFn) -> tuple[Graph, np.ndarray[Any, Any], list[tuple[int, int]], Any]:
    """A graph, features of new nodes, their edges, and weights where the graph has them."""
    graph = draw(graphs())
    n, k = graph.n_nodes, draw(st.integers(1, 3))
    new, anyone = st.integers(n, n + k - 1), st.integers(0, n + k - 1)
    pairs = draw(st.lists(st.tuples(new, anyone) | st.tuples(anyone, new), max_size=8))
    weights = None if graph.weights is None else [1.0 + i % 3 for i in range(len(pairs))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return graph, rng.normal(size=(k, graph.n_features)), pairs, weights


@given(joins(), st.integers(1, 3), st.sampled_from(["symmetric", "row", "neighbors"]))
def test_equal_to_the_enlarged_graph(join: Any, layers: int, normalization: str) -> None:
    graph, features, pairs, weights = join
    k, n = len(features), graph.n_nodes
    model = GCN(
        [graph.n_features, *[4] * (layers - 1), 2],
        normalization=normalization,
        rng=torch.Generator().manual_seed(1),
    )
    source, target = [a for a, _ in pairs], [b for _, b in pairs]
    got = predict_new(
        model, graph, features=features, source=source, target=target, weights=weights
    )
    old = block_diag([graph.to_scipy(), csr_array((k, k))]).tocoo()
    everything = Graph.from_edges(
        np.concatenate([old.row, np.array(source, dtype=int)]),
        np.concatenate([old.col, np.array(target, dtype=int)]),
        weights=None if weights is None else np.concatenate([old.data, weights]),
        features=np.concatenate([graph.features, features]),
        directed=bool(graph.directed),
    )
    new = np.arange(n, n + k)
    np.testing.assert_allclose(got, predict(model, everything, new), rtol=2e-5, atol=1e-6)
    for layer in (-1, 0, layers):
        rows = embed_new(
            model, graph, layer=layer, features=features, source=source, target=target,
            weights=weights,
        )  # fmt: skip
        expected = embed(model, everything, new, layer=layer)
        np.testing.assert_allclose(rows, expected, rtol=2e-5, atol=1e-6)


def test_reads_the_neighbourhood_alone() -> None:
    """A path 0-1-...-9: two layers for a node joined to 0 need nodes 0 and 1, and no others."""
    features = np.full((10, 2), np.nan, dtype=np.float32)
    features[:2] = 1
    path = Graph.from_edges(range(9), range(1, 10), features=np.zeros((10, 2)))
    poisoned = Graph.trusted(
        indptr=path.indptr,
        indices=path.indices,
        weights=None,
        features=features,
        directed=False,
    )
    model = GCN([2, 3, 2])
    got = predict_new(model, poisoned, features=[[1.0, 2.0]], source=[10], target=[0])
    assert np.isfinite(got).all()
    with pytest.raises(InputError, match="feature 0 of node 2 is nan"):  # within two hops of it
        predict_new(model, poisoned, features=[[1.0, 2.0]], source=[10], target=[1])


def test_own_ids_of_old_and_new_nodes() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], features=np.eye(3), node_ids=["a", "b", "c"])
    model = GCN([3, 2])
    by_own = predict_new(
        model,
        graph,
        features=np.eye(2, 3),
        source=["x", "y"],
        target=["c", "x"],
        node_ids=["x", "y"],
    )
    by_number = predict_new(model, graph, features=np.eye(2, 3), source=[3, 4], target=[2, 3])
    np.testing.assert_array_equal(by_own, by_number)


def test_a_new_edge_without_a_weight_is_named_or_gets_the_default() -> None:
    graph = Graph.from_edges(
        [0, 1], [1, 2], weights=[2.0, 3.0], features=np.eye(3), node_ids=list("abc")
    )
    new: dict[str, Any] = {
        "features": [[1.0, 2.0, 3.0]],
        "source": ["x", "b"],
        "target": ["a", "x"],
        "weights": [5.0, np.nan],
        "node_ids": ["x"],
    }
    model = GCN([3, 2])
    with pytest.raises(InputError, match="edge 'b' → 'x' has no weight, as 1 of 2 new edges"):
        predict_new(model, graph, **new)
    filled = predict_new(model, graph, **new, default_weight=4.0)
    expected = predict_new(model, graph, **{**new, "weights": [5.0, 4.0]})
    np.testing.assert_array_equal(filled, expected)


def test_features_in_another_order_are_refused() -> None:
    run = fit(communities(feature_names=list("abcdef")), quick(epochs=1))
    new: dict[str, Any] = {"features": np.zeros((1, 6)), "source": [60], "target": [0]}
    predict_new(run, communities(feature_names=list("abcdef")), **new)
    with pytest.raises(InputError, match="feature 0 is 'a' in the run and 'b' in the graph"):
        predict_new(run, communities(feature_names=list("bacdef")), **new)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": ["a"], "target": ["b"]}, "node 'a' and node 'b', which are both old"),
        ({"source": ["x"], "target": ["q"]}, "name 'q', which is neither a new node"),
        ({"source": ["x"], "target": ["B"]}, "'b' is known, and not 'B': write ids alike"),
        ({"features": [[1.0, 2.0]]}, "trained on 3 features, the new nodes have 2"),
        ({"features": [[1.0, 2.0, np.nan]]}, "features must be finite"),
        ({"weights": [2.0]}, "new edges have weights but graph has none"),
        ({"node_ids": ["x", "y"]}, "node_ids must have 1 entries"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    graph = Graph.from_edges([0, 1], [1, 2], features=np.eye(3), node_ids=["a", "b", "c"])
    given_: dict[str, Any] = {
        "features": [[1.0, 2.0, 3.0]],
        "source": ["x"],
        "target": ["a"],
        "node_ids": ["x"],
    }
    with pytest.raises(InputError) as refused:
        predict_new(GCN([3, 2]), graph, **(given_ | changes))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (pa.array([1, 2], pa.timestamp("ns")), "integers or text, got timestamp"),
        (pa.array([[1], [2]]), "integers or text, got list"),
        (pa.array(["0", None]), "an id in every row"),
    ],
)
def test_ends_of_new_edges_must_be_ids(tmp_path: Path, ends: pa.Array, message: str) -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(3), feature_names=["a", "b", "c"])
    nodes = write(tmp_path / "nodes.parquet", {"id": ["x"], "a": [1.0], "b": [0.0], "c": [0.0]})
    edges = write(tmp_path / "edges.parquet", {"source": ends, "target": ["x", "x"]})
    with pytest.raises(InputError, match=message):
        read_new_nodes(nodes, edges, graph)


@pytest.mark.parametrize("own", [True, False])
def test_a_call_makes_no_array_over_all_nodes(own: bool) -> None:
    """After the first call, which makes the index of ids, memory is that of a neighbourhood."""
    n = 200_000
    ids = TextIds.pack([f"c{i}" for i in range(n)]) if own else None
    graph = Graph.trusted(
        indptr=np.minimum(np.arange(n + 1), n - 1), indices=np.arange(1, n, dtype=np.int32),
        weights=None, features=np.ones((n, 2), np.float32), directed=True, node_ids=ids,
    )  # fmt: skip
    model = GCN([2, 3, 2])
    new: dict[str, Any] = {"features": [[1.0, 2.0]], "source": ["new"], "target": ["c9"]}
    new = new | {"node_ids": ["new"]} if own else new | {"source": [n], "target": [9]}
    calls: list[Callable[[], object]] = [
        lambda: predict_new(model, graph, **new),
        lambda: embed_new(model, graph, **new),
        lambda: explain(model, graph, "c9" if own else 9),
    ]
    for call in calls:
        call()
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < n, "less than a byte a node"
