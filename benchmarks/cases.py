"""Trainings over seeds, at the learning rate that validation prefers, and what they came to."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from typing import Any

import numpy as np

from benchmarks.pages import Experiment
from benchmarks.results import Key, Measurement, Record, Results
from fastgcn.arrays import IntArray
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.backends.evaluator import Evaluator
from fastgcn.config import TrainConfig
from fastgcn.data.generate import GenerateConfig, generate
from fastgcn.data.generate_config import PRESETS
from fastgcn.data.load import load
from fastgcn.data.registry import cache_folder
from fastgcn.data.store import is_store
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.report.page import Content
from fastgcn.train.loop import fit_choice
from fastgcn.train.race import Choice
from fastgcn.train.run import Run
from fastgcn.train.training import Training

OWN_SPLIT = "own"  # the only split that the data set has
TINY = ("tiny-sim-a", "tiny-sim-b", "tiny-sim-c")

# Nodes of a part that a curve is evaluated on at most: its accuracy is then known to about 0.01,
# and evaluating on a large graph takes no longer than training on it.
CURVE_NODES = 2000
_CURVE_POINTS = 200  # about how many points the curve of a long training has

_STAND_INS = {
    name: GenerateConfig(name=name, nodes=nodes, edges=6 * nodes, features=12, classes=3)
    for name, nodes in zip(TINY, (240, 320, 400), strict=True)
}


def is_stand_in(name: str) -> bool:
    """Whether a graph is generated, and so not one that the paper measured."""
    return name in _STAND_INS or name in PRESETS


@cache
def graph(name: str, split: str | None, split_seed: int | None = None) -> Graph:
    """A data set, loaded once for all measurements; tiny ones are generated on first use."""
    source = name
    if name in _STAND_INS:
        store = cache_folder() / name
        if not is_store(store):
            generate(_STAND_INS[name], store)
        source = str(store)
    options = {} if split in (OWN_SPLIT, None) else {"split": split}
    loaded = load(source, **options | ({} if split_seed is None else {"seed": split_seed}))
    for part, nodes in loaded.split.items():
        if not nodes.size:
            raise InputError(
                f"{name} has no {part} nodes, and the experiments need all three parts; "
                "give it a split (a split column, or --split random when it is imported)"
            )
    return loaded


def best_rate(validation: dict[float, list[float]]) -> float:
    """The rate with the best mean validation score; of equal ones, the smallest.

    >>> best_rate({0.01: [0.90, 0.92], 0.001: [0.905, 0.905], 0.0001: [0.8, 0.8]})
    0.01
    """
    means = {rate: float(np.mean(scores)) for rate, scores in validation.items()}
    return min(means, key=lambda rate: (-means[rate], rate))


def without_test(run: Record) -> Record:
    """What a choice between runs may see of one: nothing of its test nodes.

    >>> without_test({"val_micro_f1": 0.8, "test_micro_f1": 0.9, "curve": {"test": [0.9]}})
    {'val_micro_f1': 0.8}
    """
    return {name: v for name, v in run.items() if "test" not in name and name != "curve"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Settings that are trained with several seeds on a data set under a split.

    Every rate is trained with every seed, to the end: the same rule for ours and for others. With
    `curve` the accuracy of seed 0 at the rate that validation prefers is followed over time, alone.
    A random split is another one for every seed. `published` is a score to compare with.
    """

    label: str
    data: str
    split: str
    config: TrainConfig
    rates: tuple[float, ...]
    seeds: int
    curve: bool = False
    published: float | None = None

    def plan(self, results: Results) -> Iterator[Measurement]:
        """The trainings that are needed; those at the chosen rate come last.

        As long as no rate can be chosen, the last ones are at the rate of the settings, which
        tells how many they are; when their turn comes, the choice has been made.
        """
        if len(self.rates) > 1:
            for rate in self.rates:
                for seed in range(self.seeds):
                    yield self.training(rate, seed)
        rate = self.rate(results) or self.config.learning_rate
        for seed in range(self.seeds):
            yield self._training(self._config(rate, seed), timed=self.curve and seed == 0)

    def rate(self, results: Results) -> float | None:
        """The rate that validation prefers, by as many seeds of each; None while some lack."""
        if len(self.rates) == 1:
            return self.rates[0]
        found = {
            rate: [without_test(run)["val_micro_f1"] for run in self._on_file(results, rate)]
            for rate in self.rates
        }
        common = min(map(len, found.values()))
        if common < self.seeds:
            return None
        return best_rate({rate: scores[:common] for rate, scores in found.items()})

    def runs(self, results: Results, *, timed: bool = False) -> list[Record]:
        """The results at the chosen rate, for seeds 0, 1, ... as far as they are on file.

        With `timed`, only those that were followed over time.
        """
        rate = self.rate(results)
        return [] if rate is None else self._on_file(results, rate, timed=timed)

    def test_scores(self, results: Results) -> list[float]:
        """Test micro-F1 at the chosen rate, a seed each."""
        return [run["test_micro_f1"] for run in self.runs(results)]

    def _on_file(self, results: Results, rate: float, *, timed: bool = False) -> list[Record]:
        def keys() -> Iterator[list[Key]]:
            for seed in count():
                key = self._key(self._config(rate, seed))
                yield [_curve_key(key)] if timed else [_curve_key(key), key]

        return results.series(keys())

    def _config(self, rate: float, seed: int) -> TrainConfig:
        return self.config.replace(learning_rate=rate, seed=seed)

    def _key(self, config: TrainConfig) -> Record:
        key: Record = {"data": self.data, "split": self.split, "config": config.to_dict()}
        return key | ({"split_seed": config.seed} if self.split == "random" else {})

    def training(self, rate: float, seed: int) -> Measurement:
        """One training at a rate."""
        return self._training(self._config(rate, seed), timed=False)

    def _training(self, config: TrainConfig, *, timed: bool) -> Measurement:
        label = f"{self.label}, rate {config.learning_rate:g}, seed {config.seed}"
        key, curve = self._key(config), _curve_key(self._key(config))
        train = partial(_train, self, config, timed)
        if timed:
            return Measurement(label, curve, train, alone=True)
        return Measurement(label, key, train, instead=curve)


def from_cases(
    name: str,
    title: str,
    parts: Callable[[], Iterable[Case | Measurement]],
    show: Callable[[Results], Sequence[Content | None]],
    question: str = "",
) -> Experiment:
    """An experiment that needs the trainings of some cases, and some measurements."""

    def plan(results: Results) -> Iterator[Measurement]:
        for part in parts():
            if isinstance(part, Case):
                yield from part.plan(results)
            else:
                yield part

    return Experiment(name=name, title=title, question=question, plan=plan, show=show)


def _curve_key(key: Record) -> Record:
    return key | {"experiment": "curve"}


def train(graph: Graph, config: TrainConfig, **options: Any) -> Run:
    """`fastgcn.fit` with settings that are complete, so that nothing is left to choose."""
    assert config.is_complete
    return fit_choice(graph, Choice(config), **options)


def _train(case: Case, config: TrainConfig, timed: bool) -> Record:
    seed = config.seed if case.split == "random" else None
    on = graph(case.data, case.split, seed)
    if timed:
        return follow(on, config)
    metrics = train(on, config).metrics
    return {name: value for name, value in metrics.items() if name != "test_classes"}


def follow(graph: Graph, config: TrainConfig) -> Record:
    """Train, and evaluate on training and test nodes on the way, outside the clock.

    Seconds are those of training alone, from the first batch on; kernels are compiled before.
    """
    with thread_count(config.threads):
        warm = ready(graph, config)
        warm.train_on(islice(warm.minibatches.shuffled(), 2))
        training = Training(config, CpuBackend(graph, config))
        model = training.backend.model
        parts = {part: nodes for part, nodes in graph.split.items() if part != "val"}
        evaluators = {p: Evaluator(graph, config, _some(nodes)) for p, nodes in parts.items()}
        every = max(1, config.epochs // _CURVE_POINTS)
        curve: dict[str, list[float]] = {"seconds": [], **{part: [] for part in parts}}
        seconds = 0.0
        while training.has_more_epochs:
            before = training.seconds["evaluation"]
            start = time.perf_counter()
            training.epoch()
            seconds += time.perf_counter() - start
            seconds -= training.seconds["evaluation"] - before
            if len(training.history) % every == 0:
                curve["seconds"].append(float(f"{seconds:.4g}"))
                for part, evaluate in evaluators.items():
                    curve[part].append(round(evaluate(model).accuracy, 4))
        model.load_state_dict(training.best)
        test = Evaluator(graph, config, graph.split.test, once=True)(model)
    best = training.history[training.best_at]
    return {
        "epochs": len(training.history),
        "best_epoch": best["epoch"],
        "val_micro_f1": best["val_micro_f1"],
        "test_micro_f1": test.micro_f1,
        "training_seconds": seconds,
        "evaluation_seconds": training.seconds["evaluation"],
        "precompute_seconds": training.seconds["precompute"],
        "batches": training.batches,
        "device": str(training.backend.device),
        "curve": curve,
    }


def _some(nodes: IntArray) -> IntArray:
    """All nodes, or a random choice of them that is always the same."""
    if len(nodes) <= CURVE_NODES:
        return nodes
    return np.sort(np.random.default_rng(0).choice(nodes, CURVE_NODES, replace=False))
