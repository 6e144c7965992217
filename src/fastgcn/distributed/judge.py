"""Scores, predictions and hidden rows of a network on a graph that ranks have between them."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from fastgcn.config import TrainConfig
from fastgcn.distributed.channel import Channel
from fastgcn.distributed.forward import Plan, SharedForward, plan_layers
from fastgcn.distributed.matrix import own_rows
from fastgcn.distributed.share import Share
from fastgcn.errors import InputError
from fastgcn.inference import check_width, feature_rows
from fastgcn.metrics import Metrics, Tally, tally
from fastgcn.models import GCN
from fastgcn.types import FloatArray, IntArray

# Nodes whose rows are sent together.
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


def embed_shared(model: GCN, share: Share, nodes: IntArray, layer: int = -1) -> FloatArray:
    """(s, d) float32: H^(layer) of own `nodes`, ascending, `layer` as `embed` counts it.

    Every rank must call it.
    """
    check_width(model, share.graph.n_features, f"{share.graph.name} has")
    layers = depth_of(model, layer)
    features = feature_rows(model, share.features)
    if layers == 0:
        return features(nodes)
    plan = _plan(share, None, nodes, model.normalization, layers)
    hidden: FloatArray = SharedForward(plan, features, share.world.host)(model).numpy()
    return hidden


def depth_of(model: GCN, layer: int) -> int:
    """How many layers give H^(layer): -1 is the last hidden one."""
    depth = len(model.layers)
    if not -depth <= layer <= depth:
        raise InputError(f"layer must lie in {-depth}..{depth} for this network, got {layer}")
    return layer % depth if layer < 0 else layer


def gathered(
    share: Share, nodes: IntArray, own: FloatArray
) -> Iterator[tuple[list[Any], FloatArray]]:
    """On the first rank, ids and rows of all ranks' `nodes`, in the graph's order, in pieces; the
    others send theirs there and have none. `nodes` are own ones, ascending, `own` their rows."""
    channel, width = share.world.host, own.shape[1]
    for rank, count in enumerate(channel.counts(len(nodes), "numbers of nodes")):
        for start in range(0, count, _NODES_AT_ONCE):
            part = slice(start, min(start + _NODES_AT_ONCE, count))
            if channel.rank == rank:
                ids, rows = share.own_ids(nodes[part]), np.ascontiguousarray(own[part])
            if rank > 0 and channel.rank == rank:
                _send(channel, ids, rows)
            if channel.rank == 0:
                yield (ids, rows) if rank == 0 else _received(channel, rank, width)


def _send(channel: Channel, ids: list[Any], rows: FloatArray) -> None:
    """Ids, which may be text of any length, and rows, to the first rank."""
    text = torch.frombuffer(bytearray(json.dumps(ids).encode()), dtype=torch.uint8)
    for tensor in (torch.tensor([len(text), len(rows)]), text, torch.from_numpy(rows)):
        channel.exchange({0: tensor}, {}, "rows of nodes")


def _received(channel: Channel, rank: int, width: int) -> tuple[list[Any], FloatArray]:
    sizes = torch.empty(2, dtype=torch.int64)
    channel.exchange({}, {rank: sizes}, "rows of nodes")
    length, count = sizes.tolist()
    text, rows = torch.empty(length, dtype=torch.uint8), torch.empty(count, width)
    for tensor in (text, rows):
        channel.exchange({}, {rank: tensor}, "rows of nodes")
    return json.loads(text.numpy().tobytes()), rows.numpy()


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
