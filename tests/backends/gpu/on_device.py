"""Trainings whose graph is on the device there is, and quick settings for them."""

from fastgcn import Graph, TrainConfig
from fastgcn.backends.gpu.backend import GpuBackend
from fastgcn.train.training import Training
from tests.backends.gpu.small import DEVICE

SETTINGS = TrainConfig(
    hidden=8, samples=12, batch_size=24, epochs=2, products="float32", device="cpu"
).complete()


def training(graph: Graph, config: TrainConfig) -> Training:
    return Training(config, GpuBackend(graph, config, DEVICE))


def place(there: Training) -> GpuBackend:
    assert isinstance(there.backend, GpuBackend)
    return there.backend
