"""Node and edge tables, CSV or Parquet, to a store or a `Graph`."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.data.edge_sorter import EdgeSorter
from fastgcn.data.layout import arrays_of, graph_from, id_arrays
from fastgcn.data.store import StoreWriter, is_store, open_store, read_manifest
from fastgcn.data.tables.columns import NodeIndex
from fastgcn.data.tables.files import (
    FreeMemory,
    TableFile,
    decoded,
    floats,
    is_number,
    is_text,
    listed,
)
from fastgcn.data.tables.nodes import NodeOptions, Nodes, read_nodes, write_features
from fastgcn.errors import FormatError, InputError
from fastgcn.graph import checks
from fastgcn.graph.graph import Graph, old_positions
from fastgcn.memory import memory_bytes

# Rows of a Parquet file that are in memory together.
_ROWS = 1 << 18

# Bytes of an end of an edge as a Python object.
_END_BYTES = 64

# Unknown ids that a message names.
_EXAMPLES = 5


def import_tables(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    id: str = "id",
    label: str = "label",
    split: str = "split",
    features: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
    random_split: int | None = None,
    source: str = "source",
    target: str = "target",
    weight: str = "weight",
    directed: bool = False,
    memory: int | str = "1GB",
    name: str | None = None,
) -> None:
    """Write the store `out` of a graph given as tables, which may be larger than memory.

    Args:
        nodes: a row per node; `.csv`, `.tsv` (either also `.gz`, `.bz2`, `.zst`) or `.parquet`.
        edges: a row per edge, in any order; cleaned as `fastgcn.graph.csr` describes.
        out: the folder to write.
        force: replace an existing store.
        id: column of distinct ids, integers or text.
        label: column of classes, empty if a node has none; or of lists of classes (a node has
            several); or "a,b,c", columns of 0 and 1 that are named like the classes. A table
            may lack the column under its default name; the same holds for the split and the
            weights.
        split: column of train, val or test, or empty.
        features: columns of numbers, or one column of lists of numbers; by default all others.
        classes: the names of the classes in order; by default all that occur, integers by
            size, others by name.
        random_split: the seed of a split into 60, 20 and 20 % of each class, instead of `split`.
        source: column of the edges' starts, as ids of the node table.
        target: column of their ends.
        weight: column of edge weights.
        directed: True if an edge has only the direction listed.
        memory: about how much to use, beside a few numbers per node, in bytes or as "500MB".
        name: the graph's name; by default that of the folder.
    """
    out = Path(out)
    budget = memory_bytes(memory)
    options = NodeOptions(id, label, split, features, classes, random_split)
    node_table, edge_table = TableFile(Path(nodes)), TableFile(Path(edges))
    columns = _edge_columns(edge_table, source, target, weight)
    with StoreWriter(out, force=force) as writer:
        found = read_nodes(node_table, options)
        _put_nodes(writer, found)
        n_features = write_features(
            node_table, found.feature_columns, writer, found.n, found.index.node_ids
        )
        sorter = EdgeSorter(
            writer,
            found.n,
            directed=directed,
            weighted=columns.weight is not None,
            memory=budget,
        )
        _add_edges(edge_table, columns, found.index, sorter)
        cleaned = sorter.finish()
        writer.finish(
            name=out.name if name is None else name,
            directed=directed,
            n_features=n_features,
            n_classes=len(found.class_names),
            class_names=found.class_names or None,
            feature_names=_names(found.feature_columns, n_features),
            cleaned=cleaned,
            provenance={
                "nodes": node_table.path.name,
                "edges": edge_table.path.name,
                # Tables of new nodes have these columns.
                "columns": {
                    "id": id,
                    "features": found.feature_columns,
                    "source": source,
                    "target": target,
                    "weight": weight,
                },
            },
        )


def read_tables(
    nodes: str | os.PathLike[str], edges: str | os.PathLike[str], **options: Any
) -> Graph:
    """The graph that `import_tables` makes of the same tables and options, in memory.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     nodes, edges = Path(folder, "nodes.csv"), Path(folder, "edges.csv")
    ...     _ = nodes.write_text("id,label,height,split\\nann,x,1.6,train\\nbob,y,1.8,test\\n")
    ...     _ = edges.write_text("source,target\\nann,bob\\n")
    ...     graph = read_tables(nodes, edges, name="friends")
    >>> graph
    Graph(friends: 2 nodes, 1 undirected edges, 1 features, 2 classes)
    >>> graph.node_ids[1], graph.class_names[graph.labels[1]]
    ('bob', 'y')
    """
    with tempfile.TemporaryDirectory(prefix="fastgcn-") as folder:
        store = Path(folder, "graph")
        import_tables(nodes, edges, store, **options)
        mapped = open_store(store)
        arrays = {key: np.array(array) for key, array in arrays_of(mapped).items()}
    return graph_from(
        arrays,
        n_features=mapped.n_features,
        class_names=mapped.class_names,
        feature_names=mapped.feature_names,
        directed=mapped.directed,
        name=mapped.name,
        cleaned=mapped.cleaned,
        stored_fingerprint=mapped.stored_fingerprint,
    )


def _names(columns: list[str], n_features: int) -> list[str] | None:
    """The names of the features; None if one column of lists holds them all."""
    return columns if len(columns) == n_features else None


def _put_nodes(writer: StoreWriter, nodes: Nodes) -> None:
    for part, ids in nodes.split.items():
        writer.put(part, ids)
    if nodes.labels is not None:
        writer.put("labels", nodes.labels)
    if nodes.index.node_ids is not None:
        for array_name, array in id_arrays(nodes.index.node_ids).items():
            writer.put(array_name, array)


_COLUMNS = {
    "id": "id",
    "features": None,
    "source": "source",
    "target": "target",
    "weight": "weight",
}


def read_new_nodes(nodes: Path, edges: Path, graph: Graph) -> dict[str, Any]:
    """The arguments of `fastgcn.predict_new`, from two tables.

    The columns must have the names from the graph's import, or the default names if the graph
    was not imported from tables.
    """
    columns = _columns(graph)
    node_table, edge_table = TableFile(nodes), TableFile(edges)
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
    names = _edge_columns(edge_table, columns["source"], columns["target"], columns["weight"])
    ends: dict[str, list[Any]] = {names.source: [], names.target: []}
    weights = []
    types = {name: pa.string() for name in ends}
    if names.weight is not None and graph.weights is not None:
        types[names.weight] = pa.float64()
    room = FreeMemory(f"{edges}")
    with edge_table.batches(types) as batches:
        for batch in batches:
            room.take(_END_BYTES * len(ends) * len(batch))
            for name, values in ends.items():
                values += _ids(batch.column(name), f"column {name!r} of {edges}")
            if names.weight in types:
                weights.append(floats(batch.column(names.weight)))
    return {
        "features": features,
        "source": ends[names.source],
        "target": ends[names.target],
        "weights": np.concatenate(weights) if weights else None,
        "node_ids": ids,
    }


def _ids(column: pa.Array, what: str) -> list[Any]:
    """The ids in a column of an edge table."""
    column = decoded(column)
    if not (is_text(column.type) or pa.types.is_integer(column.type)):
        raise InputError(f"{what} must hold ids, integers or text, got {column.type}")
    if column.null_count:
        raise InputError(f"{what} must have an id in every row, but some have none")
    values: list[Any] = column.to_pylist()
    return values


def _columns(graph: Graph) -> dict[str, Any]:
    folder = Path(graph.source["data"]) if graph.source else None
    if folder is None or not is_store(folder):
        return _COLUMNS
    known = read_manifest(folder).get("provenance", {}).get("columns", {})
    if not isinstance(known, dict) or not all(
        _is_column(name, known[name]) for name in known.keys() & _COLUMNS.keys()
    ):
        raise FormatError(f"{folder} is damaged: its manifest does not name the tables' columns")
    return _COLUMNS | known


def _is_column(name: str, value: Any) -> bool:
    names = value if name == "features" and isinstance(value, list) else [value]
    return all(isinstance(each, str) for each in names)


def _features(table: TableFile, columns: list[str], n: int, own: Any) -> AnyArray:
    with (
        tempfile.TemporaryDirectory(prefix="fastgcn-") as folder,
        StoreWriter(Path(folder) / "new") as writer,
    ):
        write_features(table, columns, writer, n, own)
        return np.array(np.load(writer.path("features"), allow_pickle=False))


@dataclass(frozen=True, slots=True)
class EdgeColumns:
    """Names of the columns; `weight` is None if edges have no weights."""

    source: str
    target: str
    weight: str | None


def _edge_columns(table: TableFile, source: str, target: str, weight: str) -> EdgeColumns:
    """The columns, checked to exist and to have fitting types."""
    table.require(source, "where edges start")
    table.require(target, "where edges end")
    column = table.optional(weight, "weight", "edge weights")
    if column is not None and not table.is_csv and not is_number(table.types[column]):
        raise InputError(
            f"column {column!r} of {table.path} must hold numbers to be edge weights, "
            f"got {table.types[column]}"
        )
    return EdgeColumns(source, target, column)


def _add_edges(
    table: TableFile, columns: EdgeColumns, index: NodeIndex, sorter: EdgeSorter
) -> None:
    """Add all edges of the table to the sorter; raises if an end is not a node."""
    types = {columns.source: index.arrow_type, columns.target: index.arrow_type}
    if columns.weight is not None:
        types[columns.weight] = pa.float64()
    reader = _EdgeReader(table, columns, index)
    with table.batches(types, rows=_ROWS) as batches:
        for batch in batches:
            source, target = reader.ends(batch)
            weights = reader.weights(batch)
            # A table with unknown ids is read to its end only to count them.
            if reader.unknown_rows == 0:
                sorter.add(source, target, weights)
            reader.row += len(batch)
    reader.check_known()


class _EdgeReader:
    """Turns batches of the edge table into node numbers and weights.

    `row` is the number of the first row of the batch.
    """

    def __init__(self, table: TableFile, columns: EdgeColumns, index: NodeIndex) -> None:
        self._path, self._columns, self._index = table.path, columns, index
        self._unknown_ids: dict[object, None] = {}
        self.unknown_rows = 0
        self.row = 0

    def ends(self, batch: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        source = self._positions(batch, self._columns.source)
        target = self._positions(batch, self._columns.target)
        unknown = (source < 0) | (target < 0)
        self.unknown_rows += int(np.count_nonzero(unknown))
        return source, target

    def _positions(self, batch: pa.RecordBatch, name: str) -> IntArray:
        column = batch.column(name)
        if column.null_count:
            at = self.row + int(pc.index(column.is_null(), True).as_py()) + 1
            raise InputError(f"{self._path} must have a {name!r} in every row; row {at:,} has none")
        found = self._index.positions(column, f"column {name!r} of {self._path}")
        for row in np.flatnonzero(found < 0).tolist():
            if len(self._unknown_ids) >= _EXAMPLES:
                break
            self._unknown_ids[column[row].as_py()] = None
        return found

    def check_known(self) -> None:
        if self.unknown_rows:
            more = ", …" if len(self._unknown_ids) == _EXAMPLES else ""
            raise InputError(
                f"{self._path} has {self.unknown_rows:,} rows with an id that the node table does "
                f"not have: {listed(self._unknown_ids)}{more}; it must list every node"
            )

    def weights(self, batch: pa.RecordBatch) -> FloatArray | None:
        if self._columns.weight is None:
            return None
        weights = floats(batch.column(self._columns.weight))
        # Not NaN, not negative, not infinite.
        fine = (weights >= 0) & (weights < np.inf)
        if not fine.all():
            raise self._bad_weight(batch, int(np.argmin(fine)))
        return weights

    def _bad_weight(self, batch: pa.RecordBatch, row: int) -> InputError:
        columns = self._columns
        source, target, weight = (
            batch.column(name)[row].as_py()
            for name in (columns.source, columns.target, columns.weight)
        )
        got = "none" if weight is None else weight
        return InputError(
            f"column {columns.weight!r} of {self._path} must hold finite numbers, none "
            f"negative, but the edge {source!r} → {target!r}, row {self.row + row + 1:,}, has {got}"
        )
