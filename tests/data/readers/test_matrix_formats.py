"""Formats made of numpy and scipy files: both Reddits, GraphSAINT, gnn-benchmark, our own."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, save_npz

from fastgcn import Graph
from fastgcn.data.readers.matrices import GNN_BENCHMARK, GRAPHSAINT, NPZ_FOLDER, REDDIT_DGL
from fastgcn.errors import FastGCNError
from tests.data.readers.matrix_files import READS, write_benchmark, write_dgl, write_saint
from tests.data.readers.toy import SOURCE, TARGET, assert_same, dense, multilabel, toy, write_trio
from tests.strategies import graphs, split_of


def one_way() -> coo_array:
    return coo_array((np.ones(8), (SOURCE, TARGET)), shape=(8, 8))


@pytest.mark.parametrize("kind", READS)
def test_reads_back_what_was_written(tmp_path: Path, kind: str) -> None:
    write, read = READS[kind]
    folder = tmp_path / "my-data"
    folder.mkdir()
    graph = read(write(folder, toy()))
    assert_same(graph, toy())
    assert graph.name == "my-data"
    assert read(folder, name="other").name == "other"


def test_gnn_benchmark_reads_back_but_for_the_split(tmp_path: Path) -> None:
    graph = GNN_BENCHMARK.read(write_benchmark(tmp_path, toy()))
    assert_same(graph, toy(split=split_of()))
    assert graph.name == "toy_photo"
    assert graph.class_names is None  # pickled objects are left alone


def test_gnn_benchmark_class_names_that_are_text(tmp_path: Path) -> None:
    names = np.array(["cameras", "lenses", "bags"])
    graph = GNN_BENCHMARK.read(write_benchmark(tmp_path, toy(), class_names=names))
    assert graph.class_names == ("cameras", "lenses", "bags")


def test_gnn_benchmark_dense_features_and_sparse_labels(tmp_path: Path) -> None:
    graph = multilabel()
    assert graph.labels is not None
    labels = csr_array(graph.labels.astype(np.int64))
    parts = {f"labels_{p}": getattr(labels, p) for p in ("data", "indices", "indptr", "shape")}
    dense_features = {"attr_matrix": graph.features, "attr_data": None, "labels": None}
    file = write_benchmark(tmp_path, graph, **parts, **dense_features)
    assert_same(GNN_BENCHMARK.read(file), multilabel_without_split())


def multilabel_without_split() -> Graph:
    return multilabel().with_split(split_of())


@pytest.mark.parametrize("kind", ["graphsaint", "npz"])
def test_several_labels_a_node(tmp_path: Path, kind: str) -> None:
    write, read = READS[kind]
    assert_same(read(write(tmp_path, multilabel())), multilabel())


@pytest.mark.parametrize("layout", [csr_array, csc_array, coo_array])
def test_direction_is_as_it_is_or_as_asked(tmp_path: Path, layout: Callable[..., Any]) -> None:
    folder = write_trio(tmp_path, toy())
    save_npz(folder / "adj.npz", layout(one_way()))
    assert_same(NPZ_FOLDER.read(folder), toy(directed=True))
    assert_same(NPZ_FOLDER.read(folder, directed=True), toy(directed=True))
    assert_same(NPZ_FOLDER.read(folder, directed=False), toy())
    with pytest.raises(FastGCNError, match="directed must be True, False or None, got 'no'"):
        NPZ_FOLDER.read(folder, directed="no")


def test_values_are_weights_in_our_own_format_only(tmp_path: Path) -> None:
    double = coo_array((np.full(8, 2.0), (SOURCE, TARGET)), shape=(8, 8))
    save_npz(write_trio(tmp_path, toy()) / "adj.npz", double)
    weights = NPZ_FOLDER.read(tmp_path).weights
    assert weights is not None
    assert weights.tolist() == [2.0] * 8
    save_npz(write_saint(tmp_path, toy()) / "adj_full.npz", double)
    assert_same(GRAPHSAINT.read(tmp_path, directed=False), toy())


def test_an_edge_listed_twice_is_one_edge(tmp_path: Path) -> None:
    """Adding up the ones of a repeated entry would invent a weight."""
    twice = coo_array((np.ones(16), (SOURCE * 2, TARGET * 2)), shape=(8, 8))
    save_npz(write_trio(tmp_path, toy()) / "adj.npz", twice)
    assert_same(NPZ_FOLDER.read(tmp_path, directed=False), toy())


def test_stored_zeros_are_no_edges(tmp_path: Path) -> None:
    zero = coo_array((np.r_[np.ones(8), 0.0], ([*SOURCE, 1], [*TARGET, 7])), shape=(8, 8))
    save_npz(write_dgl(tmp_path, toy()) / "reddit_graph.npz", zero)
    assert_same(REDDIT_DGL.read(tmp_path, directed=False), toy())


def test_node_ids_of_dgl_are_kept(tmp_path: Path) -> None:
    data = dict(np.load(write_dgl(tmp_path, toy()) / "reddit_data.npz"))
    np.savez(tmp_path / "reddit_data.npz", **data | {"node_ids": np.arange(8) + 100})
    ids = REDDIT_DGL.read(tmp_path).node_ids
    assert ids is not None
    assert list(ids) == list(range(100, 108))


def test_features_of_graphsaint_are_mapped_not_read(tmp_path: Path) -> None:
    np.save(write_saint(tmp_path, toy()) / "feats.npy", toy().features)
    features = GRAPHSAINT.read(tmp_path).features
    assert isinstance(features.base if not isinstance(features, np.memmap) else features, np.memmap)


@pytest.mark.parametrize(
    ("name", "counts"),
    [("amazon_photo", (7650, 119081, 745, 8)), ("coauthor_cs", (18333, 81894, 6805, 15))],
)
def test_the_published_counts(real_data: Path, name: str, counts: tuple[int, ...]) -> None:
    graph = NPZ_FOLDER.read(real_data / "npz" / name)
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes) == counts
    assert (graph.name, graph.directed, graph.weights) == (name, False, None)
    assert not any(len(part) for _, part in graph.split.items())


@given(graphs())
def test_any_graph_comes_back(graph: Graph) -> None:
    weights = np.ones(len(graph.indices)) if graph.weights is None else graph.weights
    matrix = csr_array((weights, graph.indices, graph.indptr), shape=(graph.n_nodes,) * 2)
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_npz(folder / "adj.npz", matrix)
        save_npz(folder / "features.npz", csr_matrix(dense(graph.features)))
        np.savez(folder / "labels_split.npz", labels=np.zeros(graph.n_nodes, int))
        read = NPZ_FOLDER.read(folder, directed=graph.directed)
    np.testing.assert_array_equal(read.to_scipy().toarray(), graph.to_scipy().toarray())
    np.testing.assert_array_equal(dense(read.features), dense(graph.features))
    assert (read.n_edges, read.directed) == (graph.n_edges, graph.directed)
