"""Small tables for tests, written as CSV or Parquet files and read back as graphs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from fastgcn.data.tables import read_tables
from fastgcn.graph.graph import Graph

Columns = Mapping[str, Any]

NODES = {
    "id": ["a", "b", "c", "d"],
    "label": ["x", "y", "x", None],
    "split": ["train", "val", "test", None],
    "size": [1, 2, 3, 4],
    "share": [0.5, 0.25, 0.0, 1.0],
}
EDGES = {"source": ["a", "b", "c"], "target": ["b", "c", "d"]}


def write(path: Path, columns: Columns) -> Path:
    table = pa.table(dict(columns))
    if path.suffix == ".parquet":
        try:
            pa.parquet.write_table(table, path)
        except pa.ArrowNotImplementedError as error:
            pytest.skip(f"this pyarrow cannot write such a table: {error}")
        return path
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    sink = pa.output_stream(path, compression="gzip" if path.suffix == ".gz" else None)
    with sink:
        pa.csv.write_csv(table, sink, pa.csv.WriteOptions(delimiter=delimiter))
    return path


def read(
    folder: Path, nodes: Columns, edges: Columns = EDGES, *, kind: str = "parquet", **options: Any
) -> Graph:
    return read_tables(
        write(folder / f"nodes.{kind}", nodes), write(folder / f"edges.{kind}", edges), **options
    )


def read_csv(folder: Path, nodes: str, edges: str = "source,target\n", **options: Any) -> Graph:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return read_tables(folder / "nodes.csv", folder / "edges.csv", **options)


def dense(graph: Graph) -> list[list[float]]:
    return graph.to_scipy().toarray().tolist()  # type: ignore[no-any-return]
