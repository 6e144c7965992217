"""Tables of nodes that a graph does not have yet, and of the edges that join them to it."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastgcn import checks
from fastgcn.data.node_table import NodeOptions, read_nodes
from fastgcn.data.store import StoreWriter, is_store, read_manifest
from fastgcn.data.table_columns import floats
from fastgcn.data.table_edges import edge_columns
from fastgcn.data.table_features import write_features
from fastgcn.data.table_files import Table
from fastgcn.errors import InputError
from fastgcn.graph import Graph
from fastgcn.node_sets import old_positions
from fastgcn.types import AnyArray

_COLUMNS = {
    "id": "id",
    "features": None,
    "source": "source",
    "target": "target",
    "weight": "weight",
}


def read_new_nodes(nodes: Path, edges: Path, graph: Graph) -> dict[str, Any]:
    """What `fastgcn.predict_new` takes, from two tables.

    Their columns are called as those of the tables the graph was imported from, and by the
    default names where it was not.
    """
    columns = _columns(graph)
    node_table, edge_table = Table(nodes), Table(edges)
    options = NodeOptions(columns["id"], "label", "split", columns["features"], None, None)
    found = read_nodes(node_table, options)
    own = found.index.node_ids
    ids = list(range(found.n)) if own is None else [checks.plain(own[i]) for i in range(found.n)]
    known = old_positions(graph, ids)
    if known:
        raise InputError(
            f"{nodes} names {next(iter(known))!r}, which {graph.name} has already "
            f"({len(known):,} such nodes); list only nodes that are new"
        )
    features = _features(node_table, found.feature_columns, found.n, own)
    names = edge_columns(edge_table, columns["source"], columns["target"], columns["weight"])
    ends: dict[str, list[Any]] = {names.source: [], names.target: []}
    weights = []
    types = {name: pa.string() for name in ends}
    if names.weight is not None and graph.weights is not None:
        types[names.weight] = pa.float64()
    for batch in edge_table.batches(types):
        for name, values in ends.items():
            values += batch.column(name).to_pylist()
        if names.weight in types:
            weights.append(floats(batch.column(names.weight)))
    return {
        "features": features,
        "source": ends[names.source],
        "target": ends[names.target],
        "weights": np.concatenate(weights) if weights else None,
        "node_ids": ids,
    }


def _columns(graph: Graph) -> dict[str, Any]:
    folder = Path(graph.source["data"]) if graph.source else None
    if folder is None or not is_store(folder):
        return _COLUMNS
    known: dict[str, Any] = read_manifest(folder).get("provenance", {}).get("columns", {})
    return _COLUMNS | known


def _features(table: Table, columns: list[str], n: int, own: Any) -> AnyArray:
    with (
        tempfile.TemporaryDirectory(prefix="fastgcn-") as folder,
        StoreWriter(Path(folder) / "new") as writer,
    ):
        write_features(table, columns, writer, n, own)
        return np.array(np.load(writer.path("features"), allow_pickle=False))
