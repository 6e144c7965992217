"""Every `FeatureStore` gives the same rows by `take` and by `between`."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from fastgcn.features.encoded import BitsInMemory, EncodedStore, encoded
from fastgcn.features.sparse import SparseMatrix, dense
from fastgcn.features.store import DenseStore, FeatureStore, NodeFeatures, SideBySide, Stacked

X = np.random.default_rng(0).integers(0, 3, (7, 4)).astype(np.float32)
TWICE = np.concatenate([X, X], axis=1)
NODES = np.array([6, 0, 3, 3, 5, 1, 2])

STORES: dict[str, tuple[FeatureStore, np.ndarray]] = {
    "dense": (DenseStore(X), X),
    "features": (NodeFeatures(X), X),
    "some features": (NodeFeatures(X, "none", NODES), X[NODES]),
    "sparse features": (NodeFeatures(csr_array(X)), X),
    "sparse": (SparseMatrix.of(csr_array(X)), X),
    "half precision": (EncodedStore(BitsInMemory(encoded(X, "float16")), "float16"), X),
    "side by side": (SideBySide(DenseStore(X), NodeFeatures(X)), TWICE),
    "stacked": (Stacked(NodeFeatures(X[:3]), NodeFeatures(X[3:])), X),
}


@pytest.mark.parametrize("name", STORES)
def test_rows_by_id_and_in_order(name: str) -> None:
    store, rows = STORES[name]
    assert (len(store), store.width) == rows.shape
    assert not store.on_disk
    ids = np.array([4, 0, 4, 6])
    assert_array_equal(dense(store.take(ids)), rows[ids])
    assert_array_equal(dense(store.between(2, 6)), rows[2:6])
    assert_array_equal(dense(store.between(3, 3)), rows[3:3])
    assert_array_equal(dense(store.take(ids[:0])), rows[:0])
    weight = torch.ones(store.width, 1)
    assert_array_equal(store.take(ids) @ weight, rows[ids].sum(axis=1, keepdims=True))


@pytest.mark.parametrize("name", STORES)
def test_reading_leaves_the_rows_as_they_are(name: str) -> None:
    store, rows = STORES[name]
    dense(store.take(np.arange(7))).mul(2)
    assert_array_equal(dense(store.between(0, 7)), rows)
