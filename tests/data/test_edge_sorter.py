"""The on-disk edge sort and its kernels against plain numpy and the in-memory reference."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.data.edge_sorter import MAX_NODES, NO_VALUES, EdgeSorter, KeySpool
from fastgcn.data.store import StoreWriter
from fastgcn.errors import InputError
from fastgcn.graph.csr import CSR, Cleaning, csr_from_edges
from fastgcn.kernels import edges as kernels

Edges = tuple[int, IntArray, IntArray, FloatArray | None]


@st.composite
def edge_lists(draw: st.DrawFn) -> Edges:
    """Node count, ends and weights; hubs and repeated edges are common."""
    n = draw(st.sampled_from([1, 2, 3, 5, 64, 65, 1000, 1 << 16]))
    end = st.integers(0, n - 1) | st.integers(0, min(n - 1, 2))
    pairs = draw(st.lists(st.tuples(end, end), max_size=80))
    source, target = np.array(pairs, np.int64).reshape(-1, 2).T
    if not draw(st.booleans()):
        return n, source, target, None
    # Quarters add up without rounding, so that the order of summation does not matter.
    quarters = draw(st.lists(st.integers(0, 8), min_size=len(pairs), max_size=len(pairs)))
    return n, source, target, np.array(quarters, np.float32) / 4


def sort(edges: Edges, *, directed: bool, memory: int, batch: int = 7) -> tuple[CSR, Cleaning]:
    """What the sorter writes for `edges`, added in batches."""
    n, source, target, weights = edges
    with TemporaryDirectory() as folder, StoreWriter(f"{folder}/out") as writer:
        sorter = EdgeSorter(
            writer, n, directed=directed, weighted=weights is not None, memory=memory
        )
        for start in range(0, len(source), batch):
            part = slice(start, start + batch)
            sorter.add(source[part], target[part], None if weights is None else weights[part])
        cleaned = sorter.finish()
        names = {"indptr", "indices"} | (set() if weights is None else {"weights"})
        assert {path.name for path in writer.folder.iterdir()} == {f"{n}.npy" for n in names}
        arrays = {name: np.load(writer.path(name)) for name in names}
    return CSR(arrays["indptr"], arrays["indices"], arrays.get("weights")), cleaned


def assert_same(left: CSR, right: CSR) -> None:
    for one, other in zip(
        (left.indptr, left.indices, left.weights),
        (right.indptr, right.indices, right.weights),
        strict=True,
    ):
        if one is None or other is None:
            assert one is other
        else:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@settings(deadline=None)  # kernels compile on first use
@given(edges=edge_lists(), directed=st.booleans(), memory=st.sampled_from([1, 300, 4000, 1 << 20]))
def test_sorted_rows_are_those_of_the_in_memory_reference(
    edges: Edges, directed: bool, memory: int
) -> None:
    n, source, target, weights = edges
    expected, cleaned = csr_from_edges(source, target, weights, n, directed=directed)
    result, counted = sort(edges, directed=directed, memory=memory)
    assert_same(result, expected)
    assert counted == cleaned


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("memory", [1 << 14, 1 << 30])
def test_a_hub_and_a_random_graph_of_many_batches(directed: bool, memory: int) -> None:
    rng = np.random.default_rng(0)
    n, m = 3000, 4000
    source = np.where(rng.random(m) < 0.3, 7, rng.integers(0, n, m))
    target = rng.integers(0, n, m).astype(np.int32)
    edges = (n, source, target, rng.integers(0, 9, m).astype(np.float32))
    expected, cleaned = csr_from_edges(*edges[1:], n, directed=directed)
    result, counted = sort(edges, directed=directed, memory=memory, batch=300)
    assert_same(result, expected)
    assert counted == cleaned


def test_weights_add_up_in_the_order_listed_so_that_both_directions_agree() -> None:
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 4, (2, 500))
    weights = rng.random(500).astype(np.float32)
    csr, _ = sort((4, ends[0], ends[1], weights), directed=False, memory=2000)
    assert csr.weights is not None
    matrix = np.zeros((4, 4), np.float32)
    matrix[np.repeat(np.arange(4), np.diff(csr.indptr)), csr.indices] = csr.weights
    np.testing.assert_array_equal(matrix, matrix.T)


def test_one_edge_repeated_beyond_memory() -> None:
    ones = np.ones(5000, np.int64)
    csr, cleaned = sort((3, ones, 2 * ones, None), directed=True, memory=1000, batch=5000)
    assert csr.indptr.tolist() == [0, 0, 1, 1]
    assert csr.indices.tolist() == [2]
    assert cleaned == Cleaning(duplicates=4999)


@pytest.mark.parametrize(
    ("source", "target", "weights", "message"),
    [
        ([0, 3], [1, 1], None, r"source must lie in 0\.\.2 .* got 3"),
        ([0], [-1], None, r"target must lie in 0\.\.2 .* got -1"),
        ([0], [1], [-1.0], "weights must not be negative"),
        ([0], [1], [np.nan], "weights must be finite"),
        ([0, 0], [1, 1], [3e38, 3e38], "add up to more than a float32 holds"),
    ],
)
def test_bad_edges_are_refused(
    source: list[int], target: list[int], weights: list[float] | None, message: str
) -> None:
    values = None if weights is None else np.array(weights, np.float32)
    with pytest.raises(InputError, match=message):
        sort((3, np.array(source), np.array(target), values), directed=False, memory=1 << 20)


def test_more_nodes_than_a_key_holds(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "out") as writer, pytest.raises(InputError, match="at most 2,147"):
        EdgeSorter(writer, MAX_NODES + 1, directed=True, weighted=False, memory=1000)


keys_lists = st.lists(st.integers(0, (1 << 20) - 1) | st.integers(0, 3), max_size=60)


@settings(deadline=None)  # kernels compile on first use
@given(keys=keys_lists, memory=st.sampled_from([1, 500, 5000, 1 << 16]), valued=st.booleans())
def test_spool_is_a_stable_sort(keys: list[int], memory: int, valued: bool) -> None:
    array = np.array(keys, np.int64)
    values = np.arange(len(keys), dtype=np.float32) if valued else NO_VALUES
    order = np.argsort(array, kind="stable")
    with TemporaryDirectory() as folder:
        spool = KeySpool(Path(folder), 20, memory, valued=valued)
        for start in range(0, len(keys), 9):
            spool.add(array[start : start + 9], values[start : start + 9])
        assert spool.size == len(keys)
        pieces = list(spool.drain())
        assert list(Path(folder).iterdir()) == []
    got = [np.concatenate([np.empty(0, np.int64), *part]) for part in zip(*pieces, strict=True)]
    if keys:
        np.testing.assert_array_equal(got[0], array[order])
        np.testing.assert_array_equal(got[1], values[order] if valued else NO_VALUES)


def reference_partition(keys: IntArray, shift: int, n_buckets: int) -> tuple[Any, Any]:
    """The stable order of the keys by bucket, and the buckets' offsets."""
    buckets = (keys >> shift) % n_buckets
    counts = np.bincount(buckets, minlength=n_buckets)
    return np.argsort(buckets, kind="stable"), np.concatenate(([0], np.cumsum(counts)))


@settings(deadline=None)  # kernels compile on first use
@given(
    keys=st.lists(st.integers(0, (1 << 62) - 1), max_size=50),
    shift=st.integers(0, 61),
    bits=st.integers(0, 8),
)
def test_partition_kernel(keys: list[int], shift: int, bits: int) -> None:
    array = np.array(keys, np.int64)
    values = np.arange(len(keys), dtype=np.float32)
    keys_out, values_out = np.empty_like(array), np.empty_like(values)
    offsets = kernels.partition(array, values, shift, 1 << bits, keys_out, values_out)
    order, expected = reference_partition(array, shift, 1 << bits)
    np.testing.assert_array_equal(offsets, expected)
    np.testing.assert_array_equal(keys_out, array[order])
    np.testing.assert_array_equal(values_out, values[order])


@settings(deadline=None)  # kernels compile on first use
@given(keys=st.lists(st.integers(0, (1 << 40) - 1), max_size=50), bits=st.integers(0, 40))
def test_sort_kernel(keys: list[int], bits: int) -> None:
    array = np.array(keys, np.int64)
    values = np.arange(len(keys), dtype=np.float32)
    order = np.argsort(array & ((1 << bits) - 1), kind="stable")
    got_keys, got_values = kernels.sort_keys(array.copy(), values.copy(), bits)
    np.testing.assert_array_equal(got_keys, array[order])
    np.testing.assert_array_equal(got_values, values[order])


@pytest.mark.parametrize("directed", [False, True])
def test_key_kernel(directed: bool) -> None:
    rng = np.random.default_rng(2)
    source, target = rng.integers(0, 6, (2, 40))
    weights = rng.integers(0, 3, 40).astype(np.float32)
    keys, values = np.empty(80, np.int64), np.empty(80, np.float32)
    filled, loops, zeros = kernels.edge_keys(source, target, weights, 3, directed, keys, values)
    kept = (source != target) & (weights > 0)
    forward = ((source[kept] << 3) | target[kept]) << 1
    backward = (((target[kept] << 3) | source[kept]) << 1) | 1
    expected = forward if directed else np.stack([forward, backward], 1).ravel()
    np.testing.assert_array_equal(keys[:filled], expected)
    np.testing.assert_array_equal(values[:filled], np.repeat(weights[kept], 1 if directed else 2))
    assert loops == np.count_nonzero(source == target)
    assert zeros == np.count_nonzero((source != target) & (weights == 0))
