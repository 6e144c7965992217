"""Graphs from and to networkx."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse, vstack

from fastgcn.arrays import AnyArray, FloatArray
from fastgcn.errors import InputError, library
from fastgcn.graph import checks
from fastgcn.graph.checks import Split
from fastgcn.graph.labels import TASKS, Task
from fastgcn.progress import note, progress

if TYPE_CHECKING:
    import networkx

    from fastgcn.graph.graph import Graph

_SHOWN = 8  # attributes that a note names

_PARTS = ("train", "val", "test")


def from_networkx(
    cls: "type[Graph]",
    graph: "networkx.Graph",
    *,
    features: Any = "x",
    label: str | None = "y",
    split: str | None = "split",
    weight: str | None = "weight",
    class_names: Sequence[str] | None = None,
    name: str | None = None,
    task: Task | None = None,
) -> "Graph":
    """A graph from any of networkx' four kinds; its node keys become `node_ids`.

    >>> import networkx
    >>> friends = networkx.Graph([("Ada", "Bob"), ("Bob", "Cy")], name="friends")
    >>> networkx.set_node_attributes(friends, {"Ada": 36, "Bob": 21, "Cy": 54}, "age")
    >>> from fastgcn import Graph
    >>> Graph.from_networkx(friends, features=["age"])
    Graph(friends: 3 nodes, 2 undirected edges, 1 features, 0 classes)

    Args:
        graph: parallel edges become one edge, whose weight is their sum.
        features: a node attribute (a number, a sequence or a (1, F) sparse row), a list of
            attributes (a number each), or an (n, F) array in the order of the nodes; None
            makes a graph without features, F = 0.
        label: a node attribute: a class id, a class name, a 0/1 sequence (multi-label), or a
            number to predict. Nodes without it, or with NaN, or with -1 for a class id, are
            unlabelled.
        split: a node attribute: "train", "val", "test", or missing.
        weight: an edge attribute; 1 for an edge without it; no weights if no edge has it.
        class_names: in the order of the class ids; else `graph.graph["class_names"]`; else,
            if labels are names, these in alphabetical order.
        name: else `graph.name`.
        task: else `graph.graph["task"]`; else what the labels say, as in `Graph`.
    """
    networkx = library("networkx", extra="networkx")
    if not isinstance(graph, networkx.Graph):
        raise InputError(f"graph must be a networkx graph, got {type(graph).__name__}")
    keys = list(graph.nodes)
    position = {key: i for i, key in enumerate(keys)}
    edges = list(graph.edges(data=weight) if weight else graph.edges)
    lacking = sum(edge[2] is None for edge in edges) if weight is not None else 0
    weighted = weight is not None and lacking < len(edges)
    if weighted and lacking:
        note(
            f"{lacking:,} of {len(edges):,} edges have no {weight!r} and count as 1, as in networkx"
        )
    _say_unused(graph, weight)
    labels, class_names = _labels(graph, label, class_names or graph.graph.get("class_names"))
    return cls.from_edges(
        [position[edge[0]] for edge in edges],
        [position[edge[1]] for edge in edges],
        weights=[1 if edge[2] is None else edge[2] for edge in edges] if weighted else None,
        features=checks.features(_features(graph, features), len(keys)),
        labels=labels,
        split=_split(graph, split),
        node_ids=None if keys == list(range(len(keys))) else keys,
        class_names=class_names,
        directed=graph.is_directed(),
        name=name or graph.name or "graph",
        task=task or (graph.graph.get("task") if graph.graph.get("task") in TASKS else None),
    )


def _say_unused(graph: "networkx.Graph", weight: str | None) -> None:
    """Say which attributes of edges are not used."""
    names: dict[str, None] = {}
    for _, _, attributes in graph.edges(data=True):
        names |= dict.fromkeys(str(name) for name in attributes if name != weight)
    if names:
        shown = ", ".join(map(repr, islice(names, _SHOWN))) + (
            ", ..." if len(names) > _SHOWN else ""
        )
        note(f"of the edges' attributes, {shown} are not used; weight=... names the weights")


def _features(graph: "networkx.Graph", features: Any) -> Any:
    """(n, F) features from the argument of `from_networkx`."""
    if features is None:
        return np.empty((len(graph), 0), np.float32)
    if isinstance(features, str):
        values = _attributes(graph, features)
        if values and all(issparse(value) for value in values):
            return vstack(values, format="csr")
        return _rows(graph, features, values)
    if isinstance(features, list | tuple) and all(isinstance(f, str) for f in features):
        return np.hstack([_rows(graph, f, _attributes(graph, f)) for f in features])
    return features


def _attributes(graph: "networkx.Graph", attribute: str) -> list[Any]:
    """The attribute of every node; a node without it is an error."""
    values = [value for _, value in graph.nodes(data=attribute)]
    for key, value in zip(graph.nodes, values, strict=True):
        if value is None:
            raise InputError(
                f"every node needs the attribute {attribute!r} for its features, but node "
                f"{key!r} lacks it; name another with features=..., or pass features=None; "
                "fastgcn.structural_features makes some of the edges"
            )
    return values


def _rows(graph: "networkx.Graph", attribute: str, values: list[Any]) -> AnyArray:
    """(n, width): the nodes' numbers, or sequences, which must be equally long."""
    rows: list[AnyArray] = []
    for key, value in zip(graph.nodes, values, strict=True):
        row = _numbers(value)
        if row is None:
            raise InputError(
                f"attribute {attribute!r} must be a number or a sequence of numbers, "
                f"but is {value!r} at node {key!r}"
            )
        if rows and len(row) != len(rows[0]):
            raise InputError(
                f"attribute {attribute!r} must be equally long at every node, but has length "
                f"{len(rows[0])} at node {next(iter(graph))!r} and {len(row)} at node {key!r}"
            )
        rows.append(row)
    return np.stack(rows) if rows else np.empty((0, 0))


def _numbers(value: Any) -> AnyArray | None:
    """`value` as a 1-D array; None unless it is a number or a sequence of numbers."""
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged sequence
        return None
    if array.ndim > 1 or (array.size and array.dtype.kind not in "fiub"):
        return None
    return array.reshape(-1)


def _labels(
    graph: "networkx.Graph", attribute: str | None, class_names: Sequence[str] | None
) -> tuple[AnyArray | None, Sequence[str] | None]:
    """Labels and class names from the arguments of `from_networkx`."""
    values = [] if attribute is None else [value for _, value in graph.nodes(data=attribute)]
    known = [value for value in values if not _missing(value)]
    if attribute is None or not known:
        return None, class_names
    if any(np.ndim(value) for value in known):
        if len(known) < len(values):
            raise InputError(
                f"attribute {attribute!r} holds several labels per node, so every node needs it, "
                f"but {len(values) - len(known):,} lack it; write zeros there"
            )
        return _rows(graph, attribute, values), class_names
    if any(isinstance(value, str) for value in known):
        class_names = class_names or sorted({str(value) for value in known})
        ids = {name: i for i, name in enumerate(class_names)}
        return _class_ids(graph, attribute, lambda value: ids[str(value)]), class_names
    return _class_ids(graph, attribute, float), class_names


def _class_ids(
    graph: "networkx.Graph", attribute: str, class_id: Callable[[Any], float]
) -> FloatArray:
    """(n,) numbers, NaN for a node without a label."""
    ids = np.full(len(graph), np.nan)
    for i, (key, value) in enumerate(graph.nodes(data=attribute)):
        if _missing(value):
            continue
        try:
            ids[i] = class_id(value)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InputError(
                f"attribute {attribute!r} must be a class id or one of the class names, "
                f"but is {value!r} at node {key!r}"
            ) from None
    return ids


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _split(graph: "networkx.Graph", attribute: str | None) -> Split:
    parts: dict[str, list[int]] = {part: [] for part in _PARTS}
    for i, (key, value) in enumerate(graph.nodes(data=attribute) if attribute else ()):
        if _missing(value):
            continue
        if value not in _PARTS:
            raise InputError(
                f"attribute {attribute!r} must be 'train', 'val' or 'test', or missing, "
                f"but is {value!r} at node {key!r}"
            )
        parts[value].append(i)
    return Split(*(np.array(parts[part], np.int64) for part in _PARTS))


def to_networkx(graph: "Graph") -> "networkx.Graph":
    """A networkx `DiGraph`, or `Graph` if undirected, that `from_networkx` reads back.

    Node keys are the user's own ids. Attributes: `x`, a float32 row, (F,) or sparse (1, F);
    `y`, a class id or a list of 0/1; `split`; `weight` of edges; `class_names` of the graph.
    """
    networkx = library("networkx", extra="networkx")
    result = (networkx.DiGraph if graph.directed else networkx.Graph)(name=graph.name)
    if graph.class_names is not None:
        result.graph["class_names"] = list(graph.class_names)
    keys = checks.plain_ids(graph.node_ids, graph.n_nodes)
    features = graph.features.copy()  # the caller may change the rows
    with progress("Adding nodes to networkx", len(keys), "nodes") as advance:
        for i, key in enumerate(keys):
            result.add_node(key, x=features[i : i + 1] if issparse(features) else features[i])
            advance(1)
    if graph.labels is not None:
        labels = graph.labels if graph.regression else graph.labels.astype(np.int64)
        networkx.set_node_attributes(result, dict(zip(keys, labels.tolist(), strict=True)), "y")
    if graph.regression:
        result.graph["task"] = graph.task
    for part, nodes in graph.split.items():
        networkx.set_node_attributes(result, {keys[i]: part for i in nodes}, "split")
    entries = graph.to_scipy().tocoo()
    once = slice(None) if graph.directed else entries.row < entries.col
    source = [keys[i] for i in entries.row[once]]
    target = [keys[i] for i in entries.col[once]]
    if graph.weights is None:
        result.add_edges_from(zip(source, target, strict=True))
    else:
        weights = entries.data[once].tolist()
        result.add_weighted_edges_from(zip(source, target, weights, strict=True))
    return result
