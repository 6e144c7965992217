"""An epoch of training steps on the device, recorded as CUDA graphs and replayed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

import torch
from torch import Generator, Tensor, nn

from fastgcn.backends.gpu.data import DeviceTrainingData
from fastgcn.backends.gpu.matrix import SampledBlock
from fastgcn.backends.gpu.sampler import EpochBatches
from fastgcn.backends.steps import Adam
from fastgcn.kernels.gpu.products import gather
from fastgcn.kernels.gpu.step import AdamParameter, FusedStep, OutOfResources, adam, fits_one_tile
from fastgcn.model import GCN
from fastgcn.progress import note
from fastgcn.sampling.block import Block


class Recording:
    """Device work that always runs the same kernels on the same memory, as a CUDA graph.

    `play` repeats it without the cost of launching each kernel. Recording first runs the work,
    then restores `generators` and `state`, the tensors that the work changes permanently.
    Without CUDA, `play` simply does the work.
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
    """Run the work several times, each time from the same state, and restore the state.

    If it were not restored in between, the second run could go beyond the last batch.
    """
    saved = [part.clone() for part in state]
    for _ in range(times):
        work()
        for part, before in zip(state, saved, strict=True):
            part.copy_(before)


class DeviceParameters:
    """The network's parameters with their moments, as the device's kernels take them."""

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
            id(p): AdamParameter(p.detach(), state["exp_avg"], state["exp_avg_sq"], decays[id(p)])
            for p, state in zip(self.tensors, states, strict=True)
        }
        self.steps = int(states[0]["step"])

    def __getitem__(self, tensor: Tensor) -> AdamParameter:
        return self.known[id(tensor)]

    @property
    def memory(self) -> list[Tensor]:
        """Everything that a step changes."""
        return [part for known in self.known.values() for part in known.parts]

    def count(self, steps: int) -> None:
        """Tell the optimiser how many steps were taken."""
        self.steps += steps
        for tensor in self.tensors:
            self.optimizer.state_of(tensor)["step"].fill_(self.steps)


class EpochSteps(Protocol):
    def run(self) -> None:
        """Take all steps of an epoch, in the order that its batches were shuffled into."""
        ...


def make_steps(
    model: GCN,
    loss: nn.Module,
    optimizer: Adam,
    data: DeviceTrainingData,
    batches: EpochBatches,
    *,
    tf32: bool,
) -> EpochSteps:
    """Fused steps for the paper's network of two layers, autograd for any other.

    A device without room for the fused kernels refuses them before any weight has changed.
    """
    fused = (
        model.plain
        and isinstance(loss, nn.CrossEntropyLoss)
        and len(model.layers) == 2
        and len(batches.sampler.samples) == 1
        and fits_one_tile(*model.sizes[1:])
    )
    parameters = DeviceParameters(model, optimizer)
    batches.steps.fill_(parameters.steps)
    precision = "tf32" if tf32 else "ieee"
    for frugal in (False, True) if fused else ():
        try:
            return FusedSteps(model, parameters, data, batches, precision, frugal=frugal)
        except OutOfResources:
            if frugal:
                note("this GPU has no room for the kernels of a step: autograd takes them")
    return AutogradSteps(model, loss, parameters, data, batches)


@dataclass(frozen=True)
class DeviceTraining:
    """Everything that only training needs on the device."""

    model: GCN
    loss: nn.Module
    optimizer: Adam
    data: DeviceTrainingData
    batches: EpochBatches
    tf32: bool

    @cached_property
    def steps(self) -> EpochSteps:
        """The steps of an epoch, recorded on first use, when a resumed run has restored its
        weights and moments."""
        return make_steps(
            self.model, self.loss, self.optimizer, self.data, self.batches, tf32=self.tf32
        )


class FusedSteps:
    """Draws K batches and takes K steps in one recording."""

    def __init__(
        self,
        model: GCN,
        parameters: DeviceParameters,
        data: DeviceTrainingData,
        batches: EpochBatches,
        precision: str,
        *,
        frugal: bool = False,
    ) -> None:
        self.batches, self.parameters = batches, parameters
        first, second = model.convolutions
        b1, b2 = (None if p.bias is None else parameters[p.bias] for p in (first, second))
        self.step = FusedStep(
            data.inputs,
            (parameters[first.weight], b1, parameters[second.weight], b2),
            batches.size,
            batches.sampler.buffers[0].sources.shape[1],
            parameters.rate,
            precision=precision,
            frugal=frugal,
        )
        device = batches.order.device
        self.losses = torch.zeros((batches.count, self.step.tiles), device=device)
        self.labels = batches.labels.int()
        changed = [*parameters.memory, batches.at, batches.steps, batches.losses]
        self.recording = Recording(self._work, device, changed)

    def _work(self) -> None:
        batches = self.batches
        (blocks,) = batches.draw()
        self.labels.copy_(batches.labels)
        for k in range(batches.count):
            self.step(
                k, blocks, self.labels, batches.row_weights, batches.active, batches.steps,
                self.losses,
            )  # fmt: skip
        batches.finish(self.losses.sum(1))
        batches.steps += batches.active.sum()

    def run(self) -> None:
        for _ in range(len(self.batches.order)):
            self.recording.play()
        self.parameters.count(self.batches.n_steps)


class AutogradSteps:
    """Any network: one recording draws K batches, another takes one step by autograd."""

    def __init__(
        self,
        model: GCN,
        loss: nn.Module,
        parameters: DeviceParameters,
        data: DeviceTrainingData,
        batches: EpochBatches,
    ) -> None:
        self.model, self.loss, self.parameters = model, loss, parameters
        self.data, self.batches = data, batches
        device = batches.order.device
        self.current = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(batches.count, device=device)
        self.blocks = [
            SampledBlock(buffers, rows, self.current)
            for buffers, rows in zip(
                batches.sampler.buffers, batches.sampler.sizes[1:], strict=True
            )
        ]
        # The recording of a step needs blocks to work on.
        batches.draw()
        self.draw = Recording(self._draw, device, [self.current])
        changed = [*parameters.memory, self.current, batches.steps, self.losses]
        generators = []
        if any(model.dropout.rates):
            assert model.dropout.rng is not None
            generators = [model.dropout.rng]
        self.step = Recording(self._step, device, changed, generators)

    def _draw(self) -> None:
        self.batches.draw()
        self.current.zero_()

    def _step(self) -> None:
        batches = self.batches
        buffers = batches.sampler.buffers
        sources = buffers[0].sources if buffers else batches.rows
        ids = sources.index_select(0, self.current)[0]
        width = self.data.inputs.shape[1]
        parts = [self.data.inputs] + ([] if self.data.beside is None else [self.data.beside])
        x = torch.empty((len(ids), len(parts) * width), device=ids.device)
        for number, part in enumerate(parts):
            gather(part, ids, x[:, number * width : (number + 1) * width])
        logits = self.model(cast(Sequence[Block], self.blocks), x)
        labels, weights = (
            part.index_select(0, self.current)[0] for part in (batches.labels, batches.row_weights)
        )
        loss = (self._row_losses(logits, labels) * weights).sum()
        gradients = torch.autograd.grad(loss, self.parameters.tensors)
        for tensor, gradient in zip(self.parameters.tensors, gradients, strict=True):
            adam(self.parameters[tensor], gradient, batches.steps, self.parameters.rate)
        self.losses.index_copy_(0, self.current, loss.detach()[None])
        self.current += 1
        batches.steps += 1

    def _row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        if isinstance(self.loss, nn.BCEWithLogitsLoss):
            each = nn.functional.binary_cross_entropy_with_logits(
                logits, labels, pos_weight=self.loss.pos_weight, reduction="none"
            )
            return each.mean(1)
        return nn.functional.cross_entropy(logits, labels, reduction="none")

    def run(self) -> None:
        self.model.train()
        left = self.batches.n_steps
        for _ in range(len(self.batches.order)):
            self.draw.play()
            for _ in range(min(left, self.batches.count)):
                self.step.play()
            left -= self.batches.count
            self.batches.finish(self.losses)
        self.parameters.count(self.batches.n_steps)
