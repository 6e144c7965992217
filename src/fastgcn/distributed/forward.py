"""The full network over all ranks: each computes own rows, layer by layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastgcn.adjacency import Rows
from fastgcn.csr import index_dtype
from fastgcn.distributed.channel import Channel
from fastgcn.distributed.matrix import OwnRows
from fastgcn.distributed.travel import ring_product
from fastgcn.features import FeatureRows
from fastgcn.models import GCN
from fastgcn.progress import progress
from fastgcn.types import IntArray

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


def plan_layers(matrix: OwnRows, asked: IntArray, depth: int, channel: Channel) -> Plan:
    """Each layer has the nodes that the next one needs, and no others.

    `asked` (k,) are own nodes of the uppermost, ascending, numbered from the first own one.
    """
    first, stop = matrix.bounds[channel.rank : channel.rank + 2]
    layers: list[Layer] = []
    above = asked
    for _ in range(depth):
        rows = _cut(matrix.rows, above)
        wanted = np.zeros(matrix.n, np.uint8)
        wanted[rows.indices] = 1
        wanted[above + first] = 1  # a node's own row is needed too, where Â has no loop
        heard = channel.reduce(torch.from_numpy(wanted), "needed nodes", torch.maximum).numpy()
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

    def __init__(self, plan: Plan, features: FeatureRows, channel: Channel) -> None:
        self.layers, self.inputs = plan
        self.features, self.channel = features, channel

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
        rows = torch.from_numpy(self.features(self.inputs[ids]))
        self.features.forget()
        return rows

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
        found = ring_product(self.channel, layer.rows, layer.bounds, width, lambda a, b: rows[a:b])
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
