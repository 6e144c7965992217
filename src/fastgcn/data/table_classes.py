"""Columns of repeated values as small numbers: categories, and classes by name."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.data.table_columns import decoded, is_text
from fastgcn.data.table_files import listed
from fastgcn.errors import InputError, nearest
from fastgcn.types import IntArray

# An integer as it is printed, also by a program that made it a float to have missing values.
_INTEGER = re.compile(r"(-?(?:0|[1-9]\d*))(?:\.0+)?")


class Categories:
    """A column taken in pieces: its distinct values, and a code a row."""

    def __init__(self) -> None:
        self._codes = [np.empty(0, np.int32)]
        self._code_of: dict[Any, int] = {}

    def add(self, column: pa.Array) -> None:
        encoded = decoded(column).dictionary_encode()
        codes = [self._code(value) for value in encoded.dictionary.to_pylist()]
        codes.append(-1)  # the last, where the -1 of a null leads
        local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._codes.append(np.array(codes, np.int32)[local])

    def _code(self, value: Any) -> int:
        return self._code_of.setdefault(value, len(self._code_of))

    def finish(self) -> tuple[IntArray, list[Any]]:
        """Codes (rows,), -1 where null, and the values they stand for."""
        return np.concatenate(self._codes), list(self._code_of)


class Classes:
    """Classes as a table has them, in order: integers by size, others by name.

    Null and empty text are no class. `fixed` gives the classes and their order instead.
    """

    def __init__(self, what: str, fixed: Sequence[Any] | None) -> None:
        self._what = what
        self._fixed = None if fixed is None else tuple(str(name) for name in fixed)
        if self._fixed is not None and len(set(self._fixed)) < len(self._fixed):
            raise InputError(f"classes must be distinct, got {listed(self._fixed)}")
        self._categories = Categories()

    def add(self, column: pa.Array) -> None:
        column = decoded(column)
        kind = column.type
        if pa.types.is_floating(kind):  # integers with missing values, as pandas has them
            try:
                column = pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
            except pa.ArrowInvalid:
                raise InputError(f"{self._what} must hold classes, got fractions") from None
        elif not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"{self._what} must hold classes as text or integers, got {kind}")
        self._categories.add(column)

    def finish(self, node_of: Callable[[int], str]) -> tuple[IntArray, tuple[str, ...]]:
        """Class ids (rows,) int64, -1 for none, and the names; `node_of` a row, for messages."""
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
