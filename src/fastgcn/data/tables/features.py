"""The features of a node table: which columns they are, and their way into a store."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import AnyArray, FloatArray
from fastgcn.data.store import StoreWriter
from fastgcn.data.tables.files import Table, floats, is_list, is_number, listed
from fastgcn.errors import InputError
from fastgcn.graph import checks

# Numbers of a Parquet file that are in memory together.
_TOGETHER = 1 << 20

# Both ways out: the second is not there for new nodes, whose columns are those of the graph.
_LEAVE_OUT = (
    "take the column out of the table, or name those that are features at import "
    "(--features a,b,c, or features= in Python)"
)


def feature_columns(table: Table, asked: Sequence[str] | None, taken: set[str]) -> list[str]:
    """The columns asked for, or all that are not `taken`: numbers, or one list of numbers."""
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


def _check_asked(table: Table, columns: list[str], taken: set[str]) -> None:
    if not columns:
        raise InputError("features must name at least one column, got none")
    for name in columns:
        table.require(name, "features")
        if name in taken:
            raise InputError(f"column {name!r} of {table.path} cannot also be a feature")
    if len(set(columns)) < len(columns):
        raise InputError(f"features must name each column once, got {listed(columns)}")


def write_features(
    table: Table, columns: list[str], writer: StoreWriter, n: int, node_ids: Sequence[Any] | None
) -> int:
    """Copy the columns to the store's `features` (n, F) float32, batch by batch; returns F."""
    kind = table.types[columns[0]]
    guess = getattr(kind, "list_size", 1024) if is_list(kind) else len(columns)
    types = {name: _csv_type(table.types[name]) for name in columns}
    reader = _FeatureReader(table, columns, node_ids)
    out: AnyArray | None = None
    for batch in table.batches(types, rows=max(1, _TOGETHER // max(guess, 1))):
        start = reader.row
        block = reader.read(batch)
        if out is None:
            out = writer.create("features", (n, block.shape[1]), np.float32)
        out[start : reader.row] = block
    assert out is not None, "a table without rows was refused before"
    return int(out.shape[1])


def _csv_type(guess: pa.DataType) -> pa.DataType:
    """Bools stay; any other column may have a fraction after the rows that were looked at."""
    return guess if pa.types.is_boolean(guess) else pa.float64()


class _FeatureReader:
    """Batches of the feature columns as (rows, F) float32, checked to be finite."""

    def __init__(self, table: Table, columns: list[str], node_ids: Sequence[Any] | None) -> None:
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
