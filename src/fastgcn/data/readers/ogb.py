"""OGB's node property prediction data sets, as their zip files unpack: `raw/*.csv.gz`.

The CSV files are parsed; OGB's own `processed/` files are pickles and are not read.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.data.readers.parts import Edges, Reader, build, choice, identity, need
from fastgcn.errors import FormatError, InputError, MissingFileError
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph
from fastgcn.memory import available_memory

_EDGES, _LABELS = "edge.csv.gz", "node-label.csv.gz"
_NODES, _EDGE_COUNT = "num-node-list.csv.gz", "num-edge-list.csv.gz"
_FEATURES = "node-feat.csv.gz"
_SPLIT = ("train.csv.gz", "valid.csv.gz", "test.csv.gz")

_MOST_GRAPHS = 1 << 24  # of a data set that is refused for having several
_MOST_COLUMNS = 1 << 16  # Arrow takes 20 seconds for the types of 160,000
_BLOCK = 1 << 22  # bytes parsed together; larger blocks wait for their decompression


def _read(
    path: Path,
    *,
    name: str | None = None,
    directed: bool | None = False,
    split: str | None = None,
    features: str | None = None,
) -> Graph:
    """The data set of a folder that has `raw/` and `split/`, or the raw files themselves.

    Args:
        path: the folder.
        name: the graph's name; by default the folder's name.
        directed: False, the default, stores every edge both ways, as is usual for ogbn-arxiv;
            True keeps the directions; None checks if the edges are symmetric.
        split: which scheme of `split/`; needed if it has several.
        features: `identity` gives one-hot features, for data without any (ogbn-proteins).

    One label column holds the class, NaN for no class; several columns of 0 and 1 are
    multi-label.
    """
    raw = _raw(path)
    files = need(raw, _EDGES, _LABELS, _NODES, _EDGE_COUNT)
    edge_file, label_file, node_count_file, edge_count_file = files
    n, n_edges = _count(node_count_file), _count(edge_count_file)
    ends = _read_csv(edge_file, np.int64, n_edges)
    if n_edges and ends.shape[1] != 2:
        raise FormatError(f"{edge_file} must have two columns, got {ends.shape[1]}")
    source, target = ends.reshape(-1, 2).T
    labels = _labels(label_file, n)  # first: its rows show that there are n nodes
    return build(
        path,
        Edges(source, target),
        n=n,
        directed=directed,
        features=_features(raw / _FEATURES, features, n),
        labels=labels,
        split=_split(_split_folder(path, split), n),
        name=name or _folder_name(path),
    )


def _raw(path: Path) -> Path:
    return path / "raw" if (path / "raw").is_dir() else path


def _folder_name(path: Path) -> str:
    path = path.resolve()
    return path.parent.name if path.name == "raw" else path.name


def _count(path: Path) -> int:
    counts = _short_csv(path, _MOST_GRAPHS)
    if counts.shape != (1, 1) or counts[0, 0] < 0:
        raise FormatError(
            f"{path} must hold one number, for a single graph, got shape {counts.shape}; "
            "data sets of many graphs are not for node classification"
        )
    return int(counts[0, 0])


def _features(path: Path, wanted: str | None, n: int) -> Any:
    if wanted is not None:
        choice(wanted, ("identity",), "features")
        return identity(n)
    if not path.is_file():
        raise MissingFileError(
            f"{path} is missing; get it, or pass features='identity' to make each node its own "
            "feature if the data set has none"
        )
    return _read_csv(path, np.float32, n)


def _labels(path: Path, n: int) -> AnyArray:
    table = _read_csv(path, np.float64, n)
    return table[:, 0] if table.shape[1] == 1 else table


def _split_folder(path: Path, scheme: str | None) -> Path | None:
    """The folder with the three id files; None if the data have no split."""
    root = path.parent / "split" if path.name == "raw" else path / "split"
    schemes = sorted(f.name for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
    if scheme is not None:
        if scheme not in schemes:
            raise InputError(
                f"split must be 'random' or one of those in {root}: "
                f"{', '.join(schemes) or 'there are none'}, got {scheme!r}"
            )
        return root / scheme
    if len(schemes) > 1:
        raise InputError(f"{root} holds several splits: pass split= one of {', '.join(schemes)}")
    if schemes:
        return root / schemes[0]
    return path if any((path / name).is_file() for name in _SPLIT) else None


def _split(folder: Path | None, n: int) -> Split:
    if folder is None:
        return Split()
    return Split(*(_ids(file, n) for file in need(folder, *_SPLIT)))


def _ids(path: Path, n: int) -> IntArray:
    ids = _short_csv(path, n)
    if len(ids) and ids.shape[1] != 1:
        raise FormatError(f"{path} must have one column of node ids, got {ids.shape[1]}")
    return ids.reshape(-1)


def _short_csv(path: Path, most: int) -> AnyArray:
    """(rows, columns) int64 of a file that has at most so many rows."""
    n_columns = _count_columns(path)
    blocks, rows = [np.empty((0, n_columns), np.int64)], 0
    for block in _blocks(path, np.dtype(np.int64), n_columns):
        blocks.append(block)
        rows += len(block)
        if rows > most:
            raise FormatError(f"{path} must have at most {most:,} rows, got {rows:,} or more")
    return np.concatenate(blocks)


def _read_csv(path: Path, dtype: type[np.generic], n_rows: int) -> AnyArray:
    """(n_rows, columns) of a gzipped CSV file without a header, which must have that many rows.

    An empty field or `nan` is NaN, and an error if `dtype` is an integer. The file is read
    directly into the result, so that features are never in memory twice.
    """
    n_columns = _count_columns(path)
    table = _room(n_rows, n_columns, dtype, path)
    done = 0
    for block in _blocks(path, np.dtype(dtype), n_columns):
        if done + len(block) > n_rows:
            raise FormatError(
                f"{path} must have {n_rows:,} rows, got {done + len(block):,} or more"
            )
        table[done : done + len(block)] = block
        done += len(block)
    if done != n_rows:
        raise FormatError(f"{path} must have {n_rows:,} rows, got {done:,}")
    return table


def _room(n_rows: int, n_columns: int, dtype: type[np.generic], path: Path) -> AnyArray:
    if n_rows * n_columns * np.dtype(dtype).itemsize > available_memory():
        raise FormatError(
            f"{path} should have {n_rows:,} rows of {n_columns}, which do not fit in memory"
        )
    return np.empty((n_rows, n_columns), dtype)


def _count_columns(path: Path) -> int:
    try:
        with gzip.open(path) as file:
            line = file.readline(_BLOCK)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} cannot be read as a gzip file: {error}") from None
    if len(line) == _BLOCK:
        raise FormatError(f"{path} has a row of more than {_BLOCK:,} bytes")
    if line.count(b",") >= _MOST_COLUMNS:
        raise FormatError(f"{path} has more than {_MOST_COLUMNS:,} columns")
    return line.count(b",") + 1 if line.strip() else 0


def _blocks(path: Path, dtype: np.dtype[Any], n_columns: int) -> Iterator[AnyArray]:
    import pyarrow as pa
    from pyarrow import csv

    from fastgcn.data.tables.files import csv_batches

    if n_columns == 0:
        return

    options = csv.ConvertOptions(
        column_types={f"f{i}": pa.from_numpy_dtype(dtype) for i in range(n_columns)},
        null_values=["", "nan", "NaN"],
    )
    reading = csv.ReadOptions(autogenerate_column_names=True, block_size=_BLOCK)
    try:
        for batch in csv_batches(path, "gzip", reading, csv.ParseOptions(), options):
            if batch.num_columns != n_columns:  # Arrow ends a row at a carriage return as well
                raise FormatError(
                    f"{path} must have {n_columns} columns in every row, got {batch.num_columns}"
                )
            yield _dense(batch, dtype, path)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(
            f"{path} is damaged or not a table of numbers: {str(error)[:400]}"
        ) from None


def _dense(batch: Any, dtype: np.dtype[Any], path: Path) -> AnyArray:
    block = np.empty((batch.num_rows, batch.num_columns), dtype)
    for i, column in enumerate(batch.columns):
        if column.null_count and dtype.kind != "f":
            raise FormatError(f"{path} must hold a whole number in every field, but some are empty")
        block[:, i] = column.to_numpy(zero_copy_only=False)
    return block


OGB = Reader(
    "ogb",
    "raw/edge.csv.gz, raw/node-feat.csv.gz, ... and split/SCHEME/train.csv.gz, ...",
    lambda path: any((_raw(path) / name).is_file() for name in (_EDGES, _NODES)),
    _read,
)
