"""ÂX: in chunks, to a file and from sparse features it is what the dense product is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import fastgcn.features.propagate
from fastgcn import Graph, normalize, open_store, propagate, save, subgraph
from fastgcn.arrays import FloatArray
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.adjacency import NormalizedRows
from fastgcn.graph.edges import GraphEdges
from tests.communities import communities
from tests.strategies import graphs


def scaled(features: FloatArray, scaling: str) -> FloatArray:
    """Row scaling, written plainly."""
    if scaling == "none":
        return features
    sums = np.abs(features).sum(axis=1, keepdims=True)
    return features / np.where(sums > 0, sums, 1)


@settings(max_examples=50, deadline=None)
@given(
    graphs(),
    st.sampled_from(["none", "row"]),
    st.booleans(),
    st.sampled_from([1, 40, 1 << 26]),
    st.booleans(),
)
def test_equal_to_the_dense_product(
    graph: Graph, scaling: str, sparse: bool, chunk: int, on_demand: bool
) -> None:
    features = np.where(np.abs(graph.features) < 0.5, 0, graph.features).astype(np.float32)
    adjacency = normalize(graph)
    expected = adjacency.to_scipy().toarray().astype(np.float64) @ scaled(features, scaling)
    rows = NodeFeatures(csr_array(features) if sparse else features, scaling)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastgcn.features.propagate, "_PART_BYTES", chunk)
        got = propagate(
            NormalizedRows(GraphEdges(graph.csr), "symmetric") if on_demand else adjacency, rows
        )
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scaling", ["none", "row"])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("part", [None, [3, 1, 40, 7]])
def test_parts_are_bit_identical_to_the_whole(
    sparse: bool,
    scaling: str,
    mapped: bool,
    part: list[int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = communities(sparse=sparse, weighted=True)
    if mapped:
        save(graph, tmp_path / "store")
        graph = open_store(tmp_path / "store")
    nodes = None if part is None else np.array(part)
    adjacency = normalize(graph if part is None else subgraph(graph, part))
    rows = NodeFeatures(graph.features, scaling, nodes)
    whole = propagate(adjacency, rows)
    monkeypatch.setattr(fastgcn.features.propagate, "_PART_BYTES", 7 * 4 * graph.n_features)
    monkeypatch.setattr(fastgcn.features.propagate, "_ROWS_AT_ONCE", 5)
    np.testing.assert_array_equal(propagate(adjacency, rows), whole)


def test_a_memory_map_holds_what_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = communities()
    adjacency, rows = normalize(graph), NodeFeatures(graph.features)
    whole = propagate(adjacency, rows)
    monkeypatch.setattr(fastgcn.features.propagate, "CHUNK_BYTES", 100)
    with (tmp_path / "propagated.f32").open("w+b") as file:
        mapped = propagate(adjacency, rows, out=file)
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, whole)
    on_disk = np.fromfile(tmp_path / "propagated.f32", np.float32).reshape(whole.shape)
    np.testing.assert_array_equal(on_disk, whole)


@settings(max_examples=50, deadline=None)
@given(graphs(), st.sampled_from(["none", "row"]), st.booleans(), st.data())
def test_feature_rows_of_a_part(
    graph: Graph, scaling: str, sparse: bool, data: st.DataObject
) -> None:
    node = st.integers(0, graph.n_nodes - 1)
    part = np.array(data.draw(st.lists(node, min_size=1, unique=True), label="part"))
    ids = np.array(data.draw(st.lists(st.integers(0, len(part) - 1), min_size=1), label="ids"))
    features: Any = np.asarray(graph.features)
    rows = NodeFeatures(csr_array(features) if sparse else features, scaling, part)
    np.testing.assert_allclose(
        rows.take(ids),
        scaled(features.astype(np.float64), scaling)[part[ids]],
        rtol=1e-6,
        atol=1e-7,
    )


def test_the_public_name_stays_the_function() -> None:
    """A submodule of the same name would take its place once imported."""
    assert callable(fastgcn.propagate)
