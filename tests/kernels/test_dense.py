"""Dense products and activations in pieces, on several threads, against numpy and torch."""

import threading
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn.functional import layer_norm

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels import products
from fastgcn.kernels.activation import Activation, put_activated, put_activated_back
from fastgcn.kernels.claims import claim, end_piece, over_claims
from fastgcn.kernels.counter_random import dropout_mask, mask_values
from fastgcn.kernels.dense import put_products, transposed_products
from fastgcn.kernels.products import Transpose, nonzero_times_dense, product_reference, turn
from tests.kernels.test_kernels import parts, random_matrix

seeds, sizes, flags = st.integers(0, 2**32 - 1), st.integers(1, 40), st.booleans()
NO_FLOATS = np.empty(0, np.float32)


@pytest.fixture(params=[1, 3], autouse=True, scope="module")
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small pieces, all of them shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: request.param)
        for module in ("dense", "products"):
            patch.setattr(f"fastgcn.kernels.{module}._WORTH_SHARING", 0)
        for name, value in (("FEWEST", 4), ("MOST", 8), ("PARTS", 3), ("WIDE", 4)):
            patch.setattr(f"fastgcn.kernels.dense._{name}", value)
        patch.setattr("fastgcn.kernels.dense._TURNED_AT_A_TIME", 1)
        patch.setattr("fastgcn.kernels.products._LOOKED_AT", 5)
        yield


def normal(rng: np.random.Generator, *shape: int) -> FloatArray:
    return rng.standard_normal(shape, dtype=np.float32)


@given(seeds, sizes, st.integers(0, 9), sizes, flags, flags, flags)
@settings(max_examples=40)
def test_sums_of_products(
    seed: int, rows: int, inner: int, width: int, turned: bool, both: bool, adds: bool
) -> None:
    rng = np.random.default_rng(seed)
    first = normal(rng, rows, inner), normal(rng, width, inner).T
    pairs = [first if turned else (first[0], np.ascontiguousarray(first[1]))]
    if both:
        fewer = int(rng.integers(1, rows + 1))
        pairs.append((normal(rng, rows, 3)[:fewer], normal(rng, 3, width)))
    out = np.full((rows, width), 9 if adds else np.nan, np.float32)
    expected = np.full((rows, width), 9.0 if adds else 0.0)
    for a, b in pairs:
        expected[: len(a)] += a.astype(float) @ b
    put_products(out, pairs, adds=adds)
    assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@given(seeds, st.integers(0, 40), sizes, sizes, sizes)
@settings(max_examples=40)
def test_transposed_products(seed: int, rows: int, width: int, other: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(normal(rng, s, k), normal(rng, s, columns)) for s, k in ((rows, width), (9, other))]
    for count in (1, 2):
        found = transposed_products(pairs[:count])
        assert len(found) == count
        for (a, b), got in zip(pairs, found, strict=False):
            assert_allclose(got, a.T @ b, rtol=1e-4, atol=1e-5)


@given(seeds, sizes, sizes, sizes)
@settings(max_examples=40)
def test_transposed_sparse_products_by_ranges(
    seed: int, rows: int, columns: int, width: int
) -> None:
    """To the last bit those of a transpose that is made."""
    rng = np.random.default_rng(seed)
    matrix, left = random_matrix(rows, columns, rng, np.int32), normal(rng, rows, width)
    transpose = Transpose()
    first, second = (transpose.times(*parts(matrix), left, columns) for _ in range(2))
    assert_allclose(first, product_reference(matrix.T, left), rtol=1e-4, atol=1e-5)
    assert_array_equal(first, second)


@pytest.mark.parametrize("threads", [1, 2, 3])
@given(seeds, st.integers(2, 40), st.sampled_from([1, 16, 130, 200]))
@settings(max_examples=20)
def test_a_product_of_few_rows_needs_no_transpose(
    threads: int, seed: int, rows: int, width: int
) -> None:
    """To the last bit the same, with the zeros of dropout."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, rows // 2 + 1))
    matrix, left = random_matrix(rows, columns, rng, np.int32), normal(rng, rows, width)
    matrix.data[rng.random(matrix.nnz) < 0.5] = 0
    indptr, indices, values = parts(matrix)
    offsets, turned, order = turn(indptr, indices, columns)
    expected = nonzero_times_dense(offsets, turned, values, left, order)
    transpose = Transpose()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_WORTH_SHARING", 0)
        patch.setattr(products, "pool_threads", lambda: threads)
        for _ in range(2):
            found = transpose.times(indptr, indices, values, left, columns)
            assert_array_equal(found, expected)
    assert transpose._found is None


@given(seeds, sizes, st.integers(2, 40), flags, flags, st.sampled_from([0.0, 0.5]))
@settings(max_examples=40)
def test_activations(
    seed: int, rows: int, width: int, biased: bool, normed: bool, rate: float
) -> None:
    """Products, bias, norm, ReLU and dropout, and their gradients, are autograd's."""
    rng = np.random.default_rng(seed)
    a, weight = normal(rng, rows, 5), normal(rng, 5, width)
    bias, gain, shift = (normal(rng, width) for _ in range(3))
    (dropped, value), mask = mask_values(rate), np.ones((rows, width), np.float32)
    if dropped:
        dropout_mask(7, rate, mask.reshape(-1))
    of_norm = (gain, shift) if normed else (NO_FLOATS, NO_FLOATS)
    activation = Activation(of_norm[0], of_norm[1], 1e-5, np.uint64(7), dropped, value)

    z = np.empty((rows, width), np.float32)
    h, scales = np.empty_like(z) if normed else z, np.empty((rows, 2), np.float32)
    put_activated(
        activation, z, bias if biased else NO_FLOATS, scales, h, [(a, weight)], adds=False
    )

    leaves = [torch.from_numpy(each).requires_grad_() for each in (bias, gain, shift)]
    before = (torch.from_numpy(a @ weight)).requires_grad_()
    there = before + leaves[0] if biased else before
    if normed:
        there = layer_norm(there, (width,), leaves[1], leaves[2], 1e-5)
    there = torch.relu(there) * torch.from_numpy(mask)
    assert_allclose(h, there.detach().numpy(), rtol=1e-3, atol=1e-4)

    back, onward = normal(rng, rows, 6), normal(rng, 6, width)
    slope = np.empty((rows, width), np.float32)
    sums = put_activated_back(activation, slope, h, z, scales, [(back, onward)], adds=False)
    there.backward(torch.from_numpy(back @ onward))  # type: ignore[no-untyped-call]
    scale = 1 + float(np.abs(scales[:, 1]).max()) if normed else 1.0
    for got, leaf in zip((slope, *sums), (before, *leaves), strict=True):
        if leaf.grad is not None:
            assert_allclose(got, leaf.grad.numpy(), rtol=1e-3, atol=1e-4 * scale)


@njit(nogil=True)
def _mark(seen: IntArray, counter: IntArray) -> None:
    at = claim(counter, 2)
    while at < len(seen):
        seen[at : at + 2] += 1
        end_piece(counter)
        at = claim(counter, 2)


def test_every_piece_is_claimed_once() -> None:
    for length in (1, 2, 999):
        seen = np.zeros(length, np.int64)
        over_claims(partial(_mark, seen), -(-length // 2))
        assert (seen == 1).all()


@njit(nogil=True)
def _dawdle(seen: IntArray, times: int, counter: IntArray) -> None:
    """Pieces that take a millisecond or so each, after which one writes."""
    at = claim(counter, 1)
    while at < len(seen):
        total = 0.0
        for i in range(times):
            total += np.sqrt(at + i)
        seen[at] = 1 + (total < 0)
        end_piece(counter)
        at = claim(counter, 1)


@pytest.mark.parametrize("times", [0, 1_000_000])
def test_all_pieces_have_ended_when_the_call_has(times: int) -> None:
    for _ in range(20):
        seen = np.zeros(4, np.int64)
        over_claims(partial(_dawdle, seen, times), len(seen))
        assert (seen == 1).all()


def test_what_a_helper_raises_is_raised(request: pytest.FixtureRequest) -> None:
    """Its piece never ends, and is not waited for."""
    if request.node.callspec.params["_threads"] == 1:
        pytest.skip("there are no helpers")
    owner = threading.get_ident()
    begun = threading.Event()

    def work(_: IntArray) -> None:
        if threading.get_ident() != owner:
            begun.set()
            raise ValueError("of a helper")
        begun.wait(10)

    with pytest.raises(ValueError, match="of a helper"):
        over_claims(work, 3)
