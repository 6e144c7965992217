"""Sparse rows of ÂX: the same products, gradients and trainings as with dense ones."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from torch import nn

import fastgcn.backends.evaluator
import fastgcn.backends.exact
import fastgcn.features.propagate
from fastgcn import GCN, Run, fit, load, normalize
from fastgcn.backends.cpu import ready
from fastgcn.backends.direct import make_step
from fastgcn.backends.evaluator import Evaluator
from fastgcn.backends.steps import Adam, AutogradStep, CompiledStep, Step
from fastgcn.features.propagate import sparse_inputs
from fastgcn.features.sparse import SparseMatrix
from fastgcn.features.store import DenseStore, NodeFeatures, Statistics
from fastgcn.graph.edges import Rows
from fastgcn.sampling import FullSampler
from tests.communities import communities, quick, weights_of

GRAPH = communities(sparse=True)


def bag_of_words(rng: np.random.Generator, rows: int, width: int, index_type: type) -> csr_array:
    """With empty rows and empty columns."""
    dense = rng.random((rows, width)) * (rng.random((rows, width)) < 0.3)
    matrix = csr_array(dense.astype(np.float32))
    matrix.indices = matrix.indices.astype(index_type)
    return matrix


def keep_sparse(patch: pytest.MonkeyPatch, sparse: bool) -> None:
    """Whatever the share of entries that are not zero."""
    patch.setattr(fastgcn.features.propagate, "_DENSEST", 1.0 if sparse else -1.0)


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(1, 12), st.integers(1, 20),
    st.sampled_from([np.int32, np.int64]),
)  # fmt: skip
@settings(max_examples=40)
def test_rows_are_those_of_the_dense_matrix(
    seed: int, n: int, width: int, columns: int, index_type: type
) -> None:
    rng = np.random.default_rng(seed)
    matrix = bag_of_words(rng, n, width, index_type)
    ids: Any = rng.integers(0, n, 2 * n) if n else np.empty(0, np.int64)
    first, second = SparseMatrix.of(matrix).take(ids).split([n, len(ids) - n])
    expected = matrix.toarray()[ids]
    assert_array_equal(first.dense(), expected[:n])
    assert_array_equal(second.dense(), expected[n:])
    assert (len(second), second.width) == (len(ids) - n, width)
    weight = torch.from_numpy(rng.standard_normal((width, columns), dtype=np.float32))
    theirs = weight.clone().requires_grad_()
    weight.requires_grad_()
    ours, plain = second @ weight, torch.from_numpy(expected[n:]) @ theirs
    for out in (ours, plain):
        out.square().sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert theirs.grad is not None
    assert_allclose(ours.detach(), plain.detach(), rtol=1e-4, atol=1e-5)
    assert_allclose(weight.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert torch.equal(second @ weight, ours)


def test_other_devices_get_dense_rows() -> None:
    rows = SparseMatrix.of(csr_array(np.eye(3, dtype=np.float32)))
    assert rows.to("cpu") is rows
    assert isinstance(rows.to("meta"), torch.Tensor)


@pytest.mark.parametrize("nodes", [None, np.array([5, 7, 9, 30, 31])], ids=["all", "some"])
@pytest.mark.parametrize("scaling", ["none", "row", "standard"])
@pytest.mark.parametrize("beside", [False, True])
def test_the_product_is_the_dense_one(nodes: Any, scaling: str, beside: bool) -> None:
    statistics = None
    if scaling == "standard":
        statistics = Statistics(np.zeros(6, np.float32), np.arange(1, 7, dtype=np.float32))
    features = NodeFeatures(GRAPH.features, scaling, statistics=statistics)
    adjacency = normalize(GRAPH)
    ids = np.arange(adjacency.n) if nodes is None else nodes
    rows, own = adjacency.rows(ids), ids if beside else None
    with pytest.MonkeyPatch.context() as patch:
        keep_sparse(patch, sparse=True)
        patch.setattr(fastgcn.features.propagate, "_ROWS_AT_ONCE", 7)
        found = sparse_inputs(rows, features, own, lambda _: True)
    assert found is not None
    assert found.columns.dtype == np.int32
    assert found.values.dtype == np.float32
    inside = np.delete(np.diff(found.columns), found.indptr[1:-1] - 1)
    assert (inside > 0).all(), "columns ascend in each row"
    assert_allclose(found.dense(), features.convolve(rows, own), rtol=1e-5, atol=1e-6)


def test_what_is_not_sparse_is_left_to_others() -> None:
    rows = normalize(GRAPH).rows(np.arange(GRAPH.n_nodes))
    dense: Any = communities().features

    def tried(features: NodeFeatures, fits: bool = True, rows: Rows = rows) -> SparseMatrix | None:
        return sparse_inputs(rows, features, None, lambda _: fits)

    centred = Statistics(np.ones(6, np.float32), np.ones(6, np.float32))
    few = NodeFeatures(csr_array(np.eye(GRAPH.n_nodes, 200, dtype=np.float32)))
    assert tried(few) is not None
    assert tried(few, fits=False) is None
    assert tried(NodeFeatures(dense)) is None
    assert tried(NodeFeatures(csr_array(np.ones_like(dense)))) is None
    assert tried(NodeFeatures(GRAPH.features, "standard", statistics=centred)) is None


def trained(sparse: bool, graph: Any = GRAPH, **fields: Any) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        keep_sparse(patch, sparse)
        trainer = ready(graph, quick(**fields))
        assert isinstance(trainer.data.inputs, SparseMatrix) == sparse
        (part, *_) = trainer.minibatches.singly([trainer.data.batch_nodes[:9]])
        assert isinstance(part.x, SparseMatrix) == sparse
        return fit(graph, quick(**fields))


def assert_alike(sparse: Run, dense: Run) -> None:
    """But for rounding."""
    for name, expected in dense.model.state_dict().items():
        assert_allclose(sparse.model.state_dict()[name], expected, rtol=2e-3, atol=2e-4)
    for name in ("val_micro_f1", "test_micro_f1"):
        assert sparse.metrics[name] == dense.metrics[name]
    assert sparse.metrics["val_loss"] == pytest.approx(dense.metrics["val_loss"], rel=1e-3)


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden": ()},
        {"hidden": 16, "bias": True, "weight_decay": 0.01},
        {"hidden": (8, 5), "class_weight": "balanced"},
        {"feature_scaling": "standard"},
        {"feature_scaling": "row", "inductive": False},
        {"norm": "layer", "skip": True},
        {"input_skip": True, "bias": True},
        {"hidden": (), "input_skip": True},
        {"hidden": (8, 8), "jumping": "concat", "norm": "batch"},
        {"distribution": "optimal"},
        {"history": True},
        {"method": "gcn-batched"},
    ],
    ids=str,
)
def test_training_is_the_same_but_for_rounding(fields: dict[str, Any]) -> None:
    assert_alike(trained(True, **fields), trained(False, **fields))


def test_label_sets_train_the_same() -> None:
    graph = communities(sparse=True, multilabel=True)
    assert_alike(trained(True, graph), trained(False, graph))


@pytest.mark.parametrize("width", [1, 6])
def test_features_that_are_all_zero_or_one_column_train_the_same(width: int) -> None:
    some = csr_array(np.asarray(communities().features)[:, :1] * (width == 1))
    some.resize((60, width))
    graph = replace(GRAPH, features=some)
    assert_alike(trained(True, graph), trained(False, graph))


def test_without_precomputation_nothing_changes() -> None:
    with pytest.MonkeyPatch.context() as patch:
        keep_sparse(patch, sparse=False)
        dense = fit(GRAPH, quick(precompute=False))
        keep_sparse(patch, sparse=True)
        sparse = fit(GRAPH, quick(precompute=False))
    assert weights_of(sparse.model) == weights_of(dense.model)


def test_dropout_zeroes_stored_entries_alone() -> None:
    model = GCN([6, 4, 3], dropout=0.5)
    model.dropout.rng = torch.Generator().manual_seed(0)
    rows = SparseMatrix.of(csr_array(np.tile(np.array([1, 0, 0, 0, 0, 2], np.float32), (5000, 1))))
    dropped = model.dropout(rows, 0).dense()
    assert not dropped[:, 1:5].any()
    # Five standard deviations of a mean of 5000 values 0 and 2: one false alarm in two million.
    assert abs(dropped[:, 0].mean() - 1) < 5 / 5000**0.5
    assert model.eval().dropout(rows, 0) is rows
    run = trained(True, dropout=0.5, epochs=20)
    assert run.metrics["val_micro_f1"] > 0.5


@pytest.mark.parametrize("sizes", [[9, 3], [9, 16, 3], [9, 20, 5, 3]])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_steps_from_sparse_rows_are_those_from_dense_ones(
    sizes: list[int], bias: bool, compiled: bool
) -> None:
    rng = np.random.default_rng(0)
    rows = SparseMatrix.of(bag_of_words(rng, 60, 9, np.int32))
    labels = torch.from_numpy(rng.integers(0, 3, 60))
    sampler, draws = FullSampler(normalize(GRAPH), len(sizes) - 2), torch.Generator().manual_seed(0)
    model, loss = GCN(sizes, bias=bias), nn.CrossEntropyLoss()
    other = copy.deepcopy(model)

    def step_of(network: GCN) -> Step:
        groups = [{"params": list(network.parameters()), "weight_decay": 0.01}]
        optimizer = Adam(groups, 0.01)
        if compiled:
            step = make_step(network, loss, optimizer)
            assert isinstance(step, CompiledStep)
            return step
        return AutogradStep(network, loss, optimizer)

    ours, theirs = step_of(model), step_of(other)
    for _ in range(5):
        batch = torch.randperm(60, generator=draws)[:12]
        blocks = sampler.sample(batch)
        x = rows.take((blocks[0].src if blocks else batch).numpy())
        expected = theirs(blocks, x.dense(), labels[batch])
        assert ours(blocks, x, labels[batch]) == pytest.approx(expected, rel=1e-4)
    for mine, reference in zip(model.parameters(), other.parameters(), strict=True):
        assert_allclose(mine.detach(), reference.detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("hidden", [(), 8, (8, 8)])
@pytest.mark.parametrize("input_skip", [False, True])
def test_a_judge_that_keeps_sparse_rows_says_the_same(
    hidden: Any, input_skip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = quick(hidden=hidden, input_skip=input_skip)
    keep_sparse(monkeypatch, sparse=False)
    model = fit(GRAPH, fields).model
    part = GRAPH.split.val[::-1]
    dense = Evaluator(GRAPH, fields, part)(model)
    keep_sparse(monkeypatch, sparse=True)
    small = Evaluator(GRAPH, fields, part)
    # Nothing dense would be kept in so little memory.
    monkeypatch.setattr(fastgcn.backends.evaluator, "_KEPT_BYTES", 8 * 2 * GRAPH.n_nodes * 6 * 2)
    large = Evaluator(GRAPH, fields, part)
    for judge in (small, large):
        scores = judge(model)
        assert isinstance(judge._inputs, SparseMatrix)
        assert scores.loss == pytest.approx(dense.loss, rel=1e-5)
        assert scores.micro_f1 == dense.micro_f1


def test_cora_is_kept_sparse_and_pubmed_is_not(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTGCN_DATA", str(real_data))
    cora, pubmed = (ready(load(name), quick()).data.inputs for name in ("cora", "pubmed"))
    assert isinstance(cora, SparseMatrix)
    assert len(cora.values) < 0.1 * len(cora) * cora.width
    assert isinstance(pubmed, DenseStore)
