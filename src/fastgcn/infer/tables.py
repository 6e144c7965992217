"""Predictions and embeddings as files: Parquet, CSV or npy; no incomplete file is left."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgcn.arrays import FloatArray
from fastgcn.data.layout import npy_header
from fastgcn.errors import InputError
from fastgcn.text import guard
from fastgcn.writing import replace_file

if TYPE_CHECKING:
    from fastgcn.train.run import Run


def prediction_columns(ids: list[Any], probabilities: FloatArray, run: "Run") -> dict[str, Any]:
    """id, prediction, then the probability of each class by its name.

    For multi-label data, `prediction` holds the labels above one half, joined by `|`.
    """
    count = probabilities.shape[1]
    names = list(run.class_names) if run.class_names is not None else [str(c) for c in range(count)]
    if run.model.multilabel:
        prediction = [
            "|".join(n for n, p in zip(names, row, strict=True) if p > 0.5) for row in probabilities
        ]
    else:
        prediction = [names[c] for c in probabilities.argmax(axis=1)]
    columns = {f"p_{name}": probabilities[:, c] for c, name in enumerate(names)}
    return {"id": ids, "prediction": prediction} | columns


def embedding_columns(ids: list[Any], rows: FloatArray) -> dict[str, Any]:
    """id, then one column for each dimension."""
    return {"id": ids} | {f"h_{k}": rows[:, k] for k in range(rows.shape[1])}


def write_table(path: Path, parts: Iterable[dict[str, Any]], *, raw: bool = False) -> int:
    """Write parts of a table, one after the other, to a .parquet or .csv file.

    In a .csv file, texts that a spreadsheet would calculate get an apostrophe in front
    (`fastgcn.text.guard`), unless `raw`. Returns how many did.
    """
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet

    writers = {".parquet": pyarrow.parquet.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}
    if path.suffix not in writers:
        raise InputError(f"--out must end in .parquet or .csv, got {path.name!r}")

    guarded = 0

    def table_of(columns: dict[str, Any]) -> "pyarrow.Table":
        nonlocal guarded
        arrays = {name: pyarrow.array(values) for name, values in columns.items()}
        for name, array in arrays.items():
            if path.suffix == ".csv" and not raw and pyarrow.types.is_string(array.type):
                arrays[name] = guard(array)
                changed = pyarrow.compute.not_equal(arrays[name], array)
                guarded += pyarrow.compute.sum(changed).as_py() or 0
        return pyarrow.table(arrays)

    def write(temporary: Path) -> None:
        with ExitStack() as stack:
            writer: Any = None
            for columns in parts:
                table = table_of(columns)
                if writer is None:
                    writer = stack.enter_context(writers[path.suffix](temporary, table.schema))
                writer.write_table(table)

    replace_file(path, write)
    return guarded


def write_array(path: Path, n: int, parts: Iterable[FloatArray]) -> None:
    """Write parts of an array of n rows, one after the other, to a .npy file."""

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for number, part in enumerate(parts):
                if number == 0:
                    file.write(npy_header(part.dtype, (n, *part.shape[1:])))
                file.write(np.ascontiguousarray(part).data)

    replace_file(path, save)
