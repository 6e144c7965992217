"""A folder with a node table and an edge table; `fastgcn.data.tables.importing` reads them."""

from pathlib import Path
from typing import Any

from fastgcn.data.readers._build import default_name
from fastgcn.data.readers._options import check_options
from fastgcn.errors import InputError, MissingFileError
from fastgcn.graph.graph import Graph

FORMAT = "tables"
EXPECTS = "nodes.csv and edges.csv (or .csv.gz, .parquet)"

_ENDINGS = (".csv", ".csv.gz", ".parquet")


def matches(path: Path) -> bool:
    return bool(_found(path, "nodes") or _found(path, "edges"))


def read(path: Path, **options: Any) -> Graph:
    """The options are those of `fastgcn.data.tables.importing.import_tables`."""
    from fastgcn.data.tables.importing import import_tables, read_tables

    check_options(import_tables, options, FORMAT)
    options["name"] = options.get("name") or default_name(path)
    return read_tables(*table_files(path), **options)


def table_files(path: Path) -> tuple[Path, Path]:
    """The node table and the edge table of a folder that has one of each."""
    return _one(path, "nodes"), _one(path, "edges")


def _found(path: Path, table: str) -> list[Path]:
    return [file for end in _ENDINGS if (file := path / f"{table}{end}").is_file()]


def _one(path: Path, table: str) -> Path:
    found = _found(path, table)
    if not found:
        raise MissingFileError(f"{path} lacks a table {table} ({', '.join(_ENDINGS)})")
    if len(found) > 1:
        names = " and ".join(file.name for file in found)
        raise InputError(f"{path} has both {names}; leave only one of them in the folder")
    return found[0]
