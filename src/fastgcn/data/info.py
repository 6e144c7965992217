"""The figures of a graph that `fastgcn info` prints, computed in chunks of rows."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import IntArray
from fastgcn.data.layout import arrays_of, fingerprint
from fastgcn.graph.csr import check_columns, check_rows
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import has_label
from fastgcn.memory import check_room
from fastgcn.progress import progress

_EDGES_AT_ONCE = 1 << 22

# Bytes of a class's name and count, as Python's objects.
_CLASS_BYTES = 256


def describe(graph: Graph) -> dict[str, Any]:
    """Counts, degrees, classes, split, homophily, memory and cleaning, as plain data."""
    check_rows(graph.indptr, graph.indices)
    degrees = np.diff(graph.indptr)
    return {
        "name": graph.name,
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "directed": bool(graph.directed),
        "weighted": graph.weights is not None,
        "features": graph.n_features,
        "features_kind": "sparse" if isinstance(graph.features, csr_array) else "dense",
        "degree": {
            "min": int(degrees.min()),
            "median": float(np.median(degrees)),
            "mean": float(degrees.mean()),
            "max": int(degrees.max()),
        },
        "degree_histogram": degree_histogram(degrees),
        "isolated_nodes": isolated_nodes(graph),
        "classes": graph.n_classes,
        "multilabel": graph.multilabel,
        "task": graph.task,
        "target": target(graph),
        "class_counts": class_counts(graph),
        "unlabelled_nodes": unlabelled_nodes(graph),
        "split": {name: len(part) for name, part in graph.split.items()},
        "homophily": homophily(graph),
        "memory_bytes": sum(array.nbytes for array in arrays_of(graph).values()),
        "cleaned": {f: getattr(graph.cleaned, f) for f in graph.cleaned.__dataclass_fields__},
        "fingerprint": fingerprint(graph),
    }


def degree_histogram(degrees: IntArray) -> list[dict[str, int]]:
    """Nodes by degree in the bins 0, 1, 2-3, 4-7, 8-15, ...: powers of two show a heavy tail."""
    top = int(degrees.max())
    edges = [0, 1]
    while edges[-1] <= top:
        edges.append(2 * edges[-1])
    counts = np.histogram(degrees, bins=edges)[0] if top else np.array([len(degrees)])
    return [
        {"from": low, "to": high - 1, "nodes": int(count)}
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]


def isolated_nodes(graph: Graph) -> int:
    """Nodes without an edge in either direction."""
    alone = np.diff(graph.indptr) == 0
    if graph.directed:
        for start in range(0, len(graph.indices), _EDGES_AT_ONCE):
            ends = graph.indices[start : start + _EDGES_AT_ONCE]
            check_columns(ends, graph.n_nodes, graph.indices)
            alone[ends] = False
    return int(alone.sum())


def class_counts(graph: Graph) -> dict[str, int]:
    """Nodes of each class, by its name (or number); a multi-label node counts in several."""
    if graph.labels is None or graph.regression:
        return {}
    check_room(_CLASS_BYTES * graph.n_classes, "the list of classes", "use fewer of them")
    names = graph.class_names or [str(c) for c in range(graph.n_classes)]
    if graph.labels.ndim == 2:
        counts = graph.labels.sum(axis=0)
    else:
        labelled = graph.labels[graph.labels >= 0]
        counts = np.bincount(labelled, minlength=graph.n_classes)
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def target(graph: Graph) -> dict[str, float] | None:
    """Smallest, mean and largest of the numbers to predict, and their standard deviation."""
    if graph.labels is None or not graph.regression:
        return None
    known = graph.labels[has_label(graph.labels)]
    if not len(known):
        return None
    names = {"min": known.min(), "mean": known.mean(), "max": known.max(), "deviation": known.std()}
    return {name: float(value) for name, value in names.items()}


def unlabelled_nodes(graph: Graph) -> int:
    """Nodes without a class or number; a multi-label graph has none."""
    if graph.labels is None:
        return graph.n_nodes
    return int(np.count_nonzero(~has_label(graph.labels)))


def homophily(graph: Graph) -> float | None:
    """Share of edges whose two labelled ends have a class in common; None without such edges.

    Of numbers, their assortativity: the correlation of the ends' numbers over the edges.
    """
    if graph.labels is None:
        return None
    labels: Any = graph.labels
    same = both = 0
    sums = np.zeros(5)
    centre = 0.0 if not graph.regression else (target(graph) or {"mean": 0.0})["mean"]
    with progress("Measuring homophily", len(graph.indices), "edges") as advance:
        for start in range(0, len(graph.indices), _EDGES_AT_ONCE):
            stop = min(start + _EDGES_AT_ONCE, len(graph.indices))
            # The row of an edge is the last one that starts at or before it.
            rows = np.searchsorted(graph.indptr, np.arange(start, stop), side="right") - 1
            ends = graph.indices[start:stop]
            check_columns(ends, graph.n_nodes, graph.indices)
            here, there = labels[rows], labels[ends]
            if graph.regression:
                known = has_label(here) & has_label(there)
                x, y = here[known] - centre, there[known] - centre
                sums += [x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()]
                both += len(x)
            elif labels.ndim == 2:
                same += int(np.count_nonzero((here & there).any(axis=1)))
                both += stop - start
            else:
                known = (here >= 0) & (there >= 0)
                same += int(np.count_nonzero((here == there) & known))
                both += int(np.count_nonzero(known))
            advance(stop - start)
    if graph.regression:
        return _correlation(both, *sums)
    return same / both if both else None


def _correlation(n: int, x: float, y: float, xx: float, yy: float, xy: float) -> float | None:
    """From the sums of n pairs, of their squares and of their products; None if not defined."""
    spread = (n * xx - x * x) * (n * yy - y * y)
    return float((n * xy - x * y) / np.sqrt(spread)) if spread > 0 else None
