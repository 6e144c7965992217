"""`as_graph`: graphs of other libraries as a `Graph`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastgcn.data.readers.parts import identity
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.progress import note


def as_graph(thing: Any, **options: Any) -> Graph:
    """A `Graph`, a `Data` of PyG, a networkx graph, or (graph, labels) of OGB, as a `Graph`.

    `options` are those of `Graph.from_pyg` or `Graph.from_networkx`.

    >>> import networkx
    >>> as_graph(networkx.path_graph(3), features=None)
    Graph(graph: 3 nodes, 2 undirected edges, 0 features, 0 classes)
    """
    if isinstance(thing, Graph):
        if options:
            raise InputError(f"a Graph has no option {next(iter(options))!r}")
        return thing
    module = type(thing).__module__
    try:
        if module.startswith("torch_geometric."):
            return Graph.from_pyg(thing, **options)
        if module.startswith("networkx."):
            return Graph.from_networkx(thing, **options)
        if _is_ogb(thing):
            return _from_ogb(*thing, **options)
    except TypeError as error:  # an option that the conversion does not have
        raise InputError(f"{type(thing).__name__}: {error}") from None
    raise InputError(_refusal(thing, module))


def _is_ogb(thing: Any) -> bool:
    return (
        isinstance(thing, tuple)
        and len(thing) == 2
        and isinstance(thing[0], Mapping)
        and "edge_index" in thing[0]
    )


def _from_ogb(graph: Mapping[str, Any], labels: Any, **fields: Any) -> Graph:
    """What `NodePropPredDataset(name)[0]` gives: arrays by name, and labels (n, 1) or (n, C)."""
    ends, labels = np.asarray(graph["edge_index"]), np.asarray(labels)
    n = int(graph.get("num_nodes") or len(labels))
    if ends.ndim != 2 or len(ends) != 2:
        raise InputError(f"edge_index of an OGB graph must have shape (2, edges), got {ends.shape}")
    features = graph.get("node_feat")
    if graph.get("edge_feat") is not None:
        note(
            "the graph's edge_feat is not used: edges have no features here; weights=..., a number "
            "for each edge, makes weights of them"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    return Graph.from_edges(
        ends[0],
        ends[1],
        features=identity(n) if features is None else features,
        labels=labels,
        **{"name": "ogb", **fields},
    )


def _refusal(thing: Any, module: str) -> str:
    kind = type(thing).__name__
    ways = {
        "pandas": "Graph.from_pandas(nodes, edges) takes two data frames",
        "polars": "Graph.from_polars(nodes, edges) takes two data frames",
        "pyarrow": "Graph.from_tables(nodes, edges) takes two tables",
        "duckdb": "Graph.from_tables(nodes, edges) takes two tables",
        "_duckdb": "Graph.from_tables(nodes, edges) takes two tables",
        "scipy": "Graph.from_scipy(adjacency, features=...) takes a sparse matrix",
        "numpy": "Graph.from_edges(source, target, features=...) takes arrays",
        "torch": "Graph.from_edges(source, target, features=...) takes arrays",
        "dgl": "Graph.from_scipy(graph.adj_external(scipy_fmt='csr'), features=...) takes it",
    }
    way = ways.get(module.partition(".")[0])
    return (
        f"a graph is needed (a Graph, a path or a name, a Data of PyG, a networkx graph, or "
        f"(graph, labels) of OGB), got {kind}" + ("" if way is None else f"; {way}")
    )
