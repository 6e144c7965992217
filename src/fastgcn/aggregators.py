"""Networks whose layers take the largest of their neighbours' rows, or attend to them.

A convolution, a mean and a sum are products with a matrix, which `fastgcn.model.GCN` has. These two
are not, so they have layers of their own over the edges of a block.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import dropout, leaky_relu

from fastgcn.config import TrainConfig
from fastgcn.sampling.block import Block


class MaxLayer(nn.Module):
    """h'(v) = W max{ReLU(P h(u) + c): u a neighbour of v} + R h(v) + b, entry by entry.

    This is GraphSAGE's pooling (Hamilton et al. 2017, eq. 3), P as wide as the layer. A row without
    neighbours has zeros in place of the largest entries. In a sampled block the largest is taken
    over the neighbours that were drawn, however likely they were: it is never above that over all
    neighbours, and equals it once all are drawn. There are no weights that would remove this bias.
    """

    def __init__(self, n_in: int, n_out: int, *, own: bool, rng: Generator) -> None:
        super().__init__()
        self.pool_weight = glorot(n_in, n_out, rng)
        self.pool_bias = nn.Parameter(torch.zeros(n_out))
        self.weight = glorot(n_out, n_out, rng)
        self.own_weight = glorot(n_in, n_out, rng) if own else None
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, h: Tensor, block: Block) -> Tensor:
        source, target = block.edge_index
        pooled = torch.relu(h @ self.pool_weight + self.pool_bias)
        # Six times as fast as `scatter_reduce`; no entry is below zero.
        largest = torch.segment_reduce(
            pooled[source],
            "max",
            lengths=torch.bincount(target, minlength=block.size[1]),
            initial=0.0,
        )
        out = largest @ self.weight + self.bias
        return out if self.own_weight is None else out + block.own_rows(h) @ self.own_weight


class AttentionLayer(nn.Module):
    """GATv2 (Brody et al. 2022), with k heads whose results stand side by side:

        e(v,u) = a·LeakyReLU(L h(u) + Q h(v)),  α(v,u) = w(v,u) exp e(v,u) / Σ_u w(v,u) exp e(v,u)
        h'(v) = Σ_u α(v,u) L h(u) + R h(v) + b

    over the neighbours u of v and v itself. With all of them, w is the edge's weight, one in a
    graph without weights. In a sampled block w also has the factor 1/(t·q(u)), so that numerator
    and denominator are without bias; their ratio, a self-normalised estimate, has one of order
    1/t.
    """

    def __init__(self, n_in: int, n_out: int, *, heads: int, own: bool, rng: Generator) -> None:
        super().__init__()
        self.heads = heads
        self.source_weight = glorot(n_in, n_out, rng)
        self.query_weight = glorot(n_in, n_out, rng)
        self.attention = glorot(heads, n_out // heads, rng)
        self.own_weight = glorot(n_in, n_out, rng) if own else None
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, h: Tensor, block: Block) -> Tensor:
        source, target = block.edge_index
        rows, (n_dst, own) = h @ self.source_weight, (block.size[1], block.own_rows(h))
        sent = rows.view(h.shape[0], self.heads, -1)[source]
        asked = (own @ self.query_weight).view(n_dst, self.heads, -1)[target]
        score = (leaky_relu(sent + asked, 0.2) * self.attention).sum(dim=2)
        alpha = weighted_softmax(score, block.edge_weight[:, None], target, n_dst)
        out = torch.zeros_like(own @ self.source_weight).view(n_dst, self.heads, -1)
        out = out.index_add(0, target, alpha[:, :, None] * sent).flatten(1) + self.bias
        return out if self.own_weight is None else out + own @ self.own_weight


def weighted_softmax(score: Tensor, weight: Tensor, target: Tensor, n_dst: int) -> Tensor:
    """(e, k): w exp(score) divided by its sum over the edges of the same target.

    >>> score, weight = torch.zeros(3, 1), torch.tensor([[1.0], [3.0], [2.0]])
    >>> weighted_softmax(score, weight, torch.tensor([0, 0, 1]), 2).flatten().tolist()
    [0.25, 0.75, 1.0]
    """
    place = target[:, None].expand_as(score)
    largest = score.new_zeros(n_dst, score.shape[1]).scatter_reduce(
        0, place, score.detach(), "amax", include_self=False
    )
    part = weight * torch.exp(score - largest[target])
    total = torch.zeros_like(largest).index_add(0, target, part)
    return part / total.clamp(min=torch.finfo(total.dtype).tiny)[target]


class AggregatorNetwork(nn.Module):
    """M such layers with norm, ReLU and dropout between them; `forward(blocks, x)` gives logits."""

    def __init__(self, config: TrainConfig, sizes: Sequence[int], rng: Generator) -> None:
        super().__init__()
        self.rates = config.dropout_rates
        self.layers = nn.ModuleList()
        for number, (n_in, n_out) in enumerate(pairwise(sizes)):
            own = config.skip if number else config.input_skip
            if config.aggregator == "max":
                layer: nn.Module = MaxLayer(n_in, n_out, own=own, rng=rng)
            else:  # the output layer has as many columns as there are classes, so one head
                heads = config.heads if number < len(sizes) - 2 else 1
                layer = AttentionLayer(n_in, n_out, heads=heads, own=own, rng=rng)
            self.layers.append(layer)
        norm = {"none": nn.Identity, "layer": nn.LayerNorm}[config.norm]
        self.norms = nn.ModuleList(norm(width) for width in sizes[1:-1])

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        h = x
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(dropout(h, self.rates[number], self.training), block)
            if number < len(self.norms):
                h = torch.relu(self.norms[number](h))
        return h


def glorot(n_in: int, n_out: int, rng: Generator) -> nn.Parameter:
    """A matrix of uniform numbers, scaled to its sizes (Glorot & Bengio)."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_in, n_out), generator=rng))
