"""Work recorded as CUDA graphs, and the network's parameters in the memory that it moves."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from fastgcn.backends.steps import Adam
from fastgcn.kernels.gpu.step import Known, adam
from fastgcn.model import GCN


class Recording:
    """Device work that always runs the same kernels on the same memory, as a CUDA graph.

    `play` repeats it without the cost of launching each kernel. Recording first runs the work,
    then restores `state`, the tensors that the work changes permanently. With `tf32`, torch
    multiplies in TF32 in it. Without CUDA, `play` simply does the work.
    """

    def __init__(
        self,
        work: Callable[[], None],
        device: torch.device,
        state: Sequence[Tensor] = (),
        *,
        tf32: bool = False,
    ) -> None:
        self.play = work
        if device.type != "cuda":
            return
        here = torch.cuda.current_stream(device)
        # Kernels that others wait for go before those of an `Aside`, which has the usual priority.
        aside = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        graph = torch.cuda.CUDAGraph()
        with _products(tf32=tf32):
            try:
                # `torch.cuda.graph` would collect garbage and empty caches, which takes longer
                # than many recordings.
                with torch.cuda.stream(aside):
                    try_out(work, state)
                    graph.capture_begin()
                    try:
                        work()
                    finally:
                        graph.capture_end()
            finally:
                here.wait_stream(aside)
        self.play = graph.replay


@contextmanager
def _products(*, tf32: bool) -> Iterator[None]:
    """Let torch multiply in TF32, or not."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def try_out(work: Callable[[], None], state: Sequence[Tensor]) -> None:
    """Run the work once and restore the state."""
    saved = [part.clone() for part in state]
    work()
    for part, before in zip(state, saved, strict=True):
        part.copy_(before)


# Parameters begin at multiples of this many numbers in the memory that they share.
_ALIGNED = 4


class DeviceParameters:
    """The network's parameters, their gradients and moments: each kind in one piece of memory.

    So one kernel moves them all. The network's and the optimiser's tensors become views.
    """

    def __init__(self, model: GCN, optimizer: Adam) -> None:
        self.rate, self.optimizer = optimizer.learning_rate, optimizer
        self.tensors = list(model.parameters())
        states = [optimizer.state_of(p) for p in self.tensors]
        self.steps = int(states[0]["step"])
        decays = {
            id(p): float(group["weight_decay"])
            for group in optimizer.param_groups
            for p in group["params"]
        }
        rooms = [-(-p.numel() // _ALIGNED) * _ALIGNED for p in self.tensors]
        device = self.tensors[0].device
        self.weight, self.mean, self.square, self.gradient, self.decay = (
            torch.zeros(sum(rooms), device=device) for _ in range(5)
        )
        self.gradients: list[Tensor] = []
        first = 0
        for tensor, state, room in zip(self.tensors, states, rooms, strict=True):
            weight, mean, square, gradient, decay = (
                part[first : first + tensor.numel()].view(tensor.shape)
                for part in (self.weight, self.mean, self.square, self.gradient, self.decay)
            )
            tensor.data = weight.copy_(tensor.detach())
            state["exp_avg"] = mean.copy_(state["exp_avg"])
            state["exp_avg_sq"] = square.copy_(state["exp_avg_sq"])
            decay.fill_(decays[id(tensor)])
            self.gradients.append(gradient)
            first += room

    def known(self, tensor: Tensor | None, below: Tensor | None = None) -> Known | None:
        """A parameter and its gradient; as one with it, a matrix that follows it."""
        if tensor is None:
            return None
        first, rows = self.place_of(tensor), len(tensor)
        if below is not None:
            assert below.data_ptr() == tensor.data_ptr() + 4 * tensor.numel()
            rows += len(below)
        shape = rows, *tensor.shape[1:]
        where = slice(first, first + math.prod(shape))
        return Known(self.weight[where].view(shape), self.gradient[where].view(shape))

    def place_of(self, tensor: Tensor) -> int:
        """Where a parameter begins."""
        return (tensor.data_ptr() - self.weight.data_ptr()) // self.weight.itemsize

    @property
    def memory(self) -> tuple[Tensor, Tensor, Tensor]:
        """Everything that a step changes."""
        return self.weight, self.mean, self.square

    def move(self, loss: Tensor, steps: Tensor) -> None:
        """Adam's step along the gradient of a loss, after `steps` (1,) others."""
        found = torch.autograd.grad(loss, self.tensors)
        torch._foreach_copy_(self.gradients, list(found))
        self.step(steps)

    def step(self, steps: Tensor) -> None:
        """The same along the gradients that are there."""
        adam(*self.memory, self.gradient, self.decay, steps, self.rate)

    def count(self, steps: int) -> None:
        """Tell the optimiser how many steps were taken."""
        self.steps += steps
        for tensor in self.tensors:
            self.optimizer.state_of(tensor)["step"].fill_(self.steps)
