"""Trainers whose graph is on the device there is, and quick settings for them."""

from fastgcn import Graph, TrainConfig
from fastgcn.backends.gpu.backend import OnDevice
from fastgcn.train.loop import Trainer
from tests.backends.gpu.small import DEVICE

SETTINGS = TrainConfig(
    hidden=8, samples=12, batch_size=24, epochs=2, products="float32", device="cpu"
).complete()


def trainer(graph: Graph, config: TrainConfig) -> Trainer:
    return Trainer(graph, config, None, OnDevice(graph, config, DEVICE))


def place(there: Trainer) -> OnDevice:
    assert isinstance(there.workshop, OnDevice)
    return there.workshop
