"""The network: layers that multiply by a block, and the GCN made of them."""

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import cast, overload

import torch
from torch import Generator, Tensor, nn

from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.sparse import InputRows, SparseMatrix
from fastgcn.features.store import Statistics
from fastgcn.graph.graph import Graph
from fastgcn.kernels.counter_random import dropout_mask
from fastgcn.sampling.block import Block


class GraphConvolution(nn.Module):
    """H' = ÂHW + b, before the nonlinearity (eq. 1; the bias is not in the paper).

    With `own` > 0, H' = ÂHW + OR + b, where O (s, own) are rows of the layer's nodes themselves,
    not mixed with others and so never sampled: the layer's input H for a skip path, or what the
    network hands over. With Â the mean of the neighbours alone and O = H it is
    W·CONCAT(h(v), mean of neighbours) of GraphSAGE-mean.

    The product is taken in the cheaper order, Â(HW) or (ÂH)W.
    """

    def __init__(self, n_in: int, n_out: int, *, bias: bool, rng: Generator, own: int = 0) -> None:
        super().__init__()
        self.weight = _glorot(n_in, n_out, rng)
        self.own_weight = _glorot(own, n_out, rng) if own else None
        self.bias = nn.Parameter(torch.zeros(n_out)) if bias else None
        self.shrinks = n_out < n_in

    def before(self, h: Tensor) -> Tensor:
        """What is done to the rows that Â then mixes."""
        return h @ self.weight if self.shrinks else h

    def after(self, mixed: Tensor, own: Tensor | None = None) -> Tensor:
        """What is done to the rows that Â has mixed; `own` are the nodes' own rows O."""
        return self.finish(mixed if self.shrinks else mixed @ self.weight, own)

    def finish(self, out: Tensor, own: Tensor | None) -> Tensor:
        """ÂHW with what is added to it."""
        if self.own_weight is not None:
            assert own is not None
            out = out + own @ self.own_weight
        return self._biased(out)

    def _biased(self, out: Tensor) -> Tensor:
        return out if self.bias is None else out + self.bias

    def forward(self, h: InputRows, block: Block | None, own: Tensor | None = None) -> Tensor:
        """`own` None: O = H. `block` None: h holds rows of ÂH, and rows of O to the right of them
        where the layer has R; these may be sparse."""
        if isinstance(h, SparseMatrix):
            assert block is None
            own_weight = self.own_weight
            both = self.weight if own_weight is None else torch.cat([self.weight, own_weight])
            return self._biased(h @ both)
        if block is None:
            n_in = len(self.weight)
            return self.finish(h[:, :n_in] @ self.weight, h[:, n_in:])
        if self.own_weight is not None and own is None:
            own = block.own_rows(h)
        if self.mix_first(block):
            return self.finish(block.mix(h) @ self.weight, own)
        return self.finish(block.mix(h @ self.weight), own)

    def mix_first(self, block: Block) -> bool:
        """Whether (ÂH)W takes fewer multiplications with this block than Â(HW), or must be."""
        n_in, n_out = self.weight.shape
        return block.mix_first_only or block.mixing_first_pays(n_in, n_out)


def _glorot(n_in: int, n_out: int, rng: Generator) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_in, n_out), generator=rng))


class Dropout(nn.Module):
    """Zeroes entries while training, drawing from its own generator; a rate for each layer."""

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__()
        self.rates = tuple(rates)
        self.rng: Generator | None = None

    @overload
    def forward(self, h: Tensor, layer: int) -> Tensor: ...
    @overload
    def forward(self, h: SparseMatrix, layer: int) -> SparseMatrix: ...
    def forward(self, h: InputRows, layer: int) -> InputRows:
        """Of sparse rows, only entries that are stored: what is zero stays so anyway."""
        rate = self.rates[layer]
        if not self.training or rate == 0:
            return h
        if isinstance(h, SparseMatrix):
            return h.scaled(self._mask(h.values.shape, rate).numpy())
        if h.device.type != "cpu":
            return h * torch.empty_like(h).bernoulli_(1 - rate, generator=self.rng) / (1 - rate)
        return h * self._mask(h.shape, rate)

    def _mask(self, shape: tuple[int, ...], rate: float) -> Tensor:
        mask = torch.empty(shape)
        seed = int(torch.randint(2**62, (), generator=self.rng))
        dropout_mask(seed, rate, mask.view(-1).numpy())
        return mask


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that takes a lone row, which has no variance, by the running figures."""

    def forward(self, h: Tensor) -> Tensor:
        if len(h) > 1 or not self.training:
            return super().forward(h)
        return nn.functional.batch_norm(
            h, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


_NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": BatchNorm}


class GCN(nn.Module):
    """The paper's network, M graph convolutions with ReLU between them (eq. 1), and its kin:

        H(l+1) = ReLU(norm(Â H(l) W(l) + H(l) R(l) + b(l))),  l = 0, ..., M-2,  H(0) = X
        logits = Â H(M-1) W(M-1) + J R(M-1) + b(M-1)

    The paper has no norm and no R. `sizes` are the widths F, d_1, ..., C.

    * `skip`: every layer above the first has R, and J = H(M-1); `input_skip`: the first has R.
      GraphSAGE-mean has both.
    * `jumping`: J joins all hidden rows of a node, CONCAT(H(1), ..., H(M-1)) for "concat", their
      largest entries for "max" (jumping knowledge); it stands in for the last layer's skip.
    * `norm`: "layer" over a row's entries or "batch" over the rows at hand; where vertices are
      drawn these are the drawn ones, each counted once.

    Blocks must hold `dst` in `src` where there is an R. `dropout` is one rate, or one for the
    input of each layer. `multilabel` says what the outputs mean: logits of a softmax over
    classes, or of a sigmoid for each label. `normalization` and `feature_scaling` belong to the
    network, for its weights are of no use with another Â or other features.

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
        dropout: float | Sequence[float] = 0.0,
        multilabel: bool = False,
        normalization: str = "symmetric",
        feature_scaling: str = "none",
        skip: bool = False,
        input_skip: bool = False,
        norm: str = "none",
        jumping: str = "none",
        rng: Generator | None = None,
    ) -> None:
        super().__init__()
        rng = rng or torch.Generator().manual_seed(0)
        self.sizes = tuple(sizes)
        self.multilabel = multilabel
        self.normalization, self.feature_scaling = normalization, feature_scaling
        self.skip, self.input_skip, self.jumping = skip, input_skip, jumping
        depth = len(self.sizes) - 1
        self.dropout = Dropout([dropout] * depth if isinstance(dropout, int | float) else dropout)
        self.layers = nn.ModuleList(
            GraphConvolution(n_in, n_out, bias=bias, rng=rng, own=self._own_width(number))
            for number, (n_in, n_out) in enumerate(pairwise(self.sizes))
        )
        self.norms = nn.ModuleList(_NORMS[norm](width) for width in self.sizes[1:-1])
        if feature_scaling == "standard":
            self.register_buffer("feature_mean", torch.zeros(self.sizes[0]))
            self.register_buffer("feature_scale", torch.ones(self.sizes[0]))

    def _own_width(self, number: int) -> int:
        """The width of the own rows O that a layer sees; 0: it sees none."""
        if self.jumps(number):
            return sum(self.sizes[1:-1]) if self.jumping == "concat" else self.sizes[1]
        skips = self.skip if number > 0 else self.input_skip
        return self.sizes[number] if skips else 0

    @property
    def convolutions(self) -> list[GraphConvolution]:
        """The layers, from the input up."""
        return [cast(GraphConvolution, layer) for layer in self.layers]

    @property
    def plain(self) -> bool:
        """Whether this is the paper's network itself, without norm, R or dropout."""
        normed = any(not isinstance(norm, nn.Identity) for norm in self.norms)
        return not (normed or self.needs_own_rows or any(self.dropout.rates))

    @property
    def needs_own_rows(self) -> bool:
        """Whether every block must hold `dst` in `src`."""
        return any(layer.own_weight is not None for layer in self.convolutions)

    @property
    def feature_statistics(self) -> Statistics | None:
        """What standardises the features of any graph; None where they are not standardised."""
        if self.feature_scaling != "standard":
            return None
        mean, scale = cast(Tensor, self.feature_mean), cast(Tensor, self.feature_scale)
        return Statistics(mean.cpu().numpy(), scale.cpu().numpy())

    def set_feature_statistics(self, statistics: Statistics | None) -> None:
        """Keep, with the weights, the statistics of the nodes that are trained on."""
        if statistics is not None:
            cast(Tensor, self.feature_mean).copy_(torch.from_numpy(statistics.mean))
            cast(Tensor, self.feature_scale).copy_(torch.from_numpy(statistics.scale))

    def forward(
        self, blocks: Sequence[Block], x: InputRows, *, layers: int | None = None
    ) -> Tensor:
        """Logits of `blocks[-1].dst`, eq. 10: x holds the rows of `blocks[0].src`.

        With one block fewer than layers, x holds rows of ÂX, perhaps sparse, and the first layer
        is a linear map. With `layers`, H of so many layers from the input up.
        """
        return self.onward(x, blocks, 0, len(self.layers) if layers is None else layers)

    def onward(self, h: InputRows, blocks: Sequence[Block], start: int, stop: int) -> Tensor:
        """H(stop) from H(start); `blocks` are those of the uppermost layers below `stop`."""
        bare = stop - len(blocks)
        hidden: list[Tensor] = []  # of the nodes at hand, where the output layer wants them
        for number in range(start, stop):
            layer = self.convolutions[number]
            block = blocks[number - bare] if number >= bare else None
            h = self.dropout(h, number)
            if self.jumping != "none" and number > 0:
                assert block is not None
                assert isinstance(h, Tensor)
                hidden = [block.own_rows(rows) for rows in (*hidden, h)]
            own = self.joined(hidden) if self.jumps(number) else None
            h = self.activate(number, layer(h, block, own))
        assert isinstance(h, Tensor)
        return h

    def jumps(self, number: int) -> bool:
        """Whether a layer sees J: the output layer does, where there is a hidden one below."""
        return self.jumping != "none" and 0 < number == len(self.sizes) - 2

    def joined(self, hidden: list[Tensor]) -> Tensor:
        """J, from H(1), ..., H(M-1) of the same nodes."""
        if self.jumping == "concat":
            return torch.cat(hidden, dim=1)
        return torch.stack(hidden).amax(dim=0)

    def activate(self, number: int, h: Tensor) -> Tensor:
        """Norm and σ after every layer but the last."""
        return h if number == len(self.layers) - 1 else torch.relu(self.norms[number](h))

    def probabilities(self, logits: Tensor) -> Tensor:
        """What is predicted: rows that sum to one, or one probability for each label."""
        return torch.sigmoid(logits) if self.multilabel else torch.softmax(logits, dim=1)


# The mean of the first epochs is over all of them, more or less: after k epochs, as if k / 2.
_WARM_UP = 2


class WeightAverage:
    """A network with W̄ = β·W̄ + (1 − β)·W after each epoch, W the weights that are trained.

    β = 0 after the first epoch and min(`share`, k / (k + 2)) after k, so that the random weights
    of the beginning are no part of it and those of the first epochs are soon forgotten. Running
    figures of batch norms are averaged alike. Training never sees W̄.
    """

    def __init__(self, model: GCN, share: float) -> None:
        self.model, self.share = copy.deepcopy(model), share

    @torch.no_grad()
    def add(self, model: GCN, epochs: int) -> GCN:
        """Take in the weights after so many epochs, 1 after the first; the network of the means."""
        kept = min(self.share, epochs / (epochs + _WARM_UP)) if epochs > 1 else 0.0
        for mean, now in zip(
            self.model.state_dict().values(), model.state_dict().values(), strict=True
        ):
            if mean.is_floating_point():
                mean.lerp_(now, 1 - kept)
            else:
                mean.copy_(now)
        return self.model


def start_from(model: GCN | None, config: TrainConfig, graph: Graph) -> GCN:
    """The network to train on a graph: a new one, or a copy of the user's `model`."""
    sizes = [graph.n_features, *config.hidden_sizes, graph.n_classes]
    new = build_model(config, sizes, multilabel=graph.multilabel)
    if model is None:
        return new
    given, wanted = (
        {name: tuple(value.shape) for name, value in each.state_dict().items()}
        for each in (model, new)
    )
    if given != wanted:
        raise InputError(
            f"the model does not fit the graph and the settings: it has {given}, they need {wanted}"
        )
    return copy.deepcopy(model)


def build_model(config: TrainConfig, sizes: list[int], *, multilabel: bool) -> GCN:
    """The network of a config, its weights drawn from the config's seed."""
    mean = config.method == "graphsage-mean"  # W·CONCAT(h(v), mean of neighbours) in every layer
    return GCN(
        sizes,
        bias=config.bias,
        dropout=config.dropout_rates,
        multilabel=multilabel,
        normalization=config.normalization,
        feature_scaling=config.feature_scaling,
        skip=config.skip or mean,
        input_skip=config.input_skip or mean,
        norm=config.norm,
        jumping=config.jumping,
        rng=torch.Generator().manual_seed(config.seed),
    )
