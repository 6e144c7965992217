"""Scores and predictions of a network on a graph that ranks have between them."""

from collections.abc import Iterator

import numpy as np
import torch

from fastgcn.config import TrainConfig
from fastgcn.distributed.channel import Channel
from fastgcn.distributed.forward import Plan, SharedForward, plan_layers
from fastgcn.distributed.matrix import own_rows
from fastgcn.distributed.share import Share
from fastgcn.inference import check_width, feature_rows
from fastgcn.metrics import Metrics, Tally, tally
from fastgcn.models import GCN
from fastgcn.types import FloatArray, IntArray

# Nodes whose predictions are sent together.
_NODES_AT_ONCE = 1 << 16


class SharedJudge:
    """Scores a network on a part of the split by the full GCN, as `judge.Judge` does.

    Each rank judges own nodes; what they count is added up, so that scores are those of one
    process. Which rows are needed is found out once; features are read each time.
    """

    def __init__(self, share: Share, config: TrainConfig, part: IntArray) -> None:
        nodes: IntArray | None = None
        if config.evaluation_graph == "joined" and config.inductive:
            nodes = np.union1d(share.split.train, part)
        if share.labels.ndim == 1:
            part = part[share.labels[part] >= 0]
        self.share, self.labels, self._nodes = share, share.labels[part], nodes
        asked = part if nodes is None else np.searchsorted(nodes, part)
        self._plan = _plan(share, nodes, asked, config.normalization, config.layers)
        self._count = sum(share.world.host.counts(len(part), "numbers of nodes"))

    def __len__(self) -> int:
        """Nodes of all ranks."""
        return self._count

    def __call__(self, model: GCN) -> Metrics:
        """Scores of the network as it is, the same on all ranks."""
        probabilities = _apply(model, self.share, self._plan, self._nodes)
        return _added_up(tally(probabilities, self.labels), self.share.world.host).metrics()


def predict_shared(model: GCN, share: Share, nodes: IntArray | None = None) -> FloatArray:
    """(s, C) float32: probabilities of own nodes, all of them or `nodes`, ascending.

    By the full network on the whole graph; every rank must call it.
    """
    check_width(model, share.graph.n_features, f"{share.graph.name} has")
    asked = np.arange(len(share)) if nodes is None else nodes
    plan = _plan(share, None, asked, model.normalization, len(model.layers))
    return _apply(model, share, plan, None)


def predicted_parts(
    model: GCN, share: Share, nodes: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """On the first rank, ids and probabilities of all ranks' `nodes`, ascending, in pieces; the
    others send theirs there and have none. `nodes` are own ones, ascending."""
    channel = share.world.host
    own = predict_shared(model, share, nodes)
    counts = channel.counts(len(nodes), "numbers of nodes")
    for rank, count in enumerate(counts):
        for start in range(0, count, _NODES_AT_ONCE):
            part = slice(start, min(start + _NODES_AT_ONCE, count))
            ids, rows = torch.from_numpy(nodes[part] + share.first), torch.from_numpy(own[part])
            if rank > 0 and channel.rank == rank:
                for tensor in (ids, rows):
                    channel.exchange({0: tensor.contiguous()}, {}, "predictions")
            if rank > 0 and channel.rank == 0:
                size = part.stop - part.start
                ids, rows = torch.empty(size, dtype=torch.int64), torch.empty(size, own.shape[1])
                for tensor in (ids, rows):
                    channel.exchange({}, {rank: tensor}, "predictions")
            if channel.rank == 0:
                yield ids.numpy(), rows.numpy()


def _plan(
    share: Share, nodes: IntArray | None, asked: IntArray, normalization: str, depth: int
) -> Plan:
    matrix = own_rows(share, nodes, normalization)
    return plan_layers(matrix, asked, depth, share.world.host)


def _apply(model: GCN, share: Share, plan: Plan, nodes: IntArray | None) -> FloatArray:
    features = feature_rows(model, share.features, nodes)
    logits = SharedForward(plan, features, share.world.host)(model)
    found: FloatArray = model.probabilities(logits).numpy()
    return found


def _added_up(own: Tally, channel: Channel) -> Tally:
    """The sums over all ranks."""
    facts = [own.nodes, own.right, own.loss, own.decisions]
    classes = [own.hits, own.guessed, own.true]
    numbers = torch.from_numpy(np.concatenate([facts, *classes]).astype(np.float64))
    found = channel.reduce(numbers, "scores").numpy()
    nodes, right, loss, decisions = found[:4]
    hits, guessed, true = found[4:].astype(np.int64).reshape(3, -1)
    return Tally(int(nodes), int(right), float(loss), int(decisions), hits, guessed, true)
