"""Work on a device, recorded once as a CUDA graph and played back."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import torch
from torch import Generator, Tensor, nn

from fastgcn.backends.gpu.data import DeviceData
from fastgcn.backends.gpu.matrix import GroupBlock
from fastgcn.backends.gpu.sampler import Group
from fastgcn.backends.steps import Adam
from fastgcn.kernels.gpu.adam import Parameter, adam
from fastgcn.kernels.gpu.mix import gather
from fastgcn.kernels.gpu.step import OutOfResources, PlainStep, has_room
from fastgcn.model import GCN
from fastgcn.progress import note
from fastgcn.sampling.block import Block


class Replay:
    """`work`, which always does the same to the same memory, without the cost of asking for it.

    `state` is what the work changes for good: recording tries the work out, and puts that back,
    as it does with `generators`. Where there is no CUDA, the work is simply done.
    """

    def __init__(
        self,
        work: Callable[[], None],
        device: torch.device,
        state: Sequence[Tensor],
        generators: Sequence[Generator] = (),
    ) -> None:
        self.play = work
        if device.type != "cuda":
            return
        seeds = [generator.get_state() for generator in generators]
        here = torch.cuda.current_stream(device)
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        try:
            with torch.cuda.stream(aside):
                try_out(work, state)
        finally:
            here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        for generator, seed in zip(generators, seeds, strict=True):
            generator.set_state(seed)
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            work()
        self.play = graph.replay


def try_out(work: Callable[[], None], state: Sequence[Tensor], times: int = 2) -> None:
    """Do the work so many times, each time from the same state, and leave that as it was.

    A second time from where the first had ended could be beyond the end of what there is to do.
    """
    saved = [part.clone() for part in state]
    for _ in range(times):
        work()
        for part, before in zip(state, saved, strict=True):
            part.copy_(before)


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


class EpochSteps(Protocol):
    def run(self) -> None:
        """All steps of an epoch, in the order that the group was shuffled into."""
        ...


def make_steps(
    model: GCN,
    loss: nn.Module,
    optimizer: Adam,
    data: DeviceData,
    group: Group,
    rng: Generator,
    *,
    tf32: bool,
) -> EpochSteps:
    """Three kernels a step for the paper's network of two layers, else autograd.

    Kernels that the device has no room for are refused when they are first wanted, before anything
    has moved.
    """
    fused = (
        model.plain
        and isinstance(loss, nn.CrossEntropyLoss)
        and len(model.layers) == 2
        and len(group.sampler.samples) == 1
        and has_room(*model.sizes[1:])
    )
    parameters = DeviceParameters(model, optimizer)
    # Counted from what the optimiser has done before, if this run is continued.
    group.steps.fill_(parameters.steps)
    precision = "tf32" if tf32 else "ieee"
    for frugal in (False, True) if fused else ():
        try:
            return FusedSteps(model, parameters, data, group, precision, frugal=frugal)
        except OutOfResources:
            if frugal:
                note("this GPU has no room for the kernels of a step: autograd takes them")
    return AutogradSteps(model, loss, parameters, data, group, rng)


class FusedSteps:
    """K batches drawn and K steps taken in one recording."""

    def __init__(
        self,
        model: GCN,
        parameters: DeviceParameters,
        data: DeviceData,
        group: Group,
        precision: str,
        *,
        frugal: bool = False,
    ) -> None:
        self.group, self.parameters = group, parameters
        first, second = model.convolutions
        weights = parameters(first.weight), parameters(second.weight)
        assert weights[0] is not None
        assert weights[1] is not None
        (room,) = group.sampler.rooms
        self.step = PlainStep(
            data.inputs,
            (weights[0], parameters(first.bias), weights[1], parameters(second.bias)),
            group.size,
            room.sources.shape[1],
            parameters.rate,
            precision=precision,
            frugal=frugal,
        )
        device = group.order.device
        self.losses = torch.zeros((group.count, self.step.tiles), device=device)
        self.labels = group.labels.int()
        changed = [*parameters.memory, group.at, group.steps, group.losses]
        self.replay = Replay(self._work, device, changed)

    def _work(self) -> None:
        group = self.group
        (room,) = group.draw()
        self.labels.copy_(group.labels)
        for k in range(group.count):
            self.step(
                k, room.sources, room.n_sources, (room.offsets, room.columns, room.entries),
                self.labels, group.row_weights, group.active, group.steps, self.losses,
            )  # fmt: skip
        group.finish(self.losses.sum(1))
        group.steps += group.active.sum()

    def run(self) -> None:
        for _ in range(len(self.group.order)):
            self.replay.play()
        self.parameters.count(self.group.n_steps)


class AutogradSteps:
    """Any network: K batches drawn in one recording, and a step by autograd in another."""

    def __init__(
        self,
        model: GCN,
        loss: nn.Module,
        parameters: DeviceParameters,
        data: DeviceData,
        group: Group,
        rng: Generator,
    ) -> None:
        self.model, self.loss, self.parameters = model, loss, parameters
        self.data, self.group = data, group
        device = group.order.device
        self.current = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(group.count, device=device)
        sizes = group.sampler.sizes[1:]
        self.blocks = [
            GroupBlock(room, rows, self.current)
            for room, rows in zip(group.sampler.rooms, sizes, strict=True)
        ]
        # Drawn once outside of any recording, for the step's own to have blocks to work on.
        group.draw()
        self.draw = Replay(self._draw, device, [self.current])
        changed = [*parameters.memory, self.current, group.steps, self.losses]
        dropped = [rng] if any(model.dropout.rates) else []
        self.step = Replay(self._step, device, changed, dropped)

    def _draw(self) -> None:
        self.group.draw()
        self.current.zero_()

    def _step(self) -> None:
        group = self.group
        rows, rooms = group.rows, group.sampler.rooms
        sources = rooms[0].sources if rooms else rows
        ids = sources.index_select(0, self.current)[0]
        width = self.data.inputs.shape[1]
        parts = [self.data.inputs] + ([] if self.data.beside is None else [self.data.beside])
        x = torch.empty((len(ids), len(parts) * width), device=ids.device)
        for number, part in enumerate(parts):
            gather(part, ids, x[:, number * width : (number + 1) * width])
        logits = self.model(cast(Sequence[Block], self.blocks), x)
        labels, weights = (
            part.index_select(0, self.current)[0] for part in (group.labels, group.row_weights)
        )
        loss = (self._row_losses(logits, labels) * weights).sum()
        gradients = torch.autograd.grad(loss, self.parameters.tensors)
        for tensor, gradient in zip(self.parameters.tensors, gradients, strict=True):
            known = self.parameters(tensor)
            assert known is not None
            adam(known, gradient, group.steps, self.parameters.rate)
        self.losses.index_copy_(0, self.current, loss.detach()[None])
        self.current += 1
        group.steps += 1

    def _row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        if isinstance(self.loss, nn.BCEWithLogitsLoss):
            each = nn.functional.binary_cross_entropy_with_logits(
                logits, labels, pos_weight=self.loss.pos_weight, reduction="none"
            )
            return each.mean(1)
        return nn.functional.cross_entropy(logits, labels, reduction="none")

    def run(self) -> None:
        self.model.train()
        left = self.group.n_steps
        for _ in range(len(self.group.order)):
            self.draw.play()
            for _ in range(min(left, self.group.count)):
                self.step.play()
            left -= self.group.count
            self.group.finish(self.losses)
        self.parameters.count(self.group.n_steps)
