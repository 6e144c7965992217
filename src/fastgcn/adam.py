"""Adam, moved by compiled loops on the CPU and by torch elsewhere."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.kernels.gradients import adam_update
from fastgcn.types import FloatArray


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


class Adam:
    """Adam (Kingma & Ba) with L2, its state open to compiled updates of parameters on the CPU.

    Not a subclass of torch's, which brings torch's compiler into every process: seconds.

    Attributes:
        param_groups: `params` and their `weight_decay`, as in torch.
        state: of each parameter that was moved, `step`, `exp_avg` and `exp_avg_sq`, as in torch.
    """

    def __init__(self, groups: list[dict[str, Any]], learning_rate: float) -> None:
        self.param_groups = groups
        self.learning_rate = learning_rate
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self._moments: dict[int, Moments] = {}

    def zero_grad(self) -> None:
        for parameter in self._parameters():
            parameter.grad = None

    def update(self, parameter: nn.Parameter, gradient: FloatArray) -> None:
        """Move one parameter on the CPU along its gradient."""
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

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters along their gradients, by torch: for any device."""
        from torch.optim.adam import adam

        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            states = [self.state_of(p) for p in moved]
            adam(
                moved,
                [p.grad for p in moved],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.learning_rate,
                weight_decay=group["weight_decay"],
                eps=1e-8,
                maximize=False,
            )

    def moments(self, parameter: nn.Parameter) -> Moments:
        """What an update of this parameter on the CPU reads and writes."""
        found = self._moments.get(id(parameter))
        if found is not None:
            return found
        state = self.state_of(parameter)
        (decay,) = (
            group["weight_decay"]
            for group in self.param_groups
            if any(p is parameter for p in group["params"])
        )
        arrays = (array_of(t) for t in (parameter, state["exp_avg"], state["exp_avg_sq"]))
        weight, mean, square = arrays
        moments = Moments(weight, mean, square, decay, int(state["step"]))
        self._moments[id(parameter)] = moments
        return moments

    def state_dict(self) -> dict[str, Any]:
        """`state` by the parameters' numbers, and the groups with numbers in their place."""
        for parameter in self._parameters():
            if (moments := self._moments.get(id(parameter))) is not None:
                self.state[parameter]["step"].fill_(moments.step)
        numbers = {parameter: number for number, parameter in enumerate(self._parameters())}
        return {
            "state": {numbers[parameter]: state for parameter, state in self.state.items()},
            "param_groups": [
                group | {"params": [numbers[p] for p in group["params"]]}
                for group in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Copy the `state` of such a dictionary; groups stay as they are."""
        parameters = dict(enumerate(self._parameters()))
        self.state = {}
        for number, state in state_dict["state"].items():
            like = parameters[number]
            self.state[like] = {
                name: value.clone() if name == "step" else value.to(like, copy=True).view_as(like)
                for name, value in state.items()
            }
        self._moments.clear()

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def state_of(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        if parameter not in self.state:
            self.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
            }
        return self.state[parameter]


def array_of(tensor: Tensor | None) -> FloatArray:
    """The array behind a tensor; empty for None."""
    if tensor is None:
        return np.empty(0, np.float32)
    return cast(FloatArray, tensor.detach().numpy())
