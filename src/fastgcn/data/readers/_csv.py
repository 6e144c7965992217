"""Gzipped CSV without a header, as OGB ships it: numbers in, one array out."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.arrays import AnyArray
from fastgcn.errors import FormatError
from fastgcn.progress import progress

_BLOCK = 1 << 22  # bytes parsed together: larger ones wait for their decompression


def read_csv(path: Path, dtype: type[np.generic], n_rows: int | None = None) -> AnyArray:
    """(rows, columns) of a file; an empty field or `nan` is NaN where `dtype` has one.

    With `n_rows` the file must have that many, and is read straight into the result, so that
    features are never in memory twice.
    """
    n_columns = _count_columns(path)
    if n_columns == 0:
        blocks: Iterator[AnyArray] = iter(())
    else:
        blocks = _blocks(path, np.dtype(dtype), n_columns)
    if n_rows is None:
        return np.concatenate([np.empty((0, n_columns), dtype), *blocks])
    table = _room(n_rows, n_columns, dtype, path)
    done = 0
    for block in blocks:
        if done + len(block) <= n_rows:
            table[done : done + len(block)] = block
        done += len(block)
    if done != n_rows:
        raise FormatError(f"{path} must have {n_rows:,} rows, got {done:,}")
    return table


def _room(n_rows: int, n_columns: int, dtype: type[np.generic], path: Path) -> AnyArray:
    try:
        return np.empty((n_rows, n_columns), dtype)
    except (MemoryError, ValueError):  # ValueError: more than any memory
        raise FormatError(
            f"{path} is said to have {n_rows:,} rows of {n_columns}, which memory cannot hold"
        ) from None


def _count_columns(path: Path) -> int:
    try:
        with gzip.open(path) as file:
            line = file.readline()
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} cannot be read as a gzip file: {error}") from None
    return line.count(b",") + 1 if line.strip() else 0


def _blocks(path: Path, dtype: np.dtype[Any], n_columns: int) -> Iterator[AnyArray]:
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(
        column_types={f"f{i}": pa.from_numpy_dtype(dtype) for i in range(n_columns)},
        null_values=["", "nan", "NaN"],
    )
    reading = csv.ReadOptions(autogenerate_column_names=True, block_size=_BLOCK)
    try:
        with (
            pa.OSFile(str(path)) as raw,
            pa.CompressedInputStream(raw, "gzip") as text,
            progress(f"Reading {path.name}", path.stat().st_size, "bytes") as advance,
        ):
            seen = 0
            for batch in csv.open_csv(text, reading, convert_options=options):
                yield _dense(batch, dtype, path)
                advance(raw.tell() - seen)
                seen = raw.tell()
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path} is damaged or not a table of numbers: {error}") from None


def _dense(batch: Any, dtype: np.dtype[Any], path: Path) -> AnyArray:
    block = np.empty((batch.num_rows, batch.num_columns), dtype)
    for i, column in enumerate(batch.columns):
        if column.null_count and dtype.kind != "f":
            raise FormatError(f"{path} must hold a whole number in every field, some are empty")
        block[:, i] = column.to_numpy(zero_copy_only=False)
    return block
