"""A folder of three files: `adj.npz`, `features.npz` (scipy `save_npz`), `labels_split.npz`."""

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from fastgcn.data.readers._build import build, edges_of, square
from fastgcn.data.readers._files import need, read_npz, read_sparse
from fastgcn.graph.graph import Graph, Split

FORMAT = "npz"
EXPECTS = "adj.npz, features.npz and labels_split.npz"

_FILES = ("adj.npz", "features.npz", "labels_split.npz")


def matches(path: Path) -> bool:
    return any((path / name).is_file() for name in ("adj.npz", "labels_split.npz"))


def read(path: Path, *, name: str | None = None, directed: bool | None = None) -> Graph:
    """`labels_split.npz` has `labels`, and the node ids `train`, `val`, `test` where known.

    Values of the adjacency matrix other than one are edge weights.
    """
    adjacency_file, features_file, labels_file = need(path, *_FILES)
    adjacency = square(read_sparse(adjacency_file), adjacency_file)
    parts = ("train", "val", "test")
    arrays = read_npz(labels_file, ("labels",), optional=parts)
    none = np.empty(0, np.int64)
    return build(
        path,
        edges_of(adjacency),
        n=adjacency.shape[0],
        directed=directed,
        features=csr_array(read_sparse(features_file)),
        labels=arrays["labels"],
        split=Split(*(arrays.get(part, none) for part in parts)),
        name=name,
    )
