"""The network: layers that multiply by a block, and the GCN made of them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Generator, Tensor, nn

from fastgcn.samplers.block import Block


class GraphConvolution(nn.Module):
    """H' = ÂHW + b, before the nonlinearity (eq. 1; the bias is not in the paper).

    With `own`, H' = HV + ÂHW + b: the node's own row has weights of its own, which is
    W·CONCAT(h(v), mean of neighbours) of GraphSAGE-mean where Â averages neighbours alone.

    The product is taken in the cheaper order: Â(HW) where W shrinks the rows, (ÂH)W otherwise.
    """

    def __init__(
        self, n_in: int, n_out: int, *, bias: bool, rng: Generator, own: bool = False
    ) -> None:
        super().__init__()
        self.weight = _glorot(n_in, n_out, rng)
        self.own_weight = _glorot(n_in, n_out, rng) if own else None
        self.bias = nn.Parameter(torch.zeros(n_out)) if bias else None
        self.shrinks = n_out < n_in

    def before(self, h: Tensor) -> Tensor:
        """What is done to the rows that Â then mixes."""
        return h @ self.weight if self.shrinks else h

    def after(self, mixed: Tensor, own: Tensor | None = None) -> Tensor:
        """What is done to the rows that Â has mixed; `own` are the nodes' rows before that."""
        out = mixed if self.shrinks else mixed @ self.weight
        if self.own_weight is not None:
            assert own is not None
            out = out + own @ self.own_weight
        return out if self.bias is None else out + self.bias

    def forward(self, h: Tensor, block: Block | None) -> Tensor:
        """`block` None: the rows of h are mixed already (ÂX, precomputed)."""
        z = self.before(h)
        if block is None:
            return self.after(z)
        if self.own_weight is None:
            return self.after(block.adj @ z)
        return self.after(block.adj @ z, h[torch.searchsorted(block.src, block.dst)])


def _glorot(n_in: int, n_out: int, rng: Generator) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_in, n_out), generator=rng))


class Dropout(nn.Module):
    """Zeroes entries with probability p while training, drawing from its own generator."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.rng: Generator | None = None

    def forward(self, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        keep = torch.empty_like(h).bernoulli_(1 - self.p, generator=self.rng)
        return h * keep / (1 - self.p)


class GCN(nn.Module):
    """The paper's network: M graph convolutions with ReLU between them (eq. 1).

    `sizes` are the widths F, d_1, ..., C. `multilabel` says what the outputs mean: logits of a
    softmax over classes, or of a sigmoid for each label. `normalization` and `feature_scaling`
    belong to the network, for its weights are of no use with another Â or other features.
    `own_weights` gives every layer a second matrix, for the node's own row (GraphSAGE-mean).

    >>> model = GCN([5, 4, 3], rng=torch.Generator().manual_seed(0))
    >>> adj = torch.eye(2)
    >>> block = Block(dst=torch.tensor([0, 1]), src=torch.tensor([0, 1]), adj=adj)
    >>> model([block, block], torch.ones(2, 5)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        bias: bool = False,
        dropout: float = 0.0,
        multilabel: bool = False,
        normalization: str = "symmetric",
        feature_scaling: str = "none",
        own_weights: bool = False,
        rng: Generator | None = None,
    ) -> None:
        super().__init__()
        rng = rng or torch.Generator().manual_seed(0)
        self.sizes = tuple(sizes)
        self.multilabel = multilabel
        self.normalization = normalization
        self.feature_scaling = feature_scaling
        self.own_weights = own_weights
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            GraphConvolution(n_in, n_out, bias=bias, rng=rng, own=own_weights)
            for n_in, n_out in pairwise(sizes)
        )

    @property
    def convolutions(self) -> list[GraphConvolution]:
        """The layers, from the input up."""
        return [cast(GraphConvolution, layer) for layer in self.layers]

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        """Logits of `blocks[-1].dst`, eq. 10: x holds the rows of `blocks[0].src`.

        With one block fewer than layers, x holds rows of ÂX and the first layer is a linear map.
        """
        precomputed = len(self.layers) - len(blocks)
        h = x
        for number, layer in enumerate(self.convolutions):
            block = blocks[number - precomputed] if number >= precomputed else None
            h = self.activate(number, layer(self.dropout(h), block))
        return h

    def activate(self, number: int, h: Tensor) -> Tensor:
        """σ after every layer but the last."""
        return h if number == len(self.layers) - 1 else torch.relu(h)

    def probabilities(self, logits: Tensor) -> Tensor:
        """What is predicted: rows that sum to one, or one probability for each label."""
        return torch.sigmoid(logits) if self.multilabel else torch.softmax(logits, dim=1)
