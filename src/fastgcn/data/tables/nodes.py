"""The node table: ids, labels and split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from fastgcn.arrays import AnyArray
from fastgcn.data.splits import said, stratified_split
from fastgcn.data.tables.columns import Categories, IdCollector, NodeIndex
from fastgcn.data.tables.files import Table, is_text
from fastgcn.data.tables.labels import label_reader
from fastgcn.errors import InputError
from fastgcn.graph import checks
from fastgcn.graph.checks import Split
from fastgcn.graph.labels import has_label, labelled, task_of

_PARTS = {"": 0, "none": 0, "train": 1, "val": 2, "valid": 2, "validation": 2, "test": 3}

Notes = list[str]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The columns of the node table; see `fastgcn.data.tables.import_tables`."""

    id: str = "id"
    label: str = "label"
    split: str = "split"
    features: Sequence[str] | str | None = None
    classes: Sequence[Any] | None = None
    random_split: int | bool | None = None
    scale: str = "auto"
    task: str = "auto"
    drop: Sequence[str] = ()
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Nodes:
    """n nodes: their index by id, labels (as in `Graph`), and split."""

    n: int
    index: NodeIndex
    labels: AnyArray | None
    class_names: tuple[str, ...]
    split: Split
    taken: set[str]


def read_nodes(table: Table, options: NodeOptions, notes: Notes) -> tuple[Nodes, IdCollector]:
    """Read and check everything but the features."""
    table.require(options.id, "node ids (--id)")
    label_columns = label_reader(table, options.label, options.classes, options.task)
    parts = _split_reader(table, options)
    columns = {options.id: pa.string()}
    if label_columns is not None:
        columns |= label_columns.columns
    taken = {*columns, options.split}
    if parts is not None:
        columns[options.split] = pa.string()

    ids = IdCollector(f"column {options.id!r} of {table.path}", from_csv=table.is_csv)
    with table.batches(columns) as batches:
        for batch in batches:
            ids.add(batch.column(options.id))
            if label_columns is not None:
                label_columns.add(batch)
            if parts is not None:
                parts.add(batch.column(options.split))
    if ids.n == 0:
        raise InputError(f"{table.path} has no rows: a graph must have at least one node")

    index = ids.index()
    labels, names = (None, ()) if label_columns is None else label_columns.finish(index.node_ids)
    notes += [] if label_columns is None else label_columns.notes
    _say_labels(labels, names, notes)
    split = Split()
    if parts is not None:
        what = f"column {options.split!r} of {table.path}"
        split = _split_of(parts, what, index.node_ids)
    if options.random_split is not False and not any(len(part) for _, part in split.items()):
        split = _random_split(labels, options.random_split, notes)
    labelled(dict(split.items()), labels, index.node_ids)
    return Nodes(ids.n, index, labels, names, split, taken), ids


def _say_labels(labels: AnyArray | None, names: Sequence[str], notes: Notes) -> None:
    if labels is None:
        notes.append(
            "no labels: the graph can be used by a trained network, but not to train one; --label "
            "names their column"
        )
    elif labels.ndim == 1:
        if len(names) == 1:
            notes.append(
                f"all labelled nodes have the class {names[0]!r}: there is nothing to learn, and "
                "training is refused"
            )
        unlabelled = int(np.count_nonzero(~has_label(labels)))
        if unlabelled:
            notes.append(f"{unlabelled:,} of {len(labels):,} nodes have no label")


def _split_reader(table: Table, options: NodeOptions) -> Categories | None:
    if options.random_split is None or options.random_split is False:
        column = table.optional(options.split, "split", "the split")
        if column is None:
            return None
        what, kind = f"column {column!r} of {table.path}", table.types[column]
        words = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (table.is_csv or is_text(words) or pa.types.is_null(words)):
            raise InputError(f"{what} must be train, val or test, or empty, got {kind}")
        return Categories(what)
    if options.split != "split":
        raise InputError(f"give either split={options.split!r} or random_split, not both")
    return None


def _random_split(labels: AnyArray | None, seed: int | bool | None, notes: Notes) -> Split:
    if labels is None and seed is None:
        return Split()
    if labels is None:
        raise InputError(
            "random_split needs labels, but the node table has none; name their column "
            "(--label, or label= in Python)"
        )
    drawn = 0 if seed is None else seed
    task = task_of(labels)
    split = stratified_split(labels, seed=drawn, task=task)
    notes.append(said(task, drawn, "the table" if seed is None else ""))
    return split


def _split_of(parts: Categories, what: str, node_ids: Sequence[Any] | None) -> Split:
    """The split by the words in its column; nodes with none of them are in no part."""
    codes, values = parts.finish()
    words = [str(value).strip().lower() for value in values]
    for code, word in enumerate(words):
        if word not in _PARTS:
            node = checks.named(int(np.argmax(codes == code)), node_ids)
            raise InputError(
                f"{what} must be train, val or test, or empty for a node in no part, "
                f"but {node} has {values[code]!r}"
            )
    part = np.array([*(_PARTS[word] for word in words), 0])[codes]
    return Split(*(np.flatnonzero(part == number) for number in (1, 2, 3)))
