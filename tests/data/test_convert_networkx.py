"""Graphs that come from and go to the real networkx."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from fastgcn.data.layout import TextIds
from fastgcn.errors import InputError
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph


def test_adjacency_is_the_same() -> None:
    rng = np.random.default_rng(0)
    weights = csr_array(rng.random((20, 20)) * (rng.random((20, 20)) < 0.2))
    graph = Graph.from_scipy(weights, features=np.eye(20))
    expected = nx.to_scipy_sparse_array(graph.to_networkx(), weight="weight", dtype=np.float32)
    np.testing.assert_array_equal(graph.to_scipy().toarray(), expected.toarray())


def test_keys_and_attributes() -> None:
    graph = Graph.from_edges(
        [0, 1],
        [1, 2],
        features=np.eye(3),
        labels=[1, -1, 0],
        split=Split(train=np.array([2]), test=np.array([0, 1])),
        node_ids=TextIds.pack(["a", "b", "c"]),
        class_names=["cat", "dog"],
    )
    converted = graph.to_networkx()
    assert type(converted) is nx.Graph
    assert list(converted.edges(data=True)) == [("a", "b", {}), ("b", "c", {})]
    assert dict(converted.nodes(data="y")) == {"a": 1, "b": -1, "c": 0}
    assert dict(converted.nodes(data="split")) == {"a": "test", "b": "test", "c": "train"}
    assert converted.graph == {"name": "graph", "class_names": ["cat", "dog"]}
    converted.nodes["a"]["x"][:] = 9
    assert graph.features[0].tolist() == [1, 0, 0]


def test_zachary() -> None:
    club = nx.karate_club_graph()
    graph = Graph.from_networkx(club, features=None, label="club", weight=None)
    assert (graph.n_nodes, graph.n_edges, graph.n_features) == (34, 78, 0)
    assert graph.class_names == ("Mr. Hi", "Officer")
    assert graph.labels is not None
    assert graph.labels[:10].tolist() == [0] * 9 + [1]
    assert graph.node_ids is None
    assert graph.weights is None
    assert Graph.from_networkx(club, features=None).weights is not None


@pytest.mark.parametrize("kind", [nx.MultiGraph, nx.MultiDiGraph])
def test_parallel_edges_add_up(kind: Any) -> None:
    source = kind()
    source.add_nodes_from("abc", x=1)
    source.add_weighted_edges_from([("a", "b", 2), ("a", "b", 3), ("c", "b", 4)])
    source.add_edge("b", "c")
    graph = Graph.from_networkx(source)
    expected = [[0, 5, 0], [0, 0, 1], [0, 4, 0]]
    if kind is nx.MultiGraph:
        expected = [[0, 5, 0], [5, 0, 5], [0, 5, 0]]
    np.testing.assert_array_equal(graph.to_scipy().toarray(), expected)
    assert list(graph.node_ids or ()) == ["a", "b", "c"]


def test_features() -> None:
    source = nx.path_graph(["a", "b"])
    nx.set_node_attributes(source, {"a": 1.5, "b": 2}, "size")
    nx.set_node_attributes(source, {"a": [1, 2], "b": (3, 4)}, "pair")
    nx.set_node_attributes(source, {"a": "one", "b": "two"}, "text")
    nx.set_node_attributes(source, {"a": [1], "b": [1, 2]}, "ragged")
    for features, expected in (
        ("size", [[1.5], [2]]),
        ("pair", [[1, 2], [3, 4]]),
        (["size", "pair"], [[1.5, 1, 2], [2, 3, 4]]),
        (np.array([[7], [8]]), [[7], [8]]),
        ([[7], [8]], [[7], [8]]),
    ):
        assert Graph.from_networkx(source, features=features).features.tolist() == expected
    for wrong, message in (
        ("text", "'text' must be a number or a sequence of numbers, but is 'one' at node 'a'"),
        ("ragged", "'ragged' must be equally long.* length 1 at node 'a' and 2 at node 'b'"),
        ("x", "needs the attribute 'x' for its features, but node 'a' lacks it"),
        (np.eye(3), "features must have 2 rows, one per node, got 3"),
    ):
        with pytest.raises(InputError, match=message):
            Graph.from_networkx(source, features=wrong)
    del source.nodes["b"]["size"]
    with pytest.raises(InputError, match="node 'b' lacks it"):
        Graph.from_networkx(source, features=["size"])


@pytest.mark.parametrize(
    ("labels", "class_names", "expected", "names"),
    [
        (["dog", None, "cat"], None, [1, -1, 0], ("cat", "dog")),
        (["dog", "cat", "cat"], ["dog", "cow", "cat"], [0, 2, 2], ("dog", "cow", "cat")),
        ([2, np.nan, 0.0], None, [2, -1, 0], None),
        ([2, -1, np.int64(0)], ["a", "b", "c"], [2, -1, 0], ("a", "b", "c")),
        ([True, False, True], None, [1, 0, 1], None),
        ([[0, 1], [1, 1], [0, 0]], None, [[False, True], [True, True], [False, False]], None),
    ],
)
def test_labels(labels: Any, class_names: Any, expected: Any, names: Any) -> None:
    source = nx.path_graph(3)
    nx.set_node_attributes(source, dict(enumerate(labels)), "kind")
    graph = Graph.from_networkx(source, features=None, label="kind", class_names=class_names)
    assert graph.labels is not None
    assert graph.labels.tolist() == expected
    assert graph.class_names == names


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["dog", "mouse"], "'y' must be a class id or one of the class names, but is 'mouse'"),
        ([0, {}], "'y' must be a class id.* at node 1"),
        ([0, 1.5], "labels must be integers"),
        ([[0, 1], None], "holds several labels per node, so every node needs it, but 1 lack it"),
        ([[0, 1], [1]], "'y' must be equally long"),
        ([[0, 1], [0, 2]], "must be 0 or 1"),
    ],
)
def test_refuses_labels(labels: Any, message: str) -> None:
    source = nx.path_graph(2, create_using=nx.DiGraph)
    source.graph["class_names"] = ["dog", "cat"]
    nx.set_node_attributes(source, dict(enumerate(labels)), "y")
    with pytest.raises(InputError, match=message):
        Graph.from_networkx(source, features=None)


def test_refuses() -> None:
    source = nx.path_graph(2)
    with pytest.raises(InputError, match="must be a networkx graph, got dict"):
        Graph.from_networkx({})
    with pytest.raises(InputError, match="graph is empty"):
        Graph.from_networkx(nx.Graph())
    source.nodes[1]["split"] = "training"
    with pytest.raises(InputError, match="'split' must be.* but is 'training' at node 1"):
        Graph.from_networkx(source, features=None)
    assert Graph.from_networkx(source, features=None, split=None).n_nodes == 2
    source.edges[0, 1]["weight"] = "heavy"
    with pytest.raises(InputError, match="weights must be numbers"):
        Graph.from_networkx(source, features=None, split=None)
