"""`Graph`: everything is checked once, on construction, and named in the message."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

from fastgcn import Cleaning, Graph
from fastgcn.errors import InputError
from tests.strategies import dense_adjacency, edge_lists, split_of


def path_graph(**changes: Any) -> Graph:
    """0 - 1 - 2, with everything set; `changes` replace constructor arguments."""
    fields: dict[str, Any] = {
        "indptr": [0, 1, 3, 4],
        "indices": [1, 0, 2, 1],
        "weights": None,
        "features": np.eye(3),
        "labels": [0, 1, -1],
        "split": split_of(train=[0], val=[1]),
        "node_ids": ["a", "b", "c"],
        "class_names": ["cat", "dog"],
    }
    return Graph(**(fields | changes))


def test_a_good_graph_is_canonical() -> None:
    graph = path_graph()
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.dtype == np.float32
    assert graph.directed is False
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes) == (3, 2, 3, 2)
    assert not graph.multilabel
    assert graph.split.test.tolist() == []


def test_direction_is_found_out() -> None:
    assert path_graph(indptr=[0, 1, 1, 1], indices=[1]).directed is True
    weighted = path_graph(weights=[1, 1, 2, 3])
    assert weighted.directed is True, "an edge whose two weights differ is not undirected"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": [0, 1, 3]}, "indptr must run from 0 to len(indices) = 4"),
        ({"indptr": [1, 1, 3, 4]}, "indptr must run from 0"),
        ({"indptr": [0, 3, 1, 4]}, "indptr must not decrease, but does after row 1"),
        ({"indptr": [[0, 4]]}, "indptr must be one-dimensional"),
        ({"indptr": [0], "indices": []}, "the graph is empty"),
        ({"indptr": [0.0, 0.5, 3, 4]}, "indptr must be integers"),
        ({"indices": [1, 0, 3, 1]}, "indices must lie in 0..2 for a graph of 3 nodes, got 3"),
        ({"indices": [1, -1, 2, 1]}, "got -1 (1 out of range)"),
        ({"indices": ["1", "0", "2", "1"]}, "indices must be integers"),
        ({"weights": [1, 1]}, "weights must have shape (4,)"),
        ({"weights": [1, np.nan, 1, 1]}, "weights must be finite, got nan at [1]"),
        ({"weights": [1, -2, 1, 1]}, "weights must not be negative, got -2"),
        ({"weights": list("abcd")}, "weights must be numbers"),
        ({"features": np.eye(2)}, "features must have 3 rows, one per node, got 2"),
        ({"features": np.ones(3)}, "features must be two-dimensional"),
        ({"features": np.array([[0, 1], [np.inf, 0], [0, 0]])}, "got inf at [1, 0]"),
        ({"features": csr_array(np.diag([1, np.nan, 1]))}, "features must be finite"),
        ({"features": csr_array(np.eye(4))}, "features must have 3 rows"),
        ({"features": csr_array((3, 2**31))}, "features must have at most 2,147,483,647 columns"),
        ({"features": np.array([["x"], ["y"], ["z"]])}, "features must be numbers"),
        ({"labels": [0, 1]}, "labels must have shape (3,)"),
        ({"labels": [0, 1, 2]}, "labels must be below the number of classes, 2, got 2"),
        ({"labels": [0, 1, -2]}, "labels must be class ids or -1 for none, got -2"),
        ({"labels": [0.5, 1, 1]}, "labels must be integers"),
        ({"labels": [[0, 1], [2, 0], [0, 0]]}, "multi-label labels must be 0 or 1"),
        ({"labels": np.ones((3, 3))}, "class_names must have 3 entries"),
        ({"feature_names": ["a", "b"]}, "feature_names must have 3 entries, one per feature"),
        ({"node_ids": ["a", "b"]}, "node_ids must have 3 entries"),
        ({"node_ids": np.eye(3)}, "node_ids must be numbers or texts, not lists"),
        ({"node_ids": ["a", "b", "a"]}, "'a' appears more than once"),
        ({"split": split_of(train=[0, 3])}, "split.train must lie in 0..2"),
        ({"split": split_of(train=[0, 0])}, "has node 0 twice"),
        (
            {"split": split_of(train=[0], val=[1, 0])},
            "node 'a' is in both train and val",
        ),
        (
            {"split": split_of(train=[0, 2])},
            "node 'c' is in the train part of the split but has no label",
        ),
        ({"indptr": [0, 1, 1, 1], "indices": [1], "directed": False}, "lack their reverse"),
    ],
)
def test_a_bad_graph_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        path_graph(**changes)
    assert message in str(refused.value)


def test_test_nodes_may_be_unlabelled() -> None:
    assert path_graph(split=split_of(test=[2])).split.test.tolist() == [2]


def test_constructor_cleans_and_counts() -> None:
    graph = path_graph(indptr=[0, 3, 5, 6], indices=[1, 0, 1, 2, 0, 1], weights=[1, 9, 2, 5, 3, 5])
    assert graph.indices.tolist() == [1, 0, 2, 1]
    assert graph.weights is not None
    assert graph.weights.tolist() == [3, 3, 5, 5]
    assert graph.cleaned == Cleaning(self_loops=1, duplicates=1)
    assert graph.directed is False


@given(edge_lists())
def test_from_edges_means_what_the_dense_matrix_means(
    edges: tuple[int, list[tuple[int, int]], list[float] | None, bool],
) -> None:
    n, pairs, weights, directed = edges
    source = [a for a, _ in pairs]
    target = [b for _, b in pairs]
    graph = Graph.from_edges(
        source, target, features=np.zeros((n, 1)), weights=weights, directed=directed
    )
    dense = np.zeros((n, n))
    for k, (a, b) in enumerate(pairs):
        if a != b:
            dense[a, b] = dense[a, b] + weights[k] if weights is not None else 1
    if not directed:
        dense = np.maximum(dense, dense.T)
    np.testing.assert_allclose(dense_adjacency(graph), dense, rtol=1e-6)
    loops = sum(a == b for a, b in pairs)
    zeros = (
        0
        if weights is None
        else sum(w == 0 and a != b for w, (a, b) in zip(weights, pairs, strict=True))
    )
    distinct = {p for k, p in enumerate(pairs) if p[0] != p[1] and (weights is None or weights[k])}
    assert graph.cleaned == Cleaning(loops, len(pairs) - loops - zeros - len(distinct), zeros)
    assert graph.directed == directed


@given(edge_lists(), st.randoms(use_true_random=False))
def test_csr_in_any_order_is_the_same_graph(
    edges: tuple[int, list[tuple[int, int]], list[float] | None, bool], random: Any
) -> None:
    n, pairs, _, directed = edges
    pairs = [p for p in set(pairs) if p[0] != p[1]]
    graph = Graph.from_edges(
        [a for a, _ in pairs], [b for _, b in pairs], features=np.zeros((n, 1)), directed=directed
    )
    shuffled = [graph.indices[s:e].tolist() for s, e in zip(graph.indptr, graph.indptr[1:])]  # noqa: B905
    for row in shuffled:
        random.shuffle(row)
    columns = np.array([u for row in shuffled for u in row], dtype=np.int64)
    again = Graph(graph.indptr, columns, None, np.zeros((n, 1)))
    assert again.indices.tolist() == graph.indices.tolist()
    assert again.cleaned == Cleaning()


def test_sparse_features_with_repeated_entries_add_up() -> None:
    repeated = coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(3, 2))
    graph = path_graph(features=repeated)
    assert isinstance(graph.features, csr_array)
    assert graph.features.toarray()[0].tolist() == [0, 3]


def test_with_split_checks_the_split_alone() -> None:
    graph = path_graph()
    again = graph.with_split(split_of(train=[1], test=[2]))
    assert again.split.train.tolist() == [1]
    assert again.indices is graph.indices
    assert graph.with_source({"data": "x"}).with_split(again.split).source is None  # x has another
    with pytest.raises(InputError, match="has no label"):
        graph.with_split(split_of(val=[2]))


def test_multilabel() -> None:
    graph = path_graph(labels=[[1, 0], [1, 1], [0, 0]])
    assert graph.multilabel
    assert graph.n_classes == 2
    assert graph.labels is not None
    assert graph.labels.dtype == np.bool_
