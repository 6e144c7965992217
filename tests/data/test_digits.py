"""The digits graph, which must be the same on every machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse.csgraph import connected_components

from fastgcn.arrays import FloatArray
from fastgcn.data.layout import fingerprint
from fastgcn.data.registry import _images, load_digits, nearest_rows
from fastgcn.graph.graph import Graph


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load_digits()


def test_shape(digits: Graph) -> None:
    assert repr(digits) == (
        "Graph(digits: 1,797 nodes, 9,929 undirected edges, 64 features, 10 classes)"
    )
    assert digits.weights is None
    assert digits.class_names == tuple("0123456789")
    assert digits.features.min() == 0
    assert digits.features.max() == 1
    assert np.diff(digits.indptr).min() == 8


def test_edges_join_equal_digits_and_reach_all(digits: Graph) -> None:
    matrix = digits.to_scipy().tocoo()
    assert digits.labels is not None
    assert np.mean(digits.labels[matrix.row] == digits.labels[matrix.col]) > 0.95
    assert connected_components(matrix)[0] == 1


def test_split_is_stratified_and_covers_all(digits: Graph) -> None:
    assert digits.labels is not None
    counts = np.bincount(digits.labels)
    for (_, nodes), share in zip(digits.split.items(), (0.6, 0.2, 0.2), strict=True):
        assert len(nodes) == pytest.approx(share * 1797, abs=10)
        assert np.abs(np.bincount(digits.labels[nodes]) - share * counts).max() <= 1
    assert sum(len(nodes) for _, nodes in digits.split.items()) == 1797


def test_always_the_same(digits: Graph) -> None:
    assert fingerprint(load_digits()) == fingerprint(digits)


@settings(deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(2, 8), st.integers(1, 3)), elements=st.integers(0, 4)),
    st.data(),
)
def test_nearest_rows_against_sorting(points: FloatArray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(points) - 1))
    found = nearest_rows(points, k)
    for i, row in enumerate(points):
        others = [j for j in range(len(points)) if j != i]
        others.sort(key=lambda j: (float(((points[j] - row) ** 2).sum()), j))
        assert sorted(found[i]) == sorted(others[:k])


def test_images_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, labels = _images()
    monkeypatch.setattr("fastgcn.data.registry.find_spec", lambda _: None)
    wanted = _images()
    np.testing.assert_array_equal(pixels, wanted[0])
    np.testing.assert_array_equal(labels, wanted[1])
