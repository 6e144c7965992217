"""Columns of a node table: ids, checked to be distinct and looked up for the edges; categories."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import IntArray
from fastgcn.data.layout import TextIds
from fastgcn.data.tables.files import (
    FreeMemory,
    decoded,
    is_text,
    text_parts,
    values_of,
)
from fastgcn.errors import InputError
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
        index, repeated, first = _text_index(ids) if self._text else _integer_index(values_of(ids))
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
        ids: IntArray = values_of(queries)
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
        kernels.find_in_range(values_of(queries), low, positions, found)
        return found

    return find, int(np.count_nonzero(repeated)), int(np.argmax(repeated))


def _find_by_hash(ids: IntArray) -> tuple[_Find, int, int]:
    """For integers far from each other."""
    table = kernels.hash_table(len(ids))
    repeated, first = kernels.insert_integers(ids, table)

    def find(queries: pa.Array) -> IntArray:
        found = np.empty(len(queries), np.int64)
        kernels.find_integers(values_of(queries), table, found)
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
        local = values_of(encoded.indices, -1)
        self._codes.append(np.array(codes, np.int32)[local])

    def _code(self, value: Any) -> int:
        return self._code_of.setdefault(value, len(self._code_of))

    def finish(self) -> tuple[IntArray, list[Any]]:
        """Codes (rows,), -1 for null, and the values they stand for."""
        return np.concatenate(self._codes), list(self._code_of)
