"""`what_if`: the prediction for a node if its features or its edges were others."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.exact import check_width, feature_rows, full_forward
from fastgcn.data.structure import log_degrees
from fastgcn.errors import InputError, nearest
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.adjacency import NormalizedRows
from fastgcn.graph.edges import ChangedEdges
from fastgcn.graph.graph import Graph, own_ids, positions
from fastgcn.infer.explain import Columns
from fastgcn.infer.finite import Described, check_rows, check_weights
from fastgcn.infer.predict import check_features
from fastgcn.progress import note

if TYPE_CHECKING:
    from fastgcn.train.run import Run


def what_if(
    run: "Run",
    graph: Graph,
    node: Any,
    *,
    features: Mapping[str, Any] | None = None,
    add: Sequence[Any] = (),
    remove: Sequence[Any] = (),
    weight: float = 1.0,
) -> FloatArray:
    """(1, C) float32: the probabilities of a node after changes; (1, 1) the number.

    `node` is your own id of it. `features` maps columns of your table to new values; without
    tables, the names or numbers of features. `add` and `remove` are own ids of neighbours; new
    edges have the `weight`, if the graph has weights. Of a directed graph, the edges from the node
    change. The graph itself stays as it is, and only the node's neighbourhood is read.
    """
    model = run.model
    check_weights(model)
    check_width(model, graph.n_features, f"{graph.name} has")
    check_features(run, graph)
    (number,) = positions(graph, [str(node)]).tolist()
    rows = changed_edges(graph, number, add, remove, weight)
    changed = np.array([number, *(each for each in rows if each != number)])
    values = changed_features(graph, changed, features or {}, rows)
    found = full_forward(
        model,
        NormalizedRows(ChangedEdges(graph.csr, rows), model.normalization),
        _WithRows(feature_rows(model, graph.features), changed, feature_rows(model, values)),
        changed[:1],
    )
    described = Described(values, own_ids(graph, changed))
    return check_rows(model.predictions(found).numpy(), np.array([0]), described)


def changed_features(
    graph: Graph,
    nodes: IntArray,
    changes: Mapping[str, Any],
    rows: Mapping[int, tuple[IntArray, FloatArray]],
) -> FloatArray:
    """(k, F) float32: the features of nodes whose edges have changed to `rows`; of the first,
    some columns are set to other values as well."""
    stored = graph.features[nodes]
    found: FloatArray = np.array(stored.toarray() if hasattr(stored, "toarray") else stored)
    structure = (graph.imported or {}).get("structure")
    if structure is not None:
        for place, node in enumerate(nodes.tolist()):
            if node in rows:
                degree = np.array([len(rows[node][0])])
                found[place, -1 - structure] = log_degrees(degree)[0]
        if structure and rows:
            note("Note: the features that describe who is near in the graph stay as they were.")
    columns = Columns.of(graph)
    for name, value in changes.items():
        place = _place(columns, name)
        start = int(columns.starts[place])
        if place < len(columns.encoders):
            encoded = _encoded(columns.encoders[place], value)
            found[0, start : start + len(encoded)] = encoded
        else:
            found[0, start] = _number(name, value)
    return found


def _place(columns: Columns, name: str) -> int:
    if name in columns.names:
        return columns.names.index(name)
    if not columns.encoders and name.isdecimal() and int(name) < len(columns.names):
        return int(name)
    raise InputError(f"the graph has no column {name!r}{nearest(name, columns.names)}")


def _number(name: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name!r} must be a number, got {str(value)[:60]!r}") from None
    if not abs(found) <= float(np.finfo(np.float32).max):
        raise InputError(f"{name!r} must be a finite number, got {found}")
    return found


def _encoded(spec: Mapping[str, Any], value: Any) -> FloatArray:
    """(w,): the features that a value of a column becomes."""
    import pyarrow

    from fastgcn.data.tables.encoders import Encoders  # loads Arrow
    from fastgcn.data.tables.features import check_kind

    name = spec["column"]
    if spec["kind"] == "number" and value is not None:
        value = _number(name, value)
    elif spec["kind"] in ("category", "hashed", "vocabulary", "text") and value is not None:
        value = str(value)
    try:
        column = pyarrow.array([value])
        check_kind(name, column.type, spec["kind"], "the change")
        encoders = Encoders([spec])
        found: FloatArray = encoders.encode({name: column}, 1)[0]
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{name!r} cannot be {str(value)[:60]!r}: it is a {spec['kind']}"
        ) from None
    if encoders.seen.unseen[name]:
        note(f"Note: no training node has this value of {name!r}; it counts as unknown.")
    return found


def changed_edges(
    graph: Graph, node: int, add: Sequence[Any], remove: Sequence[Any], weight: float
) -> dict[int, tuple[IntArray, FloatArray]]:
    """The rows of A that differ once the edges of a node are added and removed."""
    rows: dict[int, tuple[IntArray, FloatArray]] = {}
    if not np.isfinite(weight) or weight <= 0:
        raise InputError(f"weight must be a positive number, got {weight}")

    def edit(row: int, other: int, *, there: bool) -> None:
        columns, values = rows[row] if row in rows else _row(graph, row)
        place = int(np.searchsorted(columns, other))
        known = place < len(columns) and int(columns[place]) == other
        if known == there:
            ids = own_ids(graph, np.array([row, other]))
            state = "are neighbours already" if there else "are no neighbours"
            raise InputError(f"{ids[0]!r} and {ids[1]!r} {state}")
        if there:
            size = np.float32(1.0 if graph.weights is None else weight)
            rows[row] = np.insert(columns, place, other), np.insert(values, place, size)
        else:
            rows[row] = np.delete(columns, place), np.delete(values, place)

    for ids, there in ((remove, False), (add, True)):
        others = positions(graph, [str(each) for each in ids]).tolist() if ids else []
        for other in others:
            if other == node:
                raise InputError("a node cannot be its own neighbour")
            edit(node, other, there=there)
            if not graph.directed:
                edit(other, node, there=there)
    return rows


def _row(graph: Graph, node: int) -> tuple[IntArray, FloatArray]:
    start, stop = int(graph.indptr[node]), int(graph.indptr[node + 1])
    columns = np.array(graph.indices[start:stop])
    if graph.weights is None:
        return columns, np.ones(len(columns), np.float32)
    return columns, np.array(graph.weights[start:stop])


class _WithRows:
    """The rows of a store, of which those of `nodes` (k,) are others."""

    def __init__(self, rows: NodeFeatures, nodes: IntArray, others: NodeFeatures) -> None:
        self.rows, self.nodes, self.others = rows, nodes, others

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return self.rows.width

    @property
    def on_disk(self) -> bool:
        return self.rows.on_disk

    def take(self, ids: IntArray) -> Tensor:
        found = self.rows.take(ids)
        for place, node in enumerate(self.nodes.tolist()):
            there = np.flatnonzero(ids == node)
            if len(there):
                found[torch.from_numpy(there)] = self.others.take(np.array([place]))
        return found

    def between(self, start: int, stop: int) -> Tensor:
        return self.take(np.arange(start, stop))
