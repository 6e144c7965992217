"""Columns of a node table: ids, checked to be distinct and looked up for the edges, and labels."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.data.layout import TextIds
from fastgcn.data.tables.files import (
    FreeMemory,
    Table,
    decoded,
    floats,
    is_list,
    is_number,
    is_text,
    listed,
    text_parts,
)
from fastgcn.errors import InputError, nearest
from fastgcn.graph import checks
from fastgcn.graph.csr import index_dtype
from fastgcn.kernels import edges as kernels


@dataclass(frozen=True, slots=True)
class NodeIndex:
    """Finds nodes by their ids.

    Attributes:
        node_ids: the ids to keep with the graph; None if they are 0..n-1.
        arrow_type: int64 or string, the type of the ends of edges.
        find: positions (k,) of k ids given as an array of that type, -1 for an unknown id.
    """

    node_ids: Sequence[Any] | None
    arrow_type: pa.DataType
    find: Callable[[pa.Array], IntArray]

    def positions(self, ids: pa.Array, what: str) -> IntArray:
        """As `find`, for ids of any type that can be cast without loss; none may be null."""
        plain = decoded(ids)
        whole = pa.types.is_floating(plain.type) and self.arrow_type == pa.int64()
        if not (whole or is_text(plain.type) or pa.types.is_integer(plain.type)):
            raise InputError(f"{what} must hold {self._kind()}, got {plain.type}")
        try:
            return self.find(plain.cast(self.arrow_type))
        except pa.ArrowInvalid as error:
            raise InputError(f"{what} must hold {self._kind()}: {error}") from None

    def _kind(self) -> str:
        kind = "integers" if self.arrow_type == pa.int64() else "text"
        return f"{kind}, as the node table's ids are"


class IdCollector:
    """Takes the id column in pieces and makes the index.

    The ids of a CSV file are integers if every id is written as an integer is printed, and text
    otherwise; so "007" is text.
    """

    def __init__(self, what: str, *, from_csv: bool) -> None:
        self._what, self._from_csv = what, from_csv
        self._room = FreeMemory(what)
        self._chunks: list[pa.Array] = []
        self._text = False
        self.n = 0

    def add(self, ids: pa.Array) -> None:
        if ids.null_count:
            row = self.n + int(pc.index(ids.is_null(), True).as_py()) + 1
            raise InputError(f"{self._what} must give every node an id, but row {row:,} has none")
        self.n += len(ids)
        chunk = self._narrowed(decoded(ids))
        self._room.take(2 * chunk.nbytes)  # the index is as large
        self._chunks.append(chunk)

    def _narrowed(self, ids: pa.Array) -> pa.Array:
        if pa.types.is_integer(ids.type):
            try:
                return ids.cast(pa.int64())
            except pa.ArrowInvalid:
                raise InputError(f"{self._what} must hold ids below 2**63") from None
        if not is_text(ids.type):
            raise InputError(f"{self._what} must hold integers or text, got {ids.type}")
        if self._from_csv and not self._text:
            integers = _integers_as_written(ids)
            if integers is not None:
                return integers
        self._text = True
        return ids.cast(pa.large_string())

    def index(self) -> NodeIndex:
        """The index of all ids; fails if an id occurs twice."""
        kind = pa.large_string() if self._text else pa.int64()
        ids = pa.chunked_array([chunk.cast(kind) for chunk in self._chunks], kind).combine_chunks()
        self._chunks = [ids]
        index, repeated, first = _text_index(ids) if self._text else _integer_index(ids.to_numpy())
        if repeated:
            raise InputError(
                f"{self._what} must name each node once, but has {ids[first].as_py()!r} "
                f"more than once ({repeated:,} rows repeat an id)"
            )
        return index


def _integer_index(ids: IntArray) -> tuple[NodeIndex, int, int]:
    """The index, the number of rows that repeat an id, and one row of a repeated id."""
    n = len(ids)
    if np.array_equal(ids, np.arange(n)):
        return NodeIndex(None, pa.int64(), _find_counting(n)), 0, -1
    if int(ids.max()) - int(ids.min()) < 4 * n + (1 << 16):
        find, repeated, first = _find_in_range(ids)
    else:
        find, repeated, first = _find_by_hash(ids)
    return NodeIndex(ids, pa.int64(), find), repeated, first  # type: ignore[arg-type]


_Find = Callable[[pa.Array], IntArray]


def _find_counting(n: int) -> _Find:
    """For ids 0..n-1, in order."""

    def find(queries: pa.Array) -> IntArray:
        ids: IntArray = queries.to_numpy()
        if len(ids) and (ids.min() < 0 or ids.max() >= n):
            return np.where((ids >= 0) & (ids < n), ids, -1)
        return ids

    return find


def _find_in_range(ids: IntArray) -> tuple[_Find, int, int]:
    """For integers close to each other: one array over their range."""
    low, numbers = int(ids.min()), np.arange(len(ids))
    dtype = index_dtype(len(ids))
    positions = np.full(int(ids.max()) - low + 1, -1, dtype)
    positions[ids - low] = numbers
    repeated = positions[ids - low] != numbers

    def find(queries: pa.Array) -> IntArray:
        found = np.empty(len(queries), dtype)
        kernels.find_in_range(queries.to_numpy(), low, positions, found)
        return found

    return find, int(np.count_nonzero(repeated)), int(np.argmax(repeated))


def _find_by_hash(ids: IntArray) -> tuple[_Find, int, int]:
    """For integers far from each other."""
    table = kernels.hash_table(len(ids))
    repeated, first = kernels.insert_integers(ids, table)

    def find(queries: pa.Array) -> IntArray:
        found = np.empty(len(queries), np.int64)
        kernels.find_integers(queries.to_numpy(), table, found)
        return found

    return find, repeated, first


def _text_index(ids: pa.Array) -> tuple[NodeIndex, int, int]:
    text, offsets = text_parts(ids)
    table = kernels.hash_table(len(ids))
    repeated, first = kernels.insert_text(text, offsets, table)

    def find(queries: pa.Array) -> IntArray:
        found = np.empty(len(queries), np.int64)
        kernels.find_text(*text_parts(queries), text, offsets, table, found)
        return found

    return NodeIndex(TextIds(text, offsets), pa.string(), find), repeated, first


def _integers_as_written(text: pa.Array) -> pa.Array | None:
    """int64 if each text is an integer as it is printed, else None."""
    try:
        integers = text.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return integers if integers.cast(text.type).equals(text) else None


# An integer as it is printed, also by programs that turn integers with gaps into floats.
_INTEGER = re.compile(r"(-?(?:0|[1-9]\d{0,99}))(?:\.0+)?")  # longer ones are names


class Categories:
    """Takes a column in pieces and numbers its distinct values."""

    def __init__(self, what: str) -> None:
        self._room = FreeMemory(what)
        self._codes = [np.empty(0, np.int32)]
        self._code_of: dict[Any, int] = {}

    def add(self, column: pa.Array) -> None:
        encoded = decoded(column).dictionary_encode()
        self._room.take(8 * len(column) + encoded.dictionary.nbytes)
        codes = [self._code(value) for value in encoded.dictionary.to_pylist()]
        codes.append(-1)  # last, so that the index -1 of a null finds it
        local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._codes.append(np.array(codes, np.int32)[local])

    def _code(self, value: Any) -> int:
        return self._code_of.setdefault(value, len(self._code_of))

    def finish(self) -> tuple[IntArray, list[Any]]:
        """Codes (rows,), -1 for null, and the values they stand for."""
        return np.concatenate(self._codes), list(self._code_of)


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
            try:
                column = pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
            except pa.ArrowInvalid:
                raise InputError(f"{self._what} must hold classes, got fractions") from None
        elif not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"{self._what} must hold classes as text or integers, got {kind}")
        self._categories.add(column)

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
Labels = tuple[AnyArray | None, tuple[str, ...]]


class LabelReader(Protocol):
    """Takes the label columns in pieces; `columns` has them, with their types in a CSV file."""

    columns: dict[str, pa.DataType]

    def add(self, batch: pa.RecordBatch) -> None: ...
    def finish(self, node_ids: Sequence[Any] | None) -> Labels: ...


def label_reader(table: Table, label: str, classes: Sequence[Any] | None) -> LabelReader | None:
    """The reader of the column `label`, or of the columns "a,b,c"; None if there is none."""
    if "," in label and label not in table.types:
        if classes is not None:
            raise InputError("classes must not be given if label names a column per class")
        return _ColumnPerClass(table, [name.strip() for name in label.split(",")])
    column = table.optional(label, "label", "labels")
    if column is None:
        return None
    named = Classes(f"column {column!r} of {table.path}", classes)
    if is_list(table.types[column]):
        return _ClassLists(column, named)
    return _OneClass(column, named)


class _OneClass:
    """One class for each node: text, integers or bools; null or empty for no class."""

    def __init__(self, column: str, classes: Classes) -> None:
        self.columns = {column: pa.string()}
        self._column, self._classes = column, classes

    def add(self, batch: pa.RecordBatch) -> None:
        self._classes.add(batch.column(self._column))

    def finish(self, node_ids: Sequence[Any] | None) -> Labels:
        """(n,) int64, -1 for a node without a label."""
        ids, names = self._classes.finish(lambda row: checks.named(row, node_ids))
        return (ids if names else None), names


class _ClassLists:
    """Several classes for each node, as a list; null or an empty list for no class."""

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
