"""What is measured of the paper: which systems, on which data, with how many trainings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.accuracy import RATES, transductive
from benchmarks.cases import OWN_SPLIT, TINY, Case, graph, is_stand_in
from benchmarks.network import time_configs
from benchmarks.pages import DASH, ratio, short
from benchmarks.published import STATISTICS, SYSTEMS
from benchmarks.results import Measurement, Record
from fastgcn.config import TrainConfig
from fastgcn.report.page import Content, Table
from fastgcn.train.presets import METHODS, paper_cora, paper_pubmed, paper_reddit

Contents = list[Content | None]


@dataclass(frozen=True, slots=True)
class Limit:
    """What one system is held to on one data set, because it is slow there."""

    seeds: int | None = None
    epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set of the paper, or a stand-in for it, and what is measured on it.

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
    size_epochs: int = 400
    size_seeds: int = 10
    public: TrainConfig | None = None
    public_samples: int = 0

    @property
    def label(self) -> str:
        """Its name in tables: the paper's name for the paper's data alone."""
        return self.paper if self.name == self.paper.lower() else Path(self.name).name

    @property
    def from_paper(self) -> bool:
        """Whether these are the paper's data, or at least not known to be others."""
        return self.label == self.paper or not is_stand_in(self.name)

    @property
    def systems(self) -> list[str]:
        """Every system; but the original GCN not on Reddit, where the paper's ran out of memory."""
        return [name for name in SYSTEMS if name != "gcn" or self.paper != "Reddit"]

    def limit(self, system: str) -> Limit:
        return self.limits.get(system, Limit())

    def settings(self, system: str) -> TrainConfig:
        """The paper's settings of a system; all stop by the same rule."""
        return METHODS[system](self.config).replace(
            epochs=self.limit(system).epochs or self.config.epochs,
            early_stopping=self.config.early_stopping,
            patience=self.config.patience,
            threads=self.config.threads,
        )

    def case(self, system: str) -> Case:
        """The trainings of a system, followed over time."""
        limit = self.limit(system)
        return Case(
            label=f"{self.label}: {SYSTEMS[system]}",
            data=self.name,
            split=self.split,
            config=self.settings(system),
            rates=self.rates,
            seeds=limit.seeds or self.seeds,
            curve=True,
        )

    def sized_case(self, t: int, *, seeds: int, how: str, **settings: object) -> Case:
        """FastGCN with t vertices a sampled layer, other settings changed too."""
        return Case(
            label=f"{self.label}: FastGCN, {how}, t = {t}",
            data=self.name,
            split=self.split,
            config=self.config.replace(samples=t, epochs=self.size_epochs, **settings),
            rates=(self.config.learning_rate,),
            seeds=seeds,
        )


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

    about: str
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


_SLOW_ON_REDDIT = ("graphsage-gcn", "graphsage-mean", "gcn-batched")


def full() -> Scale:
    """The paper's experiments; an hour of one core beyond what `accuracy` has on file."""
    public = transductive()
    kipf = Limit(epochs=200)  # their own number of epochs
    slow = Limit(seeds=1, epochs=1)  # a minute each, where FastGCN takes a quarter of a second
    return Scale(
        about="full scale.",
        small=DataSet(
            paper="Cora",
            name="cora",
            config=paper_cora(),
            limits={"gcn": kipf},
            sizes=(25, 50, 100, 200, 400, 800),
            public=public["cora"],
            public_samples=100,
        ),
        medium=DataSet(
            paper="Pubmed",
            name="pubmed",
            config=paper_pubmed(),
            limits={"gcn": kipf},
            sizes=(5, 10, 25, 50, 100, 400, 1600),
            public=public["pubmed"],
            public_samples=50,
        ),
        large=DataSet(
            paper="Reddit",
            name="reddit-sim",
            split=OWN_SPLIT,
            config=paper_reddit().replace(epochs=20),
            rates=(0.001,),
            seeds=2,
            limits=dict.fromkeys(_SLOW_ON_REDDIT, slow),
            sizes=(100, 200, 400),
            size_epochs=5,
            size_seeds=2,
        ),
        table_seeds=3,
        rounds=9,
        chunk_seconds=0.5,
        steps=1000,
        descents=20,
        repetitions=2000,
        variance_epochs=20,
    )


def quick() -> Scale:
    """Seconds, on generated graphs of a few hundred nodes: every experiment runs."""
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
        for paper, name in zip(STATISTICS, TINY, strict=True)
    )
    return Scale(
        about="quick scale: graphs of a few hundred nodes, on which no figure means anything.",
        small=small,
        medium=medium,
        large=large,
        table_sizes=(5, 10),
        table_seeds=1,
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

    def changed(data: DataSet) -> DataSet:
        limits = {name: replace(limit, seeds=None) for name, limit in data.limits.items()}
        return replace(data, seeds=seeds, size_seeds=seeds, limits=limits)

    small, medium, large = map(changed, scale.data)
    return replace(scale, table_seeds=seeds, small=small, medium=medium, large=large)


def beside(theirs: float | None, data: DataSet, digits: int | None = None) -> str:
    """A figure of the paper, and on which data where ours are others."""
    if theirs is None:
        return DASH
    text = short(theirs) if digits is None else f"{theirs:,.{digits}f}"
    return text if data.from_paper else f"{text} on {data.paper}"


Figures = tuple[float | None, str, float | None]  # ours, how it is written, and the paper's


def against_paper(
    systems: Mapping[str, str],
    figures: Callable[[str, DataSet], Figures],
    data: Sequence[DataSet],
    caption: str,
    digits: int | None = None,
) -> Table:
    """A row for every system on every data set: ours, the paper's, and their ratio.

    `systems` has the name of each in the table. The paper's figures have so many decimals, or
    three significant digits.
    """
    rows = []
    for each in data:
        for system, name in systems.items():
            ours, text, theirs = figures(system, each)
            label = f"{each.label}: {name}"
            rows.append((label, text, beside(theirs, each, digits), ratio(ours, theirs)))
    return Table(("", "here", "the paper", "ratio"), rows, caption)


def step_times(
    label: str, data: DataSet, configs: Mapping[str, TrainConfig], scale: Scale
) -> Measurement:
    """Seconds a batch of each of `configs` on a data set, in turns."""
    key = {
        "experiment": "step-time",
        "data": data.name,
        "split": data.split,
        "configs": {name: config.to_dict() for name, config in configs.items()},
        "rounds": scale.rounds,
        "chunk_seconds": scale.chunk_seconds,
    }

    def measure() -> Record:
        loaded, rounds = graph(data.name, data.split), scale.rounds
        return time_configs(loaded, configs, rounds=rounds, chunk_seconds=scale.chunk_seconds)

    return Measurement(f"{data.label}: {label}", key, measure, alone=True)
