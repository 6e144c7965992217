"""The edge tables: ends as node numbers, weights, and types of edges."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.data.edge_sorter import EdgeSorter
from fastgcn.data.layout import TextIds
from fastgcn.data.tables.columns import NodeIndex
from fastgcn.data.tables.encoders import texts_of
from fastgcn.data.tables.files import Table, decoded, floats, is_number, listed, mask_of, values_of
from fastgcn.data.tables.frames import table_of
from fastgcn.errors import InputError, nearest

# Rows of a Parquet file that are in memory together.
_ROWS = 1 << 18

# Unknown ids that a message names, and those that are compared with known ones.
_EXAMPLES, _COMPARED = 5, 1000

Edge = tuple[IntArray, IntArray, FloatArray | None]


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """The columns of the edge tables; see `fastgcn.data.tables.import_tables`.

    `new` edges may lack weights and some of the types.
    """

    source: str = "source"
    target: str = "target"
    weight: str = "weight"
    type_column: str | None = None
    types: Mapping[str, float] | None = None
    unknown: str = "refuse"
    default_weight: float | None = None
    new: bool = False


@dataclass(frozen=True, slots=True)
class EdgeTable:
    """A table with the names of its columns, None for those that it does not have.

    `kind` is the type of all its edges, if no column has the types.
    """

    table: Table
    source: str
    target: str
    weight: str | None
    type_column: str | None
    kind: str | None

    @property
    def columns(self) -> list[str]:
        names = (self.source, self.target, self.weight, self.type_column)
        return [name for name in names if name is not None]


def type_weights(types: Any) -> dict[str, float] | None:
    """The weight of each type that is used, from a mapping or a list of names."""
    if types is None:
        return None
    given = dict(types) if isinstance(types, Mapping) else dict.fromkeys(list(types), 1.0)
    if not given:
        raise InputError("types must name at least one type of edges, got none")
    for name, weight in given.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number):
            raise InputError(f"the weight of type {name!r} must be a number, got {weight!r}")
        if not 0 <= weight < np.inf:
            raise InputError(f"the weight of type {name!r} must be finite and not negative")
    return {str(name): float(weight) for name, weight in given.items()}


def edge_tables(edges: Any, options: EdgeOptions, notes: list[str]) -> list[EdgeTable]:
    """The edge tables, checked to have the columns: one, a list, or a mapping from type to table.

    The type of a file in a list is its name without the ending.
    """
    named: list[tuple[str | None, Any]]
    if isinstance(edges, Mapping):
        named = [(str(kind), each) for kind, each in edges.items()]
    elif isinstance(edges, list | tuple):
        named = [(_stem(each), each) for each in edges]
    else:
        named = [(None, edges)]
    if not named:
        raise InputError("edges must be at least one table, got none")
    if options.types is not None and options.type_column is None:
        named = _chosen(named, options.types, notes, all_needed=not options.new)
    found = []
    for kind, source in named:
        name = "the edge table" if kind is None else f"the edge table {kind!r}"
        found.append(_checked(table_of(source, name), options, kind))
    return found


def _chosen(
    named: list[tuple[str | None, Any]],
    types: Mapping[str, float],
    notes: list[str],
    *,
    all_needed: bool,
) -> list[tuple[str | None, Any]]:
    """The tables whose types are used."""
    kinds = [kind for kind, _ in named if kind is not None]
    if len(kinds) < len(named):
        raise InputError(
            "types chooses among types of edges; name their column (--type-column), or give "
            "several edge tables"
        )
    for name in types:
        if name not in kinds and all_needed:
            near = nearest(name, kinds)
            raise InputError(f"types names {name!r}, but the tables are {listed(kinds)}{near}")
    left = [kind for kind in kinds if kind not in types]
    if left and not all_needed:
        raise InputError(
            f"the graph's edges have the types {listed(types)}, but the new ones {listed(left)}; "
            "name the files so, or pass a mapping from the type to the table in Python"
        )
    if left:
        notes.append(f"edges of the types {listed(left)} are left out")
    return [each for each in named if each[0] in types]


def _stem(source: Any) -> str | None:
    return Path(source).name.split(".")[0] if isinstance(source, str | Path) else None


def _checked(table: Table, options: EdgeOptions, kind: str | None) -> EdgeTable:
    table.require(options.source, "where edges start (--source)")
    table.require(options.target, "where edges end (--target)")
    default = options.weight if options.new else "weight"
    column = table.optional(options.weight, default, "edge weights")
    if column is not None and not table.is_csv and not is_number(table.types[column]):
        raise InputError(
            f"column {column!r} of {table.path} must hold numbers to be edge weights, "
            f"got {table.types[column]}"
        )
    if options.type_column is not None:
        table.require(options.type_column, "types of edges")
    return EdgeTable(table, options.source, options.target, column, options.type_column, kind)


def is_weighted(tables: Sequence[EdgeTable], options: EdgeOptions) -> bool:
    """True if any edge has a weight of its own, or any type has another weight than one."""
    unequal = options.types is not None and any(w != 1 for w in options.types.values())
    return unequal or any(each.weight is not None for each in tables)


class EdgeReader:
    """Turns batches of the edge tables into node numbers and weights.

    `weighted` says that every edge needs a weight. `notes` takes sentences about what was
    left out or guessed.
    """

    def __init__(
        self,
        tables: Sequence[EdgeTable],
        options: EdgeOptions,
        *,
        weighted: bool,
        notes: list[str],
    ) -> None:
        self._tables, self._options, self._notes = tables, options, notes
        self._weighted = weighted
        self._unknown_ids: dict[Any, None] = {}
        self._unknown_rows = 0
        self._kinds: dict[str, int] = {}
        self._defaults = 0
        self._row = 0  # of the first row of the batch, in its table

    def feed(self, index: NodeIndex, sorter: EdgeSorter) -> None:
        """Add all edges to the sorter."""
        with ThreadPoolExecutor(2) as pool:  # an end each
            self._feed(index, sorter, pool)
        self._finish(index)

    def _feed(self, index: NodeIndex, sorter: EdgeSorter, pool: ThreadPoolExecutor) -> None:
        for each in self._tables:
            self._say_columns(each, index)
            for batch in self._batches(each, index):
                find = partial(self._positions, each, batch, index)
                source, target = pool.map(find, (each.source, each.target))
                for name, found in ((each.source, source), (each.target, target)):
                    self._remember_unknown(batch.column(name), found)
                keep = (source >= 0) & (target >= 0)
                self._unknown_rows += len(keep) - int(np.count_nonzero(keep))
                chosen, factors = self._types_of(each, batch)
                weights = self._weights(each, batch, factors)
                if chosen is not None:
                    keep &= chosen
                if not keep.all():
                    source, target = source[keep], target[keep]
                    weights = None if weights is None else weights[keep]
                # A table with unknown ids is read to its end only to count them.
                if not self._unknown_rows or self._options.unknown == "drop":
                    sorter.add(source, target, weights)

    def unknown_ids(self, index: NodeIndex) -> pa.Array:
        """The ids that the index does not have, each once, in the order of the tables."""
        found: dict[Any, None] = {}
        for each in self._tables:
            for batch in self._batches(each, index):
                for name in (each.source, each.target):
                    places = self._positions(each, batch, index, name)
                    unknown = batch.column(name).filter(mask_of(places < 0))
                    found |= dict.fromkeys(decoded(unknown).unique().to_pylist())
        return pa.array(list(found), index.arrow_type)

    def _batches(self, each: EdgeTable, index: NodeIndex) -> Iterator[pa.RecordBatch]:
        types = dict.fromkeys((each.source, each.target), index.arrow_type)
        if each.weight is not None:
            types[each.weight] = pa.float64()
        if each.type_column is not None:
            types[each.type_column] = pa.string()
        self._row = 0
        with each.table.batches(types, rows=_ROWS) as batches:
            for batch in batches:
                yield batch
                self._row += len(batch)

    def _no_gaps(self, each: EdgeTable, batch: pa.RecordBatch, name: str) -> pa.Array:
        column = batch.column(name)
        if column.null_count:
            at = self._row + int(pc.index(column.is_null(), True).as_py()) + 1
            raise InputError(
                f"{each.table.path} must have a {name!r} in every row; row {at:,} has none"
            )
        return column

    def _positions(
        self, each: EdgeTable, batch: pa.RecordBatch, index: NodeIndex, name: str
    ) -> IntArray:
        column = self._no_gaps(each, batch, name)
        return index.positions(column, f"column {name!r} of {each.table.path}")

    def _remember_unknown(self, column: pa.Array, found: IntArray) -> None:
        for row in islice(np.flatnonzero(found < 0).tolist(), _COMPARED):
            if len(self._unknown_ids) >= _COMPARED:
                break
            self._unknown_ids[column[row].as_py()] = None

    def _types_of(
        self, each: EdgeTable, batch: pa.RecordBatch
    ) -> tuple[BoolArray | None, FloatArray | float]:
        """Which rows have a type that is used, None for all; and the weight of their types."""
        kinds = self._options.types
        if each.type_column is None:
            if each.kind is not None:
                self._kinds[each.kind] = self._kinds.get(each.kind, 0) + len(batch)
            return None, 1.0 if kinds is None or each.kind is None else kinds[each.kind]
        encoded = texts_of(decoded(batch.column(each.type_column))).dictionary_encode()
        names = [*encoded.dictionary.to_pylist(), ""]
        codes = values_of(encoded.indices, len(names) - 1)
        for name, count in zip(names, np.bincount(codes, minlength=len(names)), strict=True):
            if count:
                self._kinds[name] = self._kinds.get(name, 0) + int(count)
        if kinds is None:
            return None, 1.0
        known = np.array([name in kinds for name in names])
        factors = np.array([kinds.get(name, 0.0) for name in names], np.float32)
        return known[codes], factors[codes]

    def _weights(
        self, each: EdgeTable, batch: pa.RecordBatch, factors: FloatArray | float
    ) -> FloatArray | None:
        if not self._weighted:
            return None
        default = self._options.default_weight
        if each.weight is None:
            if default is None and any(other.weight is not None for other in self._tables):
                raise InputError(
                    f"{each.table.path} has no weights, but other edge tables have; give its edges "
                    "one (--default-weight 1, or default_weight=1 in Python)"
                )
            weights = np.full(len(batch), 1.0 if default is None else default, np.float32)
        else:
            weights = floats(batch.column(each.weight))
            if default is not None and np.isnan(weights).any():
                self._defaults += int(np.count_nonzero(np.isnan(weights)))
                weights = np.where(np.isnan(weights), np.float32(default), weights)
        # Not NaN, not negative, not infinite.
        fine = (weights >= 0) & (weights < np.inf)
        if not fine.all():
            raise self._bad_weight(each, batch, int(np.argmin(fine)))
        scaled: FloatArray = weights * np.float32(factors)
        return scaled

    def _bad_weight(self, each: EdgeTable, batch: pa.RecordBatch, row: int) -> InputError:
        source, target, weight = (
            batch.column(name)[row].as_py() for name in (each.source, each.target, each.weight)
        )
        got = "none" if weight is None else weight
        fill = "; --default-weight 1 fills it in" if weight is None else ""
        return InputError(
            f"column {each.weight!r} of {each.table.path} must hold finite numbers, none "
            f"negative, but the edge {source!r} → {target!r}, row {self._row + row + 1:,}, has "
            f"{got}{fill}"
        )

    def _say_columns(self, each: EdgeTable, index: NodeIndex) -> None:
        unused = [name for name in each.table.types if name not in each.columns]
        if unused:
            what = "the column" if len(unused) == 1 else "the columns"
            self._notes.append(
                f"{what} {listed(unused)} of {each.table.path} "
                f"{'is' if len(unused) == 1 else 'are'} not used; --weight makes a column the "
                "weights of edges, --type-column their types"
            )
        if each.table.is_csv and index.arrow_type == pa.int64():
            ends = dict.fromkeys((each.source, each.target), pa.string())
            with each.table.batches(ends) as batches:
                for column in next(batches, pa.record_batch({})).columns:
                    padded = column.filter(pc.match_substring_regex(column, r"^-?0[0-9]"))
                    if len(padded):
                        self._notes.append(
                            f"{each.table.path} writes ids with zeros in front, such as "
                            f"{padded[0].as_py()!r}, and the node table does not; they are taken "
                            f"for the same ids ({int(padded[0].as_py())})"
                        )
                        return

    def _finish(self, index: NodeIndex) -> None:
        if self._unknown_rows and self._options.unknown == "refuse":
            examples = list(self._unknown_ids)[: _EXAMPLES + 1]
            more = ", …" if len(examples) >= _EXAMPLES and self._unknown_rows > _EXAMPLES else ""
            path = " and ".join(str(each.table.path) for each in self._tables)
            raise InputError(
                f"{path} has {self._unknown_rows:,} rows with an id that the node table does "
                f"not have: {listed(examples[:_EXAMPLES])}{more}; it must list every node"
                f"{written_otherwise(index, list(self._unknown_ids), _REMEDY)}"
            )
        if self._unknown_rows:
            self._notes.append(
                f"{self._unknown_rows:,} edges are left out, because the node table does not have "
                f"one of their ids, such as {listed(self._unknown_ids, 3)}"
                f"{written_otherwise(index, list(self._unknown_ids))}"
            )
        if self._defaults:
            self._notes.append(
                f"{self._defaults:,} edges without a weight have the weight "
                f"{self._options.default_weight:g}"
            )
        self._say_types()

    def _say_types(self) -> None:
        kinds = self._options.types
        if not self._kinds:
            return
        counts = ", ".join(f"{n!r} ({count:,})" for n, count in islice(self._kinds.items(), 12))
        if kinds is None:
            self._notes.append(f"edges of all types count alike: {counts}; --types weighs them")
            return
        for name in kinds:
            if name not in self._kinds:
                raise InputError(
                    f"types names {name!r}, but the edges have only {counts}"
                    f"{nearest(name, self._kinds)}"
                )
        left = [name for name in self._kinds if name not in kinds]
        used = ", ".join(f"{name!r} times {weight:g}" for name, weight in kinds.items())
        self._notes.append(
            f"weights of edges by type: {used}" + (f"; left out: {listed(left)}" if left else "")
        )


_REMEDY = (
    "; --drop-unknown leaves such edges out, --add-unknown makes nodes of such ids "
    "(unknown='drop' or 'add' in Python)"
)


def written_otherwise(index: NodeIndex, unknown: list[Any], otherwise: str = "") -> str:
    """A sentence if the node table writes ids of the edge table in another way.

    `otherwise` is said of the others, if most of the ids are written in no other way.
    """
    if not isinstance(index.node_ids, TextIds):
        return otherwise
    ids = index.node_ids
    known = pa.LargeStringArray.from_buffers(
        len(ids), pa.py_buffer(ids.offsets), pa.py_buffer(np.ascontiguousarray(ids.text))
    )
    simple = _simplified(known)
    own = _simplified(pa.array([str(each) for each in unknown], pa.large_string()))
    places = pc.index_in(own, value_set=simple)
    if places.null_count == len(unknown):
        return otherwise
    at = int(pc.index(places.is_valid(), True).as_py())
    sentence = (
        f"; the node table has {known[places[at].as_py()].as_py()!r} where the edge table has "
        f"{str(unknown[at])!r}: write ids alike in both tables"
    )
    return sentence + (otherwise if places.null_count > len(unknown) // 2 else "")


def _simplified(ids: pa.Array) -> pa.Array:
    """Ids without blanks around them, zeros in front, `.0` behind, and capital letters."""
    ids = pc.utf8_lower(pc.utf8_trim_whitespace(ids))
    return pc.replace_substring_regex(ids, r"^0+([0-9])|\.0+$", r"\1")
