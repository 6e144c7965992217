"""One step of training, from blocks to new weights: by autograd, or compiled for the plain GCN."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.kernels import gradients as compiled
from fastgcn.models import GCN
from fastgcn.samplers import Block
from fastgcn.types import FloatArray


class Step(Protocol):
    """Moves the weights along one batch's gradient, and says its loss."""

    def __call__(self, blocks: Sequence[Block], x: Tensor, labels: Tensor) -> float: ...


class Adam(torch.optim.Adam):
    """torch's Adam; `update` is its compiled equal for one parameter on the CPU."""

    def __init__(self, groups: list[dict[str, Any]], learning_rate: float) -> None:
        super().__init__(groups, lr=learning_rate)
        self._arrays: dict[nn.Parameter, tuple[FloatArray, FloatArray, FloatArray, float]] = {}

    def update(self, parameter: nn.Parameter, gradient: FloatArray) -> None:
        """Move one parameter along its gradient."""
        if parameter not in self._arrays:
            self._arrays[parameter] = self._look_up(parameter)
        weight, mean, square, decay = self._arrays[parameter]
        step = self.state[parameter]["step"].add_(1)
        compiled.adam_update(
            weight, gradient.reshape(-1), mean, square, int(step), self.defaults["lr"], decay
        )

    def _look_up(self, parameter: nn.Parameter) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """The arrays behind a parameter and its moments, flat, and its L2."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter, requires_grad=False)
            state["exp_avg_sq"] = torch.zeros_like(parameter, requires_grad=False)
        tensors = parameter.detach(), state["exp_avg"], state["exp_avg_sq"]
        weight, mean, square = (tensor.numpy().reshape(-1) for tensor in tensors)
        for group in self.param_groups:
            if any(p is parameter for p in group["params"]):
                return weight, mean, square, group["weight_decay"]
        raise AssertionError("the parameter is not one of this optimiser's")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._arrays.clear()


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
        self.device = next(model.parameters()).device

    def __call__(self, blocks: Sequence[Block], x: Tensor, labels: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model([block.to(self.device) for block in blocks], x.to(self.device))
        loss = self.loss(logits, labels.to(self.device))
        loss.backward()
        if self.device.type == "cpu":
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    self.optimizer.update(parameter, parameter.grad.numpy())
        else:
            self.optimizer.step()
        return float(loss.item())


class CompiledStep:
    """The paper's network on the CPU: layers ReLU(ÂHW + b) under cross entropy (eq. 1, 10)."""

    def __init__(self, model: GCN, loss: nn.CrossEntropyLoss, optimizer: Adam) -> None:
        self.optimizer = optimizer
        self.layers = model.convolutions
        # The arrays behind the parameters, which are only ever changed in place.
        self.weights = [_array(layer.weight) for layer in self.layers]
        self.biases = [_array(layer.bias) for layer in self.layers]
        self.class_weights = _array(loss.weight)

    def __call__(self, blocks: Sequence[Block], x: Tensor, labels: Tensor) -> float:
        depth = len(self.layers)
        places: list[Block | None] = [*([None] * (depth - len(blocks))), *blocks]
        mix_first = [
            block is not None and layer.mix_first(block)
            for layer, block in zip(self.layers, places, strict=True)
        ]
        h: FloatArray = x.numpy()
        tape = []
        for number, block in enumerate(places):
            factor = block.mixed(h) if block is not None and mix_first[number] else h
            h = factor @ self.weights[number]
            if block is not None and not mix_first[number]:
                h = block.mixed(h)
            compiled.add_bias_relu(h, self.biases[number], number < depth - 1)
            tape.append((factor, h))
        gradient: FloatArray = torch.softmax(torch.from_numpy(h), dim=1).numpy()
        loss: float = compiled.cross_entropy(h, gradient, labels.numpy(), self.class_weights)
        for number in range(depth - 1, -1, -1):
            block, (factor, out) = places[number], tape[number]
            for_bias = compiled.bias_relu_backward(gradient, out, number < depth - 1)
            if block is not None and not mix_first[number]:
                gradient = block.unmixed(gradient)
            for_weight = factor.T @ gradient
            if number > 0:
                gradient = gradient @ self.weights[number].T
                if block is not None and mix_first[number]:
                    gradient = block.unmixed(gradient)
            self.optimizer.update(self.layers[number].weight, for_weight)
            if len(self.biases[number]):
                self.optimizer.update(cast(nn.Parameter, self.layers[number].bias), for_bias)
        return loss


def _array(tensor: Tensor | None) -> FloatArray:
    """The array behind a tensor; empty for None."""
    if tensor is None:
        return np.empty(0, np.float32)
    return cast(FloatArray, tensor.detach().numpy())
