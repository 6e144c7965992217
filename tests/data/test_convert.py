"""Conversions there and back, and those from scipy."""

import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix

from fastgcn.data.layout import arrays_of
from fastgcn.errors import InputError, MissingDependencyError
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of PyG's, while it is imported
    import torch_geometric.data  # noqa: F401


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs of every kind: directed, weighted, sparse, multi-label, with names."""
    n = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(0, 8))
    n_features = draw(st.integers(0, 3))
    features: Any = rng.integers(-3, 4, (n, n_features)).astype(np.float32)
    classes = draw(st.integers(1, 3))
    labels = draw(
        st.sampled_from([None, rng.integers(-1, classes, n), rng.random((n, classes)) < 0.5])
    )
    return Graph.from_edges(
        rng.integers(0, n, m),
        rng.integers(0, n, m),
        weights=rng.random(m) + 0.5 if draw(st.booleans()) and m else None,
        features=csr_array(features) if draw(st.booleans()) else features,
        directed=draw(st.booleans()),
        labels=labels,
        split=_drawn_split(draw, n, labels),
        node_ids=draw(
            st.sampled_from([None, [f"né {i}" for i in range(n)], 100 + rng.permutation(99)[:n]])
        ),
        class_names=draw(st.sampled_from([None, [f"class {c}" for c in range(classes)]])),
        name=draw(st.sampled_from(["graph", "mine"])),
    )


def _drawn_split(draw: st.DrawFn, n: int, labels: Any) -> Split:
    part = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    if labels is not None and labels.ndim == 1:
        part[labels < 0] = 3  # only labelled nodes may be in a split
    return Split(*(np.flatnonzero(part == i) for i in range(3)))


def assert_same(first: Graph, second: Graph) -> None:
    """Equal in every field; a graph without edges has no weights to keep."""
    arrays, others = arrays_of(first), arrays_of(second)
    if not len(first.indices):
        arrays.pop("weights", None)
        others.pop("weights", None)
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype, name
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    assert first.features.shape == second.features.shape
    assert first.directed == second.directed
    assert first.class_names == second.class_names
    assert first.name == second.name


@settings(deadline=None)
@given(graphs())
def test_scipy_round_trip(graph: Graph) -> None:
    rest = {name: getattr(graph, name) for name in ("labels", "split", "node_ids", "class_names")}
    back = Graph.from_scipy(
        graph.to_scipy(),
        features=graph.features,
        directed=graph.directed,
        weighted=graph.weights is not None,
        name=graph.name,
        **rest,
    )
    assert_same(graph, back)


@settings(deadline=None)
@given(graphs())
def test_scipy_finds_direction_out(graph: Graph) -> None:
    matrix = graph.to_scipy()
    symmetric = bool((matrix != matrix.T).nnz == 0)
    assert Graph.from_scipy(matrix, features=graph.features).directed is not symmetric


@pytest.mark.parametrize("kind", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float64])
def test_scipy_formats_and_dtypes(kind: str, dtype: Any) -> None:
    dense = np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]], dtype)
    for matrix in (csr_array(dense), csr_matrix(dense)):
        graph = Graph.from_scipy(matrix.asformat(kind), features=np.eye(3))
        assert graph.weights is None
        assert graph.directed
        np.testing.assert_array_equal(graph.to_scipy().toarray(), dense)


def test_to_scipy_is_a_float32_copy() -> None:
    graph = Graph.from_edges([0], [1], weights=[2.0], features=np.eye(2))
    matrix = graph.to_scipy()
    assert matrix.dtype == np.float32
    matrix.data[:] = 0
    matrix.indices[:] = 0
    assert graph.weights is not None
    assert graph.weights.tolist() == [2, 2]
    assert graph.indices.tolist() == [1, 0]


def test_scipy_undirected_takes_the_larger_weight() -> None:
    matrix = coo_array(([2.0, 5.0, 1.0], ([0, 1, 2], [1, 0, 1])), shape=(3, 3))
    graph = Graph.from_scipy(matrix, features=np.eye(3), directed=False)
    np.testing.assert_array_equal(graph.to_scipy().toarray(), [[0, 5, 0], [5, 0, 1], [0, 1, 0]])
    assert graph.n_edges == 2


def test_scipy_weights() -> None:
    ones = coo_array(([1, 1, 0, 7], ([0, 0, 1, 1], [1, 1, 0, 1])), shape=(2, 2))
    graph = Graph.from_scipy(ones, features=np.eye(2))
    assert graph.weights is None, "twice the same edge, a zero and a self loop make no weights"
    cleaned = graph.cleaned
    assert (cleaned.duplicates, cleaned.zero_weights, cleaned.self_loops) == (1, 1, 1)
    kept = Graph.from_scipy(ones, features=np.eye(2), weighted=True)
    assert kept.weights is not None
    assert kept.weights.tolist() == [2]
    negative = coo_array(([-3.5], ([0], [1])), shape=(2, 2))
    ignored = Graph.from_scipy(negative, features=np.eye(2), weighted=False)
    assert ignored.weights is None
    assert ignored.n_edges == 1
    with pytest.raises(InputError, match="weights must not be negative"):
        Graph.from_scipy(negative, features=np.eye(2))


def test_scipy_refuses() -> None:
    with pytest.raises(InputError, match=r"adjacency must be square.*got \(2, 3\)"):
        Graph.from_scipy(csr_array((2, 3)), features=np.eye(2))
    with pytest.raises(InputError, match="must be a scipy sparse matrix, got ndarray"):
        Graph.from_scipy(np.eye(2), features=np.eye(2))
    with pytest.raises(InputError, match="features must have 2 rows, one per node, got 3"):
        Graph.from_scipy(csr_array((2, 2)), features=np.eye(3))
    with pytest.raises(InputError, match="array of numbers, got complex128"):
        Graph.from_scipy(csr_array(np.eye(2) * 1j), features=np.eye(2))
    with pytest.raises(InputError, match="must be finite"):
        Graph.from_scipy(csr_array([[0, np.nan], [0, 0]]), features=np.eye(2))


LEAST = np.iinfo(np.int64).min  # its difference from any offset above 0 wraps around


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(
    ("part", "place", "value"),
    [("indptr", -1, LEAST), ("indptr", 1, 99), ("indices", 0, -1), ("indices", 0, 4)],
)
def test_scipy_matrices_are_checked_before_they_are_read(
    layout: str, part: str, place: int, value: int
) -> None:
    """scipy's compiled code reads wherever they point, and a user may set them."""
    matrix = csr_array(np.eye(4)[::-1].copy()).asformat(layout)
    changed = getattr(matrix, part).astype(np.int64)
    changed[place] = value
    setattr(matrix, part, changed)
    with pytest.raises(InputError, match="adjacency must be a sound sparse matrix"):
        Graph.from_scipy(matrix, features=np.eye(4))
    with pytest.raises(InputError, match="features must be a sound sparse matrix"):
        Graph.from_edges([0], [1], features=matrix)


@pytest.mark.parametrize("kind", [np.float16, np.longdouble, np.uint8, ">f8"])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dia", "bsr"])
def test_scipy_matrices_of_every_type(layout: str, kind: Any) -> None:
    dense = np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]], kind)
    matrix = csr_array(dense.astype(np.float64)).asformat(layout)
    if layout in ("csr", "csc", "coo"):
        matrix.data = matrix.data.astype(kind)
    graph = Graph.from_scipy(matrix, features=matrix)
    np.testing.assert_array_equal(graph.to_scipy().toarray(), dense)
    np.testing.assert_array_equal(graph.features.toarray(), dense)  # type: ignore[union-attr]


@pytest.mark.parametrize("labels", [[[1], [2, 3]], [10**30, 0], ["a", "b"], [0, 10**6], [[], []]])
def test_labels_that_are_none(labels: Any) -> None:
    with pytest.raises(InputError, match="labels must"):
        Graph.from_edges([0], [1], features=np.eye(2), labels=labels)


@settings(deadline=None)
@given(graphs())
def test_networkx_round_trip(graph: Graph) -> None:
    converted = graph.to_networkx()
    assert converted.is_directed() == graph.directed
    assert converted.number_of_edges() == graph.n_edges
    assert_same(graph, Graph.from_networkx(converted))


@settings(deadline=None)
@given(graphs())
def test_pyg_round_trip(graph: Graph) -> None:
    converted = graph.to_pyg()
    converted.validate()
    assert converted.num_nodes == graph.n_nodes
    assert_same(graph, Graph.from_pyg(converted, directed=graph.directed))
    found_out = Graph.from_pyg(converted).directed
    assert found_out is Graph.from_scipy(graph.to_scipy(), features=graph.features).directed


@pytest.mark.parametrize(
    ("module", "extra"), [("networkx", "networkx"), ("torch_geometric.data", "pyg")]
)
def test_missing_library_is_named(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(2))
    monkeypatch.setitem(sys.modules, module, None)
    convert_to = graph.to_networkx if extra == "networkx" else graph.to_pyg
    convert_from: Any = Graph.from_networkx if extra == "networkx" else Graph.from_pyg
    for call in (convert_to, lambda: convert_from(object())):
        with pytest.raises(MissingDependencyError, match=rf"pip install 'fastgcn\[{extra}\]'"):
            call()
