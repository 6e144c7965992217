"""One rank's part of a graph: a range of its nodes, their rows of Â, and sending of rows."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.ranks.collectives import Communicator
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.data.shards import StoredShard, cut
from fastgcn.errors import InputError
from fastgcn.graph.adjacency import has_loops, scaling_factors
from fastgcn.graph.checks import Split, plain
from fastgcn.graph.csr import CSR, check_rows, index_dtype
from fastgcn.graph.edges import (
    GraphEdges,
    Rows,
    check_ascending,
    count_inside,
    positions,
    row_chunks,
)
from fastgcn.graph.graph import UNLABELLED, Graph, own_ids, parse_nodes, unlabelled
from fastgcn.graph.labels import Labels


@dataclass(frozen=True, slots=True)
class Shard:
    """The nodes bounds[rank]..bounds[rank+1]-1 of a graph; here they are numbered from 0.

    Attributes:
        group: the ranks that share the graph.
        graph: the whole graph; only an outline of it, without content, if parts were read.
        bounds: (K+1,) where the ranges of the ranks begin and end.
        csr: this rank's rows; their columns are nodes of the whole graph.
        features, labels: this rank's rows.
        split: this rank's nodes of each part, ascending.
        node_ids: the user's ids of these nodes if `graph` does not have them; None: their numbers.
        outlined: True if `graph` is only an outline.
    """

    group: ProcessGroup
    graph: Graph
    bounds: IntArray
    csr: CSR
    features: FloatArray | csr_array
    labels: Labels
    split: Split
    node_ids: Sequence[Any] | None = None
    outlined: bool = False

    @classmethod
    def of_graph(cls, graph: Graph, group: ProcessGroup) -> "Shard":
        """This rank's range of a graph that all ranks can open; only its own rows are read."""
        if graph.labels is None:
            raise InputError(f"{graph.name} has no labels, and training needs them")
        bounds = cut(graph, group.size, "train")
        start, stop = (int(bound) for bound in bounds[group.rank : group.rank + 2])
        begin, end = graph.indptr[start], graph.indptr[stop]
        csr = CSR(
            graph.indptr[start : stop + 1] - begin,
            graph.indices[begin:end],
            None if graph.weights is None else graph.weights[begin:end],
        )
        features, labels = graph.features[start:stop], graph.labels[start:stop]
        split = _own_split(graph.split, start, stop)
        return cls(group, graph, bounds, csr, features, labels, split)

    @classmethod
    def of_part(cls, part: StoredShard, group: ProcessGroup) -> "Shard":
        """From a part of a sharded store."""
        start, stop = (int(bound) for bound in part.bounds[group.rank : group.rank + 2])
        return cls(
            group,
            part.outline,
            part.bounds,
            part.csr,
            part.features,
            part.labels,
            _own_split(part.split, start, stop),
            part.node_ids,
            outlined=True,
        )

    @property
    def n_nodes(self) -> int:
        """How many nodes this rank owns."""
        return len(self.csr.indptr) - 1

    @property
    def start(self) -> int:
        """The number of this rank's first node in the whole graph."""
        return int(self.bounds[self.group.rank])

    def parse_nodes(self, text: str | None) -> IntArray:
        """This rank's nodes, ascending, among those that `text` names: all, unlabelled, a part of
        the split or, if the whole graph can be opened, ids."""
        if text in (None, "all"):
            return np.arange(self.n_nodes)
        if text in UNLABELLED:
            return unlabelled(self.labels, self.n_nodes, self.graph.name)
        if text in ("train", "val", "test"):
            if not getattr(self.graph.split, text).size:
                raise InputError(f"the {text} part of {self.graph.name}'s split is empty")
            found: IntArray = getattr(self.split, text)
            return found
        if self.outlined:
            raise InputError(
                f"for shards, --nodes must be all, unlabelled, train, val or test, got {text!r}; "
                "to name ids, use the store itself"
            )
        nodes = parse_nodes(self.graph, text)
        return np.unique(_within(nodes, self.start, self.start + self.n_nodes))

    def own_ids(self, nodes: IntArray) -> list[Any]:
        """The user's ids of some of this rank's nodes."""
        if self.node_ids is None:
            return own_ids(self.graph, nodes + self.start)
        return [plain(self.node_ids[int(node)]) for node in nodes]


def _own_split(split: Split, start: int, stop: int) -> Split:
    return Split(*(_within(part, start, stop) for _, part in split.items()))


def _within(nodes: IntArray, start: int, stop: int) -> IntArray:
    """The nodes start..stop-1 among `nodes`, ascending, numbered from `start`."""
    some = np.asarray(nodes)
    return np.sort(some[(some >= start) & (some < stop)] - start)


_NODES_AT_ONCE = 1 << 16  # nodes whose rows are sent in one message


def gather_parts(
    shard: Shard, parts: Iterable[tuple[IntArray, FloatArray]], *, ids: bool = True
) -> Iterator[tuple[list[Any], FloatArray]]:
    """Rows of all ranks on the first rank, in the order of the ranks, with the nodes' user ids.

    `parts` are this rank's nodes and their rows. Other ranks send theirs and receive nothing;
    every rank must run the iterator to its end. Without `ids`, the lists of ids are empty.
    """
    comm, own = shard.group.host_comm, _pieces(parts)
    piece = next(own, None)  # computed by all ranks together, before one waits for another
    for rank in range(comm.size):
        if comm.rank == rank:
            while piece is not None:
                names = shard.own_ids(piece[0]) if ids else []
                if rank == 0:
                    yield names, piece[1]
                else:
                    _send(comm, names, piece[1])
                piece = next(own, None)
            if rank > 0:
                _send(comm, [], np.empty((0, 0), np.float32))
        elif comm.rank == 0:
            while (received := _receive(comm, rank)) is not None:
                yield received


def _pieces(
    parts: Iterable[tuple[IntArray, FloatArray]],
) -> Iterator[tuple[IntArray, FloatArray]]:
    for nodes, rows in parts:
        for start in range(0, len(nodes), _NODES_AT_ONCE):
            piece = slice(start, start + _NODES_AT_ONCE)
            yield nodes[piece], np.ascontiguousarray(rows[piece])


def _send(comm: Communicator, ids: list[Any], rows: FloatArray) -> None:
    """Send ids, which may be text of any length, and rows to the first rank; no rows: the end."""
    text = torch.frombuffer(bytearray(json.dumps(ids).encode()), dtype=torch.uint8)
    sizes = torch.tensor([len(text), rows.dtype == np.float64, *rows.shape])
    for tensor in (sizes, text, torch.from_numpy(rows)):
        comm.exchange({0: tensor}, {}, "rows of nodes")


def _receive(comm: Communicator, rank: int) -> tuple[list[Any], FloatArray] | None:
    sizes = torch.empty(4, dtype=torch.int64)
    comm.exchange({}, {rank: sizes}, "rows of nodes")
    length, double, *shape = sizes.tolist()
    text = torch.empty(length, dtype=torch.uint8)
    rows = torch.empty(shape, dtype=torch.float64 if double else torch.float32)
    for tensor in (text, rows):
        comm.exchange({}, {rank: tensor}, "rows of nodes")
    return (json.loads(text.numpy().tobytes()), rows.numpy()) if len(rows) else None


@dataclass(frozen=True, slots=True)
class ShardAdjacency:
    """This rank's rows of an (n, n) matrix Â, whose nodes are numbered rank after rank.

    Attributes:
        nodes: (s,) which nodes of the shard these are, ascending; None: all of them.
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


def normalize_shard(shard: Shard, nodes: IntArray | None, normalization: str) -> ShardAdjacency:
    """This rank's rows of Â of the graph induced on all ranks' `nodes`, ascending (None: all).

    Symmetric normalisation needs a factor for each column, so all ranks exchange theirs.
    """
    from fastgcn.kernels.rows import scale_rows  # loads numba

    bounds = shard.bounds
    position = None
    if nodes is not None:
        bounds, position = _number_nodes(shard, nodes)
    loops = has_loops(normalization)
    rows, sums = _with_loops(shard, nodes, position, bounds, loops=loops)
    factors, of_columns = scaling_factors(sums, normalization), None
    if normalization == "symmetric":
        counts = np.diff(bounds).tolist()
        gathered = shard.group.host_comm.all_gather(torch.from_numpy(factors), counts, "degrees")
        of_columns = gathered.numpy()
    scale_rows(*rows, factors, of_columns)
    return ShardAdjacency(nodes, bounds, rows)


def _number_nodes(shard: Shard, nodes: IntArray) -> tuple[IntArray, IntArray]:
    """The bounds of the ranks' numbers, and (n,) each node's number, -1 for nodes left out."""
    comm, n = shard.group.host_comm, int(shard.bounds[-1])
    counts = comm.gather_counts(len(nodes), "numbers of nodes")
    everyone = comm.all_gather(torch.from_numpy(nodes + shard.start), counts, "node ids").numpy()
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return bounds, positions(everyone, n)


def _with_loops(
    shard: Shard,
    nodes: IntArray | None,
    position: IntArray | None,
    bounds: IntArray,
    *,
    loops: bool,
) -> tuple[Rows, FloatArray]:
    """This rank's rows of A + I, or of A without `loops`; and (s,) float64 their sums."""
    from fastgcn.kernels.rows import cut_rows  # loads numba

    csr, first, n = shard.csr, int(bounds[shard.group.rank]), int(bounds[-1])
    some = np.arange(shard.n_nodes) if nodes is None else nodes
    check_rows(csr.indptr, csr.indices, some)
    counts = None
    if position is None:
        sums = GraphEdges(csr).sums(some)
    else:
        counts, sums = np.empty(len(some), np.int64), np.empty(len(some))
        for a, b in row_chunks(csr.indptr[some + 1] - csr.indptr[some]):
            counts[a:b], sums[a:b] = count_inside(csr, some[a:b], position)
    indptr, columns, values = cut_rows(
        csr.indptr,
        csr.indices,
        csr.weights,
        some,
        loops=loops,
        own=np.arange(first, first + len(some)),
        position=position,
        counts=counts,
    )
    check_ascending(indptr, columns, n, csr.indices)
    return Rows(indptr, columns.astype(index_dtype(n), copy=False), values), sums + loops


def column_squares(matrix: ShardAdjacency, comm: Communicator) -> FloatArray:
    """(s,) float64: ‖Â(:,u)‖² of this rank's nodes u, summed over the rows of all ranks."""
    n, values = matrix.n, matrix.rows.values
    sums = np.zeros(n)
    step = max(n, 1 << 22)  # entries at once, to bound the temporaries
    for start in range(0, len(values), step):
        some = values[start : start + step].astype(np.float64)
        columns = matrix.rows.indices[start : start + step]
        sums += np.bincount(columns, weights=some * some, minlength=n)
    counts = np.diff(matrix.bounds).tolist()
    return comm.reduce_scatter(torch.from_numpy(sums), counts, "norms of columns").numpy()


def split_diagonal(matrix: ShardAdjacency, rank: int) -> tuple[ShardAdjacency, FloatArray]:
    """Â without its entries Â(v,v), and (s,) float32 these entries."""
    indptr, columns, values = matrix.rows
    first = int(matrix.bounds[rank])
    row_of = np.repeat(np.arange(len(matrix)), np.diff(indptr))
    loops = columns == row_of + first
    diagonal = np.zeros(len(matrix), np.float32)
    diagonal[row_of[loops]] = values[loops]
    before = np.concatenate([[0], np.cumsum(loops)])[indptr]
    rest = Rows(indptr - before, columns[~loops], values[~loops])
    return ShardAdjacency(matrix.nodes, matrix.bounds, rest), diagonal
