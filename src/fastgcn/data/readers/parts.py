"""The parts of every reader: `Reader`, functions that read and check files, and `build`.

Every function that reads a file names it in its errors, and none of them unpickles.
"""

import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.errors import FormatError, InputError, MissingFileError, nearest
from fastgcn.files import open_regular
from fastgcn.graph import checks
from fastgcn.graph.csr import csr_from_edges
from fastgcn.graph.graph import Graph
from fastgcn.memory import available_memory, shown_bytes


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of one published format.

    Attributes:
        format: the name of the format, as `load(..., format=...)` takes it.
        expects: the files that the format consists of, for messages.
        matches: True if a path looks like this format. It checks only file names, and a few of
            them are enough, so that a folder that lacks a file is still recognised.
        read: makes the graph; takes the path, and the format's own options by keyword.
    """

    format: str
    expects: str
    matches: Callable[[Path], bool]
    read: Callable[..., Graph]


def check_options(
    function: Callable[..., Any], options: Mapping[str, Any], what: str, also: Iterable[str] = ()
) -> None:
    """Raise for an option that is no keyword of `function`; `also` lists the caller's options."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    listed = list(dict.fromkeys([*known, *also]))
    for option, value in options.items():
        if option not in known and option == "split":
            raise InputError(f"split must be 'random' for {what}, if given at all, got {value!r}")
        if option not in known:
            raise InputError(
                f"{what} has no option {option!r}{nearest(option, listed)} "
                f"(options are {', '.join(listed)})"
            )


def choice(value: str, allowed: Iterable[str], option: str) -> None:
    """Raise if a value is not allowed."""
    allowed = list(allowed)
    if value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else ""
        raise InputError(f"{option} must be one of {', '.join(allowed)}, got {value!r}{near}")


def has_any(*names: str) -> Callable[[Path], bool]:
    """Makes the `matches` of a reader: True for a folder with any of these files."""
    return lambda folder: any((folder / name).is_file() for name in names)


def one_of(path: Path, found: list[str], wanted: str | None, option: str, expects: str) -> str:
    """The data set `wanted` of those `found` at a path; None is enough if there is only one."""
    if not found:
        raise MissingFileError(f"{path} has no files {expects}")
    if wanted is None and len(found) > 1:
        raise InputError(
            f"{path} holds several data sets: pass {option}= one of {', '.join(found)}"
        )
    if wanted is not None and wanted not in found:
        near = nearest(str(wanted), found)
        raise InputError(f"{path} holds {', '.join(found)}, not {option}={wanted!r}{near}")
    return wanted or found[0]


def need(folder: Path, *names: str) -> list[Path]:
    """The paths of these files in `folder`; raises if one is missing."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise MissingFileError(
            f"{folder} lacks {' and '.join(missing)}; "
            f"the data set consists of {', '.join(names)}: get the missing file as well"
        )
    return [folder / name for name in names]


# How many bytes of objects a byte of JSON becomes, about.
_JSON_TIMES = 10


def check_room(path: Path, n_bytes: int) -> None:
    """Raise if reading `path` would take more memory than is free."""
    free = available_memory()
    if n_bytes > free:
        raise FormatError(
            f"{path} takes about {shown_bytes(n_bytes)} of memory to read, "
            f"but only {shown_bytes(free)} are free"
        )


def read_bytes(path: Path, times: int = 1) -> bytes:
    """The content of a file, unless memory has no room for `times` as much."""
    try:
        with open_regular(path) as file:
            check_room(path, times * os.fstat(file.fileno()).st_size)
            return file.read()
    except FormatError:
        raise
    except (ValueError, OSError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object (a dict) that a JSON file holds."""
    data = read_bytes(path, _JSON_TIMES)
    try:
        value = json.loads(data)
    except RecursionError:
        raise FormatError(f"{path} cannot be read as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path} must hold an object, got {type(value).__name__}")
    return value


class Edges(NamedTuple):
    """An edge list: (m,) ends and (m,) weights, None if every edge has weight one."""

    source: IntArray
    target: IntArray
    weights: FloatArray | None = None


# Least bytes for each node of a graph (an offset, and a label or a place in the split), and for
# each listed edge while it is sorted: measured, 45 to 60 more than the file's own arrays.
_NODE_BYTES, _EDGE_BYTES = 16, 40


def edges_of(matrix: Any, *, weighted: bool = True) -> Edges:
    """The stored entries of a sparse matrix; with `weighted`, their values unless all are one."""
    entries = matrix.tocoo()
    if weighted and not np.all(entries.data == 1):
        return Edges(entries.row, entries.col, entries.data)
    there = entries.data != 0
    return Edges(entries.row[there], entries.col[there])


def square(matrix: Any, path: Path) -> Any:
    """The adjacency matrix `matrix`; raises unless it is square and its graph fits in memory."""
    if matrix.shape[0] != matrix.shape[1]:
        raise FormatError(f"{path} must hold a square adjacency matrix, got shape {matrix.shape}")
    check_room(path, _NODE_BYTES * matrix.shape[0] + _EDGE_BYTES * matrix.nnz)
    return matrix


def build(
    path: Path,
    edges: Edges,
    *,
    n: int,
    directed: bool | None,
    features: Any,
    name: str | None,
    **fields: Any,
) -> Graph:
    """The checked graph.

    `directed=False` stores every edge both ways; None keeps the edges unchanged and checks if
    they are symmetric. `name` defaults to that of the file or folder at `path`.
    """
    with naming(path):
        if directed not in (None, True, False):
            raise InputError(f"directed must be True, False or None, got {directed!r}")
        _check_count(features, n)
        check_room(path, _NODE_BYTES * n + _EDGE_BYTES // 2 * len(edges.source))
        source, target, weights = checks.edge_arrays(*edges, n)
        csr, cleaned = csr_from_edges(source, target, weights, n, directed=directed is not False)
        return Graph(
            indptr=csr.indptr,
            indices=csr.indices,
            weights=csr.weights,
            features=features,
            directed=directed,
            name=name or default_name(path),
            cleaned=cleaned,
            **{"task": "classification", **fields},  # these formats hold classes
        )


def _check_count(features: Any, n: int) -> None:
    """Check the rows first: a small file may claim any number of nodes, and n is allocated by."""
    if checks.row_count(features) != n:
        raise InputError(f"features must have {n} rows, one per node, got {features.shape[0]}")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file or folder in front of the error messages of `Graph`'s checks."""
    try:
        yield
    except FormatError:
        raise
    except InputError as error:
        raise FormatError(f"{path}: {error}") from None


def default_name(path: Path) -> str:
    path = path.resolve()
    return path.stem if path.is_file() else path.name


def identity(n: int) -> csr_array:
    """(n, n) one-hot features, for nodes that come without features."""
    return csr_array((np.ones(n, np.float32), np.arange(n), np.arange(n + 1)), shape=(n, n))


def labels_of(
    class_map: Mapping[str, Any], rows: Mapping[str, int], n: int, path: Path
) -> IntArray | BoolArray:
    """Labels from JSON: node key → class number, or → list of 0 and 1, one per class.

    `rows` gives the node of each key; nodes without an entry are unlabelled.
    """
    stranger = next((key for key in class_map if key not in rows), None)
    if stranger is not None:
        raise FormatError(f"{path} labels {stranger[:60]!r}, which is not one of the {n} nodes")
    try:
        values = np.array(list(class_map.values()))
    except (ValueError, OverflowError):
        raise FormatError(f"{path} must give every node as many labels as the others") from None
    if values.size and (values.dtype.kind not in "iub" or values.ndim > 2):
        raise FormatError(
            f"{path} must map each node to a class number or a list of 0 and 1, "
            f"got {shortened(next(iter(class_map.values())))}"
        )
    ids = np.array([rows[key] for key in class_map], dtype=np.int64)
    if values.ndim == 2:
        check_room(path, 8 * n * values.shape[1])
        several = np.zeros((n, values.shape[1]), np.int64)
        several[ids] = values
        return several
    one = np.full(n, -1, np.int64)
    one[ids] = values
    return one
