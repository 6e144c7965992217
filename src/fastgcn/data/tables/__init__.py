"""Node and edge tables to a store or a `Graph`: files, data frames, Arrow tables and queries."""

import inspect
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.data.edge_sorter import EdgeSorter
from fastgcn.data.imported import SCALES, read_imported
from fastgcn.data.layout import arrays_of, graph_from, id_arrays
from fastgcn.data.store import StoreWriter, open_store
from fastgcn.data.structure import (
    check_width,
    log_degrees,
    structural_names,
    structural_rows,
)
from fastgcn.data.tables.edges import (
    EdgeOptions,
    EdgeReader,
    edge_tables,
    is_weighted,
    type_weights,
    written_otherwise,
)
from fastgcn.data.tables.encoders import Encoders
from fastgcn.data.tables.features import feature_columns, write_features, write_known
from fastgcn.data.tables.files import Table
from fastgcn.data.tables.frames import table_of
from fastgcn.data.tables.nodes import NodeOptions, Nodes, read_nodes
from fastgcn.errors import InputError, nearest
from fastgcn.graph.checks import check_default_weight
from fastgcn.graph.csr import CSR
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import task_of
from fastgcn.memory import memory_bytes
from fastgcn.progress import note

_UNKNOWN = ("refuse", "drop", "add")
_COMPARED = 1000  # unknown ids that are looked for under other spellings


def import_tables(
    nodes: Any,
    edges: Any,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    id: str = "id",
    label: str = "label",
    split: str = "split",
    features: Sequence[str] | str | None = None,
    drop: Sequence[str] = (),
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    text: Sequence[str] = (),
    date: Sequence[str] = (),
    scale: str = "auto",
    like: str | os.PathLike[str] | None = None,
    structure: int | None = None,
    degree: bool | None = None,
    classes: Sequence[Any] | None = None,
    task: str = "auto",
    random_split: int | bool | None = None,
    source: str = "source",
    target: str = "target",
    weight: str = "weight",
    default_weight: float | None = None,
    type_column: str | None = None,
    types: Mapping[str, float] | Sequence[str] | None = None,
    unknown: str = "refuse",
    directed: bool = False,
    memory: int | str = "1GB",
    name: str | None = None,
) -> None:
    """Write the store `out` of a graph given as tables; files may be larger than memory.

    A table is a file (`.csv`, `.tsv`, either also `.gz`, `.bz2`, `.zst`; `.parquet`), a data frame
    of pandas or polars, an Arrow table, a DuckDB relation, or "FILE.duckdb:TABLE OR QUERY". Every
    choice that is made for the user is noted, and kept with the graph (`Graph.imported`).

    Args:
        nodes: a row per node.
        edges: a row per edge, in any order; cleaned as `fastgcn.graph.csr` describes. Several
            tables as a list, or as a mapping from the type of edges to the table.
        out: the folder to write.
        force: replace an existing store.
        id: column of distinct ids, integers or text.
        label: column of classes, empty if a node has none; or of lists of classes (a node has
            several); or "a,b,c", columns of 0 and 1 that are named like the classes; or of
            numbers to predict, empty or NaN if a node has none. Beside features in a `.npy` file it
            is a `.npy` file of integers (-1 for none) or numbers. A table may lack the column under
            its default name; the same holds for the split and the weights.
        split: column of train, val or test, or empty.
        features: the columns that become features; by default all others. `amount_*` is every
            column whose name begins so; this also holds for the next five.
        drop: columns that are no features.
        numeric: columns of numbers; text in them that is no number counts as missing.
        categorical: columns of categories, such as codes that are written as numbers.
        text: columns of words.
        date: columns of dates.
        scale: how numbers are scaled. `standard` gives mean 0 and deviation 1, `quantile` a normal
            distribution, `none` leaves them. `auto` leaves complete numbers without long tails as
            they are if there is nothing else in the table (training scales them), and otherwise
            takes quantiles for long tails and `standard` for the others. Columns of 0 and 1 stay.
        like: a store or a run, whose encoders are used instead of new ones: so a run can be applied
            to another graph with the same columns.
        structure: make so many features of the edges (`fastgcn.structural_features`), beside those
            of the node table, which then may have none.
        degree: make the logarithm of a node's degree a feature, because means over neighbours do
            not tell it. By default if columns are encoded, not if all are numbers that are taken
            as they are; `structure` has it in any case.
        classes: the names of the classes in order; by default all that occur, integers by
            size, others by name.
        task: `classification` takes labels for classes, `regression` for numbers to predict.
            `auto` takes numbers with fractions for a regression, and also whole numbers if there
            are more than 100 different ones, unless they are 0, 1, 2, ... with many nodes each.
        random_split: the seed of a split into 60, 20 and 20 % of each class, instead of `split`;
            of a regression, of all nodes with a target.
            A table with labels and without a split gets one of seed 0; False: it gets none.
        source: column of the edges' starts, as ids of the node table.
        target: column of their ends.
        weight: column of edge weights.
        default_weight: the weight of edges that have none, in a table or column of weights.
        type_column: column of the edges' types.
        types: the types of edges that are used; with weights, by which the edges' own are
            multiplied.
        unknown: what to do with edges of an id that the node table does not have: `refuse`,
            `drop` the edges, or `add` nodes whose features are all missing.
        directed: True if an edge has only the direction listed.
        memory: about how much to use, beside a few numbers per node, in bytes or as "500MB".
        name: the graph's name; by default that of the folder.
    """
    out = Path(out)
    budget = memory_bytes(memory)
    _choice(scale, ("auto", *(s for s in SCALES if s != "constant")), "scale")
    _choice(unknown, _UNKNOWN, "unknown")
    check_default_weight(default_weight)
    if structure is not None:
        check_width(structure)
        if degree is False:
            raise InputError("the degree is one of the features of structure; leave degree out")
        degree = False  # no column of its own
    elif degree not in (None, True, False):
        raise InputError(f"degree must be True, False or None, got {degree!r}")
    kinds = {"number": numeric, "category": categorical, "text": text, "date": date}
    node_options = NodeOptions(
        id, label, split, features, classes, random_split, scale, task, drop, kinds
    )
    edge_options = EdgeOptions(
        source, target, weight, type_column, type_weights(types), unknown, default_weight
    )
    choices = {"features": features, "drop": drop, **kinds}
    asked = [option for option, value in choices.items() if value]
    if like is not None and (asked or scale != "auto"):
        raise InputError(f"like has all encoders; leave {(asked or ['scale'])[0]} out")
    node_table = table_of(nodes, "the node table", label=label)
    notes: list[str] = []
    tables = edge_tables(edges, edge_options, notes)
    weighted = is_weighted(tables, edge_options)
    reader = EdgeReader(tables, edge_options, weighted=weighted, notes=notes)
    with StoreWriter(out, force=force) as writer:
        found, ids = read_nodes(node_table, node_options, notes)
        columns = None
        if like is None:
            needed = structure is None and not degree
            columns = feature_columns(node_table, node_options, found.taken, notes, needed=needed)
        in_table = found.n
        if unknown == "add":
            extra = reader.unknown_ids(found.index)
            if len(extra):
                ids.add(extra)
                hint = written_otherwise(found.index, extra.slice(0, _COMPARED).to_pylist())
                found = _enlarged(found, ids.index(), notes, hint)
        _put_nodes(writer, found)
        if columns is not None:
            encoders, degree = write_features(
                node_table, columns, found, node_options, writer, notes, in_table, degree
            )
        else:
            assert like is not None
            known = read_imported(Path(like))
            encoders = Encoders(known["encoders"])
            degree = known.get("structure") == 0 if degree is None else degree
            write_known(node_table, encoders, found, writer, notes, in_table, degree)
        sorter = EdgeSorter(writer, found.n, directed=directed, weighted=weighted, memory=budget)
        reader.feed(found.index, sorter)
        cleaned = sorter.finish()
        names = encoders.names if encoders.named else None
        if structure is not None:
            _add_structure(writer, structure, encoders.width)
            names = [*encoders.names, *structural_names(structure)]
            notes.append(
                f"{structure} features are random projections of a node's neighbourhood, and one "
                "is the logarithm of its degree"
            )
        elif degree:
            _add_degrees(writer)
            names, structure = [*encoders.names, *structural_names(0)], 0
            notes.append(
                "the feature 'degree' is the logarithm of a node's number of neighbours, plus 1; "
                "--no-degree leaves it out (degree=False in Python)"
            )
        for sentence in notes:
            note(f"Note: {sentence}.")
        used = {"id": id, "source": source, "target": target, "weight": weight}
        writer.finish(
            name=out.name if name is None else name,
            directed=directed,
            n_features=encoders.width if structure is None else len(names or ()),
            n_classes=len(found.class_names),
            class_names=found.class_names or None,
            feature_names=names,
            cleaned=cleaned,
            provenance={
                "nodes": _file_name(node_table),
                "edges": ", ".join(_file_name(each.table) for each in tables),
            },
            imported={
                # Tables of new nodes have these columns.
                "columns": used | ({} if type_column is None else {"type": type_column}),
                "types": edge_options.types,
                "encoders": encoders.specs,
                "structure": structure,
                "notes": notes,
            },
        )


def _add_degrees(writer: StoreWriter) -> None:
    """Fill the last column of the features, which was left for it."""
    indptr = np.load(writer.path("indptr"), mmap_mode="r")
    features = np.load(writer.path("features"), mmap_mode="r+")
    features[:, -1] = log_degrees(np.diff(indptr))


def _add_structure(writer: StoreWriter, structure: int, width: int) -> None:
    """Put features that are made of the sorted edges beside the `width` features that are there."""
    indptr, indices = (np.load(writer.path(n), mmap_mode="r") for n in ("indptr", "indices"))
    weighted = writer.path("weights").exists()
    weights = np.load(writer.path("weights"), mmap_mode="r") if weighted else None
    rows = structural_rows(CSR(indptr, indices, weights), structure)
    old = np.load(writer.path("features")) if width else np.empty((len(rows), 0), np.float32)
    writer.put("features", np.hstack([old, rows]))


def _choice(value: Any, allowed: Sequence[str], option: str) -> None:
    if value not in allowed:
        raise InputError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")


def _file_name(table: Table) -> str:
    return table.path.name if isinstance(table.path, Path) else str(table.path)


def read_tables(nodes: Any, edges: Any, **options: Any) -> Graph:
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
    known = set(inspect.signature(import_tables).parameters) - {"nodes", "edges", "out", "force"}
    for option in options:
        if option not in known:
            raise InputError(f"tables have no option {option!r}{nearest(option, known)}")
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
        imported=mapped.imported,
    )


def _enlarged(nodes: Nodes, index: Any, notes: list[str], hint: str) -> Nodes:
    """The nodes with those that only the edge tables name, at the end and without labels."""
    n, labels = len(index.node_ids), nodes.labels
    if labels is not None:
        none = {"multilabel": False, "classification": -1, "regression": np.nan}[task_of(labels)]
        rest = np.full((n - nodes.n, *labels.shape[1:]), none, labels.dtype)
        labels = np.concatenate([labels, rest])
    notes.append(
        f"{n - nodes.n:,} nodes are added, because only the edges name them, such as "
        f"{index.node_ids[nodes.n]!r}; they have no labels, and their features are missing{hint}"
    )
    return Nodes(n, index, labels, nodes.class_names, nodes.split, nodes.taken)


def _put_nodes(writer: StoreWriter, nodes: Nodes) -> None:
    for part, ids in nodes.split.items():
        writer.put(part, ids)
    if nodes.labels is not None:
        writer.put("labels", nodes.labels)
    if nodes.index.node_ids is not None:
        for array_name, array in id_arrays(nodes.index.node_ids).items():
            writer.put(array_name, array)


__all__ = ["Encoders", "import_tables", "read_tables"]
