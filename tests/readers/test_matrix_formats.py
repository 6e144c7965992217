"""Formats made of numpy and scipy files: both Reddits, GraphSAINT, gnn-benchmark, our own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, dia_array, save_npz, triu

from fastgcn import Graph
from fastgcn.data.readers import (
    gnn_benchmark,
    graphsaint,
    npz_folder,
    reddit_dgl,
    reddit_fastgcn,
)
from fastgcn.errors import FastGCNError, FormatError, MissingFileError
from tests.readers.toy import (
    SOURCE,
    TARGET,
    adjacency,
    assert_same,
    multilabel,
    toy,
    write_trio,
)
from tests.strategies import split_of


def one_way() -> coo_array:
    return coo_array((np.ones(8), (SOURCE, TARGET)), shape=(8, 8))


def write_fastgcn(folder: Path, graph: Graph) -> Path:
    arrays: dict[str, Any] = {"feats": graph.features}
    assert graph.labels is not None
    for part, ids in graph.split.items():
        arrays |= {f"{part}_index": ids, f"y_{part}": graph.labels[ids]}
    np.savez(folder / "reddit.npz", **arrays)
    save_npz(folder / "reddit_adj.npz", coo_array(triu(adjacency(graph))))
    return folder


def write_dgl(folder: Path, graph: Graph) -> Path:
    types = np.zeros(8, np.int64)
    for kind, (_, ids) in enumerate(graph.split.items(), start=1):
        types[ids] = kind
    arrays: dict[str, Any] = {"feature": graph.features, "label": graph.labels}
    np.savez(folder / "reddit_data.npz", node_ids=np.arange(8), node_types=types, **arrays)
    save_npz(folder / "reddit_graph.npz", coo_array(adjacency(graph)))
    return folder


def write_saint(folder: Path, graph: Graph) -> Path:
    save_npz(folder / "adj_full.npz", csr_matrix(adjacency(graph)).astype(bool))
    np.save(folder / "feats.npy", np.asarray(graph.features, np.float64))
    roles = {name[:2]: ids.tolist() for name, ids in graph.split.items()}
    (folder / "role.json").write_text(json.dumps(roles))
    assert graph.labels is not None
    labels = {str(node): label.astype(int).tolist() for node, label in enumerate(graph.labels)}
    (folder / "class_map.json").write_text(
        json.dumps({node: label for node, label in labels.items() if label != -1})
    )
    return folder


def write_benchmark(folder: Path, graph: Graph, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"labels": graph.labels}
    for what, matrix in (("adj", adjacency(graph)), ("attr", csr_array(graph.features))):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{what}_{part}"] = getattr(matrix, part)
    arrays["node_names"] = np.array(["a", None] * 4, dtype=object)
    arrays["class_names"] = np.array([f"topic {c}" for c in range(3)], dtype=object)
    arrays |= changes
    file = folder / "toy_photo.npz"
    np.savez(file, **{name: value for name, value in arrays.items() if value is not None})
    return file


READS: dict[str, tuple[Callable[[Path, Graph], Path], Callable[..., Graph]]] = {
    "reddit-fastgcn": (write_fastgcn, reddit_fastgcn.read),
    "reddit-dgl": (write_dgl, reddit_dgl.read),
    "graphsaint": (write_saint, graphsaint.read),
    "npz": (write_trio, npz_folder.read),
}


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
    graph = gnn_benchmark.read(write_benchmark(tmp_path, toy()))
    assert_same(graph, toy(split=split_of()))
    assert graph.name == "toy_photo"
    assert graph.class_names is None  # pickled objects are left alone


def test_gnn_benchmark_class_names_that_are_text(tmp_path: Path) -> None:
    names = np.array(["cameras", "lenses", "bags"])
    graph = gnn_benchmark.read(write_benchmark(tmp_path, toy(), class_names=names))
    assert graph.class_names == ("cameras", "lenses", "bags")


def test_gnn_benchmark_dense_features_and_sparse_labels(tmp_path: Path) -> None:
    graph = multilabel()
    assert graph.labels is not None
    labels = csr_array(graph.labels.astype(np.int64))
    parts = {f"labels_{p}": getattr(labels, p) for p in ("data", "indices", "indptr", "shape")}
    dense_features = {"attr_matrix": graph.features, "attr_data": None, "labels": None}
    file = write_benchmark(tmp_path, graph, **parts, **dense_features)
    assert_same(gnn_benchmark.read(file), multilabel_without_split())


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
    assert_same(npz_folder.read(folder), toy(directed=True))
    assert_same(npz_folder.read(folder, directed=True), toy(directed=True))
    assert_same(npz_folder.read(folder, directed=False), toy())
    with pytest.raises(FastGCNError, match="directed must be True, False or None, got 'no'"):
        npz_folder.read(folder, directed="no")  # type: ignore[arg-type]


def test_values_are_weights_in_our_own_format_only(tmp_path: Path) -> None:
    double = coo_array((np.full(8, 2.0), (SOURCE, TARGET)), shape=(8, 8))
    save_npz(write_trio(tmp_path, toy()) / "adj.npz", double)
    weights = npz_folder.read(tmp_path).weights
    assert weights is not None
    assert weights.tolist() == [2.0] * 8
    save_npz(write_saint(tmp_path, toy()) / "adj_full.npz", double)
    assert_same(graphsaint.read(tmp_path, directed=False), toy())


def test_an_edge_listed_twice_is_one_edge(tmp_path: Path) -> None:
    """Adding up the ones of a repeated entry would invent a weight."""
    twice = coo_array((np.ones(16), (SOURCE * 2, TARGET * 2)), shape=(8, 8))
    save_npz(write_trio(tmp_path, toy()) / "adj.npz", twice)
    assert_same(npz_folder.read(tmp_path, directed=False), toy())


def test_stored_zeros_are_no_edges(tmp_path: Path) -> None:
    zero = coo_array((np.r_[np.ones(8), 0.0], ([*SOURCE, 1], [*TARGET, 7])), shape=(8, 8))
    save_npz(write_dgl(tmp_path, toy()) / "reddit_graph.npz", zero)
    assert_same(reddit_dgl.read(tmp_path, directed=False), toy())


def test_node_ids_of_dgl_are_kept(tmp_path: Path) -> None:
    data = dict(np.load(write_dgl(tmp_path, toy()) / "reddit_data.npz"))
    np.savez(tmp_path / "reddit_data.npz", **data | {"node_ids": np.arange(8) + 100})
    ids = reddit_dgl.read(tmp_path).node_ids
    assert ids is not None
    assert list(ids) == list(range(100, 108))


def test_features_of_graphsaint_are_mapped_not_read(tmp_path: Path) -> None:
    np.save(write_saint(tmp_path, toy()) / "feats.npy", toy().features)
    features = graphsaint.read(tmp_path).features
    assert isinstance(features.base if not isinstance(features, np.memmap) else features, np.memmap)


MISSING = [
    ("reddit-fastgcn", "reddit.npz"),
    ("reddit-fastgcn", "reddit_adj.npz"),
    ("reddit-dgl", "reddit_graph.npz"),
    ("graphsaint", "feats.npy"),
    ("graphsaint", "role.json"),
    ("npz", "features.npz"),
    ("npz", "adj.npz"),
]


@pytest.mark.parametrize(("kind", "file"), MISSING)
def test_a_missing_file_is_named(tmp_path: Path, kind: str, file: str) -> None:
    write, read = READS[kind]
    (write(tmp_path, toy()) / file).unlink()
    with pytest.raises(MissingFileError, match=f"lacks {file}"):
        read(tmp_path)


@pytest.mark.parametrize(("kind", "file"), [m for m in MISSING if m[1].endswith("z")])
def test_every_cut_of_a_zip_is_a_format_error(tmp_path: Path, kind: str, file: str) -> None:
    write, read = READS[kind]
    path = write(tmp_path, toy()) / file
    whole = path.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 25)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="cannot be read as a .npz file") as error:
            read(tmp_path)
        assert str(path) in str(error.value)


def test_flipped_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    file = write_benchmark(tmp_path, toy())
    whole = bytearray(file.read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(whole), 150):
        damaged = whole.copy()
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        file.write_bytes(damaged)
        try:
            gnn_benchmark.read(file)
        except FormatError:
            refused += 1
    assert refused > 50


def resave(folder: Path, file: str, **changes: Any) -> None:
    arrays = dict(np.load(folder / file)) | changes
    np.savez(folder / file, **{k: v for k, v in arrays.items() if v is not None})


OBJECTS = np.array([{}, None], dtype=object)
BAD_ARRAYS: list[tuple[str, str, dict[str, Any], str]] = [
    ("reddit-fastgcn", "reddit.npz", {"y_val": None}, "lacks the array 'y_val'; it has feats,"),
    ("reddit-fastgcn", "reddit.npz", {"y_val": [1]}, "y_val and val_index must be equally long"),
    ("reddit-fastgcn", "reddit.npz", {"val_index": [8, 9]}, "split.val must lie in 0..7"),
    ("reddit-fastgcn", "reddit.npz", {"val_index": [0, 1]}, "node 0 is in both train and val"),
    ("reddit-fastgcn", "reddit.npz", {"feats": np.ones((3, 2))}, "features must have 8 rows"),
    ("reddit-fastgcn", "reddit.npz", {"feats": OBJECTS}, "Object arrays cannot be loaded"),
    ("reddit-dgl", "reddit_data.npz", {"node_types": [1] * 7}, "must hold 8 times 1"),
    ("reddit-dgl", "reddit_data.npz", {"node_types": [4] * 8}, "got shape .* the types .4."),
    ("reddit-dgl", "reddit_data.npz", {"node_types": ["a"] * 8}, "must hold 8 times 1"),
    ("reddit-dgl", "reddit_data.npz", {"label": [0.5] * 8}, "labels must be integers"),
    ("reddit-dgl", "reddit_data.npz", {"feature": np.full((8, 1), np.nan)}, "NaN|finite"),
    ("npz", "labels_split.npz", {"labels": [0]}, r"labels must have shape \(8,\)"),
    ("npz", "labels_split.npz", {"train": [[0]]}, "split.train must be one-dimensional"),
    ("npz", "adj.npz", {"shape": [8, 9]}, "must hold a square adjacency matrix"),
    ("npz", "adj.npz", {"shape": [9, 9]}, "is not whole"),
    ("npz", "adj.npz", {"shape": 8}, "shape must be two integers"),
    ("npz", "adj.npz", {"shape": [-8, -8]}, "is not whole"),
    ("npz", "adj.npz", {"indices": [99] * 16}, "is not whole"),
    ("npz", "adj.npz", {"indices": [-1] * 16}, "is not whole"),
    ("npz", "adj.npz", {"indptr": [0, 9, 2, 3, 4, 5, 6, 7, 16]}, "is not whole"),
    ("npz", "adj.npz", {"indices": [0.5] * 16}, "indices must be a 1-D array of integers"),
    ("npz", "adj.npz", {"data": ["a"] * 16}, "data must be a 1-D array of numbers"),
    ("npz", "adj.npz", {"data": [-1.0] * 16}, "weight"),
    ("npz", "adj.npz", {"format": None}, "lacks the array 'format'"),
    ("npz", "adj.npz", {"format": "dok"}, "layout 'dok', expected csr, csc or coo"),
]


@pytest.mark.parametrize(("kind", "file", "changes", "message"), BAD_ARRAYS)
def test_bad_arrays_are_named(
    tmp_path: Path, kind: str, file: str, changes: dict[str, Any], message: str
) -> None:
    write, read = READS[kind]
    resave(write(tmp_path, toy()), file, **changes)
    with pytest.raises(FormatError, match=message) as error:
        read(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_layout_that_is_not_read(tmp_path: Path) -> None:
    save_npz(write_trio(tmp_path, toy()) / "features.npz", dia_array(np.eye(8)))
    with pytest.raises(FormatError, match=r"features.npz holds .* 'dia', .* after .tocsr"):
        npz_folder.read(tmp_path)


def test_coo_indices_out_of_range(tmp_path: Path) -> None:
    resave(write_dgl(tmp_path, toy()), "reddit_graph.npz", row=np.full(16, 8))
    with pytest.raises(FormatError, match="is not whole"):
        reddit_dgl.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adj_indptr": None}, "lacks the array 'adj_indptr'; it has adj_data"),
        ({"attr_shape": None}, "lacks the array 'attr_shape'"),
        ({"attr_data": None}, "neither attr_data nor attr_matrix"),
        ({"labels": None}, "neither labels_data nor labels"),
    ],
)
def test_bad_benchmark_files(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    file = write_benchmark(tmp_path, toy(), **changes)
    with pytest.raises(FormatError, match=message):
        gnn_benchmark.read(file)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("role.json", '{"tr": [], "va": []}', "list of node numbers under 'te'"),
        ("role.json", '{"tr": [0.5], "va": [], "te": []}', "under 'tr'"),
        ("role.json", "[]", "must hold an object, got list"),
        ("role.json", '{"tr": [8], "va": [], "te": []}', "split.train must lie in 0..7"),
        ("class_map.json", '{"0": [0, 2]}', "must be 0 or 1"),
        ("class_map.json", '{"8": 1}', "labels '8', which is none of the 8 nodes"),
        ("feats.npy", "text", r"feats.npy cannot be read as a \.npy file"),
        ("feats.npy", "", r"feats.npy cannot be read as a \.npy file"),
    ],
)
def test_bad_saint_files(tmp_path: Path, file: str, content: str, message: str) -> None:
    (write_saint(tmp_path, toy()) / file).write_text(content)
    with pytest.raises(FormatError, match=message):
        graphsaint.read(tmp_path)


def test_an_archive_in_place_of_an_array(tmp_path: Path) -> None:
    folder = write_saint(tmp_path, toy())
    (folder / "adj_full.npz").rename(folder / "feats.npy")
    save_npz(folder / "adj_full.npz", adjacency(toy()))
    with pytest.raises(FormatError, match=r"feats.npy must be a .npy file, but is a .npz archive"):
        graphsaint.read(folder)


@pytest.mark.parametrize(
    ("name", "counts"),
    [("amazon_photo", (7650, 119081, 745, 8)), ("coauthor_cs", (18333, 81894, 6805, 15))],
)
def test_the_published_counts(real_data: Path, name: str, counts: tuple[int, ...]) -> None:
    graph = npz_folder.read(real_data / "npz" / name)
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes) == counts
    assert (graph.name, graph.directed, graph.weights) == (name, False, None)
    assert not any(len(part) for _, part in graph.split.items())
