"""Â against dense formulas, for directed, weighted and isolated-node graphs."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgcn.graph.edges
from fastgcn import Graph, normalize, subgraph
from fastgcn.errors import InputError
from tests.strategies import dense_adjacency, graphs, split_of


@given(graphs(), st.sampled_from(["symmetric", "row", "neighbors"]), st.booleans())
def test_normalize_is_the_dense_formula(graph: Graph, kind: Any, self_loops: bool) -> None:
    loops = self_loops and kind != "neighbors"
    a = dense_adjacency(graph) + (np.eye(graph.n_nodes) if loops else 0)
    d = a.sum(axis=1)
    if kind != "symmetric":
        expected = np.divide(a, d[:, None], out=np.zeros_like(a), where=d[:, None] > 0)
    else:
        scale = np.sqrt(np.outer(d, d))
        expected = np.divide(a, scale, out=np.zeros_like(a), where=scale > 0)
    matrix = normalize(graph, kind, self_loops=self_loops)
    np.testing.assert_allclose(matrix.to_scipy().toarray(), expected, rtol=1e-6, atol=1e-9)
    assert np.isfinite(matrix.values).all()
    for start, stop in pairwise(matrix.indptr):
        assert (np.diff(matrix.indices[start:stop]) > 0).all()
    np.testing.assert_allclose(
        matrix.column_norms(), np.linalg.norm(expected, axis=0), rtol=1e-6, atol=1e-9
    )


@given(graphs(), st.data())
def test_subgraph_is_the_dense_submatrix(graph: Graph, data: st.DataObject) -> None:
    ids = data.draw(
        st.lists(st.integers(0, graph.n_nodes - 1), min_size=1, unique=True), label="nodes"
    )
    chunk = data.draw(st.sampled_from([1, 3, 1 << 22]), label="edges at once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastgcn.graph.edges, "_EDGES_AT_ONCE", chunk)
        sub = subgraph(graph, ids)
    np.testing.assert_array_equal(dense_adjacency(sub), dense_adjacency(graph)[np.ix_(ids, ids)])
    np.testing.assert_array_equal(sub.features, graph.features[ids])
    for start, stop in pairwise(sub.indptr):
        assert (np.diff(sub.indices[start:stop]) > 0).all()


def test_subgraph_takes_everything_along() -> None:
    graph = Graph.from_edges(
        [0, 1, 2],
        [1, 2, 3],
        features=np.arange(4.0)[:, None],
        labels=[0, 1, 0, 1],
        split=split_of(train=[0, 3], val=[1], test=[2]),
        node_ids=list("abcd"),
        class_names=["x", "y"],
    )
    sub = subgraph(graph, [3, 1])
    assert sub.node_ids == ["d", "b"]
    assert sub.labels is not None
    assert sub.labels.tolist() == [1, 1]
    assert sub.split.train.tolist() == [0]
    assert sub.split.val.tolist() == [1]
    assert sub.split.test.tolist() == []
    assert sub.class_names == ("x", "y")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [([], "at least one node"), ([0, 0], "node 0 twice"), ([9], "must lie in 0..1")],
)
def test_bad_node_sets_are_refused(nodes: list[int], message: str) -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(2))
    with pytest.raises(InputError, match=message):
        subgraph(graph, nodes)


def test_unknown_normalization_is_refused() -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(2))
    with pytest.raises(InputError, match="did you mean 'symmetric'"):
        normalize(graph, "symetric")  # type: ignore[arg-type]


def test_degree_zero_node_keeps_itself() -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(3))
    assert normalize(graph).to_scipy().toarray()[2].tolist() == [0, 0, 1]
    assert normalize(graph, self_loops=False).to_scipy().toarray()[2].tolist() == [0, 0, 0]
