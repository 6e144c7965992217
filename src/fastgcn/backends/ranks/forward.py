"""The exact network over many processes: each rank computes the rows of its own nodes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.backends.base import score
from fastgcn.backends.exact import ExactForward, feature_rows
from fastgcn.backends.ranks.collectives import Communicator, ring_product
from fastgcn.backends.ranks.shard import Shard, ShardAdjacency, normalize_shard
from fastgcn.config import TrainConfig
from fastgcn.features.propagate import RowBuffer
from fastgcn.features.store import FeatureStore
from fastgcn.graph.csr import index_dtype
from fastgcn.graph.edges import Rows
from fastgcn.graph.labels import has_label
from fastgcn.metrics import Metrics, Sums
from fastgcn.model import GCN, as_gcn
from fastgcn.network import Network


class ForwardPlan(NamedTuple):
    """Which rows this rank computes in each layer, and from which rows of Â.

    Attributes:
        needed: this rank's nodes of each layer, ascending, from the input up.
        rows: this rank's rows of Â for each layer, over the nodes of the layer below.
        bounds: (K+1,) for each layer: where each rank's nodes of the layer below begin and end.
    """

    needed: list[IntArray]
    rows: list[Rows]
    bounds: list[IntArray]


def plan_forward(
    matrix: ShardAdjacency, asked: IntArray, depth: int, comm: Communicator
) -> ForwardPlan:
    """Each layer has the nodes that the layer above needs, and no others.

    `asked` (k,) are this rank's nodes of the uppermost layer, ascending, numbered from its first.
    """
    first, stop = matrix.bounds[comm.rank : comm.rank + 2]
    plan = ForwardPlan([asked], [], [])
    for _ in range(depth):
        above = plan.needed[0]
        rows = _cut(matrix.rows, above)
        wanted = np.zeros(matrix.n, np.uint8)
        wanted[rows.indices] = 1
        wanted[above + first] = 1  # a node's own row is needed too, even if Â has no loop
        by_any = comm.all_reduce(torch.from_numpy(wanted), "needed nodes", torch.maximum).numpy()
        if 2 * np.count_nonzero(by_any) > matrix.n:
            # To leave out the others, nearly all rows would have to be copied.
            by_any[:] = 1
        number = np.zeros(matrix.n + 1, index_dtype(matrix.n))
        np.cumsum(by_any, out=number[1:])
        if number[-1] < matrix.n:
            rows = rows._replace(indices=number[rows.indices])
        plan.needed.insert(0, np.flatnonzero(by_any[first:stop]))
        plan.rows.insert(0, rows)
        plan.bounds.insert(0, number[matrix.bounds].astype(np.int64))
    return plan


def _cut(rows: Rows, some: IntArray) -> Rows:
    if len(some) == len(rows.indptr) - 1:
        return rows
    from fastgcn.kernels.rows import cut_rows  # loads numba

    return Rows(*cut_rows(*rows, some))


class ShardForward(ExactForward):
    """`ExactForward` on this rank's rows; the rows to mix pass from rank to rank in a ring."""

    def __init__(
        self, model: GCN, plan: ForwardPlan, features: FeatureStore, comm: Communicator
    ) -> None:
        super().__init__(model, features)
        self.plan, self.comm = plan, comm

    def mix(self, number: int) -> Callable[[int, IntArray], Tensor]:
        z = self.z.rows.cpu().numpy()
        rows, bounds = self.plan.rows[number], self.plan.bounds[number]
        product = ring_product(self.comm, rows, bounds, z.shape[1], lambda a, b: z[a:b])
        # Freed, so that only the product and the next rows are in memory.
        self.z = RowBuffer(np.empty(0, np.int64))
        mixed = torch.from_numpy(product)
        return lambda start, ids: mixed[start : start + len(ids)].to(self.device)


def shard_rows(model: GCN, shard: Shard, nodes: IntArray, layers: int) -> Tensor:
    """(len(nodes), d): H^(layers) of this rank's `nodes`. Every rank must call it."""
    asked, comm = np.unique(nodes), shard.group.host_comm
    plan = ForwardPlan([asked], [], [])
    if layers > 0:
        matrix = normalize_shard(shard, None, model.normalization)
        plan = plan_forward(matrix, asked, layers, comm)
    features = feature_rows(model, shard.features)
    return ShardForward(model, plan, features, comm)(nodes, plan.needed)


class ShardEvaluator:
    """Scores a network on a part of the split by the exact network, as `Evaluator` does.

    Each rank scores its own nodes, and the tallies are added up. The needed rows are determined
    once; features are read each time.
    """

    def __init__(self, shard: Shard, config: TrainConfig, part: IntArray) -> None:
        nodes: IntArray | None = None
        if config.evaluation_graph == "joined" and config.inductive:
            nodes = np.union1d(shard.split.train, part)
        part = part[has_label(shard.labels[part])]
        self.shard, self.labels, self._nodes = shard, shard.labels[part], nodes
        self._comm = shard.group.host_comm
        self._asked = part if nodes is None else np.searchsorted(nodes, part)
        matrix = normalize_shard(shard, nodes, config.normalization)
        self._plan = plan_forward(matrix, self._asked, config.layers, self._comm)
        self._count = sum(self._comm.gather_counts(len(part), "numbers of nodes"))

    def __len__(self) -> int:
        """Labelled nodes of all ranks."""
        return self._count

    def __call__(self, model: Network, also: Sequence[str] = ()) -> Metrics:
        """Scores of the network with its current weights, the same on all ranks."""

        def reduce(own: Sums) -> Sums:
            return own.of(self._comm.all_reduce(own.figures, "scores"))

        logits = self._logits(model)
        return score(model, logits, self.labels, also, reduce=reduce, gather=self._gather)

    def outputs(self, model: Network) -> tuple[FloatArray, AnyArray]:
        return self._gather(self._logits(model).cpu().numpy(), self.labels)

    def _logits(self, model: Network) -> Tensor:
        features = feature_rows(model, self.shard.features, self._nodes)
        gcn = as_gcn(model, "training in several processes")
        forward = ShardForward(gcn, self._plan, features, self._comm)
        return forward(self._asked, self._plan.needed)

    def _gather(self, rows: FloatArray, labels: AnyArray) -> tuple[FloatArray, AnyArray]:
        return gather_outputs(self._comm, rows, labels)


def gather_outputs(
    comm: Communicator, rows: FloatArray, labels: AnyArray
) -> tuple[FloatArray, AnyArray]:
    """Rows (k, C) and labels of the nodes of all ranks, on every rank."""
    counts = comm.gather_counts(len(rows), "numbers of nodes")
    known = torch.from_numpy(np.array(labels, np.float64 if labels.dtype.kind == "f" else np.int64))
    return (
        comm.all_gather(torch.from_numpy(rows), counts, "outputs").numpy(),
        comm.all_gather(known, counts, "labels").numpy(),
    )
