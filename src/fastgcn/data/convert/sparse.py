"""Libraries that are needed for one conversion only."""

from importlib import import_module
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from fastgcn.errors import InputError, MissingDependencyError
from fastgcn.graph import checks
from fastgcn.graph.csr import check_all, check_rows, csr_from_edges
from fastgcn.graph.graph import Graph


def library(module: str, *, extra: str) -> Any:
    """The imported `module`, which `pip install fastgcn[extra]` brings.

    >>> library("no_such_library", extra="pyg")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fastgcn.errors.MissingDependencyError: this needs no_such_library, which could not ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"this needs {module.partition('.')[0]}, which could not be imported ({error}); "
            f"install it with `pip install 'fastgcn[{extra}]'`"
        ) from error


def from_scipy(
    adjacency: Any,
    *,
    features: Any,
    directed: bool | None = None,
    weighted: bool | None = None,
    **fields: Any,
) -> Graph:
    """A graph from a square sparse matrix of any format, A(v, u) = the edge v → u.

    `directed`: None takes the matrix as it is, symmetric or not; False adds the reverse of
    every edge. `weighted`: None keeps the values unless all are one, False ignores them.
    `fields` are those of `Graph`.

    >>> from scipy.sparse import coo_array
    >>> adjacency = coo_array(([1, 1], ([0, 1], [1, 0])), shape=(2, 2))
    >>> from_scipy(adjacency, features=[[0.5], [1.5]])
    Graph(graph: 2 nodes, 1 undirected edges, 1 features, 0 classes)
    """
    if not issparse(adjacency):
        raise InputError(
            f"adjacency must be a scipy sparse matrix, got {type(adjacency).__name__}; "
            "scipy.sparse.csr_array(...) makes one of an array"
        )
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise InputError(f"adjacency must be square, (nodes, nodes), got {adjacency.shape}")
    n, entries = adjacency.shape[0], adjacency.tocoo()
    data = entries.data != 0 if weighted is False else entries.data
    source, target, weights = checks.edge_arrays(entries.row, entries.col, data, n)
    assert weights is not None
    if weighted is None:
        counted = (weights != 0) & (source != target)  # the others are dropped
        weighted = bool(np.any(weights[counted] != 1))
    csr, cleaned = csr_from_edges(source, target, weights, n, directed=directed is not False)
    return Graph(
        indptr=csr.indptr,
        indices=csr.indices,
        weights=csr.weights if weighted else None,
        features=features,
        directed=directed,
        cleaned=cleaned,
        **fields,
    )


def to_scipy(graph: Graph) -> csr_array:
    """A (n, n) float32 copy of the adjacency matrix, ones where the graph has no weights."""
    check_rows(graph.indptr, graph.indices)
    check_all(graph.indices, graph.n_nodes)
    values = np.ones(len(graph.indices), np.float32) if graph.weights is None else graph.weights
    shape = (graph.n_nodes, graph.n_nodes)
    return csr_array((values, graph.indices, graph.indptr), shape=shape, copy=True)


def plain_ids(graph: Graph) -> list[Any]:
    """The user's own node ids as Python objects, 0..n-1 where there are none."""
    if graph.node_ids is None:
        return list(range(graph.n_nodes))
    return (
        graph.node_ids.tolist() if isinstance(graph.node_ids, np.ndarray) else list(graph.node_ids)
    )
