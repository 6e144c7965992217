"""Features made of the edges alone, for graphs whose nodes have none.

The first column is the logarithm of the degree. The others are random projections of a node's
neighbourhood (FastRP: Chen et al., CIKM 2019): each node draws a random row, and its feature is
the mean of these rows over the nodes 1, 2 and 3 steps away. Nodes that are near each other in the
graph so have similar features.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.graph.csr import CSR, check_all, check_rows
from fastgcn.graph.graph import Graph
from fastgcn.memory import check_room

_HOPS = 3


def structural_features(graph: Graph, width: int = 64, *, seed: int = 0) -> Graph:
    """The graph with 1 + `width` features made of its edges, after those that it has.

    They describe nodes of this graph. A network that is trained on them can be used for nodes that
    are added to it, but not for another graph, whose random rows are others.

    >>> from fastgcn import Graph, structural_features
    >>> graph = Graph.from_edges([0, 1], [1, 2], features=np.empty((3, 0)))
    >>> structural_features(graph, 4)
    Graph(graph: 3 nodes, 2 undirected edges, 5 features, 0 classes)
    """
    if isinstance(graph.features, csr_array):
        raise InputError("structural features can be added to dense features only")
    rows = structural_rows(graph.csr, width, seed=seed)
    names = structural_names(width)
    if graph.feature_names is None and graph.n_features:
        names = []
    changes: dict[str, Any] = {
        "features": np.hstack([graph.features, rows]),
        "feature_names": (*(graph.feature_names or ()), *names) or None,
    }
    return graph._replaced(**changes)


def structural_names(width: int) -> list[str]:
    return ["degree", *(f"near#{i}" for i in range(width))]


def check_width(width: Any) -> int:
    if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= 4096:
        raise InputError(f"structure must be a number of features from 1 to 4096, got {width!r}")
    return width


def structural_rows(csr: CSR, width: int, *, seed: int = 0) -> FloatArray:
    """(n, 1 + width) float32."""
    check_width(width)
    n = len(csr.indptr) - 1
    check_room(16 * n * width, "structural features", "use fewer of them")
    check_rows(csr.indptr, csr.indices)
    check_all(csr.indices, n)
    degrees: IntArray = np.diff(csr.indptr)
    ones = np.ones(len(csr.indices), np.float32) if csr.weights is None else csr.weights
    matrix = csr_array((ones, csr.indices, csr.indptr), shape=(n, n))
    sums = np.maximum(matrix.sum(axis=1), 1e-30)
    mean_over_neighbours = diags_array((1 / sums).astype(np.float32)) @ matrix
    rows = np.random.default_rng(seed).choice(
        np.array([-1, 0, 1], np.float32), (n, width), p=[1 / 6, 2 / 3, 1 / 6]
    )
    total = np.zeros((n, width), np.float32)
    for _ in range(_HOPS):
        rows = unit_length(mean_over_neighbours @ rows)
        total += rows
    return np.hstack([log_degrees(degrees)[:, None], unit_length(total)])


def log_degrees(degrees: IntArray) -> FloatArray:
    """(n,) float32: the logarithm of one more than the number of neighbours."""
    logarithms: FloatArray = np.log1p(degrees).astype(np.float32)
    return logarithms


def unit_length(rows: FloatArray) -> FloatArray:
    scaled: FloatArray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return scaled.astype(np.float32)


def rows_of_new_nodes(
    known: FloatArray, neighbours: IntArray, owners: IntArray, degrees: IntArray
) -> FloatArray:
    """(k, 1 + width): for k new nodes, with `neighbours` (m,) among old ones and their `owners`.

    A new node has its own degree, and the mean of its old neighbours' other features.
    """
    total = np.zeros((len(degrees), known.shape[1]), np.float32)
    np.add.at(total, owners, known[neighbours])
    rows: FloatArray = np.hstack([log_degrees(degrees)[:, None], unit_length(total[:, 1:])])
    return rows
