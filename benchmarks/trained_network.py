"""One trained network that any estimator can go on training: same weights, other blocks."""

import copy
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch

from fastgcn.arrays import FloatArray
from fastgcn.backends.batches import Minibatches
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.sampling import LayerSampler, Sampler
from fastgcn.sampling.choose import make_sampler
from fastgcn.sampling.history import HistorySampler

_LOOKS = 3  # at all hidden rows, of which the median time counts


class TrainedNetwork:
    """A two-layer network with a precomputed first layer, trained for `config.epochs` epochs.

    Some estimators keep something of all hidden rows. Here that is as old as it gets in
    training: of the network as it was so many epochs ago as they keep it for, which must be one
    of `ages`.
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
                (self._norms[age_at[epoch]],) = self.trainer.row_norms()
            self.trainer.train_epoch(epoch)
        self._weights = {k: v.clone() for k, v in self.trainer.model.state_dict().items()}

    def restore(self) -> None:
        """Take back what trainers have done to the weights since."""
        self.trainer.model.load_state_dict(self._weights)

    def trainer_with(self, config: TrainConfig, sampler: Sampler | None = None) -> CpuBackend:
        """A trainer of this very network, its blocks drawn as `config` says, or by `sampler`."""
        trainer = copy.copy(self.trainer)
        trainer.learner = copy.copy(trainer.learner)
        trainer.config, trainer.sampler = config, sampler or self._sampler(config)
        trainer.learner.rng = torch.Generator().manual_seed(config.seed + 1)
        trainer.minibatches = Minibatches(
            trainer.data, config, trainer.model, trainer.sampler, trainer.learner.rng
        )
        return trainer

    def _sampler(self, config: TrainConfig) -> Sampler:
        data = self.trainer.data
        sampler = make_sampler(config, data.adjacency, data.edges)
        if isinstance(sampler, HistorySampler):
            # A copy shares what is kept, which is large.
            history = copy.copy(self._histories[config.history_every])
            history.sampler = sampler.sampler
            return history
        if isinstance(sampler, LayerSampler) and config.distribution == "optimal":
            sampler.set_row_norms([self._norms[1]])
        return sampler

    def seconds_an_epoch(self, config: TrainConfig) -> float:
        """What looking at all hidden rows costs an epoch; nothing where that is not done."""
        if config.history:
            return self._time("history", self._history) / config.history_every
        return (
            self._time("norms", self.trainer.row_norms) if config.distribution == "optimal" else 0.0
        )

    def _time(self, name: str, look: Callable[[], object]) -> float:
        if name not in self._seconds:
            seconds = []
            for _ in range(_LOOKS):
                start = time.perf_counter()
                look()
                seconds.append(time.perf_counter() - start)
            self._seconds[name] = float(np.median(seconds))
        return self._seconds[name]

    def _history(self) -> HistorySampler:
        """A sampler that keeps the hidden rows of now."""
        history = HistorySampler(LayerSampler(self.trainer.data.adjacency, [1]))
        history.refresh(self.trainer.hidden_rows())
        return history
