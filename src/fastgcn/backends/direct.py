"""Steps without autograd for networks with own rows, norms, dropout and pairs, on the CPU.

What autograd would record is written out. So W and R are multiplied in one product where they can
be, hidden rows are changed in place, and a dropout mask is not kept: a row that is zero after ReLU
and dropout has no gradient, whichever of them made it so. `AutogradStep` is the reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.arrays import FloatArray
from fastgcn.backends.steps import Adam, AutogradStep, CompiledStep, Step, array_of
from fastgcn.features.sparse import InputRows, SparseMatrix
from fastgcn.kernels.activation import Activation, put_activated, put_activated_back
from fastgcn.kernels.counter_random import mask_values
from fastgcn.kernels.dense import (
    Pair,
    put_products,
    quiet,
    times,
    transposed_products,
    transposed_times,
)
from fastgcn.model import GCN, BatchNorm, GraphConvolution, without_own_rows
from fastgcn.network import Network
from fastgcn.sampling.block import Block, BlockGroup

_NOTHING = np.empty((1, 0), np.float32)


def make_step(model: Network, loss: nn.Module, optimizer: Adam) -> Step:
    """The fastest step that this network, loss and device have."""
    if not isinstance(model, GCN):
        return AutogradStep(model, loss, optimizer)
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    if on_cpu and model.plain and isinstance(loss, nn.CrossEntropyLoss):
        return CompiledStep(model, loss, optimizer)
    normed = any(isinstance(norm, BatchNorm) for norm in model.norms)
    if on_cpu and model.jumping == "none" and not normed:
        return DirectStep(model, loss, optimizer)
    return AutogradStep(model, loss, optimizer)


class DirectStep:
    """Moves the weights along a batch's gradient, and returns its loss."""

    def __init__(self, model: GCN, loss: nn.Module, optimizer: Adam) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.by_autograd = AutogradStep(model, loss, optimizer)
        self.gradients = _Gradients(model)

    @torch.no_grad()
    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float:
        if any(block.csr is None or block.mix_first_only for block in blocks):
            with torch.enable_grad():
                return self.by_autograd(blocks, x, labels)
        members, total = self.model.members(), 0.0
        self.gradients.clear()
        for layers in members:
            passed = _Pass(self.model, layers, blocks, x)
            logits = len(members) * passed.out
            if layers[-1].bias is not None:
                logits += layers[-1].bias
            value, gradient = self._loss(logits, labels)
            total += value / len(members)
            passed.back(gradient, len(members), self.gradients)
        for parameter in self.model.parameters():
            self.optimizer.update(parameter, self.gradients.of(parameter))
        return total

    def many(self, group: BlockGroup, x: InputRows, labels: Tensor) -> list[float]:
        return [self(*each) for each in group.each(x, labels)]

    def _loss(self, logits: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        """The loss of some logits (s, C), and its gradient by them."""
        with torch.enable_grad():
            logits.requires_grad_()
            value = self.loss(logits, labels)
            (gradient,) = torch.autograd.grad(value, logits)
        return float(value), gradient


class _Gradients:
    """The gradients of a step by parameter; those of a pair's networks are parts of them."""

    def __init__(self, model: GCN) -> None:
        # A pair's weights have entries that no network reaches; they keep their zeros.
        self._parts = {p: torch.zeros_like(p) for p in model.parameters()} if model.pair else {}
        self._found: dict[Tensor, Tensor] = {}
        self._written: set[tuple[int, int]] = set()

    def clear(self) -> None:
        self._found.clear()
        self._written.clear()

    def add(self, parameter: Tensor, gradient: Tensor) -> None:
        """Add a gradient of a parameter, or of a view of one."""
        if not self._parts:
            self._found[parameter] = gradient
            return
        base = parameter if parameter._base is None else parameter._base
        part = self._parts[cast(nn.Parameter, base)].as_strided(
            parameter.shape, parameter.stride(), parameter.storage_offset()
        )
        place = id(base), int(parameter.storage_offset())
        if place in self._written:  # the bias of the output, which both networks have
            part += gradient
        else:
            part.copy_(gradient)
            self._written.add(place)

    def of(self, parameter: nn.Parameter) -> FloatArray:
        found = self._parts.get(parameter)
        return (self._found[parameter].contiguous() if found is None else found).numpy()


@dataclass(slots=True)
class _Layer:
    """What the way back needs of a layer.

    Attributes:
        layer: its weights, contiguous; `original` has those that are trained.
        h: the rows that the layer read, after dropout.
        mixed: ÂH, if that came before W.
        z: its output, with the bias once it was activated.
        scales: (n, 2) each row's mean and 1/sd in the norm.
        activation: what follows it, unless it is the last.
    """

    layer: GraphConvolution
    original: GraphConvolution
    number: int
    h: InputRows
    block: Block | None
    mixed: FloatArray | None = None
    z: FloatArray = field(default_factory=lambda: _NOTHING)
    scales: FloatArray = field(default_factory=lambda: _NOTHING)
    activation: Activation | None = None


class _Pass:
    """One network's way from its input rows to `out` (s, C), the logits without bias; and back."""

    out: Tensor

    def __init__(
        self,
        model: GCN,
        layers: Sequence[GraphConvolution],
        blocks: Sequence[Block],
        x: InputRows,
    ) -> None:
        self.model, self.passed = model, list[_Layer]()
        bare, h = len(layers) - len(blocks), x
        if bare and layers[0].own_weight is None:
            h = cast(InputRows, without_own_rows(h, len(layers[0].weight)))
        h = cast(InputRows, model.dropout(h, 0))
        for number, original in enumerate(layers):
            block = blocks[number - bare] if number >= bare else None
            here = _Layer(_contiguous(original), original, number, h, block)
            here.z = np.empty((_rows_of(here), original.weight.shape[1]), np.float32)
            self.passed.append(here)
            left, adds = _convolve(here)
            if number == len(layers) - 1:
                if left:
                    put_products(here.z, left, adds=adds)
                self.out = torch.from_numpy(here.z)
            else:
                h = self._activated(here, left, adds)

    def _activated(self, here: _Layer, left: Sequence[Pair], adds: bool) -> Tensor:
        """The rows that the next layer reads: what is `left` of the convolution, bias, norm, ReLU
        and dropout."""
        here.activation = self._activation(here.number)
        z, normed = here.z, here.activation.gain.size > 0
        h = np.empty_like(z) if normed else z
        here.scales = np.empty((len(z) if normed else 0, 2), np.float32)
        bias = array_of(here.layer.bias)
        put_activated(here.activation, z, bias, here.scales, h, left, adds=adds)
        return torch.from_numpy(h)

    def _activation(self, number: int) -> Activation:
        """What follows a layer, with a new seed of the dropout."""
        norm, gain, shift, epsilon = self.model.norms[number], _NOTHING[0], _NOTHING[0], 0.0
        if isinstance(norm, nn.LayerNorm):
            gain, shift, epsilon = array_of(norm.weight), array_of(norm.bias), norm.eps
        rate = self.model.dropout.rates[number + 1] if self.model.training else 0.0
        dropped, value = mask_values(rate)
        seed = np.uint64(self.model.dropout.seed() if dropped else 0)
        return Activation(gain, shift, epsilon, seed, dropped, value)

    def back(self, gradient: Tensor, members: int, gradients: _Gradients) -> None:
        """Add the gradients of all weights; `gradient` (s, C) is that of one network's loss."""
        last = self.passed[-1].original
        if last.bias is not None:
            gradients.add(last.bias, gradient.sum(0) / members)
        for here in reversed(self.passed):
            if isinstance(here.h, SparseMatrix) or here.number == 0:
                _unconvolve(here, gradient, gradients, None)
                continue
            slope = np.empty(tuple(here.h.shape), np.float32)
            gradient = self._unactivated(here, gradient, slope, gradients)

    def _unactivated(
        self, here: _Layer, gradient: Tensor, slope: FloatArray, gradients: _Gradients
    ) -> Tensor:
        """The gradient by the output of the layer below, in `slope`, from that by this layer's."""
        number = here.number - 1
        below, rows = self.passed[number], cast(Tensor, here.h).numpy()
        left, adds = _unconvolve(here, gradient, gradients, slope)
        assert below.activation is not None
        sums = put_activated_back(
            below.activation, slope, rows, below.z, below.scales, left, adds=adds
        )
        total, norm = torch.from_numpy(sums), self.model.norms[number]
        if below.original.bias is not None:
            gradients.add(below.original.bias, total[0])
        if below.activation.gain.size:
            gradients.add(cast(Tensor, norm.weight), total[1])
            gradients.add(cast(Tensor, norm.bias), total[2])
        return torch.from_numpy(slope)


def _contiguous(layer: GraphConvolution) -> GraphConvolution:
    """The layer itself, or a copy of one whose weights are parts of others."""
    if layer.weight.is_contiguous():
        return layer
    return layer.part(slice(None), slice(None), own=True, contiguous=True)


def _rows_of(here: _Layer) -> int:
    return len(here.h) if here.block is None else here.block.dst.numel()


# Products that are still to be put into some rows, and whether they are added to these.
Left = tuple[list[Pair], bool]


def _convolve(here: _Layer) -> Left:
    """z (s, d') = ÂHW + OR of a layer, without its bias, but for the products returned."""
    layer, h, block, z = here.layer, here.h, here.block, here.z
    weight, own = array_of(layer.weight), array_of(layer.own_weight)
    has_own = layer.own_weight is not None
    if isinstance(h, SparseMatrix):
        if block is None:  # rows of [ÂX | X]
            h.times(_stacked(layer), z)
        elif not has_own:
            block.mixed(h.times(weight), z)
        else:
            d, both = weight.shape[1], h.times(np.concatenate([weight, own], axis=1))
            block.mixed(np.ascontiguousarray(both[:, :d]), z)
            with quiet():
                z += both[: len(z), d:]
        return [], True
    if block is None:
        return [(h.numpy(), _stacked(layer))], False
    beside = [(block.own_rows(h).numpy(), own)] if has_own else []
    if layer.mix_first(block):
        here.mixed = block.mixed(h.numpy())
        return [(here.mixed, weight), *beside], False
    block.mixed(times(h.numpy(), weight), z)
    return beside, True


def _unconvolve(
    here: _Layer, slope: Tensor, gradients: _Gradients, below: FloatArray | None
) -> Left:
    """Add the gradients of W and R, from `slope`, that by z; put the gradient by the layer's rows
    in `below`, unless they are the input, but for the products returned."""
    layer, original, block = here.layer, here.original, here.block
    own, gradient = original.own_weight, slope.contiguous().numpy()
    if block is None or isinstance(here.h, SparseMatrix):
        _unconvolve_input(here, gradient, gradients)
        return [], True
    h, turned = here.h.numpy(), array_of(layer.weight).T
    pairs = [] if own is None else [(h[: len(gradient)], gradient)]
    beside = [] if own is None else [(gradient, array_of(layer.own_weight).T)]
    mixed = block.unmixed(gradient) if here.mixed is None else gradient
    pairs.append((h if here.mixed is None else here.mixed, mixed))
    *by_own, by_weight = transposed_products(pairs)
    gradients.add(original.weight, torch.from_numpy(by_weight))
    if own is not None:
        gradients.add(own, torch.from_numpy(by_own[0]))
    if below is None:
        return [], True
    if here.mixed is None:
        return [(mixed, turned), *beside], False
    block.unmixed(times(gradient, turned), below)
    return beside, True


def _unconvolve_input(here: _Layer, gradient: FloatArray, gradients: _Gradients) -> None:
    """`_unconvolve` of a layer whose rows are the input: sparse, or already mixed."""
    original, h, block = here.original, here.h, here.block
    own, d = original.own_weight, gradient.shape[1]
    if block is None:  # rows of [ÂX | X]
        both = _turned_times(h, gradient)
        gradients.add(original.weight, both[: len(original.weight)])
        if own is not None:
            gradients.add(own, both[len(original.weight) :])
        return
    mixed = block.unmixed(gradient)
    if own is not None:  # its rows are the block's first ones
        mixed = np.concatenate([mixed, np.zeros_like(mixed)], axis=1)
        mixed[: len(gradient), d:] = gradient
    both = _turned_times(h, mixed)
    gradients.add(original.weight, both[:, :d])
    if own is not None:
        gradients.add(own, both[:, d:])


def _stacked(layer: GraphConvolution) -> FloatArray:
    """W above R."""
    weight = array_of(layer.weight)
    if layer.own_weight is None:
        return weight
    return np.concatenate([weight, array_of(layer.own_weight)])


def _turned_times(h: InputRows, gradient: FloatArray) -> Tensor:
    """Hᵀ times a gradient."""
    if isinstance(h, SparseMatrix):
        return torch.from_numpy(h.transposed_times(gradient))
    return torch.from_numpy(transposed_times(h.numpy(), gradient))
