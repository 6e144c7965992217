"""Reddit as in the FastGCN authors' repository: `reddit.npz` and `reddit_adj.npz`."""

from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.arrays import IntArray
from fastgcn.data.readers._build import build, edges_of, naming, square
from fastgcn.data.readers._files import need, read_npz, read_sparse
from fastgcn.errors import FormatError
from fastgcn.graph import checks
from fastgcn.graph.graph import Graph, Split

FORMAT = "reddit-fastgcn"
EXPECTS = "reddit.npz and reddit_adj.npz"

_DATA, _ADJACENCY = "reddit.npz", "reddit_adj.npz"
_PARTS = ("train", "val", "test")


def matches(path: Path) -> bool:
    return (path / _DATA).is_file() or (path / _ADJACENCY).is_file()


def read(path: Path, *, name: str | None = None, directed: bool | None = False) -> Graph:
    """Labels are known for the nodes of the split only, -1 for the others.

    The published matrix has each edge in one direction; `directed=False`, the default, stores
    it in both, as the authors' code does after reading.
    """
    data_file, adjacency_file = need(path, _DATA, _ADJACENCY)
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
