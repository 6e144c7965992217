"""Adam, moved by compiled loops on the CPU and by torch elsewhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.features.sparse import InputRows, SparseMatrix
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
    adam_update,
    train_steps,
    work_size,
)
from fastgcn.machine import over_ranges, pool_threads
from fastgcn.model import GCN
from fastgcn.network import Network
from fastgcn.sampling.block import Block, BlockGroup

# Below this many numbers, waking a second thread costs more time than it saves.
_WORTH_SHARING = 1 << 19


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

    Not a subclass of torch's, which loads torch's compiler into every process and takes seconds.

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
        arrays = (moments.weight, gradient, moments.mean, moments.square)
        weight, slope, mean, square = (each.reshape(-1) for each in arrays)

        def update(a: int, b: int) -> None:
            adam_update(
                weight[a:b], slope[a:b], mean[a:b], square[a:b],
                moments.step, self.learning_rate, moments.decay,
            )  # fmt: skip

        pieces = pool_threads() if len(weight) >= _WORTH_SHARING else 1
        over_ranges(update, np.linspace(0, len(weight), pieces + 1).astype(np.int64))

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
        """The arrays that an update of this parameter on the CPU reads and writes."""
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
        """`state` by parameter number, and the groups with numbers instead of parameters."""
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
        """Copy the `state` of a `state_dict()`; groups stay as they are."""
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


Csr = tuple[IntArray, IntArray, FloatArray]


class Step(Protocol):
    """Moves the weights along one batch's gradient and returns its loss."""

    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float: ...

    def many(self, group: BlockGroup, x: InputRows, labels: Tensor) -> list[float]:
        """A step for each batch of a group, given the rows of its `src` and labels of `dst`."""
        ...


def loss_of(
    model: Network, loss: nn.Module, blocks: Sequence[Block], x: InputRows, labels: Tensor
) -> Tensor:
    """The loss of a batch, on the network's device; for a pair of networks, the mean of both."""
    device = next(model.parameters()).device
    known, there = labels.to(device), [block.to(device) for block in blocks]
    return mean_loss(model, there, x.to(device), lambda logits: cast(Tensor, loss(logits, known)))


def mean_loss(
    model: Network,
    blocks: Sequence[Any],
    x: Any,
    loss: Callable[[Tensor], Tensor],
) -> Tensor:
    """The loss of a network's logits; for a pair of networks, the mean of both."""
    first, *others = map(loss, model.member_logits(blocks, x))
    return sum(others, first) / (1 + len(others)) if others else first


def flat_gradient(
    model: Network, loss: nn.Module, blocks: Sequence[Block], x: InputRows, labels: Tensor
) -> Tensor:
    """(parameters,): the derivatives of a batch's loss by all weights, on the CPU."""
    value = loss_of(model, loss, blocks, x, labels)
    parts = torch.autograd.grad(value, list(model.parameters()))
    return torch.cat([part.reshape(-1) for part in parts]).cpu()


class AutogradStep:
    """Any network, any loss, any device."""

    def __init__(self, model: Network, loss: nn.Module, optimizer: Adam) -> None:
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
        bare = len(self.layers) - len(blocks)
        mixed_later = isinstance(x, SparseMatrix) and not bare
        if mixed_later or any(block.csr is None or block.mix_first_only for block in blocks):
            return self.by_autograd(blocks, x, labels)
        shapes = np.zeros((1, len(self.layers), 4), np.int64)
        parts = [_NO_CSR] * bare
        if bare:
            shapes[0, :bare] = NO_BLOCK, len(x), len(x), 0
        if isinstance(x, SparseMatrix):
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
        sparse = isinstance(x, SparseMatrix)
        shapes[:, 0, ORDER] = SPARSE_INPUT if sparse else NO_BLOCK
        shapes[:, 0, ROWS], shapes[:, 0, FIRST] = sources, firsts
        mix_first = mixing_first_pays(entries, size, sources, *self.sizes[1:])
        shapes[:, 1, ORDER] = np.where(mix_first, MIX_FIRST, WEIGHT_FIRST)
        shapes[:, 1, ROWS], shapes[:, 1, FIRST] = size, np.arange(count) * (size + 1)
        shapes[:, :, SOURCES] = sources[:, None]
        indptr, end = (offsets + begins[:, None]).reshape(-1), starts[0, -1]
        parts = [x.csr if isinstance(x, SparseMatrix) else _NO_CSR]
        parts.append((indptr, columns[:end], values[:end]))
        return self._steps(parts, shapes, x, labels)

    def _steps(
        self, parts: list[Csr], shapes: IntArray, x: InputRows, labels: Tensor
    ) -> list[float]:
        """Take a step for each of `shapes`, which are in `train_steps`' format."""
        parameters = self._parameters(steps=len(shapes))
        needed = work_size(self.sizes, shapes)
        if needed > len(self.work):
            self.work = np.empty(needed + needed // 4, np.float32)
        losses = np.empty(len(shapes))
        train_steps(
            sgemm_address(),
            _NO_FLOATS if isinstance(x, SparseMatrix) else x.numpy().reshape(-1),
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
        """All weights and then all biases; their step counts are advanced by `steps`."""
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
    """Parameters in `train_steps`' format; kept, because making them takes half a step's time."""

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
