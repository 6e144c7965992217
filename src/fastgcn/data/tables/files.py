"""`Table`, and `TableFile`: a CSV, TSV (both also compressed) or Parquet file, read in batches."""

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fastgcn.ahead import ahead
from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.errors import FastGCNError, FormatError, InputError, MissingFileError, nearest
from fastgcn.memory import available_memory, shown_bytes
from fastgcn.progress import progress

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_PARQUET = (".parquet", ".pq")

# Bytes of a CSV file that are parsed together, and the longest row. Arrow reads many blocks
# ahead; larger blocks took more memory and were not faster.
_BLOCK = 1 << 20

_MOST_COLUMNS = 1 << 16  # of a CSV file; Arrow takes 20 seconds for the types of 160,000

_SHOWN = 400  # characters of Arrow's messages


class Table:
    """A table whose columns have distinct names.

    Attributes:
        path: what messages call it.
        types: the Arrow types of the columns.
        is_csv: True if the types are only a guess from the first block of a CSV file.
    """

    is_csv = False

    def __init__(self, path: Any, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        self.path = path
        self.types: dict[str, Any] = dict(zip(names, types, strict=True))
        if len(self.types) < len(names):
            [(twice, _)] = Counter(names).most_common(1)
            raise FormatError(f"{path} must name each column once, but has {twice!r} twice")

    def require(self, name: str, what: str) -> str:
        """`name`; raises if there is no column `name`. `what` says what it is needed for."""
        if name not in self.types:
            raise InputError(
                f"{self.path} has no column {name!r} for {what}; "
                f"its columns are {listed(self.types)}{nearest(name, self.types)}"
            )
        return name

    def optional(self, name: str, default: str, what: str) -> str | None:
        """As `require`, but None if the column is missing and `name` is only the default."""
        if name == default and name not in self.types:
            return None
        return self.require(name, what)

    def batches(
        self, columns: Mapping[str, pa.DataType], *, rows: int = 1 << 16, gaps: bool = False
    ) -> AbstractContextManager[Iterator[pa.RecordBatch]]:
        """The named columns, batch by batch, at most about `rows` rows each; none is empty.

        A CSV file's text is parsed to the given types; other columns keep their own types.
        With `gaps`, NA, null and NaN among numbers of a CSV file are missing values too.
        """
        raise NotImplementedError


class TableFile(Table):
    """A table file that exists.

    `types` are those of a Parquet file, or a guess from the first block of a CSV file.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise MissingFileError(f"there is no file {path}")
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise InputError(f"{path} must be a file, but is {kind}")
        self.path = path
        kind, self._compression = _kind(path)
        self.is_csv = kind in _DELIMITERS
        self._delimiter = _DELIMITERS.get(kind, "")
        if path.stat().st_size == 0:
            raise FormatError(f"{path} is empty")
        with _translated(path, [], OSError):
            if self.is_csv:
                self._check_first_line()
            schema = self._csv_schema() if self.is_csv else self._parquet_schema()
            names = schema.names
        super().__init__(path, names, schema.types)

    @contextmanager
    def batches(
        self, columns: Mapping[str, pa.DataType], *, rows: int = 1 << 16, gaps: bool = False
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """As `Table.batches`; all text is UTF-8, and `rows` holds for Parquet files only.

        An error of Arrow in the body of the `with` statement becomes one sentence that names the
        file.
        """
        if self.is_csv:
            found = self._csv_batches(columns, gaps)  # Arrow reads ahead
        else:
            found = ahead(self._parquet_batches(columns, rows))
        with _translated(self.path, list(self.types)), closing(found):
            yield found

    def _check_first_line(self) -> None:
        """Raise if a table has another separator, or more columns than Arrow reads in a minute.

        With another separator, it would be read as one wide column.
        """
        with _stream(pa.OSFile(str(self.path)), self._compression) as stream:
            head = stream.read(_BLOCK).splitlines()[:1]
        first = head[0].decode(errors="replace").lstrip("\ufeff") if head else ""
        if first.count(self._delimiter) >= _MOST_COLUMNS:
            raise FormatError(
                f"{self.path} has more than {_MOST_COLUMNS:,} columns; store the table as Parquet, "
                "with the features in one column of lists"
            )
        if self._delimiter in first:
            return
        for other, called in _SEPARATORS.items():
            if other in first:
                raise FormatError(
                    f"{self.path} must separate columns by {_SEPARATORS[self._delimiter]}, but its "
                    f"first line, {first[:60]!r}, has {called}; write it again with "
                    f"{_SEPARATORS[self._delimiter]}, and with points in fractions"
                )

    def _csv_batches(
        self, columns: Mapping[str, pa.DataType], gaps: bool
    ) -> Generator[pa.RecordBatch]:
        options = pa.csv.ConvertOptions(
            column_types=dict(columns),
            include_columns=list(columns),
            # A node may be called NA or null.
            null_values=None if gaps else [""],
            strings_can_be_null=not gaps,
        )
        with _translated(self.path, list(self.types), OSError):
            yield from csv_batches(self.path, self._compression, *self._how(), options)

    def _csv_schema(self) -> pa.Schema:
        options = pa.csv.ConvertOptions()
        schema = _open_csv(self.path, self._compression, *self._how(), options)[0].schema
        for field in schema:
            if pa.types.is_binary(field.type):  # Arrow's guess for text of another encoding
                raise FormatError(
                    f"{self.path} must be UTF-8 text, but column {field.name!r} is not"
                )
        return schema

    def _how(self) -> tuple[pa.csv.ReadOptions, pa.csv.ParseOptions]:
        return (
            pa.csv.ReadOptions(block_size=_BLOCK),
            pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
        )

    def _parquet_schema(self) -> pa.Schema:
        with self._open_parquet() as file:
            return file.schema_arrow

    def _parquet_batches(
        self, columns: Mapping[str, pa.DataType], rows: int
    ) -> Generator[pa.RecordBatch]:
        with (
            _translated(self.path, list(self.types), OSError),
            self._open_parquet() as file,
            progress(f"Reading {self.path.name}", file.metadata.num_rows, "rows") as advance,
        ):
            for batch in file.iter_batches(rows, columns=list(columns)):
                advance(len(batch))
                if len(batch):
                    batch.validate(full=True)  # Arrow trusts the file that text is UTF-8
                    chosen = batch.select(list(columns))  # columns come in the file's order
                    kinds = [pa.field(f.name, plain_type(f.type)) for f in chosen.schema]
                    yield chosen.cast(pa.schema(kinds))

    def _open_parquet(self) -> pa.parquet.ParquetFile:
        # With a buffer, Arrow streams a row group, which may be as large as the file.
        return pa.parquet.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False)


def csv_batches(
    path: Path,
    compression: str | None,
    reading: pa.csv.ReadOptions,
    parsing: pa.csv.ParseOptions,
    options: pa.csv.ConvertOptions,
) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, block by block; no batch is empty."""
    reader, raw = _open_csv(path, compression, reading, parsing, options)
    with progress(f"Reading {path.name}", path.stat().st_size, "bytes") as advance, reader:
        seen = 0
        for batch in reader:
            advance(raw.tell() - seen)
            seen = raw.tell()
            if len(batch):
                yield batch


def _open_csv(
    path: Path, compression: str | None, *options: Any
) -> tuple[pa.csv.CSVStreamingReader, pa.OSFile]:
    """A reader of the file, and the file below it.

    Arrow reads ahead on a thread of its own, which may outlive the reader. The file must
    therefore be Arrow's own: a thread that reads a Python file while the interpreter ends
    aborts the process. It is not closed here; Arrow closes it when its thread has let it go.
    """
    raw = pa.OSFile(str(path))
    return pa.csv.open_csv(_stream(raw, compression), *options), raw


def _stream(raw: pa.OSFile, compression: str | None) -> pa.NativeFile:
    return raw if compression is None else pa.CompressedInputStream(raw, compression)


class FreeMemory:
    """Counts the bytes that a column takes; half of the free memory is enough for any column."""

    def __init__(self, what: str) -> None:
        self._what, self._most = what, available_memory() // 2
        self._taken = 0

    def take(self, n_bytes: int) -> None:
        self._taken += n_bytes
        if self._taken > self._most:
            raise InputError(
                f"{self._what} takes more than {shown_bytes(self._most)}, "
                "half of the memory that is free"
            )


def listed(names: Iterable[Any], most: int = 12) -> str:
    """The names for a message; of many names only the first few."""
    names = list(names)
    return ", ".join(repr(name) for name in islice(names, most)) + (
        f" and {len(names) - most:,} more" if len(names) > most else ""
    )


def _kind(path: Path) -> tuple[str, str | None]:
    """The file's kind by its name, as a suffix, and its compression."""
    *before, last = ["", *(suffix.lower() for suffix in path.suffixes)]
    compression = _COMPRESSIONS.get(last)
    kind = before[-1] if compression else last
    if kind in _DELIMITERS or (kind in _PARQUET and not compression):
        return kind, compression
    raise FormatError(
        f"{path} must be a CSV or Parquet file and named so: {' or '.join(_DELIMITERS)} "
        f"(also with {', '.join(_COMPRESSIONS)} after it), or {' or '.join(_PARQUET)}"
    )


@contextmanager
def _translated(path: Path, columns: list[str], *also: type[Exception]) -> Iterator[None]:
    """Turn an error of Arrow, or one of `also`, into one sentence that names the file."""
    try:
        yield
    except FastGCNError:
        raise
    except UnicodeDecodeError:
        raise FormatError(f"{path} must be UTF-8 text, but is not") from None
    except (pa.ArrowException, *also) as error:
        raise FormatError(_sentence(path, columns, str(error))) from None


def _sentence(path: Path, columns: list[str], message: str) -> str:
    message = message[:_SHOWN]  # a value may be as long as a block
    bad_value = re.search(r"column #(\d+): .* to (\w+): invalid value '(.*)", message, re.DOTALL)
    if bad_value and int(bad_value[1]) < len(columns):
        column, kind, value = columns[int(bad_value[1])], bad_value[2], bad_value[3]
        expected = "an integer" if kind.startswith("int") else "a number"
        shown = value[:-1] if value.endswith("'") else value
        return f"{path} has {shown!r} in column {column!r}, where {expected} must be"
    if "Empty CSV" in message:
        return f"{path} is empty: it has no rows"
    if "UTF8" in message:
        return f"{path} must be UTF-8 text, but is not"
    if "straddling" in message:
        return f"{path} has a row of more than {_BLOCK:,} bytes; store the table as Parquet"
    return f"{path} could not be read: {message.partition(chr(10))[0]}"


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The same type without views (as polars has them), which Arrow has few functions for."""
    if str(kind) == "string_view":
        return pa.large_string()
    if pa.types.is_dictionary(kind) and str(kind.value_type) == "string_view":
        return pa.dictionary(kind.index_type, pa.large_string())
    return kind


def is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_number(kind: pa.DataType) -> bool:
    """True if `floats` can read it; decimals count, dates do not."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def floats(column: pa.Array) -> FloatArray:
    """The numbers as float32; null becomes NaN, a number beyond float32 becomes infinite."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values: FloatArray = values_of(column.cast(pa.float32(), safe=False))
    return values


def values_of(column: pa.Array, missing: int | None = None) -> AnyArray:
    """(rows,) the values of a column of numbers or booleans, `missing` in the place of nulls; by
    default NaN, which makes integers float64.

    Arrow's own conversions load pandas, if it is installed, which takes a fifth of a second.
    """
    kind, rows = column.type, slice(column.offset, column.offset + len(column))
    is_bool = pa.types.is_boolean(kind)
    if not (is_bool or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        other: AnyArray = column.to_numpy(zero_copy_only=False)
        return other
    valid, data = column.buffers()
    if data is None:  # of no rows
        return np.empty(0, bool if is_bool else kind.to_pandas_dtype())
    values = _flags(data)[rows] if is_bool else np.frombuffer(data, kind.to_pandas_dtype())[rows]
    if not column.null_count:
        return values
    if missing is None and not pa.types.is_floating(kind):
        values = values.astype(np.float64)
    gap = np.array(np.nan if missing is None else missing, values.dtype)
    return np.where(_flags(valid)[rows], values, gap)


def _flags(bits: pa.Buffer) -> AnyArray:
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").view(bool)


def mask_of(flags: AnyArray) -> pa.Array:
    """Arrow's array of (n,) bool, made without pandas too."""
    bits = np.packbits(flags, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pa.py_buffer(bits)])


def decoded(column: pa.Array) -> pa.Array:
    """The values of a dictionary-encoded array (a pandas category); other arrays unchanged."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def text_parts(column: pa.Array) -> tuple[AnyArray, IntArray]:
    """UTF-8 bytes (uint8) and their offsets (n+1,), from 0 on, of strings or large strings."""
    _, offset_buffer, text_buffer = column.buffers()
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offset_buffer, width)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(text_buffer or b"", np.uint8)[ends[0] : ends[-1]]
    return text, ends.astype(np.int64) - ends[0]
