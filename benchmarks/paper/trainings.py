"""Trainings over seeds, at the learning rate that validation prefers, and what they came to."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np

from benchmarks.accuracy import preferred_rate
from benchmarks.paper.graphs import graph
from benchmarks.paper.kept import Kept, Key, Measurement
from benchmarks.results import Record
from fastgcn.arrays import IntArray
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.backends.evaluator import Evaluator
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.train.loop import Training, fit

# Nodes of a part that a curve is judged on at most: its accuracy is then known to about 0.01,
# and judging a large graph takes no longer than training on it.
CURVE_NODES = 2000

_CURVE_POINTS = 200  # about how many points the curve of a long training has


@dataclass(frozen=True, slots=True)
class Case:
    """Settings that are trained with several seeds on a data set under a split.

    Every rate is tried with `search_seeds` seeds, for `search_epochs` epochs where that is
    given; the rest of the seeds is for the rate that validation prefers. With `curve` the
    accuracy is followed over time.
    """

    label: str
    data: str
    split: str
    config: TrainConfig
    rates: tuple[float, ...]
    seeds: int
    search_seeds: int = 1
    search_epochs: int | None = None
    curve: bool = False

    def plan(self, kept: Kept) -> Iterator[Measurement]:
        """The trainings that are needed; those at the chosen rate come last.

        As long as no rate can be chosen, the last ones are at the rate of the settings, which
        tells how many they are; by their turn the choice is made.
        """
        if len(self.rates) > 1:
            for rate in self.rates:
                for seed in range(min(self.search_seeds, self.seeds)):
                    yield self._training(self._search_config(rate, seed), timed=False)
        rate = self.rate(kept) or self.config.learning_rate
        for seed in range(self.seeds):
            yield self._training(self._config(rate, seed), timed=self.curve)

    def rate(self, kept: Kept) -> float | None:
        """The rate that validation prefers, by all seeds on file; None while they are too few."""
        if len(self.rates) == 1:
            return self.rates[0]
        found = {
            rate: [s["val_micro_f1"] for s in self._on_file(kept, self._search_config, rate)]
            for rate in self.rates
        }
        common = min(map(len, found.values()))
        if common < min(self.search_seeds, self.seeds):
            return None
        return preferred_rate({rate: scores[:common] for rate, scores in found.items()})

    def scores(self, kept: Kept, *, timed: bool = False) -> list[Record]:
        """The results at the chosen rate, for seeds 0, 1, ... as far as they are on file.

        With `timed`, those alone that were followed over time.
        """
        rate = self.rate(kept)
        return [] if rate is None else self._on_file(kept, self._config, rate, timed=timed)

    def _on_file(
        self,
        kept: Kept,
        settings: Callable[[float, int], TrainConfig],
        rate: float,
        *,
        timed: bool = False,
    ) -> list[Record]:
        found: list[Record] = []
        for seed in count():
            config = settings(rate, seed)
            record = kept.get(self._curve_key(config))
            if record is None and not timed:
                record = kept.get(self._key(config))
            if record is None:
                break
            found.append(record)
        return found

    def _config(self, rate: float, seed: int) -> TrainConfig:
        return self.config.replace(learning_rate=rate, seed=seed)

    def _search_config(self, rate: float, seed: int) -> TrainConfig:
        epochs = self.search_epochs or self.config.epochs
        return self._config(rate, seed).replace(epochs=epochs)

    def _key(self, config: TrainConfig) -> dict[str, Any]:
        return {"data": self.data, "split": self.split, "config": config.to_dict()}

    def _curve_key(self, config: TrainConfig) -> Key:
        return self._key(config) | {"experiment": "curve"}

    def _training(self, config: TrainConfig, *, timed: bool) -> Measurement:
        label = f"{self.label}, rate {config.learning_rate:g}, seed {config.seed}"
        if self.curve:
            return Measurement(
                label,
                self._curve_key(config),
                lambda: follow(graph(self.data, self.split), config),
                instead=None if timed else self._key(config),
            )
        return Measurement(
            label,
            self._key(config),
            lambda: _fit(graph(self.data, self.split), config),
            instead=self._curve_key(config),
        )


def _fit(graph: Graph, config: TrainConfig) -> Record:
    metrics = fit(graph, config).metrics
    return {name: value for name, value in metrics.items() if name != "test_classes"}


def follow(graph: Graph, config: TrainConfig) -> Record:
    """Train, and judge on training and test nodes on the way, outside the clock.

    Seconds are those of training alone, from the first batch on; kernels are compiled before.
    """
    with thread_count(config.threads):
        _warm_up(graph, config)
        trainer = Training(config, CpuBackend(graph, config))
        model = trainer.backend.model
        judges = {
            part: Evaluator(graph, config, _some(nodes))
            for part, nodes in graph.split.items()
            if part != "val"
        }
        every = max(1, config.epochs // _CURVE_POINTS)
        curve: dict[str, list[float]] = {"seconds": [], **{part: [] for part in judges}}
        seconds = 0.0
        while trainer.has_more_epochs:
            judged = trainer.seconds["evaluation"]
            start = time.perf_counter()
            trainer.epoch()
            seconds += time.perf_counter() - start
            seconds -= trainer.seconds["evaluation"] - judged
            if len(trainer.history) % every == 0:
                curve["seconds"].append(float(f"{seconds:.4g}"))
                for part, judge in judges.items():
                    curve[part].append(round(judge(model).accuracy, 4))
        model.load_state_dict(trainer.best)
        test = Evaluator(graph, config, graph.split.test, once=True)(model)
    best = trainer.history[trainer.best_at]
    return {
        "epochs": len(trainer.history),
        "best_epoch": best["epoch"],
        "val_micro_f1": best["val_micro_f1"],
        "test_micro_f1": test.micro_f1,
        "training_seconds": seconds,
        "evaluation_seconds": trainer.seconds["evaluation"],
        "precompute_seconds": trainer.seconds["precompute"],
        "batches": trainer.batches,
        "device": str(trainer.backend.device),
        "curve": curve,
    }


def _warm_up(graph: Graph, config: TrainConfig) -> None:
    trainer = ready(graph, config)
    trainer.train_on(islice(trainer.minibatches.shuffled(), 2))


def _some(nodes: IntArray) -> IntArray:
    """All nodes, or a random choice of them that is always the same."""
    if len(nodes) <= CURVE_NODES:
        return nodes
    return np.sort(np.random.default_rng(0).choice(nodes, CURVE_NODES, replace=False))
