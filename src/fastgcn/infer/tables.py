"""Predictions and embeddings as files: Parquet, CSV or npy; no incomplete file is left."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgcn.arrays import FloatArray
from fastgcn.data.layout import npy_header
from fastgcn.errors import InputError
from fastgcn.text import guard
from fastgcn.writing import replace_file

# The path that stands for standard output.
STDOUT = Path("-")

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from fastgcn.network import Network
    from fastgcn.train.run import Run


def prediction_columns(
    ids: Sequence[Any], probabilities: FloatArray, run: "Run", top: int | None = None
) -> dict[str, Any]:
    """id, prediction, then the probability of each class by its name; or the predicted number.

    For multi-label data, `prediction` holds the labels above one half, joined by `|`. With `top`,
    the names and probabilities of the K most probable classes are in place of all classes:
    class_1, p_1, class_2, p_2, ...
    """
    check_top(top, run.model)
    if run.model.target is not None:
        return {"id": ids, "prediction": probabilities.reshape(-1)}
    count = probabilities.shape[1]
    names = list(run.class_names) if run.class_names is not None else [str(c) for c in range(count)]
    if run.model.multilabel:
        prediction = [
            "|".join(n for n, p in zip(names, row, strict=True) if p > 0.5) for row in probabilities
        ]
    else:
        prediction = [names[c] for c in run.model.decision.classes(probabilities)]
    if top is None:
        columns: dict[str, Any] = {f"p_{n}": probabilities[:, c] for c, n in enumerate(names)}
    else:
        columns, order = {}, np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
        for k in range(top):
            columns[f"class_{k + 1}"] = [names[c] for c in order[:, k]]
            columns[f"p_{k + 1}"] = np.take_along_axis(probabilities, order[:, k : k + 1], 1)[:, 0]
    return {"id": ids, "prediction": prediction} | columns


def check_top(top: int | None, model: "Network") -> None:
    count = model.sizes[-1]
    if top is not None and model.target is not None:
        raise InputError("top is for classes, and the run predicts a number; leave it out")
    if top is not None and not 1 <= top <= count:
        raise InputError(f"top must be from 1 to the {count} classes of the run, got {top}")


def data_frame(columns: dict[str, Any]) -> "pandas.DataFrame":
    """The columns as a data frame; `id` is its index."""
    try:
        import pandas
    except ImportError:
        raise InputError("as_frame=True needs pandas; install it, or leave as_frame out") from None
    return pandas.DataFrame(columns).set_index("id")


def rows_as_json(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A list with an object for each row."""
    found: list[dict[str, Any]] = []
    for columns in parts:
        plain = [v.tolist() if isinstance(v, np.ndarray) else v for v in columns.values()]
        found += [dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)]
    return found


def embedding_columns(ids: list[Any], rows: FloatArray) -> dict[str, Any]:
    """id, then one column for each dimension."""
    return {"id": ids} | {f"h_{k}": rows[:, k] for k in range(rows.shape[1])}


def write_table(path: Path, parts: Iterable[dict[str, Any]], *, raw: bool = False) -> int:
    """Write parts of a table, one after the other, to a .parquet or .csv file.

    In a .csv file, texts that a spreadsheet would calculate get an apostrophe in front
    (`fastgcn.text.guard`), unless `raw`. Returns how many did. The path `-` is standard output, as
    CSV.
    """
    import pyarrow.csv
    import pyarrow.parquet

    writers = {".parquet": pyarrow.parquet.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}
    to_stdout = path == STDOUT
    if path.suffix not in writers and not to_stdout:
        raise InputError(f"--out must end in .parquet or .csv, got {path.name!r}")

    guarded = 0

    def table_of(columns: dict[str, Any]) -> "pyarrow.Table":
        nonlocal guarded
        table, changed = _guarded(columns, wanted=path.suffix != ".parquet" and not raw)
        guarded += changed
        return table

    def write(temporary: Path) -> None:
        with ExitStack() as stack:
            writer: Any = None
            for columns in parts:
                table = table_of(columns)
                if writer is None:
                    writer = stack.enter_context(writers[path.suffix](temporary, table.schema))
                writer.write_table(table)

    if not to_stdout:
        replace_file(path, write)
        return guarded
    for number, columns in enumerate(parts):
        sys.stdout.write(_csv(table_of(columns), header=number == 0).decode())
    sys.stdout.flush()
    return guarded


def csv_bytes(columns: dict[str, Any]) -> bytes:
    """A table as CSV; texts that a spreadsheet would calculate get an apostrophe in front."""
    return _csv(_guarded(columns, wanted=True)[0], header=True)


def _csv(table: "pyarrow.Table", *, header: bool) -> bytes:
    import pyarrow.csv

    sink = pyarrow.BufferOutputStream()
    pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=header))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _guarded(columns: dict[str, Any], *, wanted: bool) -> "tuple[pyarrow.Table, int]":
    """The columns as an Arrow table, and how many texts got an apostrophe, if that is wanted."""
    import pyarrow
    import pyarrow.compute

    arrays, count = {name: pyarrow.array(values) for name, values in columns.items()}, 0
    for name, array in arrays.items():
        if wanted and pyarrow.types.is_string(array.type):
            arrays[name] = guard(array)
            changed = pyarrow.compute.not_equal(arrays[name], array)
            count += pyarrow.compute.sum(changed).as_py() or 0
    return pyarrow.table(arrays), count


def write_array(path: Path, n: int, parts: Iterable[FloatArray]) -> None:
    """Write parts of an array of n rows, one after the other, to a .npy file."""

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for number, part in enumerate(parts):
                if number == 0:
                    file.write(npy_header(part.dtype, (n, *part.shape[1:])))
                file.write(np.ascontiguousarray(part).data)

    replace_file(path, save)
