"""Graphs from and to scipy and PyG (torch_geometric); `Graph.from_*` and `to_*` call these.

A library that only one conversion needs is imported when that conversion is called.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from fastgcn.arrays import AnyArray, BoolArray, FloatArray
from fastgcn.errors import InputError, library
from fastgcn.graph import checks
from fastgcn.graph.checks import Split
from fastgcn.graph.csr import check_all, check_rows, csr_from_edges
from fastgcn.graph.labels import TASKS
from fastgcn.graph.sparse import checked

if TYPE_CHECKING:
    import torch
    import torch_geometric.data

    from fastgcn.graph.graph import Graph


def from_scipy(
    cls: "type[Graph]",
    adjacency: Any,
    *,
    features: Any,
    directed: bool | None = None,
    weighted: bool | None = None,
    **fields: Any,
) -> "Graph":
    """A graph from a square sparse matrix of any format, A(v, u) = the edge v → u.

    Args:
        adjacency: the matrix.
        features: (n, F), dense or sparse.
        directed: None keeps the matrix unchanged, symmetric or not; False adds the reverse of
            every edge.
        weighted: None keeps the values unless all are one; False ignores them.
        **fields: those of `Graph`.

    >>> from scipy.sparse import coo_array
    >>> adjacency = coo_array(([1, 1], ([0, 1], [1, 0])), shape=(2, 2))
    >>> from fastgcn import Graph
    >>> Graph.from_scipy(adjacency, features=[[0.5], [1.5]])
    Graph(graph: 2 nodes, 1 undirected edges, 1 features, 0 classes)
    """
    if not issparse(adjacency):
        raise InputError(
            f"adjacency must be a scipy sparse matrix, got {type(adjacency).__name__}; "
            "scipy.sparse.csr_array(...) makes one of an array"
        )
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise InputError(f"adjacency must be square, (nodes, nodes), got {adjacency.shape}")
    n, entries = adjacency.shape[0], checked(adjacency, "adjacency").tocoo()
    data = entries.data != 0 if weighted is False else entries.data
    source, target, weights = checks.edge_arrays(entries.row, entries.col, data, n)
    assert weights is not None
    if weighted is None:
        counted = (weights != 0) & (source != target)  # the others are dropped
        weighted = bool(np.any(weights[counted] != 1))
    csr, cleaned = csr_from_edges(source, target, weights, n, directed=directed is not False)
    return cls(
        indptr=csr.indptr,
        indices=csr.indices,
        weights=csr.weights if weighted else None,
        features=features,
        directed=directed,
        cleaned=cleaned,
        **fields,
    )


def to_scipy(graph: "Graph") -> csr_array:
    """An (n, n) float32 copy of the adjacency matrix; of ones if the graph has no weights."""
    check_rows(graph.indptr, graph.indices)
    check_all(graph.indices, graph.n_nodes)
    values = np.ones(len(graph.indices), np.float32) if graph.weights is None else graph.weights
    shape = (graph.n_nodes, graph.n_nodes)
    return csr_array((values, graph.indices, graph.indptr), shape=shape, copy=True)


# Fields of `Graph` that `Data` does not know; they are kept under the same names.
_NAMES = ("name", "class_names", "node_ids")


def from_pyg(
    cls: "type[Graph]",
    data: "torch_geometric.data.Data",
    *,
    mask_column: int | None = None,
    directed: bool | None = None,
    **fields: Any,
) -> "Graph":
    """A graph from a PyG `Data`; an edge i → j of `edge_index` is A(i, j).

    It reads `x` (n, F), dense or sparse; `edge_index`; `edge_weight`, or `edge_attr` of one
    column; `y`, class ids (n,) or (n, 1) with -1 or NaN for none, or 0/1 (n, C), multi-label
    (C = 1 only if `y` is bool), or numbers to predict, floats (n,) or (n, 1) with NaN for none,
    which are told from class ids as in `Graph` (`task` overrides it); the three masks, of which
    `mask_column` picks a column if they hold several splits; and `name`, `class_names`,
    `node_ids` and `task`, if they are set.
    `directed` and `fields` are those of `from_scipy`. PyG's own `is_undirected` is not used,
    because it ignores `edge_weight`.
    """
    geometric = library("torch_geometric.data", extra="pyg")
    if not isinstance(data, geometric.Data):
        raise InputError(
            f"data must be a torch_geometric Data, got {type(data).__name__}; "
            "HeteroData.to_homogeneous() makes one"
        )
    if data.edge_index is None:
        raise InputError("data.edge_index is missing; it must have shape (2, edges)")
    n = int(data.num_nodes)
    weights = _weights(data)
    kept = {name: data[name] for name in _NAMES if name in data}
    if "task" in data and data.task in TASKS:
        kept["task"] = data.task
    fields = kept | fields
    return from_scipy(
        cls,
        _adjacency(data.edge_index, weights, n),
        features=np.empty((n, 0), np.float32) if data.x is None else _matrix(data.x),
        directed=directed,
        weighted=weights is not None,
        labels=None if data.y is None else _labels(data.y),
        split=Split(
            **{p: _ids(data, f"{p}_mask", n, mask_column) for p in ("train", "val", "test")}
        ),
        **fields,
    )


def _adjacency(edge_index: "torch.Tensor", weights: FloatArray | None, n: int) -> coo_array:
    ends = _array(edge_index)
    if ends.ndim != 2 or len(ends) != 2:
        raise InputError(f"data.edge_index must have shape (2, edges), got {ends.shape}")
    source, target, values = checks.edge_arrays(ends[0], ends[1], weights, n)
    if values is None:
        values = np.ones(len(source), np.float32)
    return coo_array((values, (source, target)), shape=(n, n))


def _array(tensor: "torch.Tensor") -> AnyArray:
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # unknown to numpy
        tensor = tensor.float()
    array: AnyArray = tensor.numpy()
    return array


def _matrix(x: "torch.Tensor") -> AnyArray | csr_array:
    import torch

    if x.layout == torch.strided:
        return _array(x)
    entries = x.detach().cpu().to_sparse(layout=torch.sparse_coo).coalesce()
    row, col = entries.indices().numpy()
    return coo_array((_array(entries.values()), (row, col)), shape=tuple(x.shape)).tocsr()


def _weights(data: "torch_geometric.data.Data") -> FloatArray | None:
    """(m,) from `edge_weight`, else from `edge_attr`; None if there is neither."""
    for name in ("edge_weight", "edge_attr"):
        if data.get(name) is not None:
            values = _array(data[name])
            if values.ndim == 2 and values.shape[1] == 1:
                values = values[:, 0]
            if values.ndim != 1:
                raise InputError(
                    f"data.{name} must hold one number per edge, got shape {values.shape}; "
                    f"set data.edge_weight, or delete data.{name} for a graph without weights"
                )
            return values
    return None


def _labels(y: "torch.Tensor") -> AnyArray:
    values = _array(y)
    if values.ndim == 2 and values.shape[1] == 1 and values.dtype != np.bool_:
        values = values[:, 0]
    return values.astype(np.int64) if values.ndim == 1 and values.dtype == np.bool_ else values


def _ids(data: "torch_geometric.data.Data", name: str, n: int, mask_column: int | None) -> AnyArray:
    """The nodes of one mask; none if the mask is missing."""
    if data.get(name) is None:
        return np.empty(0, np.int64)
    mask = _array(data[name])
    if mask.ndim not in (1, 2) or len(mask) != n or mask.dtype not in (np.bool_, np.uint8):
        raise InputError(
            f"data.{name} must be bool of shape ({n},), got {mask.dtype} of shape {mask.shape}"
        )
    if mask.ndim == 2:
        mask = mask[:, _column(mask.shape[1], name, mask_column)]
    return np.flatnonzero(mask)


def _column(count: int, name: str, mask_column: int | None) -> int:
    if mask_column is None and count == 1:
        return 0
    if mask_column is None or not 0 <= mask_column < count:
        raise InputError(
            f"data.{name} has {count} columns, one per split: choose one with mask_column=0 "
            f"to {count - 1}, got {mask_column}"
        )
    return mask_column


def to_pyg(graph: "Graph") -> "torch_geometric.data.Data":
    """A PyG `Data` that `from_pyg` reads back; it shares no memory with the graph.

    `x` is a coalesced COO tensor if the features are sparse; `y` is int64 (n,), or bool (n, C)
    for multi-label, or float64 (n,) for numbers; all three masks are set. `name`, `class_names`
    and `node_ids` are set if the graph has them, and `task` if it is regression.
    """
    import torch

    geometric = library("torch_geometric.data", extra="pyg")
    entries = to_scipy(graph).tocoo()
    ends = np.stack([entries.row, entries.col]).astype(np.int64)
    data = geometric.Data(x=_tensor(graph.features), edge_index=torch.from_numpy(ends))
    if graph.weights is not None:
        data.edge_weight = torch.from_numpy(entries.data)
    if graph.labels is not None:
        data.y = torch.from_numpy(np.array(graph.labels))
    for part, nodes in graph.split.items():
        mask: BoolArray = np.zeros(graph.n_nodes, np.bool_)
        mask[nodes] = True
        data[f"{part}_mask"] = torch.from_numpy(mask)
    data.name = graph.name
    if graph.regression:
        data.task = graph.task
    if graph.class_names is not None:
        data.class_names = list(graph.class_names)
    if graph.node_ids is not None:
        data.node_ids = checks.plain_ids(graph.node_ids, graph.n_nodes)
    return data


def _tensor(features: FloatArray | csr_array) -> "torch.Tensor":
    import torch

    if isinstance(features, np.ndarray):
        return torch.from_numpy(np.array(features))
    entries = features.tocoo()
    indices = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    values = torch.from_numpy(np.array(entries.data))
    return torch.sparse_coo_tensor(
        indices, values, features.shape, is_coalesced=True, check_invariants=True
    )
