"""What one rank has of a graph: the rows of a range of its nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn.checks import plain
from fastgcn.csr import CSR
from fastgcn.data.parts import Part
from fastgcn.data.shard import cut
from fastgcn.distributed.world import World
from fastgcn.errors import InputError
from fastgcn.graph import Graph, Split
from fastgcn.node_sets import own_ids, parse_nodes
from fastgcn.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Share:
    """The nodes bounds[rank]..bounds[rank+1]-1 of a graph; below, they are numbered from 0.

    Attributes:
        world: the ranks that have the graph between them.
        graph: the whole; where parts were read, an outline of it, which has no content.
        bounds: (K+1,) where the ranges of the ranks begin and end.
        csr: own rows, their columns being nodes of the whole graph.
        features, labels: own rows.
        split: own nodes of each part, ascending.
        node_ids: what the user calls own nodes, where `graph` does not know; None: their number.
        outlined: whether `graph` is only an outline.
    """

    world: World
    graph: Graph
    bounds: IntArray
    csr: CSR
    features: FloatArray | csr_array
    labels: IntArray | BoolArray
    split: Split
    node_ids: Sequence[Any] | None = None
    outlined: bool = False

    @classmethod
    def of_graph(cls, graph: Graph, world: World) -> "Share":
        """This rank's range of a graph that all ranks can open; only its own rows are read."""
        if graph.labels is None:
            raise InputError(f"{graph.name} has no labels, and training needs them")
        bounds = cut(graph, world.size, "train")
        first, stop = (int(bound) for bound in bounds[world.rank : world.rank + 2])
        begin, end = graph.indptr[first], graph.indptr[stop]
        return cls(
            world,
            graph,
            bounds,
            CSR(
                graph.indptr[first : stop + 1] - begin,
                graph.indices[begin:end],
                None if graph.weights is None else graph.weights[begin:end],
            ),
            graph.features[first:stop],
            graph.labels[first:stop],
            Split(*(_within(part, first, stop) for _, part in graph.split.items())),
        )

    @classmethod
    def of_part(cls, part: Part, world: World) -> "Share":
        """What was read of a sharded store."""
        first, stop = (int(bound) for bound in part.bounds[world.rank : world.rank + 2])
        split = Split(*(_within(nodes, first, stop) for _, nodes in part.split.items()))
        return cls(
            world,
            part.outline,
            part.bounds,
            part.csr,
            part.features,
            part.labels,
            split,
            part.node_ids,
            True,
        )

    def nodes(self, text: str | None) -> IntArray:
        """Own nodes, ascending, of those that a command was asked for: all, a part of the split
        or, where the whole graph can be opened, ids."""
        if text in (None, "all"):
            return np.arange(len(self))
        if text in ("train", "val", "test"):
            found: IntArray = getattr(self.split, text)
            return found
        if self.outlined:
            raise InputError(
                f"of shards, --nodes must be all, train, val or test, got {text!r}; ids are looked "
                "up in the store itself"
            )
        first, stop = self.bounds[self.world.rank : self.world.rank + 2]
        return np.unique(_within(parse_nodes(self.graph, text), first, stop))

    def own_ids(self, nodes: IntArray) -> list[Any]:
        """What the user calls some of own nodes."""
        if self.node_ids is None:
            return own_ids(self.graph, nodes + self.first)
        return [plain(self.node_ids[int(node)]) for node in nodes]

    @property
    def first(self) -> int:
        """The number of the first own node in the whole graph."""
        return int(self.bounds[self.world.rank])

    def __len__(self) -> int:
        return len(self.csr.indptr) - 1


def _within(nodes: IntArray, first: int, stop: int) -> IntArray:
    """Those of some nodes that lie in a range, numbered from its first, ascending."""
    some = np.asarray(nodes)
    return np.sort(some[(some >= first) & (some < stop)] - first)
