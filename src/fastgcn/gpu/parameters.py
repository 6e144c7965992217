"""A network's parameters and Adam's moments on the device."""

from torch import Tensor

from fastgcn.adam import Adam
from fastgcn.kernels.gpu.adam import Parameter
from fastgcn.models import GCN


class DeviceParameters:
    """The network's parameters and their moments, where the device's kernels find them."""

    def __init__(self, model: GCN, optimizer: Adam) -> None:
        self.rate, self.optimizer = optimizer.learning_rate, optimizer
        self.tensors = list(model.parameters())
        decays = {
            id(p): float(group["weight_decay"])
            for group in optimizer.param_groups
            for p in group["params"]
        }
        states = [optimizer.state_of(p) for p in self.tensors]
        self.known = {
            id(p): Parameter(p.detach(), state["exp_avg"], state["exp_avg_sq"], decays[id(p)])
            for p, state in zip(self.tensors, states, strict=True)
        }
        self.steps = int(states[0]["step"])

    def __call__(self, tensor: Tensor | None) -> Parameter | None:
        return None if tensor is None else self.known[id(tensor)]

    @property
    def memory(self) -> list[Tensor]:
        """All that a step changes."""
        return [part for known in self.known.values() for part in known.parts]

    def count(self, steps: int) -> None:
        """Tell the optimiser how many steps were taken."""
        self.steps += steps
        for tensor in self.tensors:
            self.optimizer.state_of(tensor)["step"].fill_(self.steps)
