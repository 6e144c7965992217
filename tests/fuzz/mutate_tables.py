"""Mutations of Parquet files: the types, names and values of columns, or bytes of the file."""

import io
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.values import FLOATS, INTEGERS, TEXTS

_TYPES = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("ns")),
    *(pa.time64("us"), pa.duration("s"), pa.decimal128(20, 3), pa.null(), pa.list_(pa.int64())),
    *(pa.list_(pa.float32()), pa.list_(pa.string()), pa.list_(pa.float64(), 2), pa.binary(3)),
    *(
        pa.list_(pa.list_(pa.int64())),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
    ),
    *(
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.int64()),
        pa.string_view(),
    ),
)


def mutate_parquet(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    if rng.random() < 0.5:
        return mutate_bytes(data, rng, other)
    try:
        table = pa.parquet.read_table(pa.BufferReader(data), use_threads=False)
        changed = _changed(table, rng)
        sink = io.BytesIO()
        options: dict[str, Any] = {"compression": rng.choice(("none", "snappy", "zstd"))}
        if rng.random() < 0.3:
            options |= {"row_group_size": 1, "use_dictionary": False}
        pa.parquet.write_table(changed, sink, **options)
    except Exception:  # changed before, or a type that Parquet does not have
        return mutate_bytes(data, rng, other)
    return sink.getvalue()


def _changed(table: pa.Table, rng: Random) -> pa.Table:
    at, to = rng.randrange(table.num_columns), rng.randrange(table.num_columns)
    name = table.column_names[at]
    match rng.randrange(9):
        case 0:
            return table.remove_column(at)
        case 1:
            return table.append_column(name, table.column(to))
        case 2:
            return table.rename_columns(
                [rng.choice(TEXTS) if i == at else old for i, old in enumerate(table.column_names)]
            )
        case 3:
            return table.set_column(at, name, table.column(to))
        case 4:
            return table.slice(rng.randrange(table.num_rows + 1))
        case 5:
            return pa.concat_tables([table, table])
    values = table.column(at).to_pylist()
    kind = table.schema.field(at).type
    if rng.random() < 0.5:
        kind = rng.choice(_TYPES)
    elif values:
        pool: tuple[Any, ...] = (*INTEGERS[:12], *FLOATS, *TEXTS, None, None, [], [1.0], ["x"])
        values[rng.randrange(len(values))] = rng.choice(pool)
    return table.set_column(at, name, _array(values, kind))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values in a type; what the type cannot hold becomes null."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    kept = []
    for value in values:
        for made in (value, str(value), [value], [0.5, 1.0], {"a": 1}, [("a", 1)], 1, None):
            try:
                pa.array([made], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
                continue
            kept.append(made)
            break
    return pa.array(kept, kind)
