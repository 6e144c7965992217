"""The columns of a node table as the features of a store: chosen, encoded and written."""

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.ahead import in_order, usable_cores
from fastgcn.arrays import AnyArray, BoolArray, FloatArray
from fastgcn.data.store import StoreWriter
from fastgcn.data.tables.encoders import Encoders, Seen, Spec, number_matrix, vectors_of
from fastgcn.data.tables.files import (
    Table,
    is_list,
    is_number,
    is_text,
    listed,
    mask_of,
    values_of,
)
from fastgcn.data.tables.fitting import Fitting, kind_of, summary, temporal, timelike
from fastgcn.data.tables.nodes import NodeOptions, Nodes, Notes
from fastgcn.errors import FormatError, InputError, nearest
from fastgcn.graph import checks

# Names that pandas gives to the numbers of its rows, when it writes them as a column.
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")

# Numbers of a Parquet file that are in memory together.
_TOGETHER = 1 << 20

# Threads that encode; one thread reads for all of them. Few rows take less time than a thread.
_MOST_WORKERS, _FEW_ROWS = 4, 1000

_LARGEST = float(np.finfo(np.float32).max)

_LEAVE_OUT = "leave it out (--drop, or drop= in Python)"


@dataclass(frozen=True, slots=True)
class FeatureColumns:
    """The columns that become features.

    Attributes:
        types: those of their values, as they are read.
        forced: the kind of encoder of a column, where the user says so.
    """

    types: dict[str, pa.DataType]
    forced: dict[str, str]


def feature_columns(
    table: Table, options: NodeOptions, taken: set[str], notes: Notes, *, needed: bool = True
) -> FeatureColumns:
    """The columns that are asked for, or all that are not `taken` or dropped."""
    free = [name for name in table.types if name not in taken]
    if options.features is None:
        dropped = set(_matching(table, options.drop, free, "drop"))
        for name in free:
            if name in _INDEX_NAMES and name not in dropped:
                dropped.add(name)
                notes.append(
                    f"the column {name!r} of {table.path} numbers its rows, as pandas writes them, "
                    "and is not used"
                )
        columns = [name for name in free if name not in dropped]
        if not columns and needed:
            raise InputError(
                f"{table.path} has no features: it has no columns beside {listed(taken)}; "
                "--structure 64 makes features of the edges (structure=64 in Python)"
            )
    else:
        asked = [options.features] if isinstance(options.features, str) else list(options.features)
        columns = _asked(table, asked, taken)
    forced: dict[str, str] = {}
    for kind, patterns in options.kinds.items():
        for name in _matching(table, patterns, columns, _OPTIONS[kind]):
            if forced.setdefault(name, kind) != kind:
                raise InputError(
                    f"column {name!r} is asked to be both {_OPTIONS[forced[name]]} and "
                    f"{_OPTIONS[kind]}"
                )
    types = {}
    for name in columns:
        kind = table.types[name]
        types[name] = read_type(kind, forced.get(name)) if table.is_csv else kind
        if name in forced:
            check_kind(name, types[name], forced[name], table.path)
        else:
            kind_of(name, types[name], table.path)
    return FeatureColumns(types, forced)


_OPTIONS = {"number": "numeric", "category": "categorical", "text": "text", "date": "date"}


def _matching(table: Table, patterns: Sequence[str], columns: list[str], option: str) -> list[str]:
    """The columns that match a pattern such as `amount_*`; each pattern must match one."""
    found: dict[str, None] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        hits = [name for name in columns if name == pattern or fnmatchcase(name, pattern)]
        if not hits:
            raise InputError(
                f"{option} names {pattern!r}, but {table.path} has no such column among those "
                f"that can be features: {listed(columns)}{nearest(pattern, columns)}"
            )
        found |= dict.fromkeys(hits)
    return list(found)


def _asked(table: Table, names: list[str], taken: set[str]) -> list[str]:
    if not names:
        raise InputError("features must name at least one column, got none")
    columns: list[str] = []
    for name in names:
        free = [each for each in table.types if each not in taken]
        wild = [each for each in free if fnmatchcase(each, name)] if "*" in name else []
        columns += wild or [table.require(name, "features")]
        if name in taken:
            raise InputError(f"column {name!r} of {table.path} cannot also be a feature")
    if len(set(columns)) < len(columns):
        raise InputError(f"features must name each column once, got {listed(columns)}")
    return columns


def read_type(guess: pa.DataType, forced: str | None) -> pa.DataType:
    """The type that a column of a CSV file is parsed to."""
    if forced in ("category", "hashed", "vocabulary", "text"):
        return pa.string()
    if temporal(guess) and forced in (None, "date"):
        return guess
    if forced == "date" or is_text(guess) or temporal(guess):
        return pa.string()
    # Bools and times stay; others become float64: later rows may have fractions.
    return guess if pa.types.is_boolean(guess) or timelike(guess) else pa.float64()


def check_kind(name: str, kind: pa.DataType, wanted: str, path: Any) -> None:
    """Raise unless values of this type can be encoded in the wanted way."""
    words = kind.value_type if pa.types.is_dictionary(kind) else kind
    simple = is_text(words) or is_number(words) or pa.types.is_null(words)
    fine = {
        "number": simple or timelike(words),
        "category": simple or temporal(words) or timelike(words),
        "hashed": simple or temporal(words) or timelike(words),
        "vocabulary": is_text(words) or pa.types.is_null(words),
        "text": is_text(words) or pa.types.is_null(words),
        "date": temporal(words) or is_text(words) or pa.types.is_null(words),
        "vector": is_list(kind) and is_number(kind.value_type),
    }
    if not fine[wanted]:
        raise InputError(
            f"column {name!r} of {path} cannot be read as {wanted}: it holds {kind}; {_LEAVE_OUT}"
        )


def write_features(
    table: Table,
    columns: FeatureColumns,
    nodes: Nodes,
    options: NodeOptions,
    writer: StoreWriter,
    notes: Notes,
    in_table: int,
    degree: bool | None,
) -> tuple[Encoders, bool]:
    """Fit encoders on the training nodes and write the store's `features` (n, F) float32.

    Nodes from `in_table` on are not in the table: all their values are missing. With `degree`, a
    last column stays free for the degrees; with None, if columns are encoded. The encoders, and if
    there is that column.
    """
    if not columns.types:
        if degree:
            writer.create("features", (nodes.n, 1), np.float32)
        return Encoders([]), bool(degree)
    rows = _Rows(table, columns.types, in_table, nodes.index.node_ids)
    train: BoolArray | None = None
    if len(nodes.split.train):
        train = np.zeros(nodes.n, np.bool_)
        train[nodes.split.train] = True
    fitting = Fitting(columns.types, columns.forced, options.scale, table.path)
    copy = _PlainCopy(fitting, options.scale, writer, in_table)
    copy.complete &= in_table == nodes.n and not degree
    for start, batch in rows.batches():
        size = len(next(iter(batch.values())))
        numbers = number_matrix(batch, fitting.number_columns, size)
        rows.check_numbers(numbers, start, fitting.number_columns)
        copy.take(start, batch, numbers)
        if train is not None:
            mask = train[start : start + size]
            if not mask.all():
                kept, numbers = mask_of(mask), numbers[mask]
                batch = {n: batch[n].filter(kept) for n in batch if n not in fitting.number_columns}
        fitting.add(batch, numbers)
    specs, said = fitting.finish()
    if not specs:
        raise InputError(f"{table.path} has no column that can be a feature; {'; '.join(said)}")
    encoders = Encoders(specs)
    notes += said
    degree = not _is_plain(specs) if degree is None else degree
    if not (copy.complete and _is_plain(specs)):
        out = writer.create("features", (nodes.n, encoders.width + degree), np.float32)
        out = out[:, : encoders.width]
        encode_rows(rows, encoders, out[:in_table])
        out[in_table:] = Encoders(specs).encode({}, 1)
    if not _is_plain(specs):
        notes += summary(specs)
        on = "the training nodes" if train is not None else "all nodes, as there is no split"
        notes.append(f"means, scales, categories and words are those of {on}")
    _say_seen(encoders, notes)
    return encoders, degree


def _is_plain(specs: Sequence[Spec]) -> bool:
    return all(
        spec["kind"] == "vector"
        or (spec["kind"] == "number" and spec["scale"] == "none" and not spec["missing"])
        for spec in specs
    )


class _PlainCopy:
    """Copies numbers as they are while encoders are fitted: many tables need nothing else."""

    def __init__(self, fitting: Fitting, scale: str, writer: StoreWriter, n: int) -> None:
        self._order, self._numbers = fitting.columns, fitting.number_columns
        self._writer, self._n, self._out = writer, n, np.empty((0, 0), np.float32)
        self.complete = fitting.only_numbers and scale in ("auto", "none")

    def take(self, start: int, batch: Mapping[str, pa.Array], numbers: FloatArray) -> None:
        if not self.complete:
            return
        block = numbers.astype(np.float32)
        if len(self._order) > len(self._numbers):
            place = {name: i for i, name in enumerate(self._numbers)}
            block = np.hstack([
                block[:, [place[name]]] if name in place else vectors_of(batch[name])
                for name in self._order
            ])  # fmt: skip
        self.complete = bool(np.isfinite(block).all())
        if self.complete:
            if not self._out.size:
                self._out = self._writer.create("features", (self._n, block.shape[1]), np.float32)
            self._out[start : start + len(block)] = block


def _say_seen(encoders: Encoders, notes: Notes) -> None:
    """Say what values counted as missing or unknown, of columns that training knows complete."""
    gaps = {spec["column"] for spec in encoders.specs if spec["missing"]}
    for name, count in encoders.seen.missing.items():
        if name not in gaps:
            notes.append(
                f"column {name!r} has no value for {count:,} nodes, and all training nodes have "
                "one: numbers and dates count as the mean, others as zeros"
            )
    for name, count in encoders.seen.unseen.items():
        notes.append(
            f"column {name!r} has values that no training node has, on {count:,} nodes: they count "
            "as none of the known values"
        )


class _Rows:
    """The feature columns of a table of n nodes, batch by batch, each with its first row."""

    def __init__(
        self,
        table: Table,
        types: Mapping[str, pa.DataType],
        n: int,
        node_ids: Sequence[Any] | None,
    ) -> None:
        self._table, self._types, self._n, self._node_ids = table, types, n, node_ids
        self._lists = {name: -1 for name, kind in types.items() if is_list(kind)}
        self.path = table.path

    def batches(self) -> Generator[tuple[int, dict[str, pa.Array]]]:
        guess = sum(getattr(self._types[name], "list_size", 1024) for name in self._lists)
        guess += 4 * (len(self._types) - len(self._lists))
        row = 0
        with self._table.batches(
            self._types, rows=max(1, _TOGETHER // max(guess, 1)), gaps=True
        ) as batches:
            for batch in batches:
                named = dict(zip(self._types, batch.columns, strict=True))
                for name in self._lists:
                    self._check_lists(name, named[name], row)
                if row + len(batch) > self._n:
                    row += len(batch)
                    break
                yield row, named
                row += len(batch)
        if row != self._n:
            raise FormatError(f"{self.path} is damaged: its columns do not have equally many rows")

    def check_numbers(self, numbers: FloatArray, start: int, columns: Sequence[str]) -> None:
        """Raise for a number that is infinite, or would be in float32; NaN is a gap."""
        beyond = np.abs(numbers) > _LARGEST
        if beyond.any():
            row, column = (int(i) for i in np.unravel_index(int(np.argmax(beyond)), beyond.shape))
            expected = "must hold finite numbers"
            raise self._error(start + row, columns[column], expected, "has one beyond float32")

    def check(self, block: FloatArray, start: int, encoders: Encoders) -> None:
        """Raise for a number that float32 cannot hold."""
        if np.isfinite(block.sum(dtype=np.float64)):
            return
        bad = ~np.isfinite(block)
        if not bad.any():
            return
        row, feature = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        ends = np.cumsum([len(Encoders([spec]).names) for spec in encoders.specs])
        column = encoders.columns[int(np.searchsorted(ends, feature, side="right"))]
        got = "has none" if np.isnan(block[row, feature]) else "has one beyond float32"
        raise self._error(start + row, column, "must hold finite numbers", got)

    def _check_lists(self, name: str, lists: pa.Array, start: int) -> None:
        lengths = values_of(pc.list_value_length(lists), -1)
        if self._lists[name] < 0:
            self._lists[name] = int(lengths[0])
        width = self._lists[name]
        unequal = lengths != max(width, 1)
        if unequal.any():
            row = int(np.argmax(unequal))
            raise self._error(
                start + row,
                name,
                f"must hold lists of one length, {width} as in the first row",
                "has no list" if lengths[row] < 0 else f"has {lengths[row]} numbers",
            )

    def _error(self, row: int, column: str, expected: str, got: str) -> InputError:
        node = checks.named(row, self._node_ids)
        return InputError(
            f"column {column!r} of {self.path} {expected}, but {node} {got}; "
            f"correct it, or {_LEAVE_OUT}"
        )


def encode_rows(rows: _Rows, encoders: Encoders, out: AnyArray) -> None:
    """Encode all rows into `out`, which must be zeros; blocks of them at once on all cores."""

    def encode(piece: tuple[int, dict[str, pa.Array]]) -> Seen:
        start, batch = piece
        size, seen = len(next(iter(batch.values()))), Seen.nothing()
        with np.errstate(over="ignore"):
            block = encoders.encode(batch, size, out[start : start + size], seen)
        rows.check(block, start, encoders)
        return seen

    workers = min(usable_cores(), _MOST_WORKERS)
    with closing(rows.batches()) as batches:
        if len(out) <= _FEW_ROWS:
            found = [*map(encode, batches)]
        else:
            with ThreadPoolExecutor(workers) as pool:
                found = [*in_order(pool, encode, batches, workers)]
    for seen in found:
        encoders.seen.add(seen)


def encode_known(
    table: Table, encoders: Encoders, out: AnyArray, node_ids: Sequence[Any] | None
) -> None:
    """Encode a table into `out`, which must be zeros, by encoders that were fitted before.

    A column that the table lacks is missing in every row.
    """
    types = {}
    for spec in encoders.specs:
        name = spec["column"]
        if name in table.types:
            kind = table.types[name]
            types[name] = read_type(kind, spec["kind"]) if table.is_csv else kind
            check_kind(name, types[name], spec["kind"], table.path)
    if not types:
        raise InputError(
            f"{table.path} has none of the columns that the features are made of: "
            f"{listed(encoders.columns)}"
        )
    encode_rows(_Rows(table, types, len(out), node_ids), encoders, out)


def write_known(
    table: Table,
    encoders: Encoders,
    nodes: Nodes,
    writer: StoreWriter,
    notes: Notes,
    in_table: int,
    degree: bool,
) -> None:
    """As `write_features`, by encoders that were fitted before."""
    out = writer.create("features", (nodes.n, encoders.width + degree), np.float32)
    out = out[:, : encoders.width]
    encode_known(table, encoders, out[:in_table], nodes.index.node_ids)
    out[in_table:] = Encoders(encoders.specs).encode({}, 1)
    unused = [n for n in table.types if n not in encoders.columns and n not in nodes.taken]
    if unused:
        notes.append(f"{listed(unused)} of {table.path} is not used: the encoders do not know it")
    notes += seen_notes(table, encoders, in_table)


def seen_notes(table: Table, encoders: Encoders, n: int) -> Notes:
    """Sentences about a table that was encoded by encoders fitted before."""
    absent = [name for name in encoders.columns if name not in table.types]
    notes = []
    if absent:
        notes.append(f"{table.path} lacks {listed(absent)}: missing in every row")
    for name, count in encoders.seen.missing.items():
        if name not in absent:
            notes.append(f"column {name!r} has no value in {count:,} of {n:,} rows")
    for name, count in encoders.seen.unseen.items():
        notes.append(
            f"column {name!r} has values that no training node has, in {count:,} of {n:,} rows: "
            "they count as none of the known values"
        )
    return notes
