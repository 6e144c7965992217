"""How long a training step takes: systems measured in turns, so that noise meets all of them."""

import time
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from torch import Tensor

from fastgcn.bench.results import Record
from fastgcn.config import TrainConfig
from fastgcn.machine import thread_count
from fastgcn.paper.graphs import graph
from fastgcn.paper.kept import Measurement
from fastgcn.paper.scale import DataSet, Scale
from fastgcn.train import Trainer

_FEWEST = 3  # batches of a chunk


def step_times(
    label: str, data: DataSet, configs: Mapping[str, TrainConfig], scale: Scale
) -> Measurement:
    """Seconds a batch of each of `configs` on a data set, by name."""
    key = {
        "experiment": "step-time",
        "data": data.name,
        "split": data.split,
        "configs": {name: config.to_dict() for name, config in configs.items()},
        "rounds": scale.rounds,
        "chunk_seconds": scale.chunk_seconds,
    }
    return Measurement(f"{data.label}: {label}", key, lambda: _measure(data, configs, scale))


def _measure(data: DataSet, configs: Mapping[str, TrainConfig], scale: Scale) -> Record:
    """Medians over chunks of batches, after a chunk that compiles kernels and fills caches.

    Sampling, the step and all between them count; evaluation and precomputation do not.
    """
    with thread_count(0):
        clocks = {
            name: _Stepper(Trainer(graph(data.name, data.split), config, None))
            for name, config in configs.items()
        }
        for clock in clocks.values():
            clock.warm_up(scale.chunk_seconds)
        for _ in range(scale.rounds):
            for clock in clocks.values():
                clock.chunk()
    return {name: clock.result() for name, clock in clocks.items()}


class _Stepper:
    """One system in training: its batches, epoch after epoch, a chunk at a time."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.batches = self._endless()
        self.length = _FEWEST
        self.seconds: list[float] = []  # a batch, one number a chunk

    def _endless(self) -> Iterator[Tensor]:
        while True:
            yield from self.trainer.shuffled_batches()

    def warm_up(self, chunk_seconds: float) -> None:
        """Steps that do not count, the last of which tell how many make a chunk."""
        self.chunk()
        self.chunk()
        self.length = max(_FEWEST, round(chunk_seconds / self.seconds[-1]))
        self.seconds.clear()

    def chunk(self) -> None:
        start = time.perf_counter()
        self.trainer.train_on(islice(self.batches, self.length))
        self.seconds.append((time.perf_counter() - start) / self.length)

    def result(self) -> Record:
        return {
            "seconds_per_batch": float(np.median(self.seconds)),
            "chunks": [float(f"{seconds:.4g}") for seconds in self.seconds],
            "batches_per_chunk": self.length,
            "batches_per_epoch": sum(1 for _ in self.trainer.shuffled_batches()),
        }
