"""The node table: ids, labels and split, and copying the features into a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import AnyArray, FloatArray
from fastgcn.data.splits import stratified_split
from fastgcn.data.store import StoreWriter
from fastgcn.data.tables.columns import Categories, IdCollector, NodeIndex, label_reader
from fastgcn.data.tables.files import TableFile, floats, is_list, is_number, is_text, listed
from fastgcn.errors import FormatError, InputError
from fastgcn.graph import checks
from fastgcn.graph.checks import Split

_PARTS = {"": 0, "none": 0, "train": 1, "val": 2, "valid": 2, "validation": 2, "test": 3}


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The columns of the node table; see `fastgcn.data.tables.import_tables`."""

    id: str
    label: str
    split: str
    features: Sequence[str] | None
    classes: Sequence[Any] | None
    random_split: int | None


@dataclass(frozen=True, slots=True)
class Nodes:
    """n nodes: their index by id, labels (as in `Graph`), split, and the feature columns."""

    n: int
    index: NodeIndex
    labels: AnyArray | None
    class_names: tuple[str, ...]
    split: Split
    feature_columns: list[str]


def read_nodes(table: TableFile, options: NodeOptions) -> Nodes:
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
    if options.random_split is not None:
        split = _random_split(labels, options.random_split)
    else:
        what = f"column {options.split!r} of {table.path}"
        split = Split() if parts is None else _split_of(parts, what, index.node_ids)
    checks.labelled(dict(split.items()), labels, index.node_ids)
    return Nodes(ids.n, index, labels, names, split, features)


def _split_reader(table: TableFile, options: NodeOptions) -> Categories | None:
    if options.random_split is None:
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


# Numbers of a Parquet file that are in memory together.
_TOGETHER = 1 << 20

# Tables of new nodes cannot use the second remedy: their columns are those of the graph.
_LEAVE_OUT = (
    "take the column out of the table, or name those that are features at import "
    "(--features a,b,c, or features= in Python)"
)


def feature_columns(table: TableFile, asked: Sequence[str] | None, taken: set[str]) -> list[str]:
    """The columns `asked`, or else all that are not `taken`; numbers, or one list of numbers."""
    if asked is None:
        columns = [name for name in table.types if name not in taken]
        if not columns:
            raise InputError(f"{table.path} has no features: it must have numeric columns")
    else:
        columns = [asked] if isinstance(asked, str) else list(asked)
        _check_asked(table, columns, taken)
    for name in columns:
        kind = table.types[name]
        if is_list(kind) and is_number(kind.value_type):
            if len(columns) > 1:
                raise InputError(
                    f"features must be either numeric columns or one column of lists, but "
                    f"{table.path} has both; {_LEAVE_OUT}"
                )
        elif not is_number(kind) and not (table.is_csv and pa.types.is_null(kind)):
            raise InputError(
                f"column {name!r} of {table.path} must hold numbers to be a feature, got {kind}; "
                f"{_LEAVE_OUT}"
            )
    return columns


def _check_asked(table: TableFile, columns: list[str], taken: set[str]) -> None:
    if not columns:
        raise InputError("features must name at least one column, got none")
    for name in columns:
        table.require(name, "features")
        if name in taken:
            raise InputError(f"column {name!r} of {table.path} cannot also be a feature")
    if len(set(columns)) < len(columns):
        raise InputError(f"features must name each column once, got {listed(columns)}")


def write_features(
    table: TableFile,
    columns: list[str],
    writer: StoreWriter,
    n: int,
    node_ids: Sequence[Any] | None,
) -> int:
    """Copy the columns to the store's `features` (n, F) float32, batch by batch; returns F."""
    kind = table.types[columns[0]]
    guess = getattr(kind, "list_size", 1024) if is_list(kind) else len(columns)
    types = {name: _csv_type(table.types[name]) for name in columns}
    reader = _FeatureReader(table, columns, node_ids)
    out: AnyArray | None = None
    with table.batches(types, rows=max(1, _TOGETHER // max(guess, 1))) as batches:
        for batch in batches:
            start = reader.row
            block = reader.read(batch)
            if reader.row > n:
                break
            if out is None:
                out = writer.create("features", (n, block.shape[1]), np.float32)
            out[start : reader.row] = block
    if out is None or reader.row != n:
        raise FormatError(f"{table.path} is damaged: its columns do not have equally many rows")
    return int(out.shape[1])


def _csv_type(guess: pa.DataType) -> pa.DataType:
    """Bools stay; others become float64: rows after the guess's first block may have fractions."""
    return guess if pa.types.is_boolean(guess) else pa.float64()


class _FeatureReader:
    """Turns batches of the feature columns into (rows, F) float32, checked to be finite."""

    def __init__(
        self, table: TableFile, columns: list[str], node_ids: Sequence[Any] | None
    ) -> None:
        self._path, self._columns, self._node_ids = table.path, columns, node_ids
        self._lists = is_list(table.types[columns[0]])
        self._width = -1
        self.row = 0

    def read(self, batch: pa.RecordBatch) -> FloatArray:
        if self._lists:
            block = self._list_block(batch.column(0))
        else:
            block = np.stack([floats(column) for column in batch.columns], axis=1)
        bad = ~np.isfinite(block)
        if bad.any():
            row, column = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            raise self._error(
                row,
                0 if self._lists else column,
                "must hold finite numbers",
                "has none" if np.isnan(block[row, column]) else "has one beyond float32",
            )
        self.row += len(batch)
        return block

    def _list_block(self, lists: pa.Array) -> FloatArray:
        lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
        if self._width < 0:
            self._width = int(lengths[0])
        unequal = lengths != max(self._width, 1)
        if unequal.any():
            row = int(np.argmax(unequal))
            raise self._error(
                row,
                0,
                f"must hold lists of one length, {self._width} as in the first row",
                "has no list" if lengths[row] < 0 else f"has {lengths[row]} numbers",
            )
        return floats(lists.flatten()).reshape(len(lists), self._width)

    def _error(self, row: int, column: int, expected: str, got: str) -> InputError:
        node = checks.named(self.row + row, self._node_ids)
        return InputError(
            f"column {self._columns[column]!r} of {self._path} {expected}, but {node} {got}; "
            f"fill it in, or {_LEAVE_OUT}"
        )
