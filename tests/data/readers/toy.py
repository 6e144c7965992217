"""A small graph that every format can hold, and what it means to have read it back."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, save_npz

from fastgcn import Graph
from tests.strategies import split_of

SOURCE = [0, 0, 1, 2, 3, 4, 5, 6]
TARGET = [1, 2, 2, 3, 4, 5, 6, 0]
SPLIT = split_of(train=[0, 2, 4], val=[1, 5], test=[3, 6])


def toy(**changes: Any) -> Graph:
    """8 nodes of 3 classes; node 7 is isolated, unlabelled and in no part of the split."""
    features = np.arange(24, dtype=np.float32).reshape(8, 3) % 5
    fields: dict[str, Any] = {"features": features, "labels": [0, 1, 2, 0, 1, 2, 0, -1]}
    return Graph.from_edges(SOURCE, TARGET, **(fields | {"split": SPLIT} | changes))


def write_trio(folder: Path, graph: Graph) -> Path:
    """The graph as `adj.npz`, `features.npz` and `labels_split.npz`."""
    folder.mkdir(exist_ok=True)
    save_npz(folder / "adj.npz", adjacency(graph))
    save_npz(folder / "features.npz", csr_matrix(dense(graph.features)))
    arrays: dict[str, Any] = {"labels": graph.labels, **dict(graph.split.items())}
    np.savez(folder / "labels_split.npz", **arrays)
    return folder


def adjacency(graph: Graph) -> csr_array:
    return csr_array((np.ones(len(graph.indices)), graph.indices, graph.indptr), shape=(8, 8))


def multilabel() -> Graph:
    return toy(labels=np.arange(24).reshape(8, 3) % 2 == 0)


def assert_same(read: Graph, expected: Graph) -> None:
    """The same graph node for node; features may be dense in one and sparse in the other."""
    np.testing.assert_array_equal(read.indptr, expected.indptr)
    np.testing.assert_array_equal(read.indices, expected.indices)
    assert (read.weights is None) == (expected.weights is None)
    if read.weights is not None:
        np.testing.assert_array_equal(read.weights, expected.weights)
    np.testing.assert_array_equal(dense(read.features), dense(expected.features))
    np.testing.assert_array_equal(read.labels, expected.labels)
    assert read.directed == expected.directed
    for (name, ids), (_, wanted) in zip(read.split.items(), expected.split.items(), strict=True):
        np.testing.assert_array_equal(np.sort(ids), np.sort(wanted), err_msg=name)


def dense(features: Any) -> Any:
    return features.toarray() if isinstance(features, csr_array) else np.asarray(features)
