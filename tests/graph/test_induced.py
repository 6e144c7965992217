"""Â of a training graph from rows on demand is what normalising its subgraph gives."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgcn.graph.edges
from fastgcn import Graph, normalize, open_store, save
from fastgcn.arrays import IntArray
from fastgcn.graph.adjacency import NORMALIZATIONS, Normalization, NormalizedRows, gather
from fastgcn.graph.edges import InducedEdges, edges_of, induced_csr
from tests.communities import communities
from tests.strategies import graphs


def check(graph: Graph, nodes: IntArray | None, kind: Normalization, folder: Path | None) -> None:
    source = NormalizedRows(edges_of(graph.csr, nodes), kind)
    got = gather(source, folder)
    csr = graph.csr if nodes is None else induced_csr(graph.csr, nodes)
    expected = normalize(csr, kind)
    np.testing.assert_array_equal(got.adjacency.indptr, expected.indptr)
    np.testing.assert_array_equal(got.adjacency.indices, expected.indices)
    np.testing.assert_allclose(got.adjacency.values, expected.values, rtol=1e-6)
    np.testing.assert_allclose(got.squares, expected.column_norms() ** 2, rtol=1e-6, atol=1e-12)
    assert bool(got.adjacency.files) == (folder is not None and len(expected.indices) > 0)
    got.adjacency.forget()
    np.testing.assert_array_equal(got.adjacency.indices, expected.indices)


@given(graphs(), st.sampled_from(NORMALIZATIONS), st.data())
def test_any_part_of_any_graph(graph: Graph, kind: Normalization, data: st.DataObject) -> None:
    node = st.integers(0, graph.n_nodes - 1)
    part = data.draw(st.none() | st.lists(node, min_size=1, unique=True))
    check(graph, None if part is None else np.array(part), kind, None)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("inductive", [False, True])
@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_a_store_in_chunks_to_files(
    weighted: bool,
    inductive: bool,
    kind: Normalization,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(communities(weighted=weighted, directed=True), tmp_path / "store")
    graph = open_store(tmp_path / "store")
    monkeypatch.setattr(fastgcn.graph.edges, "_EDGES_AT_ONCE", 7)
    check(graph, graph.split.train if inductive else None, kind, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["store"], "files have no name"


def test_rows_in_any_order() -> None:
    graph = communities(weighted=True)
    nodes = graph.split.train
    rows = NormalizedRows(InducedEdges(graph.csr, nodes), "symmetric").rows(np.array([5, 0, 5]))
    whole = normalize(induced_csr(graph.csr, nodes)).to_scipy()[[5, 0, 5]]
    np.testing.assert_array_equal(rows.indices, whole.indices)
    np.testing.assert_allclose(rows.values, whole.data, rtol=1e-6)
