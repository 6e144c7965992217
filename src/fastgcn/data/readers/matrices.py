"""Formats of numpy and scipy files: GraphSAINT, Reddit (two), gnn-benchmark, `.npz` folders."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.data.readers.npz import checked_sparse, read_npy, read_npz, read_sparse, sizes_of
from fastgcn.data.readers.parts import (
    Reader,
    build,
    check_room,
    edges_of,
    has_any,
    labels_of,
    naming,
    need,
    read_json,
    square,
)
from fastgcn.errors import FormatError, MissingFileError
from fastgcn.graph import checks
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph

_PARTS = ("train", "val", "test")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")  # a node's number as JSON's keys have it


def _read_saint(path: Path, *, name: str | None = None, directed: bool | None = None) -> Graph:
    """A folder of GraphSAINT.

    Every stored entry of `adj_full` is an edge; as in GraphSAINT, its value is ignored.
    `adj_train.npz` is not read: it holds the edges of `adj_full` between training nodes.
    """
    files = need(path, "adj_full.npz", "feats.npy", "role.json", "class_map.json")
    adjacency_file, features_file, role_file, classes_file = files
    adjacency = square(read_sparse(adjacency_file), adjacency_file)
    n = adjacency.shape[0]
    classes = read_json(classes_file)
    rows = {key: int(key) for key in classes if _NUMBER.fullmatch(key) and int(key) < n}
    return build(
        path,
        edges_of(adjacency, weighted=False),
        n=n,
        directed=directed,
        features=read_npy(features_file),
        labels=labels_of(classes, rows, n, classes_file),
        split=_split_by_role(read_json(role_file), role_file),
        name=name,
    )


def _split_by_role(roles: dict[str, Any], path: Path) -> Split:
    parts = []
    for role in ("tr", "va", "te"):
        ids = roles.get(role)
        if not isinstance(ids, list) or not all(type(node) is int for node in ids):
            raise FormatError(f"{path} must give a list of node numbers under {role!r}")
        try:
            parts.append(np.array(ids, dtype=np.int64))
        except OverflowError:
            raise FormatError(f"{path} names a node by a number beyond 64 bits") from None
    return Split(*parts)


def _read_reddit_fastgcn(
    path: Path, *, name: str | None = None, directed: bool | None = False
) -> Graph:
    """Reddit as in the FastGCN authors' repository.

    Labels are known for the nodes of the split only; the others get -1. The published matrix
    has each edge in one direction; `directed=False`, the default, stores it in both, as the
    authors' code does after reading.
    """
    data_file, adjacency_file = need(path, "reddit.npz", "reddit_adj.npz")
    adjacency = square(read_sparse(adjacency_file), adjacency_file)
    n = adjacency.shape[0]
    keys = [key for part in _PARTS for key in (f"{part}_index", f"y_{part}")]
    data = read_npz(data_file, ("feats", *keys))
    labels, split = _labels_and_split(data, n, data_file)
    return build(
        data_file,
        edges_of(adjacency),
        n=n,
        directed=directed,
        features=data["feats"],
        labels=labels,
        split=split,
        name=name or path.resolve().name,
    )


def _labels_and_split(data: dict[str, Any], n: int, path: Path) -> tuple[IntArray, Split]:
    labels = np.full(n, -1, np.int64)
    ids = {}
    for part in _PARTS:
        with naming(path):
            ids[part] = checks.split_part(data[f"{part}_index"], part, n)
            classes = checks.integers(data[f"y_{part}"], f"y_{part}")
        if len(classes) != len(ids[part]):
            raise FormatError(
                f"{path}: y_{part} and {part}_index must be equally long, "
                f"got {len(classes)} and {len(ids[part])}"
            )
        labels[ids[part]] = classes
    return labels, Split(**ids)


def _read_reddit_dgl(path: Path, *, name: str | None = None, directed: bool | None = None) -> Graph:
    """Reddit as DGL and PyG publish it.

    `node_types` 1, 2 and 3 are training, validation and test; the matrix's values are ones.
    """
    data_file, graph_file = need(path, "reddit_data.npz", "reddit_graph.npz")
    adjacency = square(read_sparse(graph_file), graph_file)
    n = adjacency.shape[0]
    data = read_npz(data_file, ("feature", "label", "node_types"), optional=("node_ids",))
    ids = data.get("node_ids")
    return build(
        data_file,
        edges_of(adjacency, weighted=False),
        n=n,
        directed=directed,
        features=data["feature"],
        labels=data["label"],
        split=_split_by_type(data["node_types"], n, data_file),
        node_ids=None if ids is None or np.array_equal(ids, np.arange(len(ids))) else ids,
        name=name or path.resolve().name,
    )


def _split_by_type(types: AnyArray, n: int, path: Path) -> Split:
    if types.shape != (n,) or not np.isin(types, (0, 1, 2, 3)).all():
        raise FormatError(
            f"{path}: node_types must hold {n} times 1 (train), 2 (val), 3 (test) or 0 (none), "
            f"got shape {types.shape} and the types {np.unique(types)[:10].tolist()}"
        )
    return Split(*(np.flatnonzero(types == kind) for kind in (1, 2, 3)))


_CSR_PARTS = ("data", "indices", "indptr", "shape")


def _read_gnn_benchmark(
    path: Path, *, name: str | None = None, directed: bool | None = False
) -> Graph:
    """A `.npz` file of gnn-benchmark: Amazon Computers and Photo, Coauthor CS and Physics.

    The graph has no split: none was published. The Amazon graphs are published as directed and
    used as undirected, which `directed=False`, the default, does. Every stored entry of the
    adjacency matrix is an edge; its value is ignored.
    """
    if not path.is_file():
        expects = f"{GNN_BENCHMARK.format} expects {GNN_BENCHMARK.expects}"
        raise MissingFileError(f"{path} is not a file; {expects}")
    optional = [f"{what}_{part}" for what in ("attr", "labels") for part in _CSR_PARTS]
    # Class names are plain text in some files, and in others pickled objects, which are skipped.
    # The names of nodes and attributes are always pickled objects.
    optional += ["attr_matrix", "labels", "class_names"]
    arrays = read_npz(path, [f"adj_{part}" for part in _CSR_PARTS], optional)
    adjacency = square(_matrix(arrays, "adj", path), path)
    labels = _either(arrays, "labels", "labels", path)
    return build(
        path,
        edges_of(adjacency, weighted=False),
        n=adjacency.shape[0],
        directed=directed,
        features=_either(arrays, "attr", "attr_matrix", path),
        labels=_dense(labels, path) if isinstance(labels, csr_array) else labels,
        class_names=arrays.get("class_names"),
        name=name,
    )


def _matrix(arrays: dict[str, Any], what: str, path: Path) -> Any:
    missing = [f"{what}_{part}" for part in _CSR_PARTS if f"{what}_{part}" not in arrays]
    if missing:
        raise FormatError(f"{path} lacks the array {missing[0]!r}")
    parts = {part: arrays[f"{what}_{part}"] for part in _CSR_PARTS[:3]}
    return checked_sparse(path, "csr", sizes_of(arrays[f"{what}_shape"], path), parts)


def _dense(matrix: csr_array, path: Path) -> AnyArray:
    rows, columns = matrix.shape
    check_room(path, rows * columns * matrix.dtype.itemsize)
    table: AnyArray = matrix.toarray()
    return table


def _either(arrays: dict[str, Any], sparse: str, dense: str, path: Path) -> Any:
    """A table that is stored as a CSR matrix or as a plain array."""
    if f"{sparse}_data" in arrays:
        return _matrix(arrays, sparse, path)
    if dense not in arrays:
        raise FormatError(f"{path} has neither {sparse}_data nor {dense}: no such data in the file")
    return arrays[dense]


def _read_npz_folder(path: Path, *, name: str | None = None, directed: bool | None = None) -> Graph:
    """A folder of `adj.npz` and `features.npz` (scipy's `save_npz`) and `labels_split.npz`.

    `labels_split.npz` has `labels`, and the node ids `train`, `val`, `test` if there is a split.
    Values of the adjacency matrix other than one are edge weights.
    """
    files = need(path, "adj.npz", "features.npz", "labels_split.npz")
    adjacency_file, features_file, labels_file = files
    adjacency = square(read_sparse(adjacency_file), adjacency_file)
    arrays = read_npz(labels_file, ("labels",), optional=_PARTS)
    none = np.empty(0, np.int64)
    return build(
        path,
        edges_of(adjacency),
        n=adjacency.shape[0],
        directed=directed,
        features=read_sparse(features_file),
        labels=arrays["labels"],
        split=Split(*(arrays.get(part, none) for part in _PARTS)),
        name=name,
    )


GRAPHSAINT = Reader(
    "graphsaint",
    "adj_full.npz, feats.npy, role.json and class_map.json",
    has_any("adj_full.npz", "role.json"),
    _read_saint,
)
REDDIT_FASTGCN = Reader(
    "reddit-fastgcn",
    "reddit.npz and reddit_adj.npz",
    has_any("reddit.npz", "reddit_adj.npz"),
    _read_reddit_fastgcn,
)
REDDIT_DGL = Reader(
    "reddit-dgl",
    "reddit_data.npz and reddit_graph.npz",
    has_any("reddit_data.npz", "reddit_graph.npz"),
    _read_reddit_dgl,
)
GNN_BENCHMARK = Reader(
    "gnn-benchmark",
    "a file NAME.npz with adj_data, adj_indices, adj_indptr, adj_shape, attr_..., labels",
    lambda path: path.suffix == ".npz" and path.is_file(),
    _read_gnn_benchmark,
)
NPZ_FOLDER = Reader(
    "npz",
    "adj.npz, features.npz and labels_split.npz",
    has_any("adj.npz", "labels_split.npz"),
    _read_npz_folder,
)
