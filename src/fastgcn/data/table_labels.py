"""The labels of a node table: a column of classes, of lists of classes, or a column a class."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn import checks
from fastgcn.data.table_categories import Categories
from fastgcn.data.table_files import Table, listed
from fastgcn.data.table_ids import is_text
from fastgcn.errors import InputError, nearest
from fastgcn.types import AnyArray, BoolArray, IntArray

# Labels, None where no node has one, and the names of the classes.
Labels = tuple[AnyArray | None, tuple[str, ...]]

# An integer as it is printed, also by a program that made it a float to have missing values.
_INTEGER = re.compile(r"(-?(?:0|[1-9]\d*))(?:\.0+)?")


class LabelReader(Protocol):
    """Takes the label columns in pieces; `columns` has them, with their types in a CSV file."""

    columns: dict[str, pa.DataType]

    def add(self, batch: pa.RecordBatch) -> None: ...
    def finish(self, node_ids: Sequence[Any] | None) -> Labels: ...


def label_reader(
    table: Table, label: str, classes: Sequence[Any] | None
) -> LabelReader | None:
    """The reader of the column `label`, or of several, "a,b,c"; None where there is none."""
    if "," in label and label not in table.types:
        return _ColumnPerClass(table, [name.strip() for name in label.split(",")], classes)
    column = table.optional(label, "label", "labels")
    if column is None:
        return None
    reader = _ClassLists if is_list(table.types[column]) else _OneClass
    return reader(table, column, _Classes(f"column {column!r} of {table.path}", classes))


class _OneClass:
    """A class a node: text, integers or bools; null or empty where it has none."""

    def __init__(self, table: Table, column: str, classes: "_Classes") -> None:
        self.columns = {column: pa.string()}
        self._column, self._classes = column, classes

    def add(self, batch: pa.RecordBatch) -> None:
        self._classes.add(batch.column(self._column))

    def finish(self, node_ids: Sequence[Any] | None) -> Labels:
        """(n,) int64, -1 where a node has no label."""
        ids, names = self._classes.finish(lambda entry: checks.named(entry, node_ids))
        return (ids if names else None), names


class _ClassLists:
    """Several classes a node, as a list; null or an empty list where it has none."""

    def __init__(self, table: Table, column: str, classes: "_Classes") -> None:
        self.columns = {column: table.types[column]}
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
        ids, names = self._classes.finish(lambda entry: checks.named(int(nodes[entry]), node_ids))
        labels = np.zeros((len(lengths), len(names)), np.bool_)
        labels[nodes[ids >= 0], ids[ids >= 0]] = True
        return (labels if names else None), names


class _ColumnPerClass:
    """A column of zeros and ones a class."""

    def __init__(self, table: Table, names: list[str], classes: Sequence[Any] | None) -> None:
        if classes is not None:
            raise InputError("classes must not be given where label names a column a class")
        self.columns = {}
        for name in names:
            table.require(name, "labels")
            is_bool = pa.types.is_boolean(table.types[name])
            self.columns[name] = pa.bool_() if is_bool else pa.float64()
        self._path = table.path
        self._parts: list[BoolArray] = []

    def add(self, batch: pa.RecordBatch) -> None:
        part = np.empty((len(batch), len(self.columns)), np.float32)
        for j, name in enumerate(self.columns):
            part[:, j] = floats(batch.column(name), f"column {name!r} of {self._path}")
        self._parts.append(part)

    def finish(self, node_ids: Sequence[Any] | None) -> Labels:
        """(n, C) bool."""
        ...


class _Classes:
    """Classes as they stand in a table, to be numbered in order of their names."""

    def __init__(self, what: str, fixed: Sequence[Any] | None) -> None:
        self._what = what
        self._fixed = None if fixed is None else tuple(str(name) for name in fixed)
        if self._fixed is not None and len(set(self._fixed)) < len(self._fixed):
            raise InputError(f"classes must be distinct, got {listed(self._fixed)}")
        self._categories = Categories()
