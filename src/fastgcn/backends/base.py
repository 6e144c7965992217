"""What a trainer works with, which depends on where the graph is: in one process, or in many."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn

from fastgcn.backends.batches import Feed
from fastgcn.backends.data import TrainingData, make_loss, prepare
from fastgcn.backends.exact import Judge
from fastgcn.backends.interval import Sizes, validation_interval
from fastgcn.backends.steps import Adam, Step, make_step
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.machine import choose_device
from fastgcn.metrics import Metrics
from fastgcn.model import GCN
from fastgcn.progress import note
from fastgcn.sampling import Sampler
from fastgcn.sampling.choose import make_sampler

Part = Literal["val", "test"]


class Scorer(Protocol):
    """Scores a network on a part of the split; its length is the number of nodes there."""

    def __len__(self) -> int: ...

    def __call__(self, model: GCN) -> Metrics: ...


class Workshop(Protocol):
    @property
    def device(self) -> torch.device: ...

    def data(self) -> TrainingData: ...

    def sampler(self, data: TrainingData) -> Sampler: ...

    def feed(
        self, data: TrainingData, model: GCN, sampler: Sampler, rng: torch.Generator
    ) -> Feed: ...

    def loss(self, data: TrainingData) -> nn.Module: ...

    def step(self, model: GCN, loss: nn.Module, optimizer: Adam) -> Step: ...

    def judge(self, part: Part, *, once: bool = False) -> Scorer | None:
        """None where the split has no such part."""
        ...

    def validation_interval(self, data: TrainingData, widths: Sequence[int]) -> int:
        """Epochs between validations where the settings leave it open; `widths` as of `GCN`."""
        ...

    def begin_epoch(self, epoch: int, dropout_rng: torch.Generator) -> None:
        """Before the first batch of an epoch, counted from 0."""
        ...

    def facts(self) -> dict[str, Any]:
        """What a run's result says of it."""
        ...


def choose_workshop(graph: Graph, config: TrainConfig, folder: Path | None) -> Workshop:
    """Everything on the device where there is one and the settings allow it."""
    device = choose_device(config.device)
    if device.type == "cuda":
        from fastgcn.backends.gpu import why_not

        reason = why_not(config)
        if reason is None:
            from fastgcn.backends.gpu.backend import OnDevice  # needs Triton

            return OnDevice(graph, config, device)
        note(f"sampling on the CPU, for the device cannot: {reason}")
    return OneProcess(graph, config, folder)


@dataclass(frozen=True, slots=True)
class OneProcess:
    """The whole graph is here; `folder` is for files that are too large for memory."""

    graph: Graph
    config: TrainConfig
    folder: Path | None

    @property
    def device(self) -> torch.device:
        return choose_device(self.config.device)

    def data(self) -> TrainingData:
        return prepare(self.graph, self.config, self.folder)

    def sampler(self, data: TrainingData) -> Sampler:
        return make_sampler(self.config, data.adjacency, data.edges)

    def feed(self, data: TrainingData, model: GCN, sampler: Sampler, rng: torch.Generator) -> Feed:
        return Feed(data, self.config, model, sampler, rng)

    def loss(self, data: TrainingData) -> nn.Module:
        return make_loss(data, self.graph, self.config)

    def step(self, model: GCN, loss: nn.Module, optimizer: Adam) -> Step:
        return make_step(model, loss, optimizer)

    def judge(self, part: Part, *, once: bool = False) -> Judge | None:
        nodes = getattr(self.graph.split, part)
        if not nodes.size:
            return None
        return Judge(self.graph, self.config, nodes, once=once, folder=self.folder)

    def validation_interval(self, data: TrainingData, widths: Sequence[int]) -> int:
        graph, batch_nodes = self.graph, len(data.batch_nodes)
        sizes = Sizes.of(data.adjacency, batch_nodes, graph.csr, graph.features, graph.split.val)
        return validation_interval(sizes, self.config, widths)

    def begin_epoch(self, epoch: int, dropout_rng: torch.Generator) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        return {}
