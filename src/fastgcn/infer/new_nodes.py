"""Outputs for nodes that did not exist at training time, from their features and edges.

The graph is not copied and not normalised again. Rows of the enlarged Â are made only for the new
nodes' neighbourhood, with the degrees that old nodes have once the new edges are added.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.exact import check_width, feature_rows, full_forward
from fastgcn.errors import InputError
from fastgcn.features.store import Stacked
from fastgcn.graph import checks
from fastgcn.graph.adjacency import NormalizedRows
from fastgcn.graph.csr import csr_from_edges
from fastgcn.graph.edges import EnlargedEdges, NewNodes
from fastgcn.graph.graph import Graph, old_positions
from fastgcn.graph.ids import maybe_known, written_otherwise
from fastgcn.infer.finite import Described, check_rows, check_weights
from fastgcn.infer.predict import check_features, layers_of, model_of
from fastgcn.infer.tables import data_frame, prediction_columns
from fastgcn.network import Network
from fastgcn.progress import note

if TYPE_CHECKING:
    from fastgcn.train.run import Run


def predict_new(
    run_or_model: "Run | Network",
    graph: Graph,
    *,
    features: Any = None,
    source: Any = None,
    target: Any = None,
    weights: Any = None,
    node_ids: Sequence[Any] | None = None,
    nodes: Any = None,
    edges: Any = None,
    default_weight: float | None = None,
    as_frame: bool = False,
) -> Any:
    """(k, C) float32: class probabilities of k new nodes, by the full network; for a regression,
    (k,) float64: their numbers.

    `nodes` and `edges` are tables of the new nodes and their edges, files or data frames with the
    columns that the graph was imported from; their columns are encoded as the graph's were.

    Or else, `features` (k, F) describes the new nodes; `source` and `target` are the ends of their
    edges, of which at least one is a new node. With `node_ids` (k own ids), ends are own ids of
    new or old nodes; without, old nodes are 0..n-1 and new ones n..n+k-1.

    On a graph with weights, new edges must have weights too; `default_weight` is the weight of
    those that have none.

    With `as_frame`, the result is a data frame of pandas, as that of `fastgcn.predict`.

    The result equals, up to rounding, a prediction on the whole enlarged graph.
    """
    if as_frame and isinstance(run_or_model, Network):
        raise InputError("as_frame=True needs a run, which knows the names of the classes")
    model = model_of(run_or_model)
    given = _Given(features, source, target, weights, node_ids, nodes, edges)
    if as_frame:
        given = _Given(**given.arrays(run_or_model, graph), nodes=None, edges=None)
    depth = model.depth
    found = _rows(run_or_model, graph, given, default_weight, depth, model.predictions)
    if not as_frame or isinstance(run_or_model, Network):
        return found[:, 0] if model.target is not None else found
    numbers = range(graph.n_nodes, graph.n_nodes + len(found))
    ids = numbers if given.node_ids is None else given.node_ids
    return data_frame(prediction_columns(ids, found, run_or_model))


def embed_new(
    run_or_model: "Run | Network",
    graph: Graph,
    *,
    layer: int = -1,
    features: Any = None,
    source: Any = None,
    target: Any = None,
    weights: Any = None,
    node_ids: Sequence[Any] | None = None,
    nodes: Any = None,
    edges: Any = None,
    default_weight: float | None = None,
) -> FloatArray:
    """(k, d) float32: the rows H^(layer) of k new nodes; `layer` as in `embed`, the rest as in
    `predict_new`."""
    given = _Given(features, source, target, weights, node_ids, nodes, edges)
    depth = layers_of(model_of(run_or_model), layer)
    return _rows(run_or_model, graph, given, default_weight, depth, lambda rows: rows)


class _Given(NamedTuple):
    """New nodes and their edges as the user gives them: arrays, or two tables."""

    features: Any
    source: Any
    target: Any
    weights: Any
    node_ids: Sequence[Any] | None
    nodes: Any
    edges: Any

    def arrays(self, run_or_model: "Run | Network", graph: Graph) -> dict[str, Any]:
        """features, source, target, weights and node_ids."""
        found = {name: getattr(self, name) for name in self._fields[:5]}
        if (self.nodes is None) != (self.edges is None):
            raise InputError(
                "nodes and edges, the tables of new nodes and their edges, go together"
            )
        if self.nodes is not None:
            if any(each is not None for each in found.values()):
                raise InputError("give new nodes either as tables (nodes, edges) or as arrays")
            read: dict[str, Any] = read_new_nodes(run_or_model, graph, self.nodes, self.edges)
            return found | read
        if self.features is None or self.source is None or self.target is None:
            raise InputError("new nodes need features, source and target, or tables (nodes, edges)")
        return found


def _rows(
    run_or_model: "Run | Network",
    graph: Graph,
    given: _Given,
    default_weight: float | None,
    layers: int,
    finish: Callable[[Tensor], Tensor],
) -> FloatArray:
    """The finished rows H^(layers) of new nodes."""
    new = given.arrays(run_or_model, graph)
    source, target = new["source"], new["target"]
    weights = with_default(graph, new["weights"], default_weight, source, target)
    model = model_of(run_or_model)
    k = checks.row_count(new["features"])
    rows = checks.features(new["features"], k)
    check_width(model, int(rows.shape[1]), "the new nodes have")
    check_features(run_or_model, graph)
    check_weights(model)
    ids = None if new["node_ids"] is None else checks.node_ids(list(new["node_ids"]), k)
    if ids is not None:
        _check_new(graph, ids)
        source, target = (_positions(graph, ids, ends) for ends in (source, target))
    joined = join(graph, k, source, target, weights)
    found = full_forward(
        model,
        NormalizedRows(EnlargedEdges(graph.csr, joined), model.normalization),
        Stacked(feature_rows(model, graph.features), feature_rows(model, rows)),
        np.arange(graph.n_nodes, graph.n_nodes + k),
        layers=layers,
    )
    return check_rows(
        finish(found).cpu().numpy(),
        np.arange(k),
        Described(rows, ids, first=graph.n_nodes),
        Described(graph.features, graph.node_ids),
        graph.feature_names,
    )


def read_new_nodes(run_or_model: "Run | Network", graph: Graph, nodes: Any, edges: Any) -> Any:
    """The arguments of `predict_new` from tables, encoded as the run's training nodes were."""
    from fastgcn.data.tables.new_rows import read_new_nodes as read  # loads Arrow

    check_features(run_or_model, graph)
    imported = None if isinstance(run_or_model, Network) else run_or_model.imported
    return read(nodes, edges, graph, imported)


def with_default(
    graph: Graph, weights: Any, default: float | None, source: Any, target: Any
) -> Any:
    """The weights of new edges, with the default where there are none."""
    checks.check_default_weight(default)
    if graph.weights is None or (weights is None and not np.size(source)):
        return weights
    if weights is None and default is None:
        raise InputError(
            f"the edges of {graph.name} have weights, but the new edges have none; give them "
            "weights, or all the same (--default-weight 1, or default_weight=1 in Python)"
        )
    if weights is None:
        return np.full(np.size(source), default, np.float32)
    values = np.asarray(weights)
    gaps = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)
    if default is None and gaps.any() and len(gaps) == np.size(source) == np.size(target):
        at = int(np.argmax(gaps))
        raise InputError(
            f"the new edge {source[at]!r} → {target[at]!r} has no weight, as "
            f"{np.count_nonzero(gaps):,} of {len(gaps):,} new edges; --default-weight 1 fills them "
            "in (default_weight=1 in Python)"
        )
    return weights if default is None else np.where(gaps, np.float32(default), weights)


def join(graph: Graph, k: int, source: Any, target: Any, weights: Any = None) -> NewNodes:
    """k new nodes n..n+k-1 with their edges, which are cleaned as any edge list is."""
    n = graph.n_nodes
    source, target, values = checks.edge_arrays(source, target, weights, n + k)
    if values is not None and graph.weights is None:
        raise InputError(f"new edges have weights but {graph.name} has none; leave them out")
    old = (source < n) & (target < n)
    if old.any():
        at = int(np.argmax(old))
        raise InputError(
            f"an edge joins {checks.named(int(source[at]), graph.node_ids)} and "
            f"{checks.named(int(target[at]), graph.node_ids)}, which are both old "
            f"({np.count_nonzero(old):,} such edges); every new edge must have a new end"
        )
    touched, places = np.unique(np.concatenate([source, target]), return_inverse=True)
    if values is None and graph.weights is not None:
        values = np.ones(len(source), np.float32)
    ends = places[: len(source)], places[len(source) :]
    gained, _ = csr_from_edges(*ends, values, max(len(touched), 1), directed=bool(graph.directed))
    if not len(touched):
        touched = np.array([n], dtype=np.int64)  # a new node without edges still has its row
    columns = touched[gained.indices]
    csr = type(gained)(gained.indptr, columns, gained.weights)
    return NewNodes(k, touched.astype(np.int64), csr)


def _check_new(graph: Graph, ids: Sequence[Any]) -> None:
    known = old_positions(graph, ids)
    if known:
        raise InputError(
            f"node_ids has {next(iter(known))!r}, which is a node of {graph.name} already "
            f"({len(known):,} such ids); give only nodes that are new"
        )
    if alike := maybe_known(graph.node_ids, graph.n_nodes, ids):
        note(f"Note: {alike}.")


def _positions(graph: Graph, new_ids: Sequence[Any], ends: Any) -> IntArray:
    """Node numbers of edge ends that are given by own id, compared as text."""
    written = dict.fromkeys(str(end) for end in ends)
    places = old_positions(graph, written)
    places |= {str(own): graph.n_nodes + i for i, own in enumerate(new_ids)}
    unknown = [end for end in written if end not in places]
    if unknown:
        raise InputError(
            f"the new edges name {unknown[0]!r}, which is neither a new node nor a node of "
            f"{graph.name} ({len(unknown):,} such ids)"
            f"{written_otherwise(graph.node_ids, graph.n_nodes, unknown[0])}"
        )
    return np.array([places[str(end)] for end in ends], dtype=np.int64)
