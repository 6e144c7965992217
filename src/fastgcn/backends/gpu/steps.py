"""An epoch of training steps on the device, recorded as CUDA graphs and replayed."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from fastgcn.backends.data import row_losses
from fastgcn.backends.gpu.data import DeviceTrainingData
from fastgcn.backends.gpu.matrix import SampledBlock, WholeBlock
from fastgcn.backends.gpu.recording import DeviceParameters, Recording
from fastgcn.backends.gpu.sampler import EpochBatches
from fastgcn.backends.steps import Adam, mean_loss
from fastgcn.kernels.gpu.dropout import CountedDropout
from fastgcn.kernels.gpu.products import gather
from fastgcn.kernels.gpu.step import (
    Aside,
    Copies,
    NetworkStep,
    NetworkWeights,
    OutOfResources,
    adam,
    fits_one_tile,
)
from fastgcn.model import GCN
from fastgcn.progress import note


class EpochSteps(Protocol):
    def run(self) -> None:
        """Take all steps of an epoch, in the order that its batches were shuffled into."""
        ...


def can_fuse(model: GCN, loss: nn.Module, batches: EpochBatches) -> bool:
    """True for two layers with ÂX precomputed, one class a node, and room for the last weights."""
    if len(model.layers) != 2 or len(batches.sampler.samples) != 1 or model.jumping != "none":
        return False
    _, second = model.convolutions
    fits = fits_one_tile(model.sizes[1], model.sizes[2])
    known_norm = all(isinstance(norm, nn.Identity | nn.LayerNorm) for norm in model.norms)
    # Own rows of the output layer are the first of a batch's sources.
    leads = second.own_weight is None or batches.sampler.own_rows
    return isinstance(loss, nn.CrossEntropyLoss) and fits and known_norm and leads


def make_steps(
    model: GCN,
    loss: nn.Module,
    optimizer: Adam,
    data: DeviceTrainingData,
    batches: EpochBatches | None,
    *,
    seed: int,
    tf32: bool,
) -> EpochSteps:
    """Full passes without batches; else fused steps for most networks of two layers, and autograd
    for any other.

    A device without room for the fused kernels refuses them before any weight has changed.
    """
    parameters = DeviceParameters(model, optimizer)
    if batches is None:
        return FullSteps(model, loss, parameters, data, seed=seed, tf32=tf32)
    batches.steps.fill_(parameters.steps)
    if can_fuse(model, loss, batches):
        try:
            return FusedSteps(model, parameters, data, batches, seed=seed, tf32=tf32)
        except OutOfResources:
            note("this GPU has no room for the kernels of a step: autograd takes them")
    return AutogradSteps(model, loss, parameters, data, batches, seed=seed, tf32=tf32)


@dataclass(frozen=True)
class DeviceTraining:
    """Everything that only training needs on the device; full passes have no batches."""

    model: GCN
    loss: nn.Module
    optimizer: Adam
    data: DeviceTrainingData
    sampled: EpochBatches | None
    seed: int
    tf32: bool

    @property
    def batches(self) -> EpochBatches:
        assert self.sampled is not None
        return self.sampled

    @cached_property
    def steps(self) -> EpochSteps:
        """The steps of an epoch, recorded on first use, when a resumed run has restored its
        weights and moments."""
        return make_steps(
            self.model, self.loss, self.optimizer, self.data, self.sampled,
            seed=self.seed, tf32=self.tf32,
        )  # fmt: skip


class FullSteps:
    """One step an epoch, over all training nodes and all of their neighbours, in one recording.

    Its reference is the CPU's step of a full pass, by the same network.
    """

    def __init__(
        self,
        model: GCN,
        loss: nn.Module,
        parameters: DeviceParameters,
        data: DeviceTrainingData,
        *,
        seed: int,
        tf32: bool,
    ) -> None:
        self.model, self.loss, self.parameters, self.data = model, loss, parameters, data
        nodes = data.batch_nodes.long()
        device = nodes.device
        every = data.nodes is not None  # the training graph has no other nodes
        whole = WholeBlock.of(data.matrix)
        last = whole if every else WholeBlock.of(data.matrix, nodes)
        self.blocks = [*[whole] * (len(model.layers) - 1), last][data.precomputed :]
        self.inputs = data.inputs
        if not self.blocks and not every:  # a single layer: rows of ÂX
            assert isinstance(data.inputs, Tensor)
            self.inputs = data.inputs[nodes]
        self.labels = data.labels if every else data.labels[nodes]
        weight = loss.weight if isinstance(loss, nn.CrossEntropyLoss) else None
        shares = torch.ones(len(self.labels), device=device)
        if weight is not None:
            shares = weight[self.labels]
        self.shares = shares / shares.sum()
        self.steps = torch.tensor([parameters.steps], device=device)
        self.result = torch.zeros(1, device=device)
        self.dropout = model.dropout.by = CountedDropout(seed, self.steps)
        changed = [*parameters.memory, self.steps, self.result]
        self.recording = Recording(self._work, device, changed, tf32=tf32)

    def _work(self) -> None:
        self.dropout.begin()
        self.model.train()
        x = self.inputs.float() if isinstance(self.inputs, Tensor) else self.inputs
        loss = mean_loss(self.model, self.blocks, x, self._loss)
        self.parameters.move(loss, self.steps)
        self.result.copy_(loss.detach())
        self.steps += 1

    def _loss(self, logits: Tensor) -> Tensor:
        if not isinstance(self.loss, nn.CrossEntropyLoss):
            return cast(Tensor, self.loss(logits, self.labels))
        # torch's own reduction of many rows takes ten times as long.
        each = logits.log_softmax(1).gather(1, self.labels[:, None])
        return -(each.view(-1) * self.shares).sum()

    def run(self) -> None:
        self.recording.play()
        self.parameters.count(1)


class FusedSteps:
    """Takes K steps of a network of two layers in one recording, and draws the next K meanwhile.

    There are two recordings, which take turns, for a group is drawn where the one before is not.
    """

    def __init__(
        self,
        model: GCN,
        parameters: DeviceParameters,
        data: DeviceTrainingData,
        batches: EpochBatches,
        *,
        seed: int,
        tf32: bool,
    ) -> None:
        self.batches, self.parameters = batches, parameters
        first, second = model.convolutions
        norm = model.norms[0] if isinstance(model.norms[0], nn.LayerNorm) else None
        known = parameters.known
        upper, lower = (
            known(first.weight, first.own_weight),
            known(second.weight, second.own_weight),
        )
        assert upper is not None
        assert lower is not None
        weights = NetworkWeights(
            upper, lower, known(first.bias),
            None if norm is None else known(norm.weight),
            None if norm is None else known(norm.bias),
            known(second.bias),
            own=second.own_weight is not None,
            members=2 if model.pair else 1,
        )  # fmt: skip
        rates = model.dropout.rates
        self.step = NetworkStep(
            data.dense_inputs,
            data.beside,
            weights,
            batches.size,
            batches.drawn[0].blocks[0].sources.shape[1],
            rates=(rates[0], rates[1]),
            seed=seed,
            precision="tf32" if tf32 else "ieee",
        )
        device = batches.order.device
        shape = batches.count, weights.members, batches.size
        self.losses = torch.zeros(shape, device=device)
        self.ahead = Aside(device)
        assert parameters.place_of(first.weight) == 0
        begin, classes = parameters.place_of(second.weight), self.step.classes
        self.copies = Copies(self.step.copied, self.step.last, begin, classes)
        changed = [
            *parameters.memory, self.step.copied, self.step.last,
            batches.at, batches.steps, batches.losses,
        ]  # fmt: skip
        self.first = Recording(self._draw, device)
        self.recordings = [
            Recording(partial(self._work, number), device, changed, tf32=tf32)
            for number in range(len(batches.drawn))
        ]

    def _draw(self) -> None:
        self.batches.draw()

    def _work(self, number: int) -> None:
        batches, moved = self.batches, self.parameters
        group = batches.drawn[number]
        (blocks,) = group.blocks
        if len(batches.drawn) > 1:
            with self.ahead:
                batches.draw(1 - number, ahead=1)
        self.step.gather(0, blocks, batches.steps)
        for k in range(batches.count):
            self.step(
                k, blocks, group.labels, group.row_weights, batches.steps, self.losses,
                following=k + 1 < batches.count,
            )  # fmt: skip
            adam(
                *moved.memory, moved.gradient, moved.decay, batches.steps, moved.rate,
                step=k, active=group.active, copies=self.copies,
            )  # fmt: skip
        self.ahead.join()
        batches.finish(self.losses.sum((1, 2)))
        batches.steps += group.active.sum()

    def run(self) -> None:
        turns = len(self.recordings)
        for number in range(len(self.batches.order)):
            if number == 0 or turns == 1:
                self.first.play()
            self.recordings[number % turns].play()
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
        *,
        seed: int,
        tf32: bool,
    ) -> None:
        self.model, self.loss, self.parameters = model, loss, parameters
        self.data, self.batches = data, batches
        device = batches.order.device
        self.current = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(batches.count, device=device)
        self.blocks = [
            SampledBlock(buffers, rows, self.current)
            for buffers, rows in zip(
                batches.drawn[0].blocks, batches.sampler.sizes[1:], strict=True
            )
        ]
        self.dropout = model.dropout.by = CountedDropout(seed, batches.steps)
        # The recording of a step needs blocks to work on.
        batches.draw()
        self.draw = Recording(self._draw, device, [self.current])
        changed = [*parameters.memory, self.current, batches.steps, self.losses]
        self.step = Recording(self._step, device, changed, tf32=tf32)

    def _draw(self) -> None:
        self.batches.draw()
        self.current.zero_()

    def _step(self) -> None:
        batches = self.batches
        self.dropout.begin()
        self.model.train()
        group = batches.drawn[0]
        sources = group.blocks[0].sources if group.blocks else group.rows
        ids = sources.index_select(0, self.current)[0]
        inputs, beside = self.data.dense_inputs, self.data.beside
        width = inputs.shape[1]
        parts = [inputs] + ([] if beside is None else [beside])
        x = torch.empty((len(ids), len(parts) * width), device=ids.device)
        for number, part in enumerate(parts):
            gather(part, ids, x[:, number * width : (number + 1) * width])
        labels, weights = (
            part.index_select(0, self.current)[0] for part in (group.labels, group.row_weights)
        )
        loss = mean_loss(
            self.model, self.blocks, x,
            lambda logits: (row_losses(self.loss, logits, labels) * weights).sum(),
        )  # fmt: skip
        self.parameters.move(loss, batches.steps)
        self.losses.index_copy_(0, self.current, loss.detach()[None])
        self.current += 1
        batches.steps += 1

    def run(self) -> None:
        left = self.batches.n_steps
        for _ in range(len(self.batches.order)):
            self.draw.play()
            for _ in range(min(left, self.batches.count)):
                self.step.play()
            left -= self.batches.count
            self.batches.finish(self.losses)
        self.parameters.count(self.batches.n_steps)
