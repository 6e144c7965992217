"""How long a training step takes: systems measured in turns, so that noise meets all of them."""

from collections.abc import Mapping

from benchmarks.paper.graphs import graph
from benchmarks.paper.kept import Measurement
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.results import Record
from benchmarks.rounds import time_steps
from fastgcn.backends.cpu import ready
from fastgcn.config import TrainConfig
from fastgcn.machine import thread_count


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
    with thread_count(0):
        trainers = {
            name: ready(graph(data.name, data.split), config) for name, config in configs.items()
        }
        return time_steps(trainers, rounds=scale.rounds, chunk_seconds=scale.chunk_seconds)
