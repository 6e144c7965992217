"""The members of the family of estimators that are compared, on what, and how thoroughly."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastgcn.config import TrainConfig
from fastgcn.data.load import load
from fastgcn.data.registry import PLANETOID
from fastgcn.graph.graph import Graph
from fastgcn.train.presets import paper_preset

BASELINE = "Algorithm 2"
DATA = ("cora", "pubmed", "reddit-sim")


@dataclass(frozen=True, slots=True)
class Member:
    """One estimator: the settings in which it departs from Algorithm 2.

    `drawn`: whether figures show it; more than a few lines cannot be told apart.
    """

    name: str
    settings: Mapping[str, Any]
    drawn: bool = False

    def config(self, base: TrainConfig, samples: int | None = None) -> TrainConfig:
        """The settings `base` with this estimator, and so many vertices a layer if given."""
        changes = dict(self.settings) if samples is None else {**self.settings, "samples": samples}
        return base.replace(**changes)

    def in_words(self) -> str:
        """The settings as they are written in a file.

        >>> Member("LADIES", {"distribution": "ladies", "history": True}).in_words()
        'distribution = "ladies", history = true'
        """
        words = [
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}".lower()
            for name, value in self.settings.items()
        ]
        return ", ".join(words)


_LADIES_EXACT = {"distribution": "ladies", "self_term": "exact"}
_LADIES_SIZES = {"distribution": "ladies", "power": 1.0}

MEMBERS = (
    Member(BASELINE, {}, drawn=True),
    Member("Algorithm 1", {"distribution": "uniform"}),
    Member("flat", {"distribution": "flat"}),
    Member("optimal", {"distribution": "optimal"}),
    Member("stratified", {"draws": "stratified"}),
    Member("Poisson", {"draws": "poisson"}),
    Member("successive", {"draws": "successive"}),
    Member("neighbours", {"neighbors_only": True}, drawn=True),
    Member("neighbours, stratified", {"neighbors_only": True, "draws": "stratified"}),
    Member("exact self", {"self_term": "exact"}),
    Member("LADIES", {"distribution": "ladies"}, drawn=True),
    Member("LADIES, exact self", _LADIES_EXACT, drawn=True),
    Member("LADIES, exact self, stratified", _LADIES_EXACT | {"draws": "stratified"}),
    Member("LADIES by sizes", _LADIES_SIZES),
    Member("LADIES by sizes, stratified", _LADIES_SIZES | {"draws": "stratified"}, drawn=True),
    Member(
        "LADIES by sizes, exact self, stratified",
        _LADIES_SIZES | {"self_term": "exact", "draws": "stratified"},
        drawn=True,
    ),
    Member("history", {"history": True}, drawn=True),
    Member("history, 5 epochs", {"history": True, "history_every": 5}),
    Member("LADIES, exact self, history", _LADIES_EXACT | {"history": True}),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A data set, the settings of Algorithm 2 on it, and what is measured.

    Attributes:
        split: None for the split that the data set has.
        costs: whether gradient errors and times of steps are measured.
        accuracy: whether networks are trained to the end; needs a split by name.
    """

    data: str
    split: str | None
    config: TrainConfig
    costs: bool = True
    accuracy: bool = True

    def graph(self) -> Graph:
        return load(self.data) if self.split is None else load(self.data, split=self.split)


def subject(data: str) -> Subject:
    """What is measured on a data set: all, but accuracy alone on Cora and costs on reddit-sim.

    Its settings are the paper's, those for Reddit where the paper does not have the data; other
    data than the paper's are split at random.

    >>> subject("cora").costs, subject("pubmed").costs, subject("digits").split
    (False, True, 'random')
    """
    config = paper_preset(data)
    if data == "reddit-sim":
        return Subject(data, None, config, accuracy=False)
    return Subject(data, "full" if data in PLANETOID else "random", config, costs=data != "cora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How thoroughly is measured.

    Attributes:
        sizes: sample sizes, in units of the paper's t.
        network_epochs: epochs that the network has been trained for when gradients are compared.
        batches, draws: batches whose gradients are compared, and draws for each.
        rounds, chunk_seconds: chunks of steps that a time is the median of, and their length.
        seeds: trainings of each member, with seeds 0, 1, ...
        epochs: at most so many each; None: the settings' own.
    """

    sizes: tuple[float, ...]
    network_epochs: int
    batches: int
    draws: int
    rounds: int
    chunk_seconds: float
    seeds: int
    epochs: int | None = None

    def samples(self, t: int, nodes: int) -> list[int]:
        """The sample sizes around t, of a training graph of so many nodes; t is one of them."""
        around = {round(t * size) for size in self.sizes}
        return sorted({t, *(min(max(size, 1), nodes) for size in around)})


def full() -> Effort:
    """About ten minutes on two cores, for the default data sets."""
    return Effort(
        sizes=(1 / 16, 1 / 4, 1, 4),
        network_epochs=10,
        batches=4,
        draws=30,
        rounds=25,
        chunk_seconds=0.08,
        seeds=3,
    )


def quick() -> Effort:
    """A look: rough figures, and trainings too short to be compared with others."""
    return Effort(
        sizes=(1 / 4, 1),
        network_epochs=5,
        batches=2,
        draws=4,
        rounds=2,
        chunk_seconds=0.02,
        seeds=1,
        epochs=5,
    )
