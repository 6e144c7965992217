"""Steps without autograd for networks with own rows, norms, dropout and pairs, on the CPU.

What autograd would record is written out. So W and R are multiplied in one product where they can
be, hidden rows are changed in place, and a dropout mask is not kept: a row that is zero after ReLU
and dropout has no gradient, whichever of them made it so. `AutogradStep` is the reference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.arrays import FloatArray
from fastgcn.backends.steps import Adam, AutogradStep, CompiledStep, Step, array_of
from fastgcn.features.sparse import InputRows, SparseMatrix
from fastgcn.kernels.activation import ROWS, activate, activate_back
from fastgcn.kernels.counter_random import mask_values
from fastgcn.kernels.dense import transposed_times
from fastgcn.machine import cuts, over_ranges
from fastgcn.model import GCN, BatchNorm, GraphConvolution, product, without_own_rows
from fastgcn.network import Network
from fastgcn.sampling.block import Block, BlockGroup

# Below this many numbers, waking a second thread costs more time than it saves.
_WORTH_SHARING = 1 << 18

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
        z: its output with the bias, if a norm follows.
        scales: (n, 2) each row's mean and 1/sd in the norm.
    """

    layer: GraphConvolution
    original: GraphConvolution
    number: int
    h: InputRows
    block: Block | None
    mixed: Tensor | None = None
    z: FloatArray = field(default_factory=lambda: _NOTHING)
    scales: FloatArray = field(default_factory=lambda: _NOTHING)


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
            self.passed.append(here)
            out = _convolve(here)
            if number == len(layers) - 1:
                self.out = out
            else:
                h = self._activated(here, out)

    def _activated(self, here: _Layer, out: Tensor) -> Tensor:
        """The rows that the next layer reads: bias, norm, ReLU and dropout in one go."""
        gain, shift, epsilon = self._norm(here.number)
        z, bias = out.numpy(), array_of(here.layer.bias)
        h = np.empty_like(z) if gain.size else z
        here.z, here.scales = z, np.empty((len(z) if gain.size else 0, 2), np.float32)
        dropped, value = mask_values(self._rate(here.number + 1))
        seed = np.uint64(self.model.dropout.seed() if dropped else 0)
        _by_rows(
            lambda a, b: activate(
                a, b, z, bias, gain, shift, epsilon, seed, dropped, value, here.scales, h
            ),
            z,
        )
        return torch.from_numpy(h)

    def _rate(self, number: int) -> float:
        return self.model.dropout.rates[number] if self.model.training else 0.0

    def _norm(self, number: int) -> tuple[FloatArray, FloatArray, float]:
        """Gain, shift and ε of a layer norm; empty arrays if there is none."""
        norm = self.model.norms[number]
        if not isinstance(norm, nn.LayerNorm):
            return _NOTHING[0], _NOTHING[0], 0.0
        return array_of(norm.weight), array_of(norm.bias), norm.eps

    def back(self, gradient: Tensor, members: int, gradients: _Gradients) -> None:
        """Add the gradients of all weights; `gradient` (s, C) is that of one network's loss."""
        last = self.passed[-1].original
        if last.bias is not None:
            gradients.add(last.bias, gradient.sum(0) / members)
        for here in reversed(self.passed):
            below = _unconvolve(here, gradient, gradients)
            if below is not None:
                gradient = self._unactivated(here.number - 1, below, gradients)

    def _unactivated(self, number: int, gradient: Tensor, gradients: _Gradients) -> Tensor:
        """The gradient by a layer's output, from that by the rows that the next layer read."""
        here, rows = self.passed[number], cast(Tensor, self.passed[number + 1].h).numpy()
        gain, _, _ = self._norm(number)
        _, value = mask_values(self._rate(number + 1))
        slope = gradient.contiguous().numpy()
        sums = np.empty((-(-len(slope) // ROWS), 3, slope.shape[1]), np.float32)
        _by_rows(
            lambda a, b: activate_back(
                a, b, slope, rows, here.z, gain, value, here.scales, sums[a // ROWS]
            ),
            slope,
        )
        total = torch.from_numpy(sums.sum(axis=0))
        if here.original.bias is not None:
            gradients.add(here.original.bias, total[0])
        norm = self.model.norms[number]
        if gain.size:
            gradients.add(cast(Tensor, norm.weight), total[1])
            gradients.add(cast(Tensor, norm.bias), total[2])
        return torch.from_numpy(slope)


def _by_rows(work: Callable[[int, int], None], rows: FloatArray) -> None:
    """Call `work` with ranges of rows of fixed lengths, on several threads if that pays."""
    bounds = cuts(len(rows), ROWS)
    if rows.size < _WORTH_SHARING:
        for start, stop in pairwise(bounds):
            work(start, stop)
    else:
        over_ranges(work, bounds)


def _contiguous(layer: GraphConvolution) -> GraphConvolution:
    """The layer itself, or a copy of one whose weights are parts of others."""
    if layer.weight.is_contiguous():
        return layer
    return layer.part(slice(None), slice(None), own=True, contiguous=True)


def _convolve(here: _Layer) -> Tensor:
    """(s, d'): ÂHW + OR of a layer, without its bias."""
    layer, h, block = here.layer, here.h, here.block
    weight, own = layer.weight, layer.own_weight
    if block is None:  # rows of [ÂX | X]
        both = _stacked(layer)
        return h @ both if isinstance(h, SparseMatrix) else product(h, both)
    if isinstance(h, SparseMatrix):
        if own is None:
            return block.mix(h @ weight)
        d, both = weight.shape[1], h @ torch.cat([weight, own], dim=1)
        return block.mix(both[:, :d].contiguous()).add_(both[: block.dst.numel(), d:])
    if layer.mix_first(block):
        here.mixed = block.mix(h)
        out = product(here.mixed, weight)
    else:
        out = block.mix(product(h, weight))
    return out if own is None else out.add_(product(block.own_rows(h), own))


def _unconvolve(here: _Layer, gradient: Tensor, gradients: _Gradients) -> Tensor | None:
    """Add the gradients of W and R; the gradient by the layer's rows, unless they are the input."""
    layer, original, h, block = here.layer, here.original, here.h, here.block
    own = original.own_weight
    if block is None:
        both = _turned_times(h, gradient)
        gradients.add(original.weight, both[: len(layer.weight)])
        if own is not None:
            gradients.add(own, both[len(layer.weight) :])
        return None
    if isinstance(h, SparseMatrix):
        mixed = block.unmix(gradient)
        if own is not None:  # its rows are the block's first ones
            mixed = torch.cat([mixed, torch.zeros_like(mixed)], dim=1)
            mixed[: len(gradient), gradient.shape[1] :] = gradient
        both = _turned_times(h, mixed)
        gradients.add(original.weight, both[:, : gradient.shape[1]])
        if own is not None:
            gradients.add(own, both[:, gradient.shape[1] :])
        return None
    if own is not None:
        gradients.add(own, _turned_times(block.own_rows(h), gradient))
    if here.mixed is not None:
        gradients.add(original.weight, _turned_times(here.mixed, gradient))
        below = None if here.number == 0 else block.unmix(product(gradient, layer.weight.T))
    else:
        mixed = block.unmix(gradient)
        gradients.add(original.weight, _turned_times(h, mixed))
        below = None if here.number == 0 else product(mixed, layer.weight.T)
    if below is not None and layer.own_weight is not None:
        below[: len(gradient)] += product(gradient, layer.own_weight.T)
    return below


def _stacked(layer: GraphConvolution) -> Tensor:
    """W above R."""
    own = layer.own_weight
    return layer.weight if own is None else torch.cat([layer.weight, own])


def _turned_times(h: InputRows, gradient: Tensor) -> Tensor:
    """Hᵀ times a gradient."""
    if isinstance(h, SparseMatrix):
        return torch.from_numpy(h.transposed_times(gradient.contiguous().numpy()))
    return torch.from_numpy(transposed_times(h.numpy(), gradient.numpy()))
