"""From what a reader found to a checked `Graph`, with the file named in every complaint."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.errors import FormatError, InputError
from fastgcn.graph import checks
from fastgcn.graph.csr import csr_from_edges
from fastgcn.graph.graph import Graph


class Edges(NamedTuple):
    """An edge list: (m,) ends and (m,) weights, None where every edge counts one."""

    source: IntArray
    target: IntArray
    weights: FloatArray | None = None


def edges_of(matrix: Any, *, weighted: bool = True) -> Edges:
    """The stored entries of a sparse matrix; with `weighted` their values too, unless all one."""
    entries = matrix.tocoo()
    if weighted and not np.all(entries.data == 1):
        return Edges(entries.row, entries.col, entries.data)
    there = entries.data != 0
    return Edges(entries.row[there], entries.col[there])


def square(matrix: Any, path: Path) -> Any:
    if matrix.shape[0] != matrix.shape[1]:
        raise FormatError(f"{path} must hold a square adjacency matrix, got shape {matrix.shape}")
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
    """The graph of these parts; `directed` False stores every edge both ways, None looks.

    `name` defaults to that of the file or folder at `path`.
    """
    with naming(path):
        if directed not in (None, True, False):
            raise InputError(f"directed must be True, False or None, got {directed!r}")
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
            **fields,
        )


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file or folder to what the checks of a `Graph` complain about."""
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
    """(n, n) features of nodes that come without any: each node is known by itself alone."""
    return csr_array((np.ones(n, np.float32), np.arange(n), np.arange(n + 1)), shape=(n, n))


def labels_of(
    class_map: Mapping[str, Any], rows: Mapping[str, int], n: int, path: Path
) -> IntArray | BoolArray:
    """Labels from JSON: node key → class number, or → list of 0 and 1, one a class.

    `rows` gives the node of each key; nodes without an entry are unlabelled.
    """
    stranger = next((key for key in class_map if key not in rows), None)
    if stranger is not None:
        raise FormatError(f"{path} labels {stranger!r}, which is none of the {n} nodes")
    try:
        values = np.array(list(class_map.values()))
    except ValueError:
        raise FormatError(f"{path} must give every node as many labels as the others") from None
    if values.size and (values.dtype.kind not in "iub" or values.ndim > 2):
        raise FormatError(
            f"{path} must map each node to a class number or a list of 0 and 1, "
            f"got {next(iter(class_map.values()))!r}"
        )
    ids = np.array([rows[key] for key in class_map], dtype=np.int64)
    if values.ndim == 2:
        several = np.zeros((n, values.shape[1]), np.int64)
        several[ids] = values
        return several
    one = np.full(n, -1, np.int64)
    one[ids] = values
    return one
