"""Arrow columns: what kind they are, and what they hold as numpy arrays."""

import numpy as np
import pyarrow as pa

from fastgcn.types import AnyArray, FloatArray, IntArray


def is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_number(kind: pa.DataType) -> bool:
    """Whether `floats` can read it; decimals count, dates do not."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def floats(column: pa.Array) -> FloatArray:
    """The numbers as float32, NaN where null, infinite where float32 does not reach."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values: FloatArray = column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    return values


def decoded(column: pa.Array) -> pa.Array:
    """The values of a dictionary-encoded array (a pandas category); any other as it is."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def text_parts(column: pa.Array) -> tuple[AnyArray, IntArray]:
    """UTF-8 bytes (uint8) and their offsets (n+1,), from 0 on, of strings or large strings."""
    _, offset_buffer, text_buffer = column.buffers()
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offset_buffer, width)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(text_buffer or b"", np.uint8)[ends[0] : ends[-1]]
    return text, ends.astype(np.int64) - ends[0]
