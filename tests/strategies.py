"""Hypothesis strategies for graphs small enough to be checked densely."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fastgcn import Graph, Split


def split_of(train: Sequence[int] = (), val: Sequence[int] = (), test: Sequence[int] = ()) -> Split:
    """A split from plain lists."""
    return Split(*(np.array(part, dtype=np.int64) for part in (train, val, test)))


@st.composite
def edge_lists(
    draw: st.DrawFn,
) -> tuple[int, list[tuple[int, int]], list[float] | None, bool]:
    """(n, edges, weights or None, directed), with self loops, repeats and isolated nodes."""
    n = draw(st.integers(1, 7))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=20))
    # Quarters add up exactly in float32, so sums do not depend on their order.
    quarters = st.integers(0, 20).map(lambda k: k / 4)
    weights = draw(st.none() | st.lists(quarters, min_size=len(pairs), max_size=len(pairs)))
    return n, pairs, weights, draw(st.booleans())


@st.composite
def graphs(draw: st.DrawFn, /, **fields: Any) -> Graph:
    """A graph with 3 features; directed or not, weighted or not."""
    n, pairs, weights, directed = draw(edge_lists())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Graph.from_edges(
        [a for a, _ in pairs],
        [b for _, b in pairs],
        weights=weights,
        directed=directed,
        features=rng.normal(size=(n, 3)),
        **fields,
    )


def dense_adjacency(graph: Graph) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A, entry by entry from the CSR rows."""
    a = np.zeros((graph.n_nodes, graph.n_nodes))
    for v, (start, stop) in enumerate(pairwise(graph.indptr)):
        for e in range(start, stop):
            a[v, graph.indices[e]] = 1 if graph.weights is None else graph.weights[e]
    return a
