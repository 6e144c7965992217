"""`OnDevice`: what a trainer works with where everything is on a CUDA device."""

from collections.abc import Generator as Generates
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from fastgcn.backends.base import Part
from fastgcn.backends.data import loss_for
from fastgcn.backends.gpu.data import DeviceGraph, DeviceTrainingData, prepare_on_device
from fastgcn.backends.gpu.forward import DeviceEvaluator, row_norms
from fastgcn.backends.gpu.sampler import EpochBatches
from fastgcn.backends.gpu.steps import EpochSteps, make_steps
from fastgcn.backends.steps import Adam
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.model import GCN


@dataclass
class EpochParcel:
    """All batches of an epoch, as one."""

    feed: "DeviceFeed"
    x: Tensor

    def __len__(self) -> int:
        return self.feed.group.n_steps

    @property
    def sizes(self) -> list[int]:
        return self.feed.group.sizes

    def steps(self, step: "DeviceStep") -> list[float]:
        """The losses of all steps; the host waits once."""
        step.epoch(self.feed).run()
        losses, self.feed.empty_rows = self.feed.group.results()
        return losses


class DeviceFeed:
    """Batches in orders that follow from the seed and the epoch's number alone."""

    quick = True  # for the host, that is

    def __init__(self, data: DeviceTrainingData, group: EpochBatches) -> None:
        self.data, self.group = data, group
        self.epoch = 0
        self.empty_rows = 0.0

    def shuffled(self) -> Iterator[Tensor]:
        self.group.shuffle(self.epoch)
        return iter(())

    def parcels(self, batches: Iterable[Tensor]) -> Generates[EpochParcel]:
        del batches  # they are on the device
        yield EpochParcel(self, torch.empty(0))


class DeviceStep:
    """Records the steps when the first of them is wanted: a run that is continued has its
    weights and moments by then."""

    def __init__(self, model: GCN, loss: nn.Module, optimizer: Adam, *, tf32: bool) -> None:
        self.model, self.loss, self.optimizer, self.tf32 = model, loss, optimizer, tf32
        self._steps: EpochSteps | None = None

    def epoch(self, feed: DeviceFeed) -> EpochSteps:
        if self._steps is None:
            self._steps = make_steps(
                self.model, self.loss, self.optimizer, feed.data, feed.group, tf32=self.tf32
            )
        return self._steps

    def forget(self) -> None:
        """Let go of what was recorded, and of the memory that it works in."""
        self._steps = None


class OnDevice:
    """A graph on a device, as a `workshop.Workshop`, whose data, feed and step are its own.

    Attributes:
        device_data, group, epochs: what training works on, once a trainer has asked for it.
    """

    there: DeviceGraph
    device_data: DeviceTrainingData
    group: EpochBatches
    epochs: DeviceStep
    _feed: DeviceFeed
    _model: GCN

    def __init__(self, graph: Graph, config: TrainConfig, device: torch.device) -> None:
        self.graph, self.config, self._device = graph, config, device

    @property
    def device(self) -> torch.device:
        return self._device

    def data(self) -> Any:
        if self._device.index is not None:
            # Kernels are launched, and graphs recorded, where torch has its current device.
            torch.cuda.set_device(self._device)
        self.there, self.device_data = prepare_on_device(self.graph, self.config, self._device)
        return SimpleNamespace(
            statistics=self.there.host_features.statistics, inputs=self.device_data.inputs
        )

    def sampler(self, data: Any) -> Any:
        loss = self.loss(data).to(self._device)
        self.group = EpochBatches(self.device_data, self.config, loss)
        return self.group

    def feed(self, data: Any, model: GCN, sampler: Any, rng: Generator) -> Any:
        del data, sampler, rng  # all that is on the device is known; the generator is the host's
        self._model = model
        self._feed = DeviceFeed(self.device_data, self.group)
        return self._feed

    def loss(self, data: Any) -> nn.Module:
        del data
        known = self.device_data
        return loss_for(known.labels[known.batch_nodes], self.graph, self.config)

    def step(self, model: GCN, loss: nn.Module, optimizer: Adam) -> Any:
        tf32 = self.config.products == "tf32"
        self.epochs = DeviceStep(model, loss, optimizer, tf32=tf32)
        return self.epochs

    def steps(self) -> EpochSteps:
        """Those of an epoch, recorded if they are not yet."""
        return self.epochs.epoch(self._feed)

    def judge(self, part: Part, *, once: bool = False) -> DeviceEvaluator | None:
        nodes = getattr(self.graph.split, part)
        if not nodes.size:
            return None
        if once:
            self._forget_training()
        return DeviceEvaluator(self.graph, self.config, self.there, nodes, once=once)

    def _forget_training(self) -> None:
        """What only steps work on: together with what a test takes, it would be the run's peak."""
        self.epochs.forget()
        for name in ("group", "_feed"):
            self.__dict__.pop(name, None)
        nothing = torch.empty(0, device=self._device)
        self.device_data = replace(self.device_data, inputs=nothing, beside=None)

    def validation_interval(self, data: Any, widths: Sequence[int]) -> int:
        """Every epoch: on the device a validation takes less than one."""
        del data, widths
        return 1

    def begin_epoch(self, epoch: int, dropout_rng: Generator) -> None:
        del dropout_rng
        self._feed.epoch = epoch
        if self.config.distribution == "optimal":
            norms = row_norms(self._model, self.config, self.there, self.device_data)
            self.group.sampler.set_row_norms(norms)

    def facts(self) -> dict[str, Any]:
        """Which GPU it was."""
        on_cuda = self._device.type == "cuda"
        return {"gpu": torch.cuda.get_device_name(self._device)} if on_cuda else {}
