"""The label columns of a node table: classes, lists of classes, columns of 0 and 1, or numbers."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.data.tables.columns import Categories
from fastgcn.data.tables.files import (
    FreeMemory,
    Table,
    decoded,
    floats,
    is_list,
    is_number,
    is_text,
    listed,
    values_of,
)
from fastgcn.errors import InputError, nearest
from fastgcn.graph import checks
from fastgcn.graph.labels import are_amounts, are_codes, targets

# What `task` of an import may be.
TASKS = ("auto", "classification", "regression")

# More whole numbers than this as classes are said: they may be amounts.
_MANY_CLASSES = 20

# An integer as it is printed, also by programs that turn integers with gaps into floats.
_INTEGER = re.compile(r"(-?(?:0|[1-9]\d{0,99}))(?:\.0+)?")  # longer ones are names


class Classes:
    """The classes of a column, ordered: integers by size, others by name.

    Null and empty text mean no class. `fixed` gives the classes and their order instead.
    """

    def __init__(self, what: str, fixed: Sequence[Any] | None) -> None:
        self._what = what
        self._fixed = None if fixed is None else tuple(str(name) for name in fixed)
        if self._fixed is not None and len(set(self._fixed)) < len(self._fixed):
            raise InputError(f"classes must be distinct, got {listed(self._fixed)}")
        self._categories = Categories(what)

    def add(self, column: pa.Array) -> None:
        column = decoded(column)
        kind = column.type
        if pa.types.is_floating(kind):  # integers with missing values, as pandas stores them
            column = pc.if_else(pc.is_nan(column), None, column)
            try:
                column = column.cast(pa.int64())
            except pa.ArrowInvalid:
                column = column.cast(pa.string())
        elif pa.types.is_decimal(kind):
            column = column.cast(pa.string())
        elif not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise InputError(
                f"{self._what} must hold classes as text or integers, or numbers, got {kind}"
            )
        self._categories.add(column)

    def values(self) -> tuple[IntArray, list[Any]]:
        """Codes (rows,), -1 for null, and the values they stand for, as they were given."""
        return self._categories.finish()

    def finish(self, node_of: Callable[[int], str]) -> tuple[IntArray, tuple[str, ...]]:
        """Class ids (rows,) int64, -1 for none, and the names; `node_of` names a row in errors."""
        codes, values = self._categories.finish()
        names, ordered = _class_names([str(value) for value in values])
        classes = ordered if self._fixed is None else self._fixed
        number = {"": -1} | {name: i for i, name in enumerate(classes)}
        for code, name in enumerate(names):
            if name not in number:
                node = node_of(int(np.argmax(codes == code)))
                raise InputError(
                    f"{self._what} must hold one of the classes {listed(classes)}, "
                    f"but {node} has {name!r}{nearest(name, classes)}"
                )
        ids = np.array([*(number[name] for name in names), -1], np.int64)
        return ids[codes], classes


def _class_names(values: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The class of each value ("" for none), and all classes in order."""
    integers = [_INTEGER.fullmatch(value) for value in values if value]
    if all(integers):
        values = [value and value.split(".")[0] for value in values]
        return values, tuple(sorted({value for value in values if value}, key=int))
    return values, tuple(sorted({value for value in values if value}))


# Labels, None if no node has one, and the names of the classes.
Found = tuple[AnyArray | None, tuple[str, ...]]


class LabelReader(Protocol):
    """Takes the label columns in pieces.

    Attributes:
        columns: the label columns, with their types in a CSV file.
        notes: what was guessed; complete after `finish`.
    """

    columns: dict[str, pa.DataType]
    notes: list[str]

    def add(self, batch: pa.RecordBatch) -> None: ...
    def finish(self, node_ids: Sequence[Any] | None) -> Found: ...


def label_reader(
    table: Table, label: str, classes: Sequence[Any] | None, task: str = "auto"
) -> LabelReader | None:
    """The reader of the column `label`, or of the columns "a,b,c"; None if there is none."""
    if task not in TASKS:
        raise InputError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    if task == "regression" and classes is not None:
        raise InputError("classes are not for a regression, whose labels are numbers")
    if "," in label and label not in table.types:
        if classes is not None:
            raise InputError("classes must not be given if label names a column per class")
        if task == "regression":
            raise InputError(f"a regression has one column of numbers, got label = {label!r}")
        return _ColumnPerClass(table, [name.strip() for name in label.split(",")])
    column = table.optional(label, "label", "labels")
    if column is None:
        return None
    named = Classes(f"column {column!r} of {table.path}", classes)
    if is_list(table.types[column]):
        if task == "regression":
            raise InputError(f"a regression has one number a node, but {column!r} holds lists")
        return _ClassLists(column, named)
    return _OneLabel(column, table, named, "classification" if classes is not None else task)


# A number as text, and what stands for none.
_NUMBER = re.compile(
    r"\s*[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|infinity)\s*", re.IGNORECASE
)
_NONE = frozenset({"", "nan", "na", "n/a", "null", "none"})


def _number(value: str) -> float | None:
    """The number that a text is, NaN for none; None if it is neither."""
    if _NUMBER.fullmatch(value):
        return float(value)
    return np.nan if value.strip().lower() in _NONE else None


class _OneLabel:
    """One label for each node, a class or a number; null, NaN or empty for none.

    Of `task` auto, numbers are told from classes when all rows have been seen. Text that is not
    from a CSV file is for classes.
    """

    def __init__(self, column: str, table: Table, classes: Classes, task: str) -> None:
        self.columns = {column: pa.string()}
        self.notes: list[str] = []
        kind = table.types[column]
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        self._numeric = is_number(kind) and not pa.types.is_boolean(kind) and not table.is_csv
        self._guesses = task == "auto" and (self._numeric or table.is_csv)
        self._what = f"column {column!r} of {table.path}"
        self._column, self._classes, self._task = column, classes, task
        self._room, self._parts = FreeMemory(self._what), list[pa.Array]()

    def add(self, batch: pa.RecordBatch) -> None:
        column = decoded(batch.column(self._column))
        if self._numeric:
            self._room.take(column.nbytes)
            self._parts.append(column)
        else:
            self._classes.add(column)

    def finish(self, node_ids: Sequence[Any] | None) -> Found:
        """Targets (n,) float64, NaN for none; or class ids (n,) int64, -1 for none."""
        numbers = None
        if self._guesses or self._task == "regression":
            numbers = self._of_column() if self._numeric else self._of_text(node_ids)
        known = 0 if numbers is None else np.unique(numbers[~np.isnan(numbers)]).size
        if numbers is not None and known and (self._task == "regression" or are_amounts(numbers)):
            if self._guesses:
                self.notes.append(
                    f"the target {self._column!r} has {known:,} distinct numbers: trained as "
                    "regression; --task classification takes them for classes"
                )
            return targets(numbers, len(numbers)), ()
        if self._numeric:
            whole = pa.chunked_array(self._parts) if self._parts else pa.chunked_array([[]])
            self._classes.add(whole.combine_chunks())  # at once: all are integers, or none is
        ids, names = self._classes.finish(lambda row: checks.named(row, node_ids))
        if numbers is not None and known > _MANY_CLASSES and not are_codes(numbers):
            self.notes.append(
                f"column {self._column!r} has {known:,} different whole numbers, and each is taken "
                "for a class; --task regression takes them for amounts"
            )
        return (ids if names else None), names

    def _of_column(self) -> FloatArray:
        return np.concatenate([np.empty(0), *(floats(part) for part in self._parts)])

    def _of_text(self, node_ids: Sequence[Any] | None) -> FloatArray | None:
        """The numbers that the texts are; None if one is no number."""
        codes, values = self._classes.values()
        found = [_number(str(value)) for value in values]
        if None in found:
            if self._task == "auto":
                return None
            wrong = found.index(None)
            raise InputError(
                f"{self._what} must hold numbers for a regression, but "
                f"{checks.named(int(np.argmax(codes == wrong)), node_ids)} has {values[wrong]!r}; "
                "--task classification takes them for classes"
            )
        return np.array([*found, np.nan], np.float64)[codes]


class _ClassLists:
    """Several classes for each node, as a list; null or an empty list for no class."""

    def __init__(self, column: str, classes: Classes) -> None:
        self.columns = {column: pa.list_(pa.string())}
        self.notes: list[str] = []
        self._column, self._classes = column, classes
        self._lengths: list[IntArray] = []

    def add(self, batch: pa.RecordBatch) -> None:
        lists = batch.column(self._column)
        self._classes.add(lists.flatten())
        self._lengths.append(values_of(pc.list_value_length(lists), 0))

    def finish(self, node_ids: Sequence[Any] | None) -> Found:
        """(n, C) bool."""
        lengths = np.concatenate(self._lengths)
        nodes = np.repeat(np.arange(len(lengths)), lengths)
        ids, names = self._classes.finish(lambda row: checks.named(int(nodes[row]), node_ids))
        FreeMemory(f"{len(names):,} classes of {len(lengths):,} nodes").take(
            len(names) * len(lengths)
        )
        labels = np.zeros((len(lengths), len(names)), np.bool_)
        labels[nodes[ids >= 0], ids[ids >= 0]] = True
        return (labels if names else None), names


class _ColumnPerClass:
    """A column of zeros and ones for each class."""

    def __init__(self, table: Table, names: list[str]) -> None:
        self.columns = {}
        self.notes: list[str] = []
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

    def finish(self, node_ids: Sequence[Any] | None) -> Found:
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
