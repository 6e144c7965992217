"""What a loader reads: a graph, the matrix its blocks estimate, features, labels and nodes."""

import copy
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.arrays import IntArray
from fastgcn.data.load import load
from fastgcn.errors import InputError, nearest
from fastgcn.features.sparse import SparseMatrix
from fastgcn.features.store import DenseStore, FeatureStore, NodeFeatures
from fastgcn.graph import checks
from fastgcn.graph.adjacency import NORMALIZATIONS, Adjacency, NormalizedRows, normalize
from fastgcn.graph.csr import index_dtype
from fastgcn.graph.edges import GraphEdges, Rows
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import has_label
from fastgcn.memory import available_memory
from fastgcn.sampling.block import Sampler
from fastgcn.sampling.layer import LayerSampler
from fastgcn.sampling.neighborhood import FullSampler, NeighborSampler

Kind = Literal["ladies", "importance", "uniform", "flat", "neighbor", "full"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_CHECKED_ROWS = 64  # of a sampler's matrix, compared with the one that was named


def open_graph(data: Any) -> Graph:
    """A graph whose rows are the nodes that messages go to, from what `fastgcn.load` takes.

    A row of our A lists the nodes that v points at, and PyG sends messages from the first end of
    an edge to the second; so the edges of a PyG `Data` are turned round.
    """
    if isinstance(data, Graph | str | os.PathLike):
        return load(data)
    if type(data).__module__.startswith("torch_geometric."):
        data = _turned(data)
    graph = load(data)
    if graph.cleaned.self_loops or graph.cleaned.duplicates:
        warnings.warn(
            f"{graph.name}: {graph.cleaned.self_loops:,} loops and {graph.cleaned.duplicates:,} "
            "repeated edges are left out; self_loops=True gives every node one loop",
            stacklevel=3,
        )
    return graph


def _turned(data: Any) -> Any:
    for name in ("x", "y", "edge_index"):
        value = data.get(name)
        if isinstance(value, Tensor) and value.device.type != "cpu":
            raise InputError(
                f"data.{name} is on {value.device}, but a loader gathers rows on the CPU; pass "
                f"data.cpu(), and device={str(value.device)!r} to have the minibatches there"
            )
    if data.get("edge_index") is None:
        return data  # refused by the conversion
    data = copy.copy(data)
    data.edge_index = data.edge_index.flip(0)
    return data


def make_matrix(graph: Graph, normalization: str, *, loops: bool) -> Adjacency:
    """M: `normalize` of the graph or, without normalisation, A itself; with `loops`, of A + I."""
    if normalization == "none":
        edges = GraphEdges(graph.csr)
        indptr, indices, values = edges.cut(np.arange(edges.n), loops=loops)
        return Adjacency(indptr, indices.astype(index_dtype(edges.n), copy=False), values)
    return normalize(graph, normalization, self_loops=loops)  # type: ignore[arg-type]


def check_normalization(normalization: str, self_loops: bool | None) -> bool:
    """Whether M has loops; by default those of `symmetric` and `row`."""
    known = (*NORMALIZATIONS, "none")
    if normalization not in known:
        raise InputError(
            f"normalization must be one of {', '.join(known)}, got {normalization!r}"
            + nearest(str(normalization), known)
        )
    if normalization == "neighbors" and self_loops:
        raise InputError(
            "normalization='neighbors' is the mean without the node itself; with loops it is "
            "normalization='row'"
        )
    return normalization in ("symmetric", "row") if self_loops is None else self_loops


@dataclass(frozen=True, slots=True)
class SampledMatrix:
    """A sampler, the matrix M that its blocks estimate, and what is known about M."""

    sampler: Sampler
    adjacency: Adjacency | None
    normalization: str | None
    loops: bool

    @property
    def exact(self) -> bool:
        return isinstance(self.sampler, FullSampler)


def make_sampler(
    graph: Graph,
    kind: str,
    samples: Sequence[int],
    normalization: str,
    *,
    loops: bool,
    own_rows: bool,
) -> SampledMatrix:
    """A sampler by its name, with as many layers as there are numbers in `samples`."""
    if kind not in KINDS:
        raise InputError(
            f"sampler must be one of {', '.join(KINDS)} or an object with sample(batch, rng), got "
            f"{kind!r}{nearest(str(kind), KINDS)}"
        )
    if kind == "neighbor" and normalization not in ("row", "neighbors"):
        raise InputError(
            "sampler='neighbor' takes means over neighbours; pass normalization='neighbors', or "
            "'row' for means that include the node"
        )
    adjacency = make_matrix(graph, normalization, loops=loops)
    if kind == "full":
        sampler: Sampler = FullSampler(adjacency, len(samples))
    elif kind == "neighbor":
        sampler = NeighborSampler(graph.csr, samples, include_self=normalization == "row")
    else:
        sampler = LayerSampler(
            adjacency,
            samples,
            distribution=kind,
            power=1.0 if kind in ("ladies", "flat") else None,
            draws="stratified",
            self_term="exact" if loops and own_rows else "sampled",
            own_rows=own_rows,
        )
    return SampledMatrix(sampler, adjacency, normalization, loops)


def use_sampler(
    graph: Graph, sampler: Any, normalization: str | None, loops: bool
) -> SampledMatrix:
    """A sampler that the user has made, and what its matrix is, as far as that can be known."""
    if not callable(getattr(sampler, "sample", None)):
        raise InputError(
            f"sampler must be one of {', '.join(KINDS)} or an object with sample(batch, rng), got "
            f"{type(sampler).__name__}"
        )
    adjacency = getattr(sampler, "adjacency", None)
    if isinstance(sampler, NeighborSampler):
        normalization = "row" if sampler.include_self else "neighbors"
        adjacency = normalize(graph, normalization)  # type: ignore[arg-type]
        return SampledMatrix(sampler, adjacency, normalization, sampler.include_self)
    if not isinstance(adjacency, Adjacency):
        if normalization is not None:
            adjacency = make_matrix(graph, normalization, loops=loops)
        return SampledMatrix(sampler, adjacency, normalization, loops)
    if adjacency.n != graph.n_nodes:
        raise InputError(
            f"the sampler's matrix has {adjacency.n:,} nodes and {graph.name} {graph.n_nodes:,}; "
            "make the sampler from fastgcn.normalize(graph) of this graph"
        )
    if normalization is not None:
        _check_matrix(graph, adjacency, normalization, loops)
    return SampledMatrix(sampler, adjacency, normalization, loops)


def _check_matrix(graph: Graph, adjacency: Adjacency, normalization: str, loops: bool) -> None:
    """Check some rows of the sampler's matrix against the normalisation that was named."""
    nodes = np.arange(min(_CHECKED_ROWS, graph.n_nodes))
    given = adjacency.rows(nodes)
    edges = GraphEdges(graph.csr)
    if normalization == "none":
        wanted = Rows(*edges.cut(nodes, loops=loops))
    else:
        wanted = NormalizedRows(edges, normalization, self_loops=loops).rows(nodes)
    same = np.array_equal(given.indptr, wanted.indptr) and np.array_equal(
        given.indices, wanted.indices
    )
    if not same or not np.allclose(given.values, wanted.values, rtol=1e-4):
        raise InputError(
            f"the sampler's matrix is not normalization={normalization!r} of {graph.name}; pass "
            "the one that the sampler was made with, and its self_loops"
        )


def choose_nodes(graph: Graph, nodes: Any) -> IntArray:
    """Distinct node numbers, int64: a part of the split, `all`, numbers, or a mask (n,)."""
    if isinstance(nodes, str):
        parts = dict(graph.split.items()) | {"all": np.arange(graph.n_nodes)}
        if nodes not in parts:
            raise InputError(
                f"nodes must be one of {', '.join(parts)}, an array of node numbers or a mask, got "
                f"{nodes!r}{nearest(nodes, parts)}"
            )
        if not len(parts[nodes]):
            raise InputError(
                f"the {nodes} part of {graph.name}'s split is empty; pass nodes=, an array of node "
                "numbers or a mask"
            )
        return np.array(parts[nodes], np.int64)  # a store's is read-only
    given = nodes.detach().cpu().numpy() if isinstance(nodes, Tensor) else np.asarray(nodes)
    if given.dtype == np.bool_:
        if given.shape != (graph.n_nodes,):
            raise InputError(
                f"a mask of nodes must have shape ({graph.n_nodes},), got {given.shape}"
            )
        given = np.flatnonzero(given)
    ids = checks.integers(given, "nodes").astype(np.int64)
    if not ids.size:
        raise InputError("nodes must name at least one node, got none")
    checks.in_range(ids, graph.n_nodes, "nodes")
    ordered = np.sort(ids)
    if (twice := ordered[1:][ordered[1:] == ordered[:-1]]).size:
        raise InputError(
            f"nodes must name each node once, got {checks.named(int(twice[0]), graph.node_ids)} "
            "twice; numpy.unique(nodes) leaves one of each"
        )
    return ids


def make_labels(graph: Graph, nodes: IntArray, wanted: bool) -> Tensor | None:
    """(n,) int64 classes, (n, C) float32 label sets or (n,) float32 numbers; None if not wanted."""
    if not wanted:
        return None
    if graph.labels is None:
        raise InputError(
            f"{graph.name} has no labels; set them (data.y in PyG), or pass labels=False"
        )
    known = has_label(graph.labels[nodes])
    if not known.all():
        first = int(nodes[np.argmin(known)])
        raise InputError(
            f"{checks.named(first, graph.node_ids)} has no label, as have "
            f"{np.count_nonzero(~known):,} of {len(nodes):,} nodes; leave them out of nodes=, or "
            "pass labels=False"
        )
    dtype = torch.int64 if graph.task == "classification" else torch.float32
    return torch.from_numpy(np.array(graph.labels)).to(dtype)


class RowsInMemory(DenseStore):
    """The rows of a dense matrix in memory, gathered without torch's threads.

    Each worker would start a team of them, and they would wait for each other.
    """

    __slots__ = ()

    def take(self, ids: IntArray) -> Tensor:
        return torch.from_numpy(self.array.take(ids, axis=0))


def make_features(graph: Graph, given: Any) -> FeatureStore:
    """The user's own rows, checked, or those of the graph."""
    if given is not None:
        if isinstance(given, Tensor | np.ndarray) and given.ndim == 2:
            given = RowsInMemory(checks.as_array(given, "features").astype(np.float32, copy=False))
        if not callable(getattr(given, "take", None)) or len(given) != graph.n_nodes:
            raise InputError(
                f"features must be an array of {graph.n_nodes:,} rows, one per node, or a store "
                f"of them with take(ids), got {_described(given)}"
            )
        return cast(FeatureStore, given)
    if graph.n_features == 0:
        raise InputError(
            f"{graph.name} has no features; fastgcn.structural_features(graph) makes some of its "
            "edges"
        )
    if isinstance(graph.features, csr_array):
        return SparseMatrix.of(graph.features)
    if isinstance(graph.features, np.memmap) and 2 * graph.features.nbytes > available_memory():
        return NodeFeatures(graph.features, keep_pages=False)
    # The pages of a small map stay in memory: mapping them again takes ten times as long.
    return RowsInMemory(np.asarray(graph.features))


def _described(given: Any) -> str:
    return f"{len(given):,} rows" if hasattr(given, "__len__") else type(given).__name__
