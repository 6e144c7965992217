"""One step of training, from blocks to new weights: by autograd, or compiled for the plain GCN."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.kernels.gradients import adam_update
from fastgcn.kernels.step import (
    MIX_FIRST,
    NO_BLOCK,
    SPARSE_INPUT,
    WEIGHT_FIRST,
    train_step,
    train_steps,
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


@dataclass(slots=True)
class Moments:
    """A parameter and its moments as arrays over the same memory, its L2, and the steps so far."""

    weight: FloatArray
    mean: FloatArray
    square: FloatArray
    decay: float
    step: int

    @property
    def parts(self) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        return self.weight, self.mean, self.square, self.decay


class Adam(torch.optim.Adam):
    """torch's Adam, its state open to compiled updates of parameters on the CPU."""

    def __init__(self, groups: list[dict[str, Any]], learning_rate: float) -> None:
        super().__init__(groups, lr=learning_rate)
        self.learning_rate = learning_rate
        self._moments: dict[int, Moments] = {}

    def update(self, parameter: nn.Parameter, gradient: FloatArray) -> None:
        """Move one parameter along its gradient."""
        moments = self.moments(parameter)
        moments.step += 1
        adam_update(
            moments.weight.reshape(-1),
            gradient.reshape(-1),
            moments.mean.reshape(-1),
            moments.square.reshape(-1),
            moments.step,
            self.learning_rate,
            moments.decay,
        )

    def moments(self, parameter: nn.Parameter) -> Moments:
        """What an update of this parameter reads and writes."""
        found = self._moments.get(id(parameter))
        if found is not None:
            return found
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter, requires_grad=False)
            state["exp_avg_sq"] = torch.zeros_like(parameter, requires_grad=False)
        (decay,) = (
            group["weight_decay"]
            for group in self.param_groups
            if any(p is parameter for p in group["params"])
        )
        arrays = (_array(t) for t in (parameter, state["exp_avg"], state["exp_avg_sq"]))
        weight, mean, square = arrays
        moments = Moments(weight, mean, square, decay, int(state["step"]))
        self._moments[id(parameter)] = moments
        return moments

    def state_dict(self) -> dict[str, Any]:
        for group in self.param_groups:
            for parameter in group["params"]:
                if (moments := self._moments.get(id(parameter))) is not None:
                    self.state[parameter]["step"].fill_(moments.step)
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._moments.clear()


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
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss_of(self.model, self.loss, blocks, x, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.on_cpu:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    self.optimizer.update(parameter, parameter.grad.numpy())
        else:
            self.optimizer.step()
        return float(loss.item())

    def many(self, group: BlockGroup, x: InputRows, labels: Tensor) -> list[float]:
        return [self(*each) for each in group.each(x, labels)]


class CompiledStep:
    """The paper's network on the CPU: layers ReLU(ÂHW + b) under cross entropy (eq. 1, 10)."""

    def __init__(self, model: GCN, loss: nn.CrossEntropyLoss, optimizer: Adam) -> None:
        self.optimizer = optimizer
        self.layers = model.convolutions
        self.class_weights = _array(loss.weight)
        self.by_autograd = AutogradStep(model, loss, optimizer)

    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float:
        if any(block.csr is None or block.mix_first_only for block in blocks):
            return self.by_autograd(blocks, x, labels)
        weights, biases = self._moments(steps=1)
        bare = len(self.layers) - len(blocks)
        orders = [
            MIX_FIRST if layer.mix_first(block) else WEIGHT_FIRST
            for layer, block in zip(self.layers[bare:], blocks, strict=True)
        ]
        inputs, lowest = _NO_INPUTS, [(NO_BLOCK, _NO_CSR)] * bare
        if isinstance(x, SparseRows):
            lowest[0] = SPARSE_INPUT, x.csr
        else:
            inputs = x.numpy()
        loss: float = train_step(
            inputs,
            labels.numpy(),
            self.class_weights,
            (*(order for order, _ in lowest), *orders),
            (*(csr for _, csr in lowest), *(cast(Csr, block.csr) for block in blocks)),
            tuple(moments.parts for moments in weights),
            tuple(moments.parts for moments in biases),
            weights[0].step,
            self.optimizer.learning_rate,
        )
        return loss

    def many(self, group: BlockGroup, x: InputRows, labels: Tensor) -> list[float]:
        if len(self.layers) != 2:
            return [self(*each) for each in group.each(x, labels)]
        weights, biases = self._moments(steps=len(group))
        losses = np.empty(len(group))
        train_steps(
            _NO_INPUTS if isinstance(x, SparseRows) else x.numpy(),
            x.csr if isinstance(x, SparseRows) else _NO_CSR,
            labels.numpy(),
            self.class_weights,
            group.arrays,
            tuple(moments.parts for moments in weights),
            tuple(moments.parts for moments in biases),
            weights[0].step - len(group) + 1,
            self.optimizer.learning_rate,
            losses,
        )
        return losses.tolist()

    def _moments(self, *, steps: int) -> tuple[list[Moments], list[Moments]]:
        """Of weights and biases, so many steps further."""
        weights = [self.optimizer.moments(layer.weight) for layer in self.layers]
        biases = [
            _NO_BIAS if layer.bias is None else self.optimizer.moments(layer.bias)
            for layer in self.layers
        ]
        for moments in (*weights, *biases):
            moments.step += steps
        return weights, biases


def _array(tensor: Tensor | None) -> FloatArray:
    """The array behind a tensor; empty for None."""
    if tensor is None:
        return np.empty(0, np.float32)
    return cast(FloatArray, tensor.detach().numpy())


_NO_BIAS = Moments(_array(None), _array(None), _array(None), 0.0, 0)
_NO_CSR: Csr = (np.zeros(1, np.int64), np.empty(0, np.int64), _array(None))
_NO_INPUTS: FloatArray = np.empty((0, 0), np.float32)
