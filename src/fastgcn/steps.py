"""One step of training, from blocks to new weights: by autograd, or compiled for the plain GCN."""

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.adam import Adam, Moments, array_of
from fastgcn.kernels.blas import sgemm_address
from fastgcn.kernels.products import mixing_first_pays
from fastgcn.kernels.step import (
    FIRST,
    MIX_FIRST,
    NO_BLOCK,
    ORDER,
    ROWS,
    SOURCES,
    SPARSE_INPUT,
    WEIGHT_FIRST,
    train_steps,
    work_size,
)
from fastgcn.models import GCN
from fastgcn.samplers import Block
from fastgcn.samplers.group import BlockGroup
from fastgcn.sparse_rows import InputRows, SparseRows
from fastgcn.types import FloatArray, IntArray

Csr = tuple[IntArray, IntArray, FloatArray]


class Step(Protocol):
    """Moves the weights along one batch's gradient, and says its loss."""

    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float: ...

    def many(self, group: BlockGroup, x: InputRows, labels: Tensor) -> list[float]:
        """A step for each batch of a group, given the rows of its `src` and labels of `dst`."""
        ...


def loss_of(
    model: GCN, loss: nn.Module, blocks: Sequence[Block], x: InputRows, labels: Tensor
) -> Tensor:
    """The loss of a batch, on the network's device."""
    device = next(model.parameters()).device
    logits = model([block.to(device) for block in blocks], x.to(device))
    return cast(Tensor, loss(logits, labels.to(device)))


def flat_gradient(
    model: GCN, loss: nn.Module, blocks: Sequence[Block], x: InputRows, labels: Tensor
) -> Tensor:
    """(parameters,): the derivatives of a batch's loss by all weights, on the CPU."""
    value = loss_of(model, loss, blocks, x, labels)
    parts = torch.autograd.grad(value, list(model.parameters()))
    return torch.cat([part.reshape(-1) for part in parts]).cpu()


def make_step(model: GCN, loss: nn.Module, optimizer: Adam) -> Step:
    """The fastest step that this network, loss and device have."""
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    if on_cpu and model.plain and isinstance(loss, nn.CrossEntropyLoss):
        return CompiledStep(model, loss, optimizer)
    return AutogradStep(model, loss, optimizer)


class AutogradStep:
    """Any network, any loss, any device."""

    def __init__(self, model: GCN, loss: nn.Module, optimizer: Adam) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.on_cpu = next(model.parameters()).device.type == "cpu"

    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = loss_of(self.model, self.loss, blocks, x, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.move()
        return float(loss.item())

    def move(self) -> None:
        """Move all weights along their gradients."""
        if self.on_cpu:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    self.optimizer.update(parameter, parameter.grad.numpy())
        else:
            self.optimizer.step()

    def many(self, group: BlockGroup, x: InputRows, labels: Tensor) -> list[float]:
        return [self(*each) for each in group.each(x, labels)]


class CompiledStep:
    """The paper's network on the CPU: layers ReLU(ÂHW + b) under cross entropy (eq. 1, 10)."""

    def __init__(self, model: GCN, loss: nn.CrossEntropyLoss, optimizer: Adam) -> None:
        self.optimizer = optimizer
        self.layers = model.convolutions
        self.sizes = np.array(model.sizes)
        self.class_weights = array_of(loss.weight)
        self.by_autograd = AutogradStep(model, loss, optimizer)
        self.parameters: _Parameters | None = None
        self.work = np.empty(0, np.float32)

    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float:
        if any(block.csr is None or block.mix_first_only for block in blocks):
            return self.by_autograd(blocks, x, labels)
        bare = len(self.layers) - len(blocks)
        shapes = np.zeros((1, len(self.layers), 4), np.int64)
        parts = [_NO_CSR] * bare
        if bare:
            shapes[0, :bare] = NO_BLOCK, len(x), len(x), 0
        if isinstance(x, SparseRows):
            shapes[0, 0, ORDER], parts[0] = SPARSE_INPUT, x.csr
        for number, block in enumerate(blocks, bare):
            order = MIX_FIRST if self.layers[number].mix_first(block) else WEIGHT_FIRST
            shapes[0, number] = order, len(block.dst), len(block.src), 0
            parts.append(cast(Csr, block.csr))
        return self._steps(parts, shapes, x, labels)[0]

    def many(self, group: BlockGroup, x: InputRows, labels: Tensor) -> list[float]:
        if len(self.layers) != 2:
            return [self(*each) for each in group.each(x, labels)]
        offsets, columns, values, _, starts = group.arrays
        count, size = group.dst.shape
        (entries, sources), (begins, firsts) = starts[:, 1:] - starts[:, :-1], starts[:, :-1]
        shapes = np.empty((count, 2, 4), np.int64)
        sparse = isinstance(x, SparseRows)
        shapes[:, 0, ORDER] = SPARSE_INPUT if sparse else NO_BLOCK
        shapes[:, 0, ROWS], shapes[:, 0, FIRST] = sources, firsts
        mix_first = mixing_first_pays(entries, size, sources, *self.sizes[1:])
        shapes[:, 1, ORDER] = np.where(mix_first, MIX_FIRST, WEIGHT_FIRST)
        shapes[:, 1, ROWS], shapes[:, 1, FIRST] = size, np.arange(count) * (size + 1)
        shapes[:, :, SOURCES] = sources[:, None]
        indptr, end = (offsets + begins[:, None]).reshape(-1), starts[0, -1]
        parts = [x.csr if isinstance(x, SparseRows) else _NO_CSR]
        parts.append((indptr, columns[:end], values[:end]))
        return self._steps(parts, shapes, x, labels)

    def _steps(
        self, parts: list[Csr], shapes: IntArray, x: InputRows, labels: Tensor
    ) -> list[float]:
        """A step for each of `shapes`, as `train_steps` wants them."""
        parameters = self._parameters(steps=len(shapes))
        needed = work_size(self.sizes, shapes)
        if needed > len(self.work):
            self.work = np.empty(needed + needed // 4, np.float32)
        losses = np.empty(len(shapes))
        train_steps(
            sgemm_address(),
            _NO_FLOATS if isinstance(x, SparseRows) else x.numpy().reshape(-1),
            labels.numpy(),
            self.class_weights,
            self.sizes,
            shapes,
            (
                tuple(indptr for indptr, _, _ in parts),
                tuple(columns.astype(np.int32, copy=False) for _, columns, _ in parts),
                tuple(values for _, _, values in parts),
            ),
            parameters.arrays,
            parameters.decays,
            parameters.moments[0].step - len(shapes) + 1,
            self.optimizer.learning_rate,
            self.work,
            losses,
        )
        return losses.tolist()

    def _parameters(self, *, steps: int) -> "_Parameters":
        """All weights and then all biases, so many steps further."""
        kept = self.parameters
        if kept is None or kept.moments[0] is not self.optimizer.moments(self.layers[0].weight):
            tensors = [layer.weight for layer in self.layers] + [la.bias for la in self.layers]
            kept = _Parameters(
                [_NO_BIAS if t is None else self.optimizer.moments(t) for t in tensors]
            )
            self.parameters = kept
        for each in kept.moments:
            each.step += steps
        return kept


class _Parameters:
    """Parameters as `train_steps` wants them: making these tuples takes as long as half a step."""

    def __init__(self, moments: list[Moments]) -> None:
        self.moments = moments
        self.arrays = (
            tuple(each.weight.reshape(-1) for each in moments),
            tuple(each.mean.reshape(-1) for each in moments),
            tuple(each.square.reshape(-1) for each in moments),
        )
        self.decays = np.array([each.decay for each in moments])


_NO_FLOATS = array_of(None)
_NO_BIAS = Moments(_NO_FLOATS, _NO_FLOATS, _NO_FLOATS, 0.0, 0)
_NO_CSR: Csr = (np.zeros(1, np.int64), np.empty(0, np.int32), _NO_FLOATS)
