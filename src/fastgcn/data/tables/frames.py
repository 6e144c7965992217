"""Tables that are no files: of pandas, polars, Arrow or DuckDB, and queries of a DuckDB file."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastgcn.data.readers.npz import read_npy
from fastgcn.data.tables.files import Table, TableFile, plain_type
from fastgcn.errors import InputError, MissingFileError, library
from fastgcn.progress import progress

_DATABASES = (".duckdb", ".db", ".ddb")


class TableInMemory(Table):
    """An Arrow table."""

    def __init__(self, table: pa.Table, name: str) -> None:
        # Views (polars) have fewer functions in Arrow than plain strings.
        plain = [pa.field(f.name, plain_type(f.type), f.nullable) for f in table.schema]
        self._table = table.cast(pa.schema(plain))
        super().__init__(name, self._table.schema.names, self._table.schema.types)

    @contextmanager
    def batches(
        self, columns: Mapping[str, pa.DataType], *, rows: int = 1 << 16, gaps: bool = False
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        del gaps
        chosen = self._table.select(list(columns))
        with progress(f"Reading {self.path}", len(chosen), "rows") as advance:

            def parts() -> Iterator[pa.RecordBatch]:
                for batch in chosen.to_batches(max_chunksize=rows):
                    advance(len(batch))
                    if len(batch):
                        yield batch

            yield parts()


def table_of(source: Any, name: str, *, label: str = "") -> Table:
    """A file, an Arrow table, a data frame, or `FILE.duckdb:QUERY`, as a table.

    `name` is what messages call a table that has no path. Beside features in a `.npy` file, `label`
    may be a `.npy` file too, and becomes the column of this name.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | os.PathLike):
        path, colon, query = os.fspath(source).partition(":")
        if colon and Path(path).suffix in _DATABASES:
            return TableInMemory(_query(Path(path), query), f"{path}:{query}")
        if Path(path).suffix in _DATABASES:
            raise InputError(
                f"{path} is a database: name a table or a query of it, such as "
                f"{path}:customers or '{path}:SELECT * FROM customers'"
            )
        if Path(path).suffix == ".npy":
            return _rows_of_array(Path(source), label)
        return TableFile(Path(source))
    if not (isinstance(source, pa.Table) or _is_frame(source)):
        raise InputError(
            f"{name} must be a file, a data frame (pandas, polars), an Arrow table or a DuckDB "
            f"relation, got {type(source).__name__}"
        )
    try:
        return TableInMemory(_arrow(source), name)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{name} cannot be read as a table: {reason}") from None


def _rows_of_array(path: Path, label: str) -> Table:
    """A matrix of features as a node table: row i is the node i, and has one column of lists."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {path}")
    array = read_npy(path)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or 0 in array.shape:
        raise InputError(
            f"{path} must hold a matrix of numbers, a row for each node, got {array.dtype} of "
            f"shape {array.shape}"
        )
    flat = np.ascontiguousarray(array, np.float32).reshape(-1)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(flat), array.shape[1])
    columns = {"id": np.arange(len(array)), "features": rows}
    if Path(label).suffix == ".npy":
        columns[label] = _labels_of_array(Path(label), len(array))
    return TableInMemory(pa.table(columns), str(path))


def _labels_of_array(path: Path, n: int) -> pa.Array:
    """A class for each node, -1 for none; or a number to predict, NaN for none."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {path}")
    labels = read_npy(path)
    if labels.shape != (n,) or labels.dtype.kind not in "iuf":
        raise InputError(
            f"{path} must hold {n:,} integers or numbers, a label for each node, got "
            f"{labels.dtype} of shape {labels.shape}"
        )
    return pa.array(labels, mask=labels < 0 if labels.dtype.kind == "i" else None)


def _arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "collect") and hasattr(source, "lazy"):  # a LazyFrame of polars
        source = source.collect()
    if hasattr(source, "index") and hasattr(source, "iloc"):  # of pandas: names of rows
        if not hasattr(source, "columns"):
            raise TypeError("it is one column; make a data frame of it")
        if any(name is not None for name in source.index.names):
            source = source.reset_index()
        return pa.Table.from_pandas(source, preserve_index=False)
    return pa.table(source)


def _is_frame(source: Any) -> bool:
    """True for anything that hands out its rows through Arrow's C interface."""
    lazy = hasattr(source, "collect") and hasattr(source, "lazy")
    return (hasattr(source, "__arrow_c_stream__") or lazy) and not isinstance(source, type)


def _query(path: Path, query: str) -> pa.Table:
    """The rows of a table or a query; the file is opened for reading and nothing else is."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {path}")
    duckdb = library("duckdb", extra="duckdb")
    settings = {"enable_external_access": "false"}
    try:
        with duckdb.connect(str(path), read_only=True, config=settings) as connection:
            words = query.split()
            whole = query if len(words) > 1 else f'SELECT * FROM "{query.replace(chr(34), "")}"'
            return connection.sql(whole).to_arrow_table()
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0][:300]
        raise InputError(f"{path}:{query} cannot be read: {reason}") from None
    except AttributeError:  # a statement that has no rows
        raise InputError(f"{path}:{query} must be a query that has rows") from None
