"""The systems that the paper compares, as trainings and as settings to time."""

from benchmarks.paper.kept import Measurement
from benchmarks.paper.published import SYSTEMS
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.step_times import step_times
from benchmarks.paper.trainings import Case
from fastgcn.config import TrainConfig
from fastgcn.train.presets import METHODS


def systems_on(data: DataSet) -> list[str]:
    """Every system; but the original GCN not on the large graph, where the paper's has no room."""
    return [name for name in SYSTEMS if name != "gcn" or data.paper != "Reddit"]


def settings(system: str, data: DataSet) -> TrainConfig:
    """The paper's settings of a system on a data set; all stop by the same rule."""
    config = METHODS[system](data.config)
    epochs = data.limit(system).epochs or data.config.epochs
    return config.replace(
        epochs=epochs,
        early_stopping=data.config.early_stopping,
        patience=data.config.patience,
        threads=data.config.threads,
    )


def comparison(data: DataSet) -> dict[str, Case]:
    """The trainings of every system on a data set."""
    cases = {}
    for system in systems_on(data):
        limit = data.limit(system)
        cases[system] = Case(
            label=f"{data.label}: {SYSTEMS[system]}",
            data=data.name,
            split=data.split,
            config=settings(system, data),
            rates=limit.rates or data.rates,
            seeds=limit.seeds or data.seeds,
            search_epochs=limit.search_epochs,
            curve=True,
        )
    return cases


def batch_times(data: DataSet, scale: Scale) -> Measurement:
    """Seconds a batch of every system on a data set."""
    configs = {system: settings(system, data) for system in systems_on(data)}
    return step_times("time a batch", data, configs, scale)
