"""Tables of new nodes and their edges, encoded as the tables of the training graph were."""

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from fastgcn.arrays import FloatArray
from fastgcn.data.imported import COLUMNS, plain_encoders
from fastgcn.data.structure import rows_of_new_nodes
from fastgcn.data.tables.columns import IdCollector
from fastgcn.data.tables.edges import EdgeOptions, EdgeTable, edge_tables
from fastgcn.data.tables.encoders import Encoders, texts_of
from fastgcn.data.tables.features import encode_known, seen_notes
from fastgcn.data.tables.files import FreeMemory, Table, decoded, floats, is_text
from fastgcn.data.tables.frames import table_of
from fastgcn.data.tables.nodes import Nodes
from fastgcn.errors import InputError
from fastgcn.graph import checks
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph, old_positions
from fastgcn.progress import note

# Bytes of an end of an edge as a Python object.
_END_BYTES = 64


def read_new_nodes(
    nodes: Any, edges: Any, graph: Graph, imported: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The arguments of `fastgcn.predict_new`, from two tables (as `import_tables` takes them).

    The columns must have the names from the graph's import, or the default names if the graph
    was not imported from tables. `imported` are the run's decisions; by default the graph's.
    A column that is missing counts as missing in every row, which is noted.
    """
    known = imported if imported is not None else graph.imported
    columns = COLUMNS | (dict(known["columns"]) if known is not None else {})
    node_table = table_of(nodes, "the table of new nodes")
    found = _read_ids(node_table, columns["id"])
    own = found.index.node_ids
    ids = list(range(found.n)) if own is None else [checks.plain(own[i]) for i in range(found.n)]
    old = old_positions(graph, ids)
    if old:
        raise InputError(
            f"{node_table.path} names {next(iter(old))!r}, which {graph.name} has already "
            f"({len(old):,} such nodes); list only nodes that are new"
        )
    types = None if known is None else known.get("types")
    options = EdgeOptions(
        columns["source"],
        columns["target"],
        columns["weight"],
        columns.get("type"),
        types,
        new=True,
    )
    new = _read_edges(edges, options, graph)
    features = _features(node_table, graph, known, found, columns["id"])
    structure = None if known is None else known.get("structure")
    if structure is not None:
        rows = _structure(graph, ids, new, structure + 1)
        features = np.hstack([features, rows])
    return {"features": features, **new, "node_ids": ids}


def _structure(graph: Graph, ids: list[Any], new: Mapping[str, Any], width: int) -> FloatArray:
    """(k, width): features made of the new nodes' edges."""
    assert isinstance(graph.features, np.ndarray)
    places = {str(own): i for i, own in enumerate(ids)}
    weights = new["weights"]
    there = repeat(True) if weights is None else weights != 0  # edges of weight zero are none
    pairs = {
        (str(a), str(b))
        for a, b, counts in zip(new["source"], new["target"], there, strict=weights is not None)
        if counts and str(a) != str(b)
    }
    if not graph.directed:
        pairs |= {(b, a) for a, b in pairs}
    degrees = np.zeros(len(ids), np.int64)
    for a, _ in pairs:
        if a in places:
            degrees[places[a]] += 1
    pairs |= {(b, a) for a, b in pairs}
    known = old_positions(graph, {b for _, b in pairs if b not in places})
    ends = sorted((known[b], places[a]) for a, b in pairs if a in places and b in known)
    neighbours, owners = np.array(ends, np.int64).reshape(-1, 2).T
    touched, where = np.unique(neighbours, return_inverse=True)
    rows = np.asarray(graph.features[touched, -width:])
    return rows_of_new_nodes(rows, where, owners, degrees)


def _read_ids(table: Table, column: str) -> Nodes:
    table.require(column, "node ids")
    ids = IdCollector(f"column {column!r} of {table.path}", from_csv=table.is_csv)
    with table.batches({column: pa.string()}) as batches:
        for batch in batches:
            ids.add(batch.column(column))
    if ids.n == 0:
        raise InputError(f"{table.path} has no rows: there must be at least one new node")
    return Nodes(ids.n, ids.index(), None, (), Split(), {column})


def _features(
    table: Table, graph: Graph, known: Mapping[str, Any] | None, nodes: Nodes, id_column: str
) -> FloatArray:
    if known is not None:
        specs = known["encoders"]
    else:
        names = list(graph.feature_names or ()) or [
            name for name in table.types if name not in (id_column, "label", "split")
        ]
        specs = plain_encoders(names)
        for name in names:
            table.require(name, "features")
    encoders = Encoders(specs)
    if not specs:  # all features are made of the edges
        return np.empty((nodes.n, 0), np.float32)
    features = np.zeros((nodes.n, encoders.width), np.float32)
    encode_known(table, encoders, features, nodes.index.node_ids)
    for sentence in seen_notes(table, encoders, nodes.n):
        note(f"Note: {sentence}.")
    return features


def _read_edges(edges: Any, options: EdgeOptions, graph: Graph) -> dict[str, Any]:
    if options.types is not None and not isinstance(edges, Mapping | list | tuple):
        edges = [edges]  # its name is its type
    notes: list[str] = []
    tables = edge_tables(edges, options, notes)
    for sentence in notes:
        note(f"Note: {sentence}.")
    ends: tuple[list[Any], list[Any]] = ([], [])
    weights: list[FloatArray] = []
    for each in tables:
        types = dict.fromkeys((each.source, each.target), pa.string())
        if each.weight is not None:
            types[each.weight] = pa.float64()
        if each.type_column is not None:
            types[each.type_column] = pa.string()
        if each.weight is None and graph.weights is not None and options.types is None:
            note(f"Note: {each.table.path} has no column {options.weight!r} of weights.")
        if each.weight is not None and graph.weights is None:
            note(f"Note: the weights of {each.table.path} are not used: {graph.name} has none.")
        room = FreeMemory(f"{each.table.path}")
        with each.table.batches(types) as batches:
            for batch in batches:
                room.take(2 * _END_BYTES * len(batch))
                for values, name in zip(ends, (each.source, each.target), strict=True):
                    values += _ids(batch.column(name), f"column {name!r} of {each.table.path}")
                if graph.weights is not None:
                    weights.append(_weights(each, batch, options))
    found = np.concatenate(weights) if weights else None
    # NaN in every row: the tables have no weights, and `predict_new` asks for a default.
    gone = found is not None and bool(np.isnan(found).all()) and len(found) > 0
    return {"source": ends[0], "target": ends[1], "weights": None if gone else found}


def _weights(each: EdgeTable, batch: pa.RecordBatch, options: EdgeOptions) -> FloatArray:
    """(rows,) float32: own weights times those of the types; NaN where an edge has none."""
    kinds = options.types
    if each.weight is not None:
        weights = floats(batch.column(each.weight))
    else:
        weights = np.full(len(batch), np.nan if kinds is None else 1.0, np.float32)
    if kinds is None or each.type_column is None:
        return weights * np.float32(1.0 if kinds is None else kinds.get(each.kind or "", 1.0))
    factors = [kinds.get(name, 0.0) for name in texts_of(
        decoded(batch.column(each.type_column))).to_pylist()]  # fmt: skip
    scaled: FloatArray = weights * np.array(factors, np.float32)
    return scaled


def _ids(column: pa.Array, what: str) -> list[Any]:
    """The ids in a column of an edge table."""
    column = decoded(column)
    if not (is_text(column.type) or pa.types.is_integer(column.type)):
        raise InputError(f"{what} must hold ids, integers or text, got {column.type}")
    if column.null_count:
        raise InputError(f"{what} must have an id in every row, but some have none")
    values: list[Any] = column.to_pylist()
    return values
