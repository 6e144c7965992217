"""Training with everything on a CUDA device: graph, draws, blocks, steps and scores."""

import time
from operator import mul
from typing import Any

import torch

from fastgcn.backends.base import EpochResult, Learner, LearnerBackend, Part
from fastgcn.backends.data import SharedData, loss_for
from fastgcn.backends.gpu.data import DeviceGraph, prepare_on_device
from fastgcn.backends.gpu.forward import DeviceEvaluator, EvaluationData, row_norms
from fastgcn.backends.gpu.sampler import EpochBatches
from fastgcn.backends.gpu.steps import DeviceTraining, FullSteps
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.model import GCN, as_gcn, start_from


class GpuBackend(LearnerBackend):
    """Trains and evaluates on one device; the order of batches depends on seed and epoch alone.

    Attributes, after `prepare`:
        on_device: the whole graph, for evaluation too.
        validate_every: 1 by default, because a validation takes less time than an epoch.
    """

    on_device: DeviceGraph

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        device: torch.device,
        model: GCN | None = None,
        shared: SharedData | None = None,
    ) -> None:
        super().__init__()
        self.graph, self.config, self._device = graph, config, device
        self._given_model = model
        self.shared = SharedData() if shared is None else shared
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
        self.on_device, data = prepare_on_device(graph, config, self._device, self.shared)
        model = as_gcn(start_from(self._given_model, config, graph), "a GPU's own step")
        model = model.to(self._device)
        model.set_feature_statistics(self.on_device.host_features.statistics)
        model.set_target(data.target)
        self.learner = Learner(model, config, self._device)
        loss = loss_for(data.labels[data.batch_nodes], graph, config).to(self._device)
        full = config.method == "gcn"
        self._training = DeviceTraining(
            model,
            loss,
            self.learner.optimizer,
            data,
            None if full else EpochBatches(data, config, loss, self.shared),
            seed=config.seed + 2,
            tf32=config.products == "tf32",
        )

    def train_epoch(self, epoch: int) -> EpochResult:
        data, steps, start = self.training.data, self.training.steps, time.perf_counter()
        if isinstance(steps, FullSteps):
            steps.run()
            loss = float(steps.result)  # the host waits here
            seconds = {"sampling": 0.0, "compute": time.perf_counter() - start}
            return EpochResult(loss, 1, 0.0, seconds)
        batches = self.training.batches
        batches.shuffle(epoch)
        if self.config.distribution == "optimal":
            norms = row_norms(
                as_gcn(self.model, "distribution = 'optimal'"), self.config, self.on_device, data
            )
            batches.sampler.set_row_norms(norms)
        drawn = time.perf_counter()
        steps.run()
        losses, empty_rows = batches.results()  # the host waits here, once an epoch
        seconds = {"sampling": drawn - start, "compute": time.perf_counter() - drawn}
        mean = sum(map(mul, losses, batches.sizes)) / batches.used
        return EpochResult(mean, batches.n_steps, empty_rows, seconds)

    def _evaluator(self, part: Part, *, last: bool) -> DeviceEvaluator | None:
        nodes = getattr(self.graph.split, part)
        if not nodes.size:
            return None
        config = self.config

        def make() -> EvaluationData:
            return EvaluationData.of(self.graph, config, self.on_device, nodes, once=last)

        if last:
            return DeviceEvaluator(make(), record=False)
        key = (
            part, config.normalization, config.feature_scaling, config.inductive,
            config.evaluation_graph, config.input_skip, config.layers, config.method,
        )  # fmt: skip
        tf32 = config.products == "tf32"
        return DeviceEvaluator(self.shared.get(key, make), record=True, tf32=tf32)

    def _release(self) -> None:
        self._training = None
        self.shared.clear()

    def facts(self) -> dict[str, Any]:
        """The name of the GPU."""
        on_cuda = self._device.type == "cuda"
        return {"gpu": torch.cuda.get_device_name(self._device)} if on_cuda else {}
