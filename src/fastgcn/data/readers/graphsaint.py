"""GraphSAINT's folders: `adj_full.npz`, `feats.npy`, `role.json`, `class_map.json`.

`adj_train.npz` is not read: it is `adj_full` between training nodes.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.data.readers._build import build, edges_of, labels_of, square
from fastgcn.data.readers._files import need, read_json, read_npy, read_sparse
from fastgcn.errors import FormatError
from fastgcn.graph.graph import Graph, Split

FORMAT = "graphsaint"
EXPECTS = "adj_full.npz, feats.npy, role.json and class_map.json"

_FILES = ("adj_full.npz", "feats.npy", "role.json", "class_map.json")


def matches(path: Path) -> bool:
    return any((path / name).is_file() for name in ("adj_full.npz", "role.json"))


def read(path: Path, *, name: str | None = None, directed: bool | None = None) -> Graph:
    """Every stored entry of `adj_full` is an edge; its value is not looked at, as in GraphSAINT."""
    adjacency_file, features_file, role_file, classes_file = need(path, *_FILES)
    adjacency = square(read_sparse(adjacency_file), adjacency_file)
    n = adjacency.shape[0]
    rows = {str(node): node for node in range(n)}
    return build(
        path,
        edges_of(adjacency, weighted=False),
        n=n,
        directed=directed,
        features=read_npy(features_file),
        labels=labels_of(read_json(classes_file), rows, n, classes_file),
        split=_split(read_json(role_file), role_file),
        name=name,
    )


def _split(roles: dict[str, Any], path: Path) -> Split:
    parts = []
    for role in ("tr", "va", "te"):
        ids = roles.get(role)
        if not isinstance(ids, list) or not all(type(node) is int for node in ids):
            raise FormatError(f"{path} must give a list of node numbers under {role!r}")
        parts.append(np.array(ids, dtype=np.int64))
    return Split(*parts)
