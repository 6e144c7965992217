"""How much is measured: everything, a few minutes' worth, or next to nothing."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.accuracy import RATES, paper_cases
from benchmarks.paper.graphs import OWN_SPLIT, SMALL_REDDIT, TINY, is_stand_in
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.train.presets import paper_cora, paper_pubmed, paper_reddit

STAND_IN = "reddit-sim"


@dataclass(frozen=True, slots=True)
class Limit:
    """What one system is held to on one data set, because it is slow there."""

    seeds: int | None = None
    epochs: int | None = None
    search_epochs: int | None = None  # while the learning rate is looked for
    rates: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set of the paper, or what stands in for it, and what is measured on it.

    Attributes:
        paper: the data set's name in the paper.
        name: what `fastgcn.load` is asked for.
        split: the split of the paper's main experiments.
        config: FastGCN's settings.
        rates: learning rates that validation chooses from.
        seeds: trainings of every system, with seeds 0, 1, ...
        limits: what slow systems are held to.
        sizes: sample sizes of Figure 2.
        size_epochs: epochs of a training in Figure 2 and Table 2.
        size_seeds: trainings in Figure 2.
        public: settings for the original split; None where the paper has none.
        public_samples: sample size there where the graph is that of the few training nodes.
    """

    paper: str
    name: str
    split: str = "full"
    config: TrainConfig
    rates: tuple[float, ...] = RATES
    seeds: int = 3
    limits: Mapping[str, Limit] = field(default_factory=dict)
    sizes: tuple[int, ...]
    size_epochs: int
    size_seeds: int = 10
    public: TrainConfig | None = None
    public_samples: int = 0

    @property
    def label(self) -> str:
        """What it is called in tables: the paper's name for the paper's data alone."""
        return self.paper if self.name == self.paper.lower() else Path(self.name).name

    @property
    def from_paper(self) -> bool:
        """Whether these are the paper's data, or at least not known to be others."""
        return self.label == self.paper or not is_stand_in(self.name)

    def limit(self, system: str) -> Limit:
        return self.limits.get(system, Limit())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Everything that decides what is measured.

    Attributes:
        table_sizes: sample sizes of Table 2.
        table_seeds: trainings there.
        rounds: chunks of batches that a time is the median of.
        chunk_seconds: about how long a chunk takes.
        steps, descents, descent_sizes: SGD steps, repetitions and sample sizes of App. D.
        repetitions: draws that a variance is measured by.
        variance_epochs: epochs that the network is trained for before its variance is measured.
    """

    name: str
    small: DataSet
    medium: DataSet
    large: DataSet
    table_sizes: tuple[int, ...] = (5, 10, 25, 50)
    table_seeds: int
    rounds: int
    chunk_seconds: float
    steps: int
    descents: int
    descent_sizes: tuple[int, ...] = (50, 200, 800)
    repetitions: int
    variance_epochs: int

    @property
    def data(self) -> tuple[DataSet, ...]:
        return self.small, self.medium, self.large


def full() -> Scale:
    """The paper's experiments; about 45 minutes on two cores."""
    public = {case.data: case.config for case in paper_cases() if case.name == "transductive"}
    sage = Limit(seeds=2, epochs=100, search_epochs=10)
    kipf = Limit(epochs=200, search_epochs=50)  # their own number of epochs
    slow = Limit(seeds=1, epochs=1)  # a minute each, where FastGCN takes a quarter of a second
    return Scale(
        name="full",
        table_seeds=3,
        small=DataSet(
            paper="Cora",
            name="cora",
            config=paper_cora(),
            limits={"gcn": kipf},
            sizes=(25, 50, 100, 200, 400),
            size_epochs=400,
            public=public["cora"],
            public_samples=100,
        ),
        medium=DataSet(
            paper="Pubmed",
            name="pubmed",
            config=paper_pubmed(),
            limits={
                "graphsage-gcn": sage,
                "graphsage-mean": sage,
                "gcn": kipf,
            },
            sizes=(5, 10, 25, 50, 100),
            size_epochs=400,
            public=public["pubmed"],
            public_samples=50,
        ),
        large=DataSet(
            paper="Reddit",
            name=STAND_IN,
            split=OWN_SPLIT,
            config=paper_reddit().replace(epochs=20),
            rates=(0.001,),
            seeds=2,
            limits=dict.fromkeys(("graphsage-gcn", "graphsage-mean", "gcn-batched"), slow),
            sizes=(100, 200, 400),
            size_epochs=5,
            size_seeds=2,
        ),
        rounds=9,
        chunk_seconds=0.5,
        steps=1000,
        descents=20,
        repetitions=2000,
        variance_epochs=20,
    )


def quick() -> Scale:
    """A few minutes: fewer epochs and seeds, no search for rates, and a smaller stand-in."""
    whole = full()
    short, slow = Limit(epochs=10), Limit(seeds=1, epochs=3)
    return dataclasses.replace(
        whole,
        name="quick",
        table_seeds=2,
        small=dataclasses.replace(
            _shortened(whole.small, epochs=30, public_epochs=100), limits={"gcn": short}
        ),
        medium=dataclasses.replace(
            _shortened(whole.medium, epochs=30, public_epochs=100),
            limits={"graphsage-gcn": slow, "graphsage-mean": slow, "gcn": short},
        ),
        large=dataclasses.replace(
            _shortened(whole.large, epochs=10),
            name=SMALL_REDDIT,
            limits=dict.fromkeys(("graphsage-gcn", "graphsage-mean", "gcn-batched"), slow),
            sizes=(100, 400),
            size_epochs=5,
        ),
        rounds=3,
        chunk_seconds=0.2,
        steps=300,
        descents=5,
        repetitions=300,
        variance_epochs=5,
    )


def smoke() -> Scale:
    """Seconds: every experiment on generated graphs of a few hundred nodes, for tests."""
    config = TrainConfig(hidden=4, samples=20, batch_size=64, epochs=2, threads=1).complete()
    small, medium, large = (
        DataSet(
            paper=paper,
            name=name,
            split=OWN_SPLIT,
            config=config,
            rates=(0.01, 0.001),
            seeds=2,
            sizes=(5, 20),
            size_epochs=2,
            size_seeds=2,
            public=None if paper == "Reddit" else config.replace(inductive=False),
            public_samples=10,
        )
        for paper, name in zip(("Cora", "Pubmed", "Reddit"), TINY, strict=True)
    )
    return Scale(
        name="smoke",
        table_seeds=1,
        small=small,
        medium=medium,
        large=large,
        table_sizes=(5, 10),
        rounds=2,
        chunk_seconds=0.01,
        steps=60,
        descents=3,
        descent_sizes=(50, 200),
        repetitions=40,
        variance_epochs=1,
    )


def with_seeds(scale: Scale, seeds: int) -> Scale:
    """The same with so many trainings of every system."""
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, got {seeds}")

    def changed(data: DataSet) -> DataSet:
        limits = {
            name: dataclasses.replace(limit, seeds=None) for name, limit in data.limits.items()
        }
        return dataclasses.replace(data, seeds=seeds, size_seeds=seeds, limits=limits)

    return dataclasses.replace(
        scale,
        table_seeds=seeds,
        small=changed(scale.small),
        medium=changed(scale.medium),
        large=changed(scale.large),
    )


def with_large(scale: Scale, name: str) -> Scale:
    """The same with another graph in the place of Reddit."""
    return dataclasses.replace(scale, large=dataclasses.replace(scale.large, name=name))


def _shortened(data: DataSet, *, epochs: int, public_epochs: int = 0) -> DataSet:
    """One learning rate, two seeds, fewer epochs."""
    public = data.public
    return dataclasses.replace(
        data,
        config=data.config.replace(epochs=epochs),
        rates=(data.config.learning_rate,),
        seeds=2,
        size_epochs=epochs,
        size_seeds=2,
        public=None if public is None else public.replace(epochs=public_epochs),
    )
