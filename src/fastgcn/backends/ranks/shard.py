"""What one rank has of a graph: the rows of a range of its nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.backends.ranks.collectives import Communicator
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.data.shards import StoredShard, cut
from fastgcn.errors import InputError
from fastgcn.graph.adjacency import Rows, row_chunks, scaling_factors
from fastgcn.graph.checks import plain
from fastgcn.graph.csr import CSR, check_columns, check_rows, index_dtype
from fastgcn.graph.graph import Graph, Split
from fastgcn.graph.nodes import own_ids, parse_nodes
from fastgcn.scratch import forget


@dataclass(frozen=True, slots=True)
class Shard:
    """The nodes bounds[rank]..bounds[rank+1]-1 of a graph; below, they are numbered from 0.

    Attributes:
        group: the ranks that have the graph between them.
        graph: the whole; where parts were read, an outline of it, which has no content.
        bounds: (K+1,) where the ranges of the ranks begin and end.
        csr: own rows, their columns being nodes of the whole graph.
        features, labels: own rows.
        split: own nodes of each part, ascending.
        node_ids: what the user calls own nodes, where `graph` does not know; None: their number.
        outlined: whether `graph` is only an outline.
    """

    group: ProcessGroup
    graph: Graph
    bounds: IntArray
    csr: CSR
    features: FloatArray | csr_array
    labels: IntArray | BoolArray
    split: Split
    node_ids: Sequence[Any] | None = None
    outlined: bool = False

    @classmethod
    def of_graph(cls, graph: Graph, group: ProcessGroup) -> "Shard":
        """This rank's range of a graph that all ranks can open; only its own rows are read."""
        if graph.labels is None:
            raise InputError(f"{graph.name} has no labels, and training needs them")
        bounds = cut(graph, group.size, "train")
        first, stop = (int(bound) for bound in bounds[group.rank : group.rank + 2])
        begin, end = graph.indptr[first], graph.indptr[stop]
        return cls(
            group,
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
    def of_part(cls, part: StoredShard, group: ProcessGroup) -> "Shard":
        """What was read of a sharded store."""
        first, stop = (int(bound) for bound in part.bounds[group.rank : group.rank + 2])
        split = Split(*(_within(nodes, first, stop) for _, nodes in part.split.items()))
        return cls(
            group,
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
        first, stop = self.bounds[self.group.rank : self.group.rank + 2]
        return np.unique(_within(parse_nodes(self.graph, text), first, stop))

    def own_ids(self, nodes: IntArray) -> list[Any]:
        """What the user calls some of own nodes."""
        if self.node_ids is None:
            return own_ids(self.graph, nodes + self.first)
        return [plain(self.node_ids[int(node)]) for node in nodes]

    @property
    def first(self) -> int:
        """The number of the first own node in the whole graph."""
        return int(self.bounds[self.group.rank])

    def __len__(self) -> int:
        return len(self.csr.indptr) - 1


def _within(nodes: IntArray, first: int, stop: int) -> IntArray:
    """Those of some nodes that lie in a range, numbered from its first, ascending."""
    some = np.asarray(nodes)
    return np.sort(some[(some >= first) & (some < stop)] - first)


@dataclass(frozen=True, slots=True)
class ShardAdjacency:
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


def own_rows(shard: Shard, nodes: IntArray | None, normalization: str) -> ShardAdjacency:
    """The rows of `nodes`, ascending, of Â of the graph that all ranks' nodes induce; None: of
    the whole graph.

    Symmetric normalisation needs a number of each column's node, which all ranks then have.
    """
    from fastgcn.kernels.rows import scale_rows  # loads numba

    comm = shard.group.host_comm
    bounds = shard.bounds
    position: IntArray = np.empty(0, np.int32)
    if nodes is not None:
        bounds, position = _numbered(shard, nodes)
    loops = normalization != "neighbors"
    rows, sums = _with_loops(shard, nodes, position, bounds, loops=loops)
    factors, others = scaling_factors(sums, normalization), None
    if normalization == "symmetric":
        counts = np.diff(bounds).tolist()
        others = comm.all_gather(torch.from_numpy(factors), counts, "degrees").numpy()
    scale_rows(*rows, factors, others)
    return ShardAdjacency(nodes, bounds, rows)


def _numbered(shard: Shard, nodes: IntArray) -> tuple[IntArray, IntArray]:
    """The bounds of the ranks' numbers, and (n,) a node's number, -1 for those of no rank."""
    comm, n = shard.group.host_comm, int(shard.bounds[-1])
    counts = comm.gather_counts(len(nodes), "numbers of nodes")
    everyone = comm.all_gather(torch.from_numpy(nodes + shard.first), counts, "node ids").numpy()
    position = np.full(n, -1, index_dtype(n))
    position[everyone] = np.arange(len(everyone), dtype=position.dtype)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), position


def _with_loops(
    shard: Shard, nodes: IntArray | None, position: IntArray, bounds: IntArray, *, loops: bool
) -> tuple[Rows, FloatArray]:
    """Own rows of A + I, of A without `loops`, read in pieces; and (s,) float64 their sums."""
    from fastgcn.kernels.rows import count_inside  # loads numba
    from fastgcn.kernels.shares import copy_rows

    csr, first = shard.csr, int(bounds[shard.group.rank])
    some = np.arange(len(shard)) if nodes is None else nodes
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
            check_columns(read, int(shard.bounds[-1]), csr.indices)
        arrays = csr.indptr, csr.indices, weights
        copy_rows(a, b, arrays, some, position, first, loops, indptr, columns, values, sums)
        forget(csr.indices)
        forget(weights)
    return Rows(indptr, columns, values), sums


def column_squares(matrix: ShardAdjacency, comm: Communicator) -> FloatArray:
    """(s,) float64: ‖Â(:,u)‖² of own nodes u, to which the rows of all ranks contribute."""
    n, values = matrix.n, matrix.rows.values
    sums = np.zeros(n)
    step = max(n, 1 << 22)  # entries at once, to bound the temporaries
    for start in range(0, len(values), step):
        some = values[start : start + step].astype(np.float64)
        columns = matrix.rows.indices[start : start + step]
        sums += np.bincount(columns, weights=some * some, minlength=n)
    counts = np.diff(matrix.bounds).tolist()
    return comm.reduce_scatter(torch.from_numpy(sums), counts, "norms of columns").numpy()


def without_diagonal(matrix: ShardAdjacency, rank: int) -> tuple[ShardAdjacency, FloatArray]:
    """Â without its entries Â(v,v), and these, (s,) float32."""
    indptr, columns, values = matrix.rows
    own = np.arange(len(matrix)) + int(matrix.bounds[rank])
    row_of = np.repeat(own, np.diff(indptr))
    loops = columns == row_of
    diagonal = np.zeros(len(matrix), np.float32)
    diagonal[row_of[loops] - int(matrix.bounds[rank])] = values[loops]
    before = np.concatenate([[0], np.cumsum(loops)])[indptr]
    rest = Rows(indptr - before, columns[~loops], values[~loops])
    return ShardAdjacency(matrix.nodes, matrix.bounds, rest), diagonal
