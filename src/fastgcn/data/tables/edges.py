"""The edge table: streamed, its ends found among the nodes, and handed to the sorter."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.data.edge_sorter import EdgeSorter
from fastgcn.data.tables.files import Table, floats, is_number, listed
from fastgcn.data.tables.ids import NodeIndex
from fastgcn.errors import InputError

# Rows of a Parquet file that are in memory together.
_ROWS = 1 << 18

# Unknown ids that a message names.
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class EdgeColumns:
    """Names of the columns; `weight` is None where edges have none."""

    source: str
    target: str
    weight: str | None


def edge_columns(table: Table, source: str, target: str, weight: str) -> EdgeColumns:
    """The columns, which are there and may be what they are meant to be."""
    table.require(source, "where edges start")
    table.require(target, "where edges end")
    column = table.optional(weight, "weight", "edge weights")
    if column is not None and not table.is_csv and not is_number(table.types[column]):
        raise InputError(
            f"column {column!r} of {table.path} must hold numbers to be edge weights, "
            f"got {table.types[column]}"
        )
    return EdgeColumns(source, target, column)


def add_edges(table: Table, columns: EdgeColumns, index: NodeIndex, sorter: EdgeSorter) -> None:
    """Give all edges of the table to the sorter; fails where one of them is not an edge."""
    types = {columns.source: index.arrow_type, columns.target: index.arrow_type}
    if columns.weight is not None:
        types[columns.weight] = pa.float64()
    reader = _EdgeReader(table, columns, index)
    for batch in table.batches(types, rows=_ROWS):
        source, target = reader.ends(batch)
        weights = reader.weights(batch)
        # A table with unknown ids is read to its end only to count them.
        if reader.unknown_rows == 0:
            sorter.add(source, target, weights)
        reader.row += len(batch)
    reader.check_known()


class _EdgeReader:
    """Turns batches of the edge table into node numbers and weights; `row` is the batch's."""

    def __init__(self, table: Table, columns: EdgeColumns, index: NodeIndex) -> None:
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
