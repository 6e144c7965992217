"""The compiled kernels compute what their plain references do, over odd shapes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numba.extending import get_cython_function_address
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.blas import multiply, sgemm_address
from fastgcn.kernels.blocks import number_columns
from fastgcn.kernels.counter_random import dropout_mask
from fastgcn.kernels.products import (
    Transpose,
    add_part_product,
    nonzero_times_dense,
    product_reference,
    sorted_times_dense,
    sparse_times_dense,
    sparse_times_sparse,
    turn,
)
from fastgcn.kernels.rows import (
    cut_rows,
    rows_with_loops_reference,
    scale_rows,
    scaled_rows_reference,
)
from fastgcn.kernels.step import adam_update, cross_entropy, exponentials
from fastgcn.machine import over_ranges

seeds = st.integers(0, 2**32 - 1)
index_types = st.sampled_from([np.int32, np.int64])
Shape = tuple[int, int, int]
Operand = tuple[FloatArray, bool]


def random_matrix(
    rows: int, columns: int, rng: np.random.Generator, index_type: type = np.int64
) -> csr_array:
    """With empty rows, empty columns, and where there is room a row that has every column."""
    dense = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.3)
    if rows > 2:
        dense[rng.integers(rows)] = 1.0
        dense[rng.integers(rows)] = 0.0
    matrix = csr_array(dense.astype(np.float32))
    matrix.indices = matrix.indices.astype(index_type)
    return matrix


def parts(matrix: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix.indptr.astype(np.int64), matrix.indices, matrix.data


@given(seeds, st.integers(1, 30), index_types)
def test_columns_are_numbered_behind_the_rows(seed: int, n: int, index_type: type) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(n)[: rng.integers(1, n + 1)]
    columns: IntArray = rng.integers(0, n, rng.integers(0, 3 * n)).astype(index_type)
    place = np.full(n, -1, np.int32)
    nodes, numbers = number_columns(rows, columns, place)
    assert nodes[: len(rows)].tolist() == rows.tolist()
    assert len(set(nodes.tolist())) == len(nodes)
    assert nodes[numbers].tolist() == columns.tolist()
    assert set(nodes.tolist()) == {*rows.tolist(), *columns.tolist()}
    assert (place == -1).all()


@pytest.mark.parametrize("threads", [1, 3])
@given(seeds, st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), index_types)
@settings(max_examples=30)
def test_products(
    threads: int, seed: int, rows: int, columns: int, width: int, index_type: type
) -> None:
    rng = np.random.default_rng(seed)
    matrix = random_matrix(rows, columns, rng, index_type)
    right = rng.standard_normal((columns, width), dtype=np.float32)
    left = rng.standard_normal((rows, width), dtype=np.float32)
    sparse = random_matrix(columns, width, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastgcn.kernels.products._WORTH_SHARING", 0 if threads > 1 else 1 << 60)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        mixed = sparse_times_dense(*parts(matrix), right)
        back = Transpose().times(*parts(matrix), left, columns)
        both = np.empty((rows, width), np.float32)
        sparse_times_sparse(*parts(matrix), *parts(sparse), both)
    assert_allclose(mixed, product_reference(matrix, right), rtol=1e-4, atol=1e-5)
    assert_allclose(back, product_reference(matrix.T, left), rtol=1e-4, atol=1e-5)
    assert_allclose(both, product_reference(matrix, sparse), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@given(seeds, st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=30)
def test_zeros_are_left_out_of_products(
    threads: int, seed: int, rows: int, columns: int, width: int
) -> None:
    """Bit for bit the product with all entries; rows that only a zero names may be NaN."""
    rng = np.random.default_rng(seed)
    indptr, indices, values = parts(random_matrix(rows, columns, rng))
    values = values * (rng.random(len(values)) < 0.5)
    right, left = (rng.standard_normal((k, width), dtype=np.float32) for k in (columns, rows))
    whole = csr_array((values, indices, indptr), shape=(rows, columns))
    offsets, places, order = turn(indptr, indices, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastgcn.kernels.products._WORTH_SHARING", 0)
        patch.setattr("fastgcn.kernels.products._AT_A_TIME", 1)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        assert_array_equal(
            nonzero_times_dense(indptr, indices, values, right),
            sparse_times_dense(indptr, indices, values, right),
        )
        turned = nonzero_times_dense(offsets, places, values, left, order)
        assert_allclose(turned, product_reference(whole.T.tocsr(), left), rtol=1e-4, atol=1e-5)
        unread = ~(whole.toarray() != 0).any(axis=0)
        right[unread] = np.nan
        assert np.isfinite(nonzero_times_dense(indptr, indices, values, right)).all()


@pytest.mark.parametrize("threads", [1, 3])
@given(seeds, st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), index_types)
@settings(max_examples=30)
def test_products_by_parts_are_those_of_the_whole(
    threads: int, seed: int, rows: int, columns: int, width: int, index_type: type
) -> None:
    """To the last bit, from hubs to empty rows, with parts that no row has an entry in."""
    rng = np.random.default_rng(seed)
    matrix = random_matrix(rows, columns, rng, index_type)
    right = rng.standard_normal((columns, width), dtype=np.float32)
    step = int(rng.integers(1, columns + 1))
    by_parts = np.full((rows, width), np.nan, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastgcn.kernels.products._WORTH_SHARING", 0 if threads > 1 else 1 << 60)
        patch.setattr("fastgcn.kernels.products._PART_BYTES", 4 * width * step)
        patch.setattr("fastgcn.kernels.products._ENTRIES_A_PART", 0)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        for first in range(0, columns, step):
            add_part_product(*parts(matrix), right[first : first + step], first, by_parts)
        whole = sparse_times_dense(*parts(matrix), right)
        cached = sorted_times_dense(*parts(matrix), right)
    assert_array_equal(by_parts, whole)
    assert_array_equal(cached, whole)


@pytest.mark.parametrize("threads", [1, 3])
@given(seeds, st.integers(1, 20), st.booleans(), st.booleans(), index_types)
@settings(max_examples=30)
def test_rows_are_cut_and_scaled(
    threads: int, seed: int, n: int, weighted: bool, loops: bool, index_type: type
) -> None:
    rng = np.random.default_rng(seed)
    dense = random_matrix(n, n, rng).toarray()
    np.fill_diagonal(dense, 0)
    matrix = csr_array(dense if weighted else (dense != 0).astype(np.float32))
    matrix.indices = matrix.indices.astype(index_type)
    indptr, indices, weights = parts(matrix)
    nodes = rng.integers(0, n, rng.integers(0, 2 * n))  # in any order, with repeats
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastgcn.kernels.rows._WORTH_SHARING", 0 if threads > 1 else 1 << 60)
        patch.setattr("fastgcn.kernels.rows._PIECE_ENTRIES", 5 if threads > 1 else 1 << 60)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        starts, columns, values = cut_rows(
            indptr, indices, weights if weighted else None, nodes, loops=loops
        )
        got = csr_array((values, columns, starts), shape=(len(nodes), n))
        expected = rows_with_loops_reference(matrix, nodes) if loops else matrix[nodes]
        assert columns.dtype == index_type
        assert got.has_sorted_indices
        assert_array_equal(got.toarray(), expected.toarray())
        own, others = rng.random(len(nodes)), rng.random(n) if weighted else None
        scale_rows(starts, columns, values, own, others)
    scaled = csr_array((values, columns, starts), shape=(len(nodes), n)).toarray()
    assert_array_equal(scaled, scaled_rows_reference(expected, own, others).astype(np.float32))


def test_shared_work_covers_every_range_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    seen = np.zeros(100, int)

    def mark(start: int, stop: int) -> None:
        seen[start:stop] += 1

    over_ranges(mark, [0, 7, 7, 50, 99, 100])
    assert (seen == 1).all()


def test_an_error_in_shared_work_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def fail(start: int, stop: int) -> None:  # noqa: ARG001
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        over_ranges(fail, [0, 1, 2])


@pytest.mark.parametrize("scale", [1.0, 300.0])  # 300: the label's probability underflows
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_torchs(scale: float, weighted: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(50, 7, generator=rng)
    logits[:5] = torch.tensor([0.0, 0.0, 2.0, -3.0, scale])[:, None]  # the same for every class
    logits.requires_grad_()
    labels = torch.randint(7, (50,), generator=rng)
    weights = torch.rand(7, generator=rng) if weighted else None
    expected = torch.nn.functional.cross_entropy(logits, labels, weights)
    expected.backward()  # type: ignore[no-untyped-call]
    gradient = logits.detach().clone().numpy()
    loss = cross_entropy(
        gradient.reshape(-1),
        labels.numpy(),
        np.empty(0, np.float32) if weights is None else weights.numpy(),
    )
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert logits.grad is not None
    assert_allclose(gradient, logits.grad.numpy(), rtol=1e-4, atol=1e-7)


def test_exponentials() -> None:
    x = np.linspace(-87, 0, 100_001).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    exponentials(x, np.empty(len(x), np.int32))
    assert (np.abs(x / expected - 1) < 1e-7 * (1 + np.arange(87, -1e-9, -87 / 100_000))).all()
    small = np.array([-1e30, -1000.0, -88.0], np.float32)
    exponentials(small, np.empty(3, np.int32))
    assert (small >= 0).all()
    assert (small < 2e-38).all()


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_adam_is_torchs(decay: float) -> None:
    rng = torch.Generator().manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(33, generator=rng))
    ours = weight.detach().clone().numpy()
    mean, square = np.zeros(33, np.float32), np.zeros(33, np.float32)
    optimizer = torch.optim.Adam([weight], lr=0.01, weight_decay=decay)
    for step in range(1, 30):
        weight.grad = torch.randn(33, generator=rng)
        adam_update(ours, weight.grad.numpy(), mean, square, step, 0.01, decay)
        optimizer.step()
        assert_allclose(ours, weight.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_dropout_mask_keeps_its_share_and_the_mean(rate: float) -> None:
    mask = np.empty(100_001, np.float32)
    dropout_mask(3, rate, mask)
    kept = mask > 0
    # Five standard deviations of a share: one false alarm in two million.
    assert abs(kept.mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / len(mask))
    assert_allclose(mask[kept], 1 / (1 - rate), rtol=1e-4)
    again, other = np.empty_like(mask), np.empty_like(mask)
    dropout_mask(3, rate, again)
    dropout_mask(4, rate, other)
    assert (mask == again).all()
    assert abs(np.corrcoef(mask, other)[0, 1]) < 5 / np.sqrt(len(mask))
    for lag in (1, 2, 3, 4):
        assert abs(np.corrcoef(mask[lag:], mask[:-lag])[0, 1]) < 5 / np.sqrt(len(mask) - lag)


@njit()
def product(
    sgemm: int, shape: Shape, a: Operand, b: Operand, adds: bool, out: FloatArray, start: int
) -> None:
    step = shape[0] if a[1] else shape[1]
    multiply(sgemm, shape, a[0], 0, step, a[1], b[0], 0, b[1], adds, out, start)


flags = st.booleans()


@given(seeds, st.tuples(*[st.integers(0, 40)] * 3), flags, flags, flags, flags)
def test_dense_products(
    seed: int, shape: Shape, a_turned: bool, b_turned: bool, adds: bool, scipys: bool
) -> None:
    rng, (rows, inner, columns) = np.random.default_rng(seed), shape
    a = rng.standard_normal((rows, inner)).astype(np.float32)
    b = rng.standard_normal((inner, columns)).astype(np.float32)
    out = np.full(2 + rows * columns + 1, 9, np.float32)
    address = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    left, right = (
        ((matrix.T if turned else matrix).reshape(-1), turned)
        for matrix, turned in ((a, a_turned), (b, b_turned))
    )
    product(address if scipys else sgemm_address(), shape, left, right, adds, out, 2)
    expected = a @ b + (9 if adds else 0)
    assert_allclose(out[2:-1].reshape(rows, columns), expected, rtol=1e-4, atol=1e-5)
    assert (out[[0, 1, -1]] == 9).all()
