"""Predictions and embeddings as files: Parquet, CSV or npy, written beside and renamed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgcn.errors import InputError
from fastgcn.replace_file import replace_file
from fastgcn.types import AnyArray, FloatArray

if TYPE_CHECKING:
    from fastgcn.runs import Run


def prediction_columns(ids: list[Any], probabilities: FloatArray, run: "Run") -> dict[str, Any]:
    """id, prediction, then the probability of each class by its name.

    With several labels a node, `prediction` holds those above one half, joined by `|`.
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


def write_table(path: Path, columns: dict[str, Any]) -> None:
    """Columns to a .parquet or .csv file."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    writers = {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}
    if path.suffix not in writers:
        raise InputError(f"--out must end in .parquet or .csv, got {path.name!r}")
    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    replace_file(path, lambda temporary: writers[path.suffix](table, temporary))


def write_array(path: Path, array: AnyArray) -> None:
    """An array to a .npy file."""

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, array)

    replace_file(path, save)
