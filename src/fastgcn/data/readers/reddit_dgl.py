"""Reddit as DGL and PyG publish it: `reddit_data.npz` and `reddit_graph.npz`."""

from pathlib import Path

import numpy as np

from fastgcn.arrays import AnyArray
from fastgcn.data.readers._build import build, edges_of, square
from fastgcn.data.readers._files import need, read_npz, read_sparse
from fastgcn.errors import FormatError
from fastgcn.graph.graph import Graph, Split

FORMAT = "reddit-dgl"
EXPECTS = "reddit_data.npz and reddit_graph.npz"

_DATA, _GRAPH = "reddit_data.npz", "reddit_graph.npz"


def matches(path: Path) -> bool:
    return (path / _DATA).is_file() or (path / _GRAPH).is_file()


def read(path: Path, *, name: str | None = None, directed: bool | None = None) -> Graph:
    """`node_types` 1, 2 and 3 are training, validation and test; the matrix's values are ones."""
    data_file, graph_file = need(path, _DATA, _GRAPH)
    adjacency = square(read_sparse(graph_file), graph_file)
    n = adjacency.shape[0]
    data = read_npz(data_file, ("feature", "label", "node_types"), optional=("node_ids",))
    return build(
        data_file,
        edges_of(adjacency, weighted=False),
        n=n,
        directed=directed,
        features=data["feature"],
        labels=data["label"],
        split=_split(data["node_types"], n, data_file),
        node_ids=_own_ids(data.get("node_ids")),
        name=name or path.resolve().name,
    )


def _split(types: AnyArray, n: int, path: Path) -> Split:
    if types.shape != (n,) or not np.isin(types, (0, 1, 2, 3)).all():
        raise FormatError(
            f"{path}: node_types must hold {n} times 1 (train), 2 (val), 3 (test) or 0 (none), "
            f"got shape {types.shape} and the types {np.unique(types)[:10].tolist()}"
        )
    return Split(*(np.flatnonzero(types == kind) for kind in (1, 2, 3)))


def _own_ids(ids: AnyArray | None) -> AnyArray | None:
    """None where the ids are the row numbers."""
    if ids is None or np.array_equal(ids, np.arange(len(ids))):
        return None
    return ids
