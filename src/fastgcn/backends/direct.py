"""Steps without autograd for networks with own rows, norms, dropout and pairs, on the CPU.

What autograd would record is written out. So W and R are multiplied in one product where they can
be, hidden rows are changed in place, and a dropout mask is not kept: a row that is zero after ReLU
and dropout has no gradient, whichever of them made it so. `AutogradStep` is the reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from fastgcn.arrays import FloatArray
from fastgcn.backends.steps import Adam, AutogradStep, CompiledStep, Step
from fastgcn.features.sparse import InputRows, SparseMatrix
from fastgcn.kernels.counter_random import kept_value
from fastgcn.kernels.dense import transposed_times
from fastgcn.model import GCN, BatchNorm, GraphConvolution, product, without_own_rows
from fastgcn.sampling.block import Block, BlockGroup


def make_step(model: GCN, loss: nn.Module, optimizer: Adam) -> Step:
    """The fastest step that this network, loss and device have."""
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

    @torch.no_grad()
    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float:
        if any(block.csr is None or block.mix_first_only for block in blocks):
            with torch.enable_grad():
                return self.by_autograd(blocks, x, labels)
        members = self.model.members()
        gradients = _Gradients(self.model) if len(members) > 1 else _Gradients()
        total = 0.0
        for layers in members:
            passed = _Pass(self.model, layers, blocks, x)
            logits = len(members) * passed.out
            if layers[-1].bias is not None:
                logits += layers[-1].bias
            value, gradient = self._loss(logits, labels)
            total += value / len(members)
            passed.back(gradient, len(members), gradients)
        for parameter, found in gradients.of(self.model):
            self.optimizer.update(parameter, found)
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

    def __init__(self, model: GCN | None = None) -> None:
        # A pair's weights have entries that no network reaches; they keep their zeros.
        self._whole = {} if model is None else {p: torch.zeros_like(p) for p in model.parameters()}
        self._found: dict[Any, Tensor] = {}

    def add(self, parameter: Tensor, gradient: Tensor) -> None:
        """Add a gradient of a parameter, or of a view of one."""
        base = parameter._base
        if not self._whole:
            self._found[parameter] = gradient
            return
        whole = self._whole[cast(nn.Parameter, parameter if base is None else base)]
        whole.as_strided(parameter.shape, parameter.stride(), parameter.storage_offset()).add_(
            gradient
        )

    def of(self, model: GCN) -> list[tuple[nn.Parameter, FloatArray]]:
        found = self._whole or self._found
        return [(p, found[p].contiguous().numpy()) for p in model.parameters() if p in found]


@dataclass(slots=True)
class _Layer:
    """What the way back needs of a layer.

    Attributes:
        h: the rows that the layer read, after dropout.
        mixed: ÂH, if that came before W.
        norm: input, mean and 1/sd of a layer norm.
    """

    layer: GraphConvolution
    number: int
    h: InputRows
    block: Block | None
    mixed: Tensor | None = None
    norm: tuple[Tensor, Tensor, Tensor] | None = None


class _Pass:
    """One network's way from its input rows to `out` (s, C), the logits without bias; and back."""

    def __init__(
        self,
        model: GCN,
        layers: Sequence[GraphConvolution],
        blocks: Sequence[Block],
        x: InputRows,
    ) -> None:
        self.model, self.layers = model, [_contiguous(layer) for layer in layers]
        self.originals = layers
        self.passed: list[_Layer] = []
        bare, h = len(layers) - len(blocks), x
        if bare and layers[0].own_weight is None:
            h = cast(InputRows, without_own_rows(h, len(layers[0].weight)))
        for number, layer in enumerate(self.layers):
            h = self._dropped(h, number)
            here = _Layer(layer, number, h, blocks[number - bare] if number >= bare else None)
            self.passed.append(here)
            out = _convolve(here)
            if number == len(layers) - 1:
                self.out = out
                return
            if layer.bias is not None:
                out += layer.bias
            h = self._normed(here, out).relu_()

    def _dropped(self, h: InputRows, number: int) -> InputRows:
        rates = self.model.dropout.rates
        if number == 0 or rates[number] == 0 or not self.model.training:
            return cast(InputRows, self.model.dropout(h, number))
        assert isinstance(h, Tensor)
        return h.mul_(self.model.dropout.mask(h.shape, rates[number]))

    def _normed(self, here: _Layer, out: Tensor) -> Tensor:
        norm = self.model.norms[here.number]
        if not isinstance(norm, nn.LayerNorm):
            return out
        shape = list(norm.normalized_shape)
        normed, mean, scale = torch.native_layer_norm(out, shape, norm.weight, norm.bias, norm.eps)
        here.norm = out, mean, scale
        return normed

    def back(self, gradient: Tensor, members: int, gradients: _Gradients) -> None:
        """Add the gradients of all weights; `gradient` (s, C) is that of one network's loss."""
        for here in reversed(self.passed):
            original = self.originals[here.number]
            last = here.number == len(self.layers) - 1
            if original.bias is not None:
                share = 1 / members if last else 1.0
                gradients.add(original.bias, gradient.sum(0) * share)
            below = _unconvolve(here, original, gradient, gradients)
            if below is not None:
                gradient = self._unnormed(here.number - 1, below, gradients)

    def _unnormed(self, number: int, gradient: Tensor, gradients: _Gradients) -> Tensor:
        """The gradient by a layer's output, from that by its rows after norm, ReLU and dropout."""
        rows, rate = self.passed[number + 1].h, self.model.dropout.rates[number + 1]
        gradient = torch.ops.aten.threshold_backward(gradient, rows, 0)
        if rate > 0 and self.model.training:
            gradient *= float(kept_value(rate))
        here, norm = self.passed[number], self.model.norms[number]
        if here.norm is None:
            return gradient
        assert isinstance(norm, nn.LayerNorm)
        out, mean, scale = here.norm
        gradient, weight, bias = torch.ops.aten.native_layer_norm_backward(
            gradient,
            out,
            list(norm.normalized_shape),
            mean,
            scale,
            norm.weight,
            norm.bias,
            [True, True, True],
        )
        gradients.add(norm.weight, weight)
        gradients.add(norm.bias, bias)
        return gradient


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
        out = block.mix(h @ weight)
        return out if own is None else out.add_(h.between(0, block.dst.numel()) @ own)
    if layer.mix_first(block):
        here.mixed = block.mix(h)
        out = product(here.mixed, weight)
    else:
        out = block.mix(product(h, weight))
    return out if own is None else out.add_(product(block.own_rows(h), own))


def _unconvolve(
    here: _Layer, original: GraphConvolution, gradient: Tensor, gradients: _Gradients
) -> Tensor | None:
    """Add the gradients of W and R; the gradient by the layer's rows, unless they are the input."""
    layer, h, block = here.layer, here.h, here.block
    own = original.own_weight
    if block is None:
        both = _turned_times(h, gradient)
        gradients.add(original.weight, both[: len(layer.weight)])
        if own is not None:
            gradients.add(own, both[len(layer.weight) :])
        return None
    rows = h.between(0, block.dst.numel()) if isinstance(h, SparseMatrix) else block.own_rows(h)
    if own is not None:
        gradients.add(own, _turned_times(rows, gradient))
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
