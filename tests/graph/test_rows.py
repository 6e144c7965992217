"""Rows of Â made on demand are the rows of `normalize`, also of a graph with new nodes."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array

from fastgcn import Graph, normalize
from fastgcn.arrays import FloatArray
from fastgcn.graph.adjacency import NormalizedRows
from fastgcn.graph.edges import EnlargedEdges, GraphEdges, Rows
from fastgcn.infer.new_nodes import join
from tests.strategies import graphs

kinds = st.sampled_from(["symmetric", "row", "neighbors"])


class Enlarged(NamedTuple):
    """A graph, k new nodes' edges (each with a new end), and weights where the graph has them."""

    graph: Graph
    k: int
    source: list[int]
    target: list[int]
    weights: list[float] | None


@st.composite
def enlarged(draw: st.DrawFn) -> Enlarged:
    graph, k = draw(graphs()), draw(st.integers(1, 3))
    n = graph.n_nodes
    new, anyone = st.integers(n, n + k - 1), st.integers(0, n + k - 1)
    pairs = draw(st.lists(st.tuples(new, anyone) | st.tuples(anyone, new), max_size=10))
    quarters = st.integers(0, 12).map(lambda q: q / 4)
    weights = None
    if graph.weights is not None:
        weights = draw(st.lists(quarters, min_size=len(pairs), max_size=len(pairs)))
    return Enlarged(graph, k, [a for a, _ in pairs], [b for _, b in pairs], weights)


def some_nodes(data: st.DataObject, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Any nodes, in any order, with repeats."""
    ids = data.draw(st.lists(st.integers(0, n - 1), max_size=12), label="nodes")
    return np.array(ids, dtype=np.int64)


def dense(rows: Rows, n: int) -> FloatArray:
    """(s, n); no column may come twice in a row, for sums would hide it."""
    matrix = csr_array((rows.values, rows.indices, rows.indptr), (len(rows.indptr) - 1, n))
    assert matrix.nnz == matrix.tocoo().tocsr().nnz, "a column comes twice"
    return np.asarray(matrix.toarray())


@settings(max_examples=60, deadline=None)
@given(graphs(), kinds, st.data())
def test_rows_of_a_graph(graph: Graph, kind: Any, data: st.DataObject) -> None:
    nodes = some_nodes(data, graph.n_nodes)
    source = NormalizedRows(GraphEdges(graph.csr), kind)
    assert source.n == graph.n_nodes
    rows = source.rows(nodes)
    assert rows.values.dtype == np.float32
    expected = normalize(graph, kind).to_scipy().toarray()[nodes]
    np.testing.assert_allclose(dense(rows, graph.n_nodes), expected, rtol=1e-6)


@settings(max_examples=100, deadline=None)
@given(enlarged(), kinds, st.data())
def test_rows_with_new_nodes(example: Enlarged, kind: Any, data: st.DataObject) -> None:
    graph, k, source, target, weights = example
    n = graph.n_nodes + k
    old = block_diag([graph.to_scipy(), csr_array((k, k))]).tocoo()
    whole = Graph.from_edges(
        np.concatenate([old.row, np.array(source, dtype=int)]),
        np.concatenate([old.col, np.array(target, dtype=int)]),
        weights=None if weights is None else np.concatenate([old.data, weights]),
        features=np.zeros((n, 1)),
        directed=bool(graph.directed),
    )
    rows = NormalizedRows(EnlargedEdges(graph.csr, join(graph, k, source, target, weights)), kind)
    assert rows.n == n
    counts = np.diff(normalize(whole, kind).indptr)
    np.testing.assert_array_equal(rows.counts()[: len(counts)], counts)
    nodes = some_nodes(data, n)
    expected = normalize(whole, kind).to_scipy().toarray()[nodes]
    np.testing.assert_allclose(dense(rows.rows(nodes), n), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["symmetric", "row"])
def test_a_lone_new_node_has_its_loop_alone(kind: str) -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(2))
    rows = NormalizedRows(EnlargedEdges(graph.csr, join(graph, 1, [], [])), kind)
    assert dense(rows.rows(np.array([2, 0])), 3).tolist() == [[0, 0, 1], [0.5, 0.5, 0]]


def test_a_lone_new_node_has_no_neighbours_to_average() -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(2))
    rows = NormalizedRows(EnlargedEdges(graph.csr, join(graph, 1, [], [])), "neighbors")
    assert dense(rows.rows(np.array([2, 0])), 3).tolist() == [[0, 0, 0], [0, 1, 0]]


def test_only_the_rows_asked_for_and_their_neighbours_are_read() -> None:
    """A path 0-1-...-9: the row of node 0 needs the degrees of 0 and 1, and nothing further."""
    path = Graph.from_edges(range(9), range(1, 10), features=np.zeros((10, 1)))
    indptr, indices = path.indptr.copy(), path.indices.copy()
    indices[indptr[2] :] = -99  # would show up, or fail, if it were read
    csr = type(path.csr)(indptr, indices, None)
    row = dense(NormalizedRows(GraphEdges(csr), "symmetric").rows(np.array([0])), 10)
    np.testing.assert_allclose(row[0, :2], [1 / 2, 1 / np.sqrt(6)], rtol=1e-6)
    assert np.count_nonzero(row) == 2
