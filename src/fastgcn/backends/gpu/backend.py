"""Training with everything on a CUDA device: graph, draws, blocks, steps and scores."""

import time
from operator import mul
from typing import Any

import torch

from fastgcn.backends.base import EpochResult, Learner, LearnerBackend, Part
from fastgcn.backends.data import loss_for
from fastgcn.backends.gpu.data import DeviceGraph, prepare_on_device
from fastgcn.backends.gpu.forward import DeviceEvaluator, row_norms
from fastgcn.backends.gpu.sampler import EpochBatches
from fastgcn.backends.gpu.steps import DeviceTraining
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.model import GCN, start_from


class GpuBackend(LearnerBackend):
    """Trains and evaluates on one device; the order of batches depends on seed and epoch alone.

    Attributes, after `prepare`:
        on_device: the whole graph, for evaluation too.
        validate_every: 1 by default, because a validation takes less time than an epoch.
    """

    on_device: DeviceGraph

    def __init__(
        self, graph: Graph, config: TrainConfig, device: torch.device, model: GCN | None = None
    ) -> None:
        super().__init__()
        self.graph, self.config, self._device = graph, config, device
        self._given_model = model
        self.validate_every = 1 if config.validate_every == "auto" else config.validate_every
        self._training: DeviceTraining | None = None

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def training(self) -> DeviceTraining:
        """What only training needs; it exists from `prepare` to the last evaluation."""
        assert self._training is not None
        return self._training

    def prepare(self) -> None:
        graph, config = self.graph, self.config
        if self._device.index is not None:
            # Kernels are launched, and graphs recorded, on torch's current device.
            torch.cuda.set_device(self._device)
        self.on_device, data = prepare_on_device(graph, config, self._device)
        model = start_from(self._given_model, config, graph).to(self._device)
        model.set_feature_statistics(self.on_device.host_features.statistics)
        self.learner = Learner(model, config, self._device)
        loss = loss_for(data.labels[data.batch_nodes], graph, config).to(self._device)
        self._training = DeviceTraining(
            model,
            loss,
            self.learner.optimizer,
            data,
            EpochBatches(data, config, loss),
            tf32=config.products == "tf32",
        )

    def train_epoch(self, epoch: int) -> EpochResult:
        data, batches = self.training.data, self.training.batches
        batches.shuffle(epoch)
        start = time.perf_counter()
        if self.config.distribution == "optimal":
            norms = row_norms(self.model, self.config, self.on_device, data)
            batches.sampler.set_row_norms(norms)
        drawn = time.perf_counter()
        self.training.steps.run()
        losses, empty_rows = batches.results()  # the host waits here, once an epoch
        seconds = {"sampling": drawn - start, "compute": time.perf_counter() - drawn}
        mean = sum(map(mul, losses, batches.sizes)) / batches.used
        return EpochResult(mean, batches.n_steps, empty_rows, seconds)

    def _evaluator(self, part: Part, *, last: bool) -> DeviceEvaluator | None:
        nodes = getattr(self.graph.split, part)
        if not nodes.size:
            return None
        return DeviceEvaluator(self.graph, self.config, self.on_device, nodes, once=last)

    def _release(self) -> None:
        self._training = None

    def facts(self) -> dict[str, Any]:
        """The name of the GPU."""
        on_cuda = self._device.type == "cuda"
        return {"gpu": torch.cuda.get_device_name(self._device)} if on_cuda else {}
