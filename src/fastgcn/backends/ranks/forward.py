"""The full network over all ranks: each computes own rows, layer by layer."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.exact import check_width, feature_rows
from fastgcn.backends.ranks.collectives import Communicator, ring_product
from fastgcn.backends.ranks.shard import Shard, ShardAdjacency, own_rows
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.adjacency import Rows
from fastgcn.graph.csr import index_dtype
from fastgcn.metrics import Metrics, Tally, tally
from fastgcn.model import GCN
from fastgcn.progress import progress

_ROWS_AT_ONCE = 1 << 13  # that are multiplied by weights together


@dataclass(frozen=True, slots=True)
class Layer:
    """What own rows of one layer need of the layer below.

    Attributes:
        own: (s,) where own nodes of this layer are among own ones of the layer below.
        bounds: (K+1,) how the nodes of the layer below are numbered, rank after rank.
        rows: (s, n below) own rows of Â.
    """

    own: IntArray
    bounds: IntArray
    rows: Rows


class Plan(NamedTuple):
    """The layers from the input up, and own nodes of the features that the lowest needs."""

    layers: list[Layer]
    inputs: IntArray


def plan_layers(matrix: ShardAdjacency, asked: IntArray, depth: int, comm: Communicator) -> Plan:
    """Each layer has the nodes that the next one needs, and no others.

    `asked` (k,) are own nodes of the uppermost, ascending, numbered from the first own one.
    """
    first, stop = matrix.bounds[comm.rank : comm.rank + 2]
    layers: list[Layer] = []
    above = asked
    for _ in range(depth):
        rows = _cut(matrix.rows, above)
        wanted = np.zeros(matrix.n, np.uint8)
        wanted[rows.indices] = 1
        wanted[above + first] = 1  # a node's own row is needed too, where Â has no loop
        heard = comm.all_reduce(torch.from_numpy(wanted), "needed nodes", torch.maximum).numpy()
        if 2 * np.count_nonzero(heard) > matrix.n:
            # Leaving out the others would take a copy of nearly all rows.
            heard[:] = 1
        before = np.zeros(matrix.n + 1, index_dtype(matrix.n))
        np.cumsum(heard, out=before[1:])
        if before[-1] < matrix.n:
            rows = rows._replace(indices=before[rows.indices])
        below = np.flatnonzero(heard[first:stop])
        own = np.searchsorted(below, above)
        layers.insert(0, Layer(own, before[matrix.bounds].astype(np.int64), rows))
        above = below
    return Plan(layers, above)


def _cut(rows: Rows, some: IntArray) -> Rows:
    if len(some) == len(rows.indptr) - 1:
        return rows
    from fastgcn.kernels.rows import cut_rows  # loads numba

    return Rows(*cut_rows(*rows, some))


class SharedForward:
    """Own rows of the full network (eq. 1), of the graph that all ranks have together.

    X is read in pieces, and only what a layer mixes, HW where W narrows, goes round the ranks.
    """

    def __init__(self, plan: Plan, features: NodeFeatures, comm: Communicator) -> None:
        self.layers, self.inputs = plan
        self.features, self.comm = features, comm

    @torch.no_grad()
    def __call__(self, model: GCN) -> Tensor:
        """(k, C) logits of the nodes that were asked for, on the CPU."""
        was_training = model.training
        model.eval()
        h: Callable[[IntArray], Tensor] = self._features_of
        count, hidden = len(self.inputs), list[Tensor]()
        out = torch.empty(0)
        work = count + sum(len(layer.own) for layer in self.layers)
        with progress("Applying the network", work, "rows") as advance:
            for number, layer in enumerate(self.layers):
                mixed = self._mixed(layer, self._before(model, number, h, count))
                advance(count)
                if model.jumping != "none" and number > 0:
                    hidden = [_by_id(rows)(layer.own) for rows in (*hidden, out)]
                out = self._after(model, number, layer, mixed, h, hidden)
                h, count = _by_id(out), len(layer.own)
        model.train(was_training)
        return out

    def _features_of(self, ids: IntArray) -> Tensor:
        """Rows of X of own nodes of the lowest layer."""
        return self.features.take(self.inputs[ids])

    def _before(
        self, model: GCN, number: int, h: Callable[[IntArray], Tensor], count: int
    ) -> Tensor:
        """What the layer mixes, of own nodes of the layer below."""
        layer = model.convolutions[number]
        out = torch.empty(count, layer.weight.shape[1 if layer.shrinks else 0])
        for start in range(0, count, _ROWS_AT_ONCE):
            ids = np.arange(start, min(start + _ROWS_AT_ONCE, count))
            out[start : start + len(ids)] = layer.before(h(ids).to(layer.weight.device)).cpu()
        return out

    def _mixed(self, layer: Layer, z: Tensor) -> Tensor:
        rows, width = z.numpy(), z.shape[1]
        found = ring_product(self.comm, layer.rows, layer.bounds, width, lambda a, b: rows[a:b])
        return torch.from_numpy(found)

    def _after(
        self,
        model: GCN,
        number: int,
        layer: Layer,
        mixed: Tensor,
        h: Callable[[IntArray], Tensor],
        hidden: list[Tensor],
    ) -> Tensor:
        """Own rows of the layer; `hidden` are those of hidden layers, where it wants them."""
        network, device = model.convolutions[number], next(model.parameters()).device
        width = network.weight.shape[1]
        # In the place of what they are made of, where they fit.
        out = mixed if mixed.shape[1] == width else torch.empty(len(mixed), width)
        for start in range(0, len(mixed), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            own: Tensor | None = None
            if model.jumps(number):
                own = model.joined([rows[part].to(device) for rows in hidden])
            elif network.own_weight is not None:
                own = h(layer.own[part]).to(device)
            done = network.after(mixed[part].to(device), own)
            out[part] = model.activate(number, done).cpu()
        return out


def _by_id(rows: Tensor) -> Callable[[IntArray], Tensor]:
    return lambda ids: rows.index_select(0, torch.from_numpy(ids))


# Nodes whose rows are sent together.
_NODES_AT_ONCE = 1 << 16


class ShardEvaluator:
    """Scores a network on a part of the split by the full GCN, as `judge.Judge` does.

    Each rank judges own nodes; what they count is added up, so that scores are those of one
    process. Which rows are needed is found out once; features are read each time.
    """

    def __init__(self, shard: Shard, config: TrainConfig, part: IntArray) -> None:
        nodes: IntArray | None = None
        if config.evaluation_graph == "joined" and config.inductive:
            nodes = np.union1d(shard.split.train, part)
        if shard.labels.ndim == 1:
            part = part[shard.labels[part] >= 0]
        self.shard, self.labels, self._nodes = shard, shard.labels[part], nodes
        asked = part if nodes is None else np.searchsorted(nodes, part)
        self._plan = _plan(shard, nodes, asked, config.normalization, config.layers)
        self._count = sum(shard.group.host_comm.gather_counts(len(part), "numbers of nodes"))

    def __len__(self) -> int:
        """Nodes of all ranks."""
        return self._count

    def __call__(self, model: GCN) -> Metrics:
        """Scores of the network as it is, the same on all ranks."""
        probabilities = _apply(model, self.shard, self._plan, self._nodes)
        own = tally(probabilities, self.labels).figures
        return Tally.of(self.shard.group.host_comm.all_reduce(own, "scores")).metrics()


def predict_shared(model: GCN, shard: Shard, nodes: IntArray | None = None) -> FloatArray:
    """(s, C) float32: probabilities of own nodes, all of them or `nodes`, ascending.

    By the full network on the whole graph; every rank must call it.
    """
    check_width(model, shard.graph.n_features, f"{shard.graph.name} has")
    asked = np.arange(len(shard)) if nodes is None else nodes
    plan = _plan(shard, None, asked, model.normalization, len(model.layers))
    return _apply(model, shard, plan, None)


def embed_shared(model: GCN, shard: Shard, nodes: IntArray, layer: int = -1) -> FloatArray:
    """(s, d) float32: H^(layer) of own `nodes`, ascending, `layer` as `embed` counts it.

    Every rank must call it.
    """
    check_width(model, shard.graph.n_features, f"{shard.graph.name} has")
    layers = depth_of(model, layer)
    features = feature_rows(model, shard.features)
    if layers == 0:
        rows: FloatArray = features.take(nodes).numpy()
        return rows
    plan = _plan(shard, None, nodes, model.normalization, layers)
    hidden: FloatArray = SharedForward(plan, features, shard.group.host_comm)(model).numpy()
    return hidden


def depth_of(model: GCN, layer: int) -> int:
    """How many layers give H^(layer): -1 is the last hidden one."""
    depth = len(model.layers)
    if not -depth <= layer <= depth:
        raise InputError(f"layer must lie in {-depth}..{depth} for this network, got {layer}")
    return layer % depth if layer < 0 else layer


def gathered(
    shard: Shard, nodes: IntArray, own: FloatArray
) -> Iterator[tuple[list[Any], FloatArray]]:
    """On the first rank, ids and rows of all ranks' `nodes`, in the graph's order, in pieces; the
    others send theirs there and have none. `nodes` are own ones, ascending, `own` their rows."""
    comm, width = shard.group.host_comm, own.shape[1]
    for rank, count in enumerate(comm.gather_counts(len(nodes), "numbers of nodes")):
        for start in range(0, count, _NODES_AT_ONCE):
            part = slice(start, min(start + _NODES_AT_ONCE, count))
            if comm.rank == rank:
                ids, rows = shard.own_ids(nodes[part]), np.ascontiguousarray(own[part])
            if rank > 0 and comm.rank == rank:
                _send(comm, ids, rows)
            if comm.rank == 0:
                yield (ids, rows) if rank == 0 else _received(comm, rank, width)


def _send(comm: Communicator, ids: list[Any], rows: FloatArray) -> None:
    """Ids, which may be text of any length, and rows, to the first rank."""
    text = torch.frombuffer(bytearray(json.dumps(ids).encode()), dtype=torch.uint8)
    for tensor in (torch.tensor([len(text), len(rows)]), text, torch.from_numpy(rows)):
        comm.exchange({0: tensor}, {}, "rows of nodes")


def _received(comm: Communicator, rank: int, width: int) -> tuple[list[Any], FloatArray]:
    sizes = torch.empty(2, dtype=torch.int64)
    comm.exchange({}, {rank: sizes}, "rows of nodes")
    length, count = sizes.tolist()
    text, rows = torch.empty(length, dtype=torch.uint8), torch.empty(count, width)
    for tensor in (text, rows):
        comm.exchange({}, {rank: tensor}, "rows of nodes")
    return json.loads(text.numpy().tobytes()), rows.numpy()


def _plan(
    shard: Shard, nodes: IntArray | None, asked: IntArray, normalization: str, depth: int
) -> Plan:
    matrix = own_rows(shard, nodes, normalization)
    return plan_layers(matrix, asked, depth, shard.group.host_comm)


def _apply(model: GCN, shard: Shard, plan: Plan, nodes: IntArray | None) -> FloatArray:
    features = feature_rows(model, shard.features, nodes)
    logits = SharedForward(plan, features, shard.group.host_comm)(model)
    found: FloatArray = model.probabilities(logits).numpy()
    return found
