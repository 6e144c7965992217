"""Standardised features: whose statistics, in pieces, and alike for every kind of matrix."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import fastgcn.features.store
from fastgcn import GCN, Run, fit, normalize, predict, predict_new, propagate
from fastgcn.arrays import FloatArray
from fastgcn.features.encoded import BitsInMemory, EncodedStore, encoded
from fastgcn.features.store import NodeFeatures, Statistics, column_statistics
from tests.communities import communities, quick


def standardised(features: FloatArray, nodes: Any, *, centre: bool) -> FloatArray:
    """(x - mean) / sd in float64, written plainly."""
    part = features.astype(np.float64)[nodes]
    sd = part.std(axis=0)
    return np.asarray((features - centre * part.mean(axis=0)) / np.where(sd > 0, sd, 1))


@pytest.mark.parametrize("sparse", [False, True])
@settings(max_examples=40)
@given(st.integers(0, 99), st.integers(1, 9), st.sampled_from([1, 100, 1 << 26]))
def test_equal_to_the_formula(sparse: bool, seed: int, k: int, chunk: int) -> None:
    """In pieces and whole; the last column does not vary, and neither does one node alone."""
    rng = np.random.default_rng(seed)
    kept = rng.random((9, 8)) < rng.random()
    features = rng.normal(3, 2, size=(9, 8)).astype(np.float32) * kept
    features[:, 3] = np.float32(0.1)
    nodes = rng.permutation(9)[:k]
    matrix: Any = csr_array(features) if sparse else features
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastgcn.features.store, "_CHUNK_BYTES", chunk)
        statistics = column_statistics(matrix, nodes)
    rows = NodeFeatures(matrix, "standard", statistics=statistics)
    full = np.count_nonzero(features[nodes]) >= 0.2 * features[nodes].size
    expected = standardised(features, nodes, centre=not sparse or bool(full))
    np.testing.assert_allclose(rows.take(np.arange(9)).numpy(), expected, rtol=1e-4, atol=1e-4)
    part = NodeFeatures(matrix, "standard", nodes, statistics)
    np.testing.assert_allclose(
        part.take(np.arange(k)).numpy(), expected[nodes], rtol=1e-4, atol=1e-4
    )


def test_far_from_zero_no_digits_are_lost() -> None:
    features = (1e4 + np.random.default_rng(0).normal(size=(500, 3))).astype(np.float32)
    statistics = column_statistics(features, np.arange(500))
    rows = NodeFeatures(features, "standard", statistics=statistics).take(np.arange(500)).numpy()
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(rows.std(axis=0), 1, rtol=1e-5)


@pytest.mark.parametrize("mean", [0.0, 1.5])
@pytest.mark.parametrize("sparse", [False, True])
def test_convolution_of_standardised_rows(sparse: bool, mean: float) -> None:
    """Statistics are the network's: a mean is taken off sparse features too if it has one."""
    graph = communities(sparse=sparse)
    dense: Any = csr_array(graph.features).toarray()
    statistics = Statistics(np.full(6, mean, np.float32), np.full(6, 2, np.float32))
    adjacency = normalize(graph)
    got = propagate(adjacency, NodeFeatures(graph.features, "standard", statistics=statistics))
    expected = adjacency.to_scipy().toarray() @ ((dense - mean) * 2)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    kept: Any = graph.features
    np.testing.assert_array_equal(kept.toarray() if sparse else kept, dense)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("precompute", [False, True])
def test_training_standardises_by_the_training_nodes(
    sparse: bool, precompute: bool, tmp_path: Path
) -> None:
    """As training on features that were standardised before; and the run keeps the figures."""
    graph, settings_ = communities(sparse=sparse), quick(precompute=precompute)
    dense: Any = csr_array(graph.features).toarray()
    before = standardised(dense, graph.split.train, centre=not sparse)
    plain = fit(replace(graph, features=before.astype(np.float32)), settings_)
    run = fit(graph, settings_.replace(feature_scaling="standard"), run_dir=tmp_path / "run")
    assert run.metrics["val_loss"] == pytest.approx(plain.metrics["val_loss"], rel=1e-4)
    assert run.metrics["test_loss"] == pytest.approx(plain.metrics["test_loss"], rel=1e-4)
    again = Run.load(tmp_path / "run")
    np.testing.assert_array_equal(predict(again, graph), predict(run, graph))


def test_a_network_brings_its_statistics_to_every_graph() -> None:
    model = GCN([6, 4, 3], feature_scaling="standard")
    graph = communities()
    statistics = Statistics(np.arange(6, dtype=np.float32), np.full(6, 0.5, np.float32))
    model.set_feature_statistics(statistics)
    other = GCN([6, 4, 3], feature_scaling="standard")
    other.load_state_dict(model.state_dict())
    plain = GCN([6, 4, 3])
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "feature" not in k})
    scaled = replace(graph, features=(np.asarray(graph.features) - np.arange(6)) * 0.5)
    np.testing.assert_allclose(predict(other, graph), predict(plain, scaled), rtol=1e-5)
    ones = np.ones((1, 6))
    shifted = (ones - np.arange(6)) * 0.5
    np.testing.assert_allclose(
        predict_new(other, graph, features=ones, source=[60], target=[0]),
        predict_new(plain, scaled, features=shifted, source=[60], target=[0]),
        rtol=1e-5,
    )
    assert GCN([6, 3]).feature_statistics is None
    assert torch.equal(other.state_dict()["feature_mean"], torch.arange(6.0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_no_rows_can_be_read_in_any_precision(dtype: str) -> None:
    """A batch that reaches no vertex asks for none."""
    store = EncodedStore(BitsInMemory(encoded(np.eye(3, dtype=np.float32), dtype)), dtype)
    assert store.take(np.empty(0, np.int64)).shape == (0, 3)
    assert store.between(2, 2).shape == (0, 3)
