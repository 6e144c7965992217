"""What one rank has of a graph: the rows of a range of its nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.backends.ranks.channel import Channel
from fastgcn.backends.ranks.world import World
from fastgcn.data.shards import Part, cut
from fastgcn.errors import InputError
from fastgcn.graph.adjacency import Rows, row_chunks, scaling_factors
from fastgcn.graph.checks import plain
from fastgcn.graph.csr import CSR, check_columns, check_rows, index_dtype
from fastgcn.graph.graph import Graph, Split
from fastgcn.graph.nodes import own_ids, parse_nodes
from fastgcn.scratch import forget


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


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Own rows of an (n, n) matrix Â, whose nodes are numbered rank after rank.

    Attributes:
        nodes: (s,) which nodes of the share these are, ascending; None: all of them.
        bounds: (K+1,) where each rank's numbers begin and end.
        rows: (s, n) with ascending columns.
    """

    nodes: IntArray | None
    bounds: IntArray
    rows: Rows

    @property
    def n(self) -> int:
        return int(self.bounds[-1])

    def __len__(self) -> int:
        return len(self.rows.indptr) - 1


def own_rows(share: Share, nodes: IntArray | None, normalization: str) -> OwnRows:
    """The rows of `nodes`, ascending, of Â of the graph that all ranks' nodes induce; None: of
    the whole graph.

    Symmetric normalisation needs a number of each column's node, which all ranks then have.
    """
    from fastgcn.kernels.rows import scale_rows  # loads numba

    channel = share.world.host
    bounds = share.bounds
    position: IntArray = np.empty(0, np.int32)
    if nodes is not None:
        bounds, position = _numbered(share, nodes)
    loops = normalization != "neighbors"
    rows, sums = _with_loops(share, nodes, position, bounds, loops=loops)
    factors, others = scaling_factors(sums, normalization), None
    if normalization == "symmetric":
        counts = np.diff(bounds).tolist()
        others = channel.gather(torch.from_numpy(factors), counts, "degrees").numpy()
    scale_rows(*rows, factors, others)
    return OwnRows(nodes, bounds, rows)


def _numbered(share: Share, nodes: IntArray) -> tuple[IntArray, IntArray]:
    """The bounds of the ranks' numbers, and (n,) a node's number, -1 for those of no rank."""
    channel, n = share.world.host, int(share.bounds[-1])
    counts = channel.counts(len(nodes), "numbers of nodes")
    everyone = channel.gather(torch.from_numpy(nodes + share.first), counts, "node ids").numpy()
    position = np.full(n, -1, index_dtype(n))
    position[everyone] = np.arange(len(everyone), dtype=position.dtype)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), position


def _with_loops(
    share: Share, nodes: IntArray | None, position: IntArray, bounds: IntArray, *, loops: bool
) -> tuple[Rows, FloatArray]:
    """Own rows of A + I, of A without `loops`, read in pieces; and (s,) float64 their sums."""
    from fastgcn.kernels.rows import count_inside  # loads numba
    from fastgcn.kernels.shares import copy_rows

    csr, first = share.csr, int(bounds[share.world.rank])
    some = np.arange(len(share)) if nodes is None else nodes
    check_rows(csr.indptr, csr.indices, some)
    pieces = list(row_chunks(csr.indptr[some + 1] - csr.indptr[some]))
    counts = np.diff(csr.indptr)
    if nodes is not None:
        counts = np.empty(len(some), np.int64)
        for a, b in pieces:
            matrix = csr.indptr, csr.indices, None
            counts[a:b] = count_inside(*matrix, some[a:b], position)[0]
            forget(csr.indices)
    indptr = np.zeros(len(some) + 1, np.int64)
    np.cumsum(counts + loops, out=indptr[1:])
    columns = np.empty(indptr[-1], index_dtype(int(bounds[-1])))
    values = np.empty(indptr[-1], np.float32)
    sums = np.empty(len(some))
    weights = np.empty(0, np.float32) if csr.weights is None else csr.weights
    for a, b in pieces:
        if nodes is None:  # where some are counted, that looks at the columns
            read = csr.indices[csr.indptr[a] : csr.indptr[b]]
            check_columns(read, int(share.bounds[-1]), csr.indices)
        arrays = csr.indptr, csr.indices, weights
        copy_rows(a, b, arrays, some, position, first, loops, indptr, columns, values, sums)
        forget(csr.indices)
        forget(weights)
    return Rows(indptr, columns, values), sums


def column_squares(matrix: OwnRows, channel: Channel) -> FloatArray:
    """(s,) float64: ‖Â(:,u)‖² of own nodes u, to which the rows of all ranks contribute."""
    n, values = matrix.n, matrix.rows.values
    sums = np.zeros(n)
    step = max(n, 1 << 22)  # entries at once, to bound the temporaries
    for start in range(0, len(values), step):
        some = values[start : start + step].astype(np.float64)
        columns = matrix.rows.indices[start : start + step]
        sums += np.bincount(columns, weights=some * some, minlength=n)
    counts = np.diff(matrix.bounds).tolist()
    return channel.reduce_parts(torch.from_numpy(sums), counts, "norms of columns").numpy()


def without_diagonal(matrix: OwnRows, rank: int) -> tuple[OwnRows, FloatArray]:
    """Â without its entries Â(v,v), and these, (s,) float32."""
    indptr, columns, values = matrix.rows
    own = np.arange(len(matrix)) + int(matrix.bounds[rank])
    row_of = np.repeat(own, np.diff(indptr))
    loops = columns == row_of
    diagonal = np.zeros(len(matrix), np.float32)
    diagonal[row_of[loops] - int(matrix.bounds[rank])] = values[loops]
    before = np.concatenate([[0], np.cumsum(loops)])[indptr]
    rest = Rows(indptr - before, columns[~loops], values[~loops])
    return OwnRows(matrix.nodes, matrix.bounds, rest), diagonal
