"""The labels of a node table: a column of classes, of lists of classes, or a column a class."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn import checks
from fastgcn.data.table_classes import Classes
from fastgcn.data.table_columns import floats, is_list, is_number
from fastgcn.data.table_files import Table
from fastgcn.errors import InputError
from fastgcn.types import AnyArray, IntArray

# Labels, None where no node has one, and the names of the classes.
Labels = tuple[AnyArray | None, tuple[str, ...]]


class LabelReader(Protocol):
    """Takes the label columns in pieces; `columns` has them, with their types in a CSV file."""

    columns: dict[str, pa.DataType]

    def add(self, batch: pa.RecordBatch) -> None: ...
    def finish(self, node_ids: Sequence[Any] | None) -> Labels: ...


def label_reader(table: Table, label: str, classes: Sequence[Any] | None) -> LabelReader | None:
    """The reader of the column `label`, or of several, "a,b,c"; None where there is none."""
    if "," in label and label not in table.types:
        if classes is not None:
            raise InputError("classes must not be given where label names a column a class")
        return _ColumnPerClass(table, [name.strip() for name in label.split(",")])
    column = table.optional(label, "label", "labels")
    if column is None:
        return None
    named = Classes(f"column {column!r} of {table.path}", classes)
    if is_list(table.types[column]):
        return _ClassLists(column, named)
    return _OneClass(column, named)


class _OneClass:
    """A class a node: text, integers or bools; null or empty where it has none."""

    def __init__(self, column: str, classes: Classes) -> None:
        self.columns = {column: pa.string()}
        self._column, self._classes = column, classes

    def add(self, batch: pa.RecordBatch) -> None:
        self._classes.add(batch.column(self._column))

    def finish(self, node_ids: Sequence[Any] | None) -> Labels:
        """(n,) int64, -1 where a node has no label."""
        ids, names = self._classes.finish(lambda row: checks.named(row, node_ids))
        return (ids if names else None), names


class _ClassLists:
    """Several classes a node, as a list; null or an empty list where it has none."""

    def __init__(self, column: str, classes: Classes) -> None:
        self.columns = {column: pa.list_(pa.string())}
        self._column, self._classes = column, classes
        self._lengths: list[IntArray] = []

    def add(self, batch: pa.RecordBatch) -> None:
        lists = batch.column(self._column)
        self._classes.add(lists.flatten())
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        self._lengths.append(lengths.to_numpy(zero_copy_only=False))

    def finish(self, node_ids: Sequence[Any] | None) -> Labels:
        """(n, C) bool."""
        lengths = np.concatenate(self._lengths)
        nodes = np.repeat(np.arange(len(lengths)), lengths)
        ids, names = self._classes.finish(lambda row: checks.named(int(nodes[row]), node_ids))
        labels = np.zeros((len(lengths), len(names)), np.bool_)
        labels[nodes[ids >= 0], ids[ids >= 0]] = True
        return (labels if names else None), names


class _ColumnPerClass:
    """A column of zeros and ones a class."""

    def __init__(self, table: Table, names: list[str]) -> None:
        self.columns = {}
        for name in names:
            kind = table.types[table.require(name, "labels")]
            if not is_number(kind):
                raise InputError(f"column {name!r} of {table.path} must be 0 or 1, got {kind}")
            self.columns[name] = kind if pa.types.is_boolean(kind) else pa.float64()
        self._path = table.path
        self._parts: list[IntArray] = []

    def add(self, batch: pa.RecordBatch) -> None:
        values = np.stack([floats(batch.column(name)) for name in self.columns], axis=1)
        self._parts.append(np.where((values == 0) | (values == 1), values, -1).astype(np.int8))

    def finish(self, node_ids: Sequence[Any] | None) -> Labels:
        """(n, C) bool."""
        values = np.concatenate(self._parts)
        names = tuple(self.columns)
        if values.min() < 0:
            row, column = np.unravel_index(int(np.argmin(values)), values.shape)
            raise InputError(
                f"column {names[column]!r} of {self._path} must be 0 or 1 in every row, "
                f"but {checks.named(int(row), node_ids)} has something else"
            )
        return values.astype(np.bool_), names
