"""The network: layers that multiply by a block, and the GCN made of them."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Generator, Tensor, nn

from fastgcn.aggregators import AggregatorNetwork, glorot
from fastgcn.arrays import is_finite
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.plan import weight_bytes
from fastgcn.features.sparse import SparseRows
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import Task
from fastgcn.kernels.activation import put_rectified
from fastgcn.kernels.counter_random import dropout_mask
from fastgcn.kernels.dense import put_products, times
from fastgcn.machine import cuts, over_ranges
from fastgcn.memory import check_room
from fastgcn.metrics import Decision
from fastgcn.network import InputRows, Network, OwnNetwork
from fastgcn.sampling.block import Block


class GraphConvolution(nn.Module):
    """H' = ÂHW + b, before the nonlinearity (eq. 1; the bias is not in the paper).

    With `own` > 0, H' = ÂHW + OR + b. O (s, own) holds the layer's own nodes' rows, which are not
    mixed with others and so never sampled: the layer's input H (a skip path), or rows that the
    network passes in. If Â is the mean of the neighbours alone and O = H, this is
    W·CONCAT(h(v), mean of neighbours) of GraphSAGE-mean.

    The product is computed in the cheaper order, Â(HW) or (ÂH)W.
    """

    def __init__(self, n_in: int, n_out: int, *, bias: bool, rng: Generator, own: int = 0) -> None:
        super().__init__()
        self.weight = glorot(n_in, n_out, rng)
        self.own_weight = glorot(own, n_out, rng) if own else None
        self.bias = nn.Parameter(torch.zeros(n_out)) if bias else None
        self.shrinks = n_out < n_in

    def part(
        self, rows: slice, columns: slice, *, own: bool, contiguous: bool = False
    ) -> "GraphConvolution":
        """The layer from some entries of H to some of H'; its weights are views of this one's,
        or contiguous copies."""
        part = copy.copy(self)
        part._parameters = {}
        part.weight = self.weight[rows, columns]  # type: ignore[assignment]
        part.own_weight = part.bias = None
        if own and self.own_weight is not None:
            part.own_weight = self.own_weight[rows, columns]  # type: ignore[assignment]
        if self.bias is not None:
            part.bias = self.bias[columns]  # type: ignore[assignment]
        if contiguous:
            part.weight = part.weight.contiguous()  # type: ignore[assignment]
            if part.own_weight is not None:
                part.own_weight = part.own_weight.contiguous()  # type: ignore[assignment]
        return part

    def before(self, h: Tensor) -> Tensor:
        """The rows that Â then mixes: HW if W makes them narrower, else H."""
        return product(h, self.weight) if self.shrinks else h

    def after(self, mixed: Tensor, own: Tensor | None = None) -> Tensor:
        """The layer's output from the rows that Â has mixed; `own` are the nodes' own rows O."""
        return self.finish(mixed if self.shrinks else product(mixed, self.weight), own)

    def finish(self, out: Tensor, own: Tensor | None) -> Tensor:
        """ÂHW plus the own-row term OR and the bias, if the layer has them."""
        own_weight = self.own_weight
        if own_weight is not None:
            assert own is not None
            if by_kernels(out):
                put_products(out.numpy(), [(own.numpy(), own_weight.detach().numpy())], adds=True)
            else:
                out = out + own @ own_weight
        return self._biased(out)

    def _biased(self, out: Tensor) -> Tensor:
        bias = self.bias
        return out if bias is None else by_rows(lambda rows: rows + bias, out)

    def forward(self, h: InputRows, block: Block | None, own: Tensor | None = None) -> Tensor:
        """If `own` is None, O = H. If `block` is None, h holds rows of ÂH, perhaps sparse; if the
        layer has R, rows of O stand to the right of them. Sparse rows of H are multiplied by W
        before Â mixes them."""
        if isinstance(h, SparseRows) and block is not None:
            if self.own_weight is None:
                return self._biased(block.mix(h @ self.weight))
            rows, beside = h.times_both(block, self.weight, self.own_weight)
            return self._biased(block.mix(rows) + beside)
        if isinstance(h, SparseRows):
            own_weight = self.own_weight
            both = self.weight if own_weight is None else torch.cat([self.weight, own_weight])
            return self._biased(h @ both)
        if block is None:
            n_in = len(self.weight)
            return self.finish(product(h[:, :n_in], self.weight), h[:, n_in:])
        if self.own_weight is not None and own is None:
            own = block.own_rows(h)
        if self.mix_first(block):
            return self.finish(product(block.mix(h), self.weight), own)
        return self.finish(block.mix(product(h, self.weight)), own)

    def mix_first(self, block: Block) -> bool:
        """True if (ÂH)W takes fewer multiplications than Â(HW), or the block allows no other."""
        n_in, n_out = self.weight.shape
        return block.mix_first_only or block.mixing_first_pays(n_in, n_out)


def by_kernels(h: Tensor) -> bool:
    """True if autograd records nothing, and rows are float32 on the CPU."""
    return not torch.is_grad_enabled() and h.device.type == "cpu" and h.dtype == torch.float32


def product(h: Tensor, weight: Tensor) -> Tensor:
    """HW; if autograd records nothing, in float32 on the CPU, by the faster BLAS."""
    if not by_kernels(h):
        return h @ weight
    return torch.from_numpy(times(h.numpy(), weight.detach().numpy()))


# Rows that a thread changes at a time, and the numbers that are worth waking another one for.
_ROWS_AT_A_TIME, _WORTH_SHARING = 4096, 1 << 19


def by_rows(change: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """change(h), of which each row depends on the same row alone.

    Where kernels are used, it is put in the place of many rows h, on several threads.
    """
    if not by_kernels(h) or h.numel() < _WORTH_SHARING:
        return change(h)

    def work(start: int, stop: int) -> None:
        with torch.no_grad():  # which each thread decides for itself
            h[start:stop] = change(h[start:stop])

    over_ranges(work, cuts(len(h), _ROWS_AT_A_TIME))
    return h


class Dropout(nn.Module):
    """Zeroes random entries while training, by its own generator; each layer has its rate.

    Attributes:
        by: zeroes entries of a tensor at a rate in the generator's place, if a device has a way.
    """

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__()
        self.rates = tuple(rates)
        self.rng: Generator | None = None
        self.by: Callable[[Tensor, float], Tensor] | None = None

    def forward(self, h: InputRows, layer: int) -> InputRows:
        """Sparse rows: only stored entries are drawn; the others are zero already."""
        rate = self.rates[layer]
        if not self.training or rate == 0:
            return h
        if isinstance(h, SparseRows):
            return h.dropped(self, rate)
        if self.by is not None:
            return self.by(h, rate)
        if h.device.type != "cpu":
            return h * torch.empty_like(h).bernoulli_(1 - rate, generator=self.rng) / (1 - rate)
        out, kernels = torch.empty(h.shape), by_kernels(h)
        times = h.reshape(-1).numpy() if kernels else None
        dropout_mask(self.seed(), rate, out.view(-1).numpy(), times)
        return out if kernels else h * out

    def seed(self) -> int:
        """A new seed of a mask."""
        return int(torch.randint(2**62, (), generator=self.rng))


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation; a single row, which has no variance, uses the running statistics."""

    def forward(self, h: Tensor) -> Tensor:
        if len(h) > 1 or not self.training:
            return super().forward(h)
        return nn.functional.batch_norm(
            h, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


_NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": BatchNorm}


class GroupedLayerNorm(nn.Module):
    """Layer norm of each of k equal parts of a row."""

    def __init__(self, width: int, k: int) -> None:
        super().__init__()
        self.k, self.eps = k, 1e-5  # as nn.LayerNorm
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        parts = h.view(len(h), self.k, -1)
        normed = nn.functional.layer_norm(parts, parts.shape[2:], eps=self.eps)
        return normed.flatten(1) * self.weight + self.bias


class GCN(Network):
    """The paper's network, M graph convolutions with ReLU between them (eq. 1), and variants:

        H(l+1) = ReLU(norm(Â H(l) W(l) + H(l) R(l) + b(l))),  l = 0, ..., M-2,  H(0) = X
        logits = Â H(M-1) W(M-1) + J R(M-1) + b(M-1)

    The paper has no norm and no R. `sizes` are the widths F, d_1, ..., C.

    * `skip`: every layer above the first has R, and J = H(M-1); `input_skip`: the first has R.
      GraphSAGE-mean has both.
    * `jumping`: J joins all hidden rows of a node (jumping knowledge): CONCAT(H(1), ..., H(M-1))
      for "concat", their largest entries for "max". It replaces the last layer's skip.
    * `norm`: "layer" normalises over a row's entries, "batch" over the rows of the batch. In a
      sampled layer these are the drawn vertices, each counted once.

    * `pair`: two networks in one. The first half of every hidden width is a network with R, the
      second one without, and no weight joins the two. Each is trained under its own loss
      (`member_logits`); the logits are the mean of both.
    * `ensemble`: k trained networks in one (`fastgcn.train.ensemble`): each has a k-th of every
      hidden width, and no weight joins two of them. It is applied, never trained.

    If a layer has R, blocks must hold `dst` in `src`. `dropout` is one rate, or one for the
    input of each layer. The other parameters are those of `Network`; `multilabel` is short for its
    task of that name.

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
        task: Task = "classification",
        loss: str = "mse",
        normalization: str = "symmetric",
        feature_scaling: str = "none",
        skip: bool = False,
        input_skip: bool = False,
        norm: str = "none",
        jumping: str = "none",
        pair: bool = False,
        ensemble: int = 1,
        rng: Generator | None = None,
    ) -> None:
        super().__init__(
            sizes,
            task="multilabel" if multilabel else task,
            loss=loss,
            normalization=normalization,
            feature_scaling=feature_scaling,
        )
        rng = rng or torch.Generator().manual_seed(0)
        self.pair, self.ensemble = pair, ensemble
        self.skip, self.input_skip, self.jumping = skip, input_skip, jumping
        depth = len(self.sizes) - 1
        self.dropout = Dropout([dropout] * depth if isinstance(dropout, int | float) else dropout)
        self.layers = nn.ModuleList(
            GraphConvolution(n_in, n_out, bias=bias, rng=rng, own=self._own_width(number))
            for number, (n_in, n_out) in enumerate(pairwise(self.sizes))
        )
        grouped = norm == "layer" and ensemble > 1
        self.norms = nn.ModuleList(
            GroupedLayerNorm(width, ensemble) if grouped else _NORMS[norm](width)
            for width in self.sizes[1:-1]
        )
        if pair:
            self._separate(rng)

    @torch.no_grad()
    def _separate(self, rng: Generator) -> None:
        """Draw the weights of both networks of a pair; what would join them is zero."""
        for layer in self.convolutions:
            layer.weight.zero_()
            assert layer.own_weight is not None
            layer.own_weight.zero_()
        for layers in self.members():
            for layer in layers:
                share = 0.5 if layer is layers[-1] else 1.0  # the output is the mean of both
                for weight in (layer.weight, layer.own_weight):
                    if weight is not None:
                        n_in, n_out = weight.shape
                        weight.copy_(share * glorot(n_in, n_out, rng))

    def members(self) -> list[list[GraphConvolution]]:
        """The layers of both networks of a pair; of any other network, its own."""
        if not self.pair:
            return [self.convolutions]
        whole, found = slice(None), []
        for own in (True, False):
            halves = [
                slice(0, width // 2) if own else slice(width // 2, width)
                for width in self.sizes[1:-1]
            ]
            ends = pairwise([whole, *halves, whole])
            found.append(
                [
                    layer.part(*both, own=own)
                    for layer, both in zip(self.convolutions, ends, strict=True)
                ]
            )
        return found

    def member_logits(self, blocks: Sequence[Block], x: InputRows) -> list[Tensor]:
        """The logits that a loss is taken of: `forward`'s, or those of both networks of a pair."""
        if not self.pair:
            return [self(blocks, x)]
        return [self._member_logits(layers, blocks, x) for layers in self.members()]

    def _member_logits(
        self, layers: Sequence[GraphConvolution], blocks: Sequence[Block], x: InputRows
    ) -> Tensor:
        bare, h = len(layers) - len(blocks), x
        if bare and layers[0].own_weight is None:
            h = without_own_rows(h, len(layers[0].weight))
        for number, layer in enumerate(layers):
            h = self.dropout(h, number)
            h = layer(h, blocks[number - bare] if number >= bare else None)
            if number < len(layers) - 1:
                h = torch.relu(h)
        assert isinstance(h, Tensor)
        bias = layers[-1].bias
        return 2 * h if bias is None else 2 * h - bias

    def _own_width(self, number: int) -> int:
        """The width of the own rows O that a layer reads; 0 if it reads none."""
        if self.jumps(number):
            return sum(self.sizes[1:-1]) if self.jumping == "concat" else self.sizes[1]
        skips = self.skip if number > 0 else self.input_skip
        return self.sizes[number] if skips else 0

    def draw_from(self, rng: Generator) -> None:
        self.dropout.rng = rng

    def decayed(self, which: str) -> list[nn.Parameter]:
        layers = self.convolutions if which == "all" else self.convolutions[:1]
        weights = (weight for layer in layers for weight in (layer.weight, layer.own_weight))
        return [weight for weight in weights if weight is not None]

    @property
    def convolutions(self) -> list[GraphConvolution]:
        """The layers, from the input up."""
        return [cast(GraphConvolution, layer) for layer in self.layers]

    @property
    def plain(self) -> bool:
        """True if this is the paper's network itself, without norm, R or dropout."""
        normed = any(not isinstance(norm, nn.Identity) for norm in self.norms)
        return not (normed or self.needs_own_rows or any(self.dropout.rates))

    @property
    def needs_own_rows(self) -> bool:
        """True if every block must hold `dst` in `src`."""
        return any(layer.own_weight is not None for layer in self.convolutions)

    def forward(
        self, blocks: Sequence[Block], x: InputRows, *, layers: int | None = None
    ) -> Tensor:
        """Logits of `blocks[-1].dst`, eq. 10: x holds the rows of `blocks[0].src`.

        With one block fewer than layers, x holds rows of ÂX, perhaps sparse, and the first layer
        is a linear map. With `layers`, the result is H after that many layers.
        """
        return self.onward(x, blocks, 0, len(self.layers) if layers is None else layers)

    def onward(self, h: InputRows, blocks: Sequence[Block], start: int, stop: int) -> Tensor:
        """H(stop) from H(start); `blocks` belong to the uppermost layers below `stop`."""
        bare = stop - len(blocks)
        hidden: list[Tensor] = []  # H(1), H(2), ... of the current nodes, for the output layer
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
        """True if a layer reads J: the output layer does, if it has a hidden layer below it."""
        return self.jumping != "none" and 0 < number == len(self.sizes) - 2

    def joined(self, hidden: list[Tensor]) -> Tensor:
        """J, from H(1), ..., H(M-1) of the same nodes."""
        if self.jumping == "concat":
            return torch.cat(hidden, dim=1)
        return torch.stack(hidden).amax(dim=0)

    def activate(self, number: int, h: Tensor) -> Tensor:
        """Norm and σ after every layer but the last."""
        if number == len(self.layers) - 1:
            return h
        norm = self.norms[number]
        if isinstance(norm, nn.LayerNorm) and by_kernels(h):
            gain, shift = norm.weight.detach().numpy(), norm.bias.detach().numpy()
            put_rectified(gain, shift, norm.eps, h.numpy())
            return h
        if isinstance(norm, BatchNorm):
            return torch.relu(norm(h))
        return by_rows(lambda rows: torch.relu(norm(rows)), h)


def as_gcn(model: Network, what: str = "this") -> GCN:
    """A network of convolutions; any other is refused, `what` naming what needs one."""
    if isinstance(model, GCN):
        return model
    raise InputError(
        f"{what} is for networks of convolutions (aggregator = 'convolution', 'mean' or 'sum')"
    )


def without_own_rows(rows: InputRows, width: int) -> InputRows:
    """(s, width): ÂX of rows of [ÂX | X]."""
    if isinstance(rows, SparseRows):
        return rows.first_columns(width)
    return rows[:, :width]


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """True if no entry is NaN or infinite; all tensors are on one device, which is read once."""
    floats = [t.detach() for t in tensors if t.is_floating_point() and t.numel()]
    if not floats:
        return True
    if floats[0].device.type == "cpu":  # numpy, because torch would start threads
        return all(is_finite(t.numpy()) for t in floats)
    largest = torch.stack(torch._foreach_norm(floats, math.inf))  # one kernel for all of them
    return math.isfinite(float(largest.sum()))


# After the first k epochs, the running mean is about that of the last k / 2 of them.
_WARM_UP = 2


class WeightAverage:
    """A network with W̄ = β·W̄ + (1 − β)·W after each epoch, where W are the trained weights.

    β is 0 after the first epoch and min(`share`, k / (k + 2)) after k epochs. So W̄ contains
    nothing of the random initial weights, and soon forgets those of the first epochs. Running
    statistics of batch norms are averaged in the same way. Training never uses W̄.
    """

    def __init__(self, model: Network, share: float) -> None:
        self.model, self.share = copy.deepcopy(model), share

    @torch.no_grad()
    def add(self, model: Network, epochs: int) -> Network:
        """Add the weights after epoch number `epochs`, from 1 on; return the averaged network."""
        kept = min(self.share, epochs / (epochs + _WARM_UP)) if epochs > 1 else 0.0
        for mean, now in zip(
            self.model.state_dict().values(), model.state_dict().values(), strict=True
        ):
            if mean.is_floating_point():
                mean.lerp_(now, 1 - kept)
            else:
                mean.copy_(now)
        return self.model


def start_from(model: nn.Module | None, config: TrainConfig, graph: Graph) -> Network:
    """The network to train on a graph: a new one, or a copy of the user's `model`.

    A module that is no network of this library is trained as it is (`OwnNetwork`).
    """
    assert graph.task is not None
    sizes = [graph.n_features, *config.hidden_sizes, graph.n_outputs]
    if model is not None and not isinstance(model, Network):
        return own_network(copy.deepcopy(model), config, sizes, graph.task)
    new = build_model(config, sizes, graph.task)
    if model is None:
        return new
    if isinstance(model, OwnNetwork) and not isinstance(model.module, AggregatorNetwork):
        new = own_network(model.module, config, sizes, graph.task)
    given, wanted = (
        {name: tuple(value.shape) for name, value in each.state_dict().items()}
        for each in (model, new)
    )
    if given != wanted:
        names = [name for name in {**given, **wanted} if given.get(name) != wanted.get(name)]
        name = names[0]
        raise InputError(
            f"the model does not fit the graph and the settings: its {name} has the shape "
            f"{given.get(name)}, and they need {wanted.get(name)}"
            + (f" ({len(names) - 1} more differ)" if len(names) > 1 else "")
        )
    copied = copy.deepcopy(model)
    copied.decision = Decision()  # that of the model is for its own weights
    return copied


def own_network(
    module: nn.Module, config: TrainConfig, sizes: Sequence[int], task: Task
) -> OwnNetwork:
    """A module as the network of a config."""
    return OwnNetwork(
        module,
        sizes,
        task=task,
        loss=config.loss,
        normalization=config.normalization,
        feature_scaling=config.feature_scaling,
    )


def build_model(
    config: TrainConfig, sizes: Sequence[int], task: Task, *, ensemble: int = 1
) -> Network:
    """The network of a config, its weights drawn from the config's seed; `sizes` are those of
    an `ensemble` of networks side by side."""
    check_room(weight_bytes(sizes, config), "a network of these widths", "lower hidden")
    rng = torch.Generator().manual_seed(config.seed)
    if not config.is_linear:
        return own_network(AggregatorNetwork(config, sizes, rng), config, sizes, task)
    mean = config.method == "graphsage-mean"  # W·CONCAT(h(v), mean of neighbours) in every layer
    return GCN(
        sizes,
        bias=config.bias,
        dropout=config.dropout_rates,
        task=task,
        loss=config.loss,
        normalization=config.normalization,
        feature_scaling=config.feature_scaling,
        skip=config.skip or mean,
        input_skip=config.input_skip or mean,
        norm=config.norm,
        jumping=config.jumping,
        pair=config.pair and ensemble == 1,
        ensemble=ensemble,
        rng=rng,
    )
