"""Training with everything on a CUDA device: graph, draws, blocks, steps and scores."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import mul
from typing import Any, TypeVar

import torch
from torch import Tensor

from fastgcn.backends.base import Checkpoint, EpochResult, Learner, Part
from fastgcn.backends.data import loss_for
from fastgcn.backends.gpu.data import DeviceData, prepare_on_device
from fastgcn.backends.gpu.forward import DeviceJudge, HostRows, row_norms
from fastgcn.backends.gpu.sampler import Group
from fastgcn.backends.gpu.steps import EpochSteps, make_steps
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.metrics import Metrics
from fastgcn.model import GCN, start_from

T = TypeVar("T")


class GpuBackend:
    """A graph on a device; the order of batches follows from the seed and the epoch alone.

    Attributes, after `prepare`:
        data: the training graph on the device.
        group: the batches of an epoch, K at a time.
        validate_every: every epoch, for on the device a validation takes less than one.
    """

    data: DeviceData
    group: Group

    def __init__(
        self, graph: Graph, config: TrainConfig, device: torch.device, model: GCN | None = None
    ) -> None:
        self.graph, self.config, self._device = graph, config, device
        self._given_model = model
        self.validate_every = 1 if config.validate_every == "auto" else config.validate_every
        self._steps: EpochSteps | None = None
        self._evaluators: dict[Part, DeviceJudge | None] = {}

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def model(self) -> GCN:
        return self.learner.model

    def prepare(self) -> None:
        graph, config = self.graph, self.config
        if self._device.index is not None:
            # Kernels are launched, and graphs recorded, where torch has its current device.
            torch.cuda.set_device(self._device)
        self.data = prepare_on_device(graph, config, self._device)
        model = start_from(self._given_model, config, graph).to(self._device)
        model.set_feature_statistics(self.data.statistics)
        self.learner = Learner(model, config, self._device)
        labels = self.data.labels[self.data.batch_nodes]
        self.loss = loss_for(labels, graph, config).to(self._device)
        self.group = Group(self.data, config, self.loss, own_rows=config.needs_own_rows)

    def steps(self) -> EpochSteps:
        """Those of an epoch, recorded when the first is wanted: a run that is continued has its
        weights and moments by then."""
        if self._steps is None:
            learner, tf32 = self.learner, self.config.products == "tf32"
            self._steps = make_steps(
                learner.model,
                self.loss,
                learner.optimizer,
                self.data,
                self.group,
                learner.dropout_rng,
                tf32=tf32,
            )
        return self._steps

    def train_epoch(self, epoch: int) -> EpochResult:
        start = time.perf_counter()
        if self.config.distribution == "optimal":
            features = HostRows(self.graph.features, self.data.nodes)
            norms = row_norms(self.model, self.config, self.data, features)
            self.group.sampler.set_row_norms(norms)
        self.group.shuffle(epoch)
        drawn = time.perf_counter()
        self.steps().run()
        losses, empty_rows = self.group.results()  # the host waits here, once an epoch
        sizes = self.group.sizes
        seconds = {"sampling": drawn - start, "compute": time.perf_counter() - drawn}
        mean = sum(map(mul, losses, sizes)) / sum(sizes)
        return EpochResult(mean, self.group.n_steps, empty_rows, seconds)

    def evaluate(
        self, part: Part, model: GCN | None = None, *, last: bool = False
    ) -> Metrics | None:
        if last:
            self._release()
        if part not in self._evaluators:
            self._evaluators[part] = self._evaluator(part, last=last)
        evaluator = self._evaluators[part]
        if evaluator is None or not len(evaluator):
            return None
        return evaluator(self.model if model is None else model)

    def _evaluator(self, part: Part, *, last: bool) -> DeviceJudge | None:
        nodes = getattr(self.graph.split, part)
        if not nodes.size:
            return None
        return DeviceJudge(self.graph, self.config, self.data, nodes, once=last)

    def _release(self) -> None:
        """Let go of what only steps work on: with a test beside it, it would be the peak."""
        self._evaluators.clear()
        self._steps = None
        del self.group
        nothing = torch.empty(0, device=self._device)
        self.data = replace(self.data, inputs=nothing, beside=None)

    def state(self) -> dict[str, Tensor]:
        return self.learner.state()

    def restore(self, state: Mapping[str, Tensor], epoch: int) -> None:
        self.learner.restore(state, epoch)

    def facts(self) -> dict[str, Any]:
        """Which GPU it was."""
        on_cuda = self._device.type == "cuda"
        return {"gpu": torch.cuda.get_device_name(self._device)} if on_cuda else {}

    def on_first(self, what: str, do: Callable[[], T]) -> T | None:  # noqa: ARG002
        return do()

    def broadcast(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        return checkpoint
