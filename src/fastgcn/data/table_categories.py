"""`Categories`: a column of repeated values as small numbers, taken in pieces."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.data.table_ids import decoded
from fastgcn.types import IntArray


class Categories:
    """Distinct values in the order they came first, and a code a row, -1 where null or NaN."""

    def __init__(self) -> None:
        self._codes: list[IntArray] = []
        self._code_of: dict[Any, int] = {}

    @property
    def values(self) -> list[Any]:
        return list(self._code_of)

    def add(self, column: pa.Array) -> None:
        column = decoded(column)
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        encoded = column.dictionary_encode()
        # The last entry is what a code of -1 finds.
        renumbered = [self._code(value) for value in encoded.dictionary.to_pylist()] + [-1]
        local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._codes.append(np.array(renumbered, np.int32)[local])

    def _code(self, value: Any) -> int:
        return self._code_of.setdefault(value, len(self._code_of))

    def codes(self) -> IntArray:
        """(rows,) int32."""
        return np.concatenate([np.empty(0, np.int32), *self._codes])
