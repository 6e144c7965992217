"""The node table without its features: ids, labels and split, read in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fastgcn import checks
from fastgcn.data.splits import stratified_split
from fastgcn.data.table_classes import Categories
from fastgcn.data.table_features import feature_columns
from fastgcn.data.table_files import Table
from fastgcn.data.table_ids import IdCollector, NodeIndex
from fastgcn.data.table_labels import label_reader
from fastgcn.errors import InputError
from fastgcn.graph import Split
from fastgcn.types import AnyArray

_PARTS = {"": 0, "none": 0, "train": 1, "val": 2, "valid": 2, "validation": 2, "test": 3}


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What the node table's columns are; see `fastgcn.data.tables.import_tables`."""

    id: str
    label: str
    split: str
    features: Sequence[str] | None
    classes: Sequence[Any] | None
    random_split: int | None


@dataclass(frozen=True, slots=True)
class Nodes:
    """n nodes: their index by id, labels (as in `Graph`), split, and where features stand."""

    n: int
    index: NodeIndex
    labels: AnyArray | None
    class_names: tuple[str, ...]
    split: Split
    feature_columns: list[str]


def read_nodes(table: Table, options: NodeOptions) -> Nodes:
    """Read and check everything but the features."""
    table.require(options.id, "node ids")
    label_columns = label_reader(table, options.label, options.classes)
    parts = _split_reader(table, options)
    columns = {options.id: pa.string()}
    if label_columns is not None:
        columns |= label_columns.columns
    features = feature_columns(table, options.features, {*columns, options.split})
    if parts is not None:
        columns[options.split] = pa.string()

    ids = IdCollector(f"column {options.id!r} of {table.path}", from_csv=table.is_csv)
    for batch in table.batches(columns):
        ids.add(batch.column(options.id))
        if label_columns is not None:
            label_columns.add(batch)
        if parts is not None:
            parts.add(batch.column(options.split))
    if ids.n == 0:
        raise InputError(f"{table.path} has no rows: a graph must have at least one node")

    index = ids.index()
    labels, names = (None, ()) if label_columns is None else label_columns.finish(index.node_ids)
    if options.random_split is not None:
        split = _random_split(labels, options.random_split)
    else:
        what = f"column {options.split!r} of {table.path}"
        split = Split() if parts is None else _split_of(parts, what, index.node_ids)
    checks.labelled(dict(split.items()), labels, index.node_ids)
    return Nodes(ids.n, index, labels, names, split, features)


def _split_reader(table: Table, options: NodeOptions) -> Categories | None:
    if options.random_split is None:
        column = table.optional(options.split, "split", "the split")
        return None if column is None else Categories()
    if options.split != "split":
        raise InputError(f"give either split={options.split!r} or random_split, not both")
    return None


def _random_split(labels: AnyArray | None, seed: int) -> Split:
    if labels is None:
        raise InputError(
            "random_split needs labels, but the node table has none; name their column "
            "(--label, or label= in Python)"
        )
    return stratified_split(labels, seed=seed)


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
