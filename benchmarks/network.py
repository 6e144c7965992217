"""One trained network that any estimator can go on training, its steps, and its gradients.

All that benchmarks know of the inside of a training step is here.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat

import numpy as np
import torch
from torch import Tensor

from benchmarks.pages import standard_error
from benchmarks.results import Record
from benchmarks.timing import Side, medians, repeated, seconds_in_turns, spread
from fastgcn.arrays import FloatArray
from fastgcn.backends.batches import Minibatch, Minibatches
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.backends.steps import flat_gradient
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.sampling import FullSampler, LayerSampler, Sampler, make_sampler
from fastgcn.sampling.history import HistorySampler

_LOOKS = 3  # times that all hidden rows are computed, of which the median counts


def steps(trainer: CpuBackend) -> Side:
    """A side whose units are training steps, epoch after epoch: sampling and all between steps."""

    def endless() -> Iterator[Tensor]:
        while True:
            yield from trainer.minibatches.shuffled()

    batches = endless()
    return lambda count: trainer.train_on(islice(batches, count))


def time_steps(
    trainers: Mapping[str, CpuBackend], *, rounds: int, chunk_seconds: float
) -> dict[str, Record]:
    """Seconds a batch of each trainer, in turns; evaluation and precomputation do not count."""
    sides = {name: steps(trainer) for name, trainer in trainers.items()}
    found = seconds_in_turns(sides, rounds=rounds, chunk_seconds=chunk_seconds, what="Timing steps")
    return {
        name: {
            "seconds_per_batch": seconds,
            "chunks": [float(f"{each:.4g}") for each in found[name]],
            "spread": float(f"{spread(found[name]):.2g}"),
            "batches_per_epoch": sum(1 for _ in trainers[name].minibatches.shuffled()),
        }
        for name, seconds in medians(found).items()
    }


def time_configs(
    graph: Graph, configs: Mapping[str, TrainConfig], *, rounds: int, chunk_seconds: float
) -> dict[str, Record]:
    """Seconds a batch of each of these settings on a graph, on all cores."""
    with thread_count(0):
        trainers = {name: ready(graph, config) for name, config in configs.items()}
        return time_steps(trainers, rounds=rounds, chunk_seconds=chunk_seconds)


class TrainedNetwork:
    """A two-layer network with a precomputed first layer, trained for `config.epochs` epochs.

    Some estimators keep something of all hidden rows. Here that is as old as it gets in
    training: that of the network as many epochs ago as they keep it for, one of `ages`.
    """

    def __init__(self, graph: Graph, config: TrainConfig, ages: Iterable[int]) -> None:
        assert config.sampled_layers == 1
        self.trainer = ready(graph, config)
        self._histories: dict[int, HistorySampler] = {}
        self._norms: dict[int, FloatArray] = {}
        self._seconds: dict[str, float] = {}
        age_at = {config.epochs - age: age for age in ages}
        for epoch in range(config.epochs):
            if epoch in age_at:
                self._histories[age_at[epoch]] = self._history()
                (self._norms[age_at[epoch]],) = row_norms(self.trainer)
            self.trainer.train_epoch(epoch)
        self._weights = {k: v.clone() for k, v in self.trainer.model.state_dict().items()}

    def restore(self) -> None:
        """Undo what trainers have done to the weights since."""
        self.trainer.model.load_state_dict(self._weights)

    def trainer_with(self, config: TrainConfig) -> CpuBackend:
        """This very network with blocks drawn as `config` says."""
        trainer = copy.copy(self.trainer)
        trainer.learner = copy.copy(trainer.learner)
        trainer.config, trainer.sampler = config, self._sampler(config)
        trainer.learner.rng = torch.Generator().manual_seed(config.seed + 1)
        trainer.minibatches = Minibatches(
            trainer.data, config, trainer.model, trainer.sampler, trainer.learner.rng
        )
        return trainer

    def _sampler(self, config: TrainConfig) -> Sampler:
        data = self.trainer.data
        sampler = make_sampler(config, data.adjacency, data.edges)
        if isinstance(sampler, HistorySampler):
            # A copy shares the kept rows, which are large.
            history = copy.copy(self._histories[config.history_every])
            history.sampler = sampler.sampler
            return history
        if isinstance(sampler, LayerSampler) and config.distribution == "optimal":
            sampler.set_row_norms([self._norms[1]])
        return sampler

    def seconds_an_epoch(self, config: TrainConfig) -> float:
        """What computing all hidden rows costs an epoch; 0 for estimators that do not need it."""
        if config.history:
            return self._time("history", self._history) / config.history_every
        return (
            self._time("norms", lambda: row_norms(self.trainer))
            if config.distribution == "optimal"
            else 0.0
        )

    def _time(self, name: str, look: Callable[[], object]) -> float:
        if name not in self._seconds:
            sides = {name: repeated([look])}
            self._seconds |= medians(seconds_in_turns(sides, rounds=_LOOKS, chunk_seconds=0))
        return self._seconds[name]

    def _history(self) -> HistorySampler:
        """A sampler that keeps the present hidden rows."""
        history = HistorySampler(LayerSampler(self.trainer.data.adjacency, [1]))
        history.refresh(self.trainer.hidden_rows())
        return history


class GradientErrors:
    """Compares estimators by the gradients of some batches, at the weights of one network.

    There are `batches` of them, or fewer where an epoch has fewer.
    """

    def __init__(self, network: TrainedNetwork, *, batches: int) -> None:
        self.network = network
        network.restore()
        trainer = network.trainer
        whole = FullSampler(trainer.data.adjacency, trainer.config.sampled_layers)
        rng = torch.Generator().manual_seed(trainer.config.seed)
        exact = Minibatches(trainer.data, trainer.config, trainer.model, whole, rng)
        self.batches = list(islice(exact.shuffled(), batches))
        self.exact = [gradient(trainer, part) for part in exact.singly(self.batches)]

    def measure(self, config: TrainConfig, *, draws: int) -> Record:
        """E‖g − g*‖² / ‖g*‖², the mean over the batches, from so many draws for each.

        g is the gradient of a batch's loss with respect to all weights under the estimator of
        `config`, g* that with whole neighbourhoods. `variance` is E‖g − Eg‖² / ‖g*‖²; the rest of
        `error` is bias, for the loss is not linear in what is estimated. `rows` are the hidden
        rows that a step computes.
        """
        self.network.restore()
        trainer = self.network.trainer_with(config)
        errors, variances, rows = [], [], []
        for batch, exact in zip(self.batches, self.exact, strict=True):
            gradients = []
            for part in trainer.minibatches.singly(repeat(batch, draws)):
                gradients.append(gradient(trainer, part))
                rows.append(len(part.x))
            drawn, scale = torch.stack(gradients), exact.square().sum()
            errors.append(((drawn - exact).square().sum(dim=1) / scale).numpy())
            variances.append(float(drawn.var(dim=0).sum() / scale))
        within = np.linalg.norm([standard_error(each.tolist()) for each in errors])
        return {
            "error": float(np.mean(errors)),
            "standard_error": float(within) / len(self.batches),
            "variance": float(np.mean(variances)),
            "rows": float(np.mean(rows)),
        }


def gradient(trainer: CpuBackend, part: Minibatch) -> Tensor:
    """(parameters,): that of a prepared batch's loss, at the present weights."""
    return flat_gradient(trainer.model, trainer.loss, part.blocks, part.x, part.labels)


def row_norms(backend: CpuBackend) -> list[FloatArray]:
    """(n,) ‖H(u)W‖ of every sampled layer under the current weights."""
    return [each.norms() for each in backend.layer_rows()]
