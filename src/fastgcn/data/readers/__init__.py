"""Readers of published formats; `fastgcn.data.load` chooses among them."""

from pathlib import Path
from typing import Any

from fastgcn.data.readers.graphsage import GRAPHSAGE
from fastgcn.data.readers.matrices import (
    GNN_BENCHMARK,
    GRAPHSAINT,
    NPZ_FOLDER,
    REDDIT_DGL,
    REDDIT_FASTGCN,
)
from fastgcn.data.readers.ogb import OGB
from fastgcn.data.readers.parts import Reader, check_options, default_name
from fastgcn.data.readers.planetoid import PLANETOID
from fastgcn.data.readers.pyg import PYG
from fastgcn.errors import InputError, MissingFileError
from fastgcn.graph.graph import Graph

_TABLE_ENDINGS = (".csv", ".csv.gz", ".parquet")


def _read_tables(path: Path, **options: Any) -> Graph:
    """A folder with a node and an edge table; the options are those of `import_tables`."""
    from fastgcn.data.tables import import_tables, read_tables

    check_options(import_tables, options, TABLES.format)
    options["name"] = options.get("name") or default_name(path)
    return read_tables(*table_files(path), **options)


def table_files(path: Path) -> tuple[Path, Path]:
    """The node table and the edge table of a folder that has one of each."""
    return _one_table(path, "nodes"), _one_table(path, "edges")


def _tables_called(path: Path, table: str) -> list[Path]:
    return [file for end in _TABLE_ENDINGS if (file := path / f"{table}{end}").is_file()]


def _one_table(path: Path, table: str) -> Path:
    found = _tables_called(path, table)
    if not found:
        raise MissingFileError(f"{path} lacks a table {table} ({', '.join(_TABLE_ENDINGS)})")
    if len(found) > 1:
        names = " and ".join(file.name for file in found)
        raise InputError(f"{path} has both {names}; leave only one of them in the folder")
    return found[0]


TABLES = Reader(
    "tables",
    "nodes.csv and edges.csv (or .csv.gz, .parquet)",
    lambda path: bool(_tables_called(path, "nodes") or _tables_called(path, "edges")),
    _read_tables,
)

READERS: tuple[Reader, ...] = (
    PLANETOID,
    GRAPHSAGE,
    GRAPHSAINT,
    OGB,
    REDDIT_FASTGCN,
    REDDIT_DGL,
    GNN_BENCHMARK,
    NPZ_FOLDER,
    PYG,
    TABLES,
)
