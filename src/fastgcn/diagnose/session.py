"""The rows that a network's sampled layers mix, computed exactly, for the nodes asked for alone."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, get_args

import numpy as np
from torch import Tensor

from fastgcn.arrays import IntArray
from fastgcn.backends.data import make_loss, prepare
from fastgcn.backends.exact import check_width
from fastgcn.config import Distribution, Draws, SelfTerm, TrainConfig
from fastgcn.diagnose.convolutions import ExactNetwork, convolve, draw_batches, rows_below
from fastgcn.diagnose.gauge import Estimate, Gauge, Laws, samples_from_top
from fastgcn.diagnose.gradients import GradientGauge, StepTimer
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.model import GCN, build_model
from fastgcn.sampling import FullSampler, LayerSampler
from fastgcn.sampling.choose import layer_sampler

# `optimal` is left out, for each of its draws costs a share of a full forward pass, and
# `systematic`, which can be worse than independent draws; the settings' own member is in anyway.
# Each with its `power`.
LAWS: tuple[tuple[Distribution, float | None], ...] = (
    ("uniform", None),
    ("importance", None),
    ("flat", None),
    ("ladies", None),
    ("ladies", 1.0),
)
DRAWS: tuple[Draws, ...] = ("independent", "stratified", "successive", "poisson")
FIELDS = ("distribution", "power", "draws", "self_term", "neighbors_only", "correct_weights")


def family(config: TrainConfig) -> list[TrainConfig]:
    """The settings' own member, then all the others."""
    own = config.replace(history=False)
    plain = {"neighbors_only": False, "correct_weights": True}
    members = [
        own.replace(
            distribution=distribution, power=power, draws=draws, self_term=self_term, **plain
        )
        for distribution, power in LAWS
        for self_term in get_args(SelfTerm)
        for draws in DRAWS
    ]
    return [own, *(member for member in members if choices(member) != choices(own))]


def choices(member: TrainConfig) -> dict[str, Any]:
    """What tells members apart."""
    return {field: getattr(member, field) for field in FIELDS}


def name_of(member: TrainConfig) -> str:
    """A member in words.

    >>> name_of(TrainConfig(distribution="ladies", draws="poisson", self_term="exact"))
    'ladies, poisson, exact self term'
    """
    power = "" if member.power is None else f"^{member.power:g}"
    words = [member.distribution + power, member.draws]
    if member.self_term == "exact":
        words.append("exact self term")
    if member.neighbors_only:
        words.append("among neighbours")
    if not member.correct_weights:
        words.append("the authors' factor")
    return ", ".join(words)


_BATCHES = 8


class Session:
    """`model` None: a network with the settings' sizes and random weights, of the settings' seed.

    `t` is the sample size that members are compared at, and whose draws decide which rows the
    layers below the top one have.
    """

    def __init__(self, graph: Graph, config: TrainConfig, model: GCN | None) -> None:
        self.config, self.t = config, config.layer_samples[-1]
        data = prepare(graph, config, None)
        if model is None:
            sizes = [graph.n_features, *config.hidden_sizes, graph.n_classes]
            model = build_model(config, sizes, multilabel=graph.multilabel)
            model.set_feature_statistics(data.statistics)
        _check_fit(model, graph)
        self.network = ExactNetwork(model, data, config)
        self.n = data.adjacency.n
        self._laws = Laws(self.network)
        self._last: tuple[TrainConfig, LayerSampler] | None = None
        self.batches: list[Tensor] = draw_batches(data, config.batch_size, _BATCHES, config.seed)
        self._loss = make_loss(data, graph, config)
        rng = np.random.default_rng(config.seed)
        rows: list[IntArray] = [batch.numpy() for batch in self.batches]
        top = self.network.layers - 1
        self.convolutions = [convolve(self.network, top, rows, rng)]
        for layer in range(top, 0, -1):
            rows = rows_below(config, self.network, layer, self.t, rows)
            self.convolutions.insert(0, convolve(self.network, layer - 1, rows, rng))

    def gauges(self, member: TrainConfig) -> list[Gauge]:
        """A member in each sampled layer, from the input up."""
        return [
            Gauge(member, self._laws, layer, convolutions)
            for layer, convolutions in enumerate(self.convolutions)
        ]

    def needs(self, member: TrainConfig, target: float) -> list[tuple[int, Estimate]]:
        """The t of each sampled layer, from the input up, for a relative error; the errors."""
        rng = np.random.default_rng(self.config.seed)
        return samples_from_top(member, self._laws, self.convolutions[-1], target, rng)

    def seconds(self, member: TrainConfig, samples: Sequence[int]) -> float:
        """What a step takes with so many vertices a layer."""
        return self._timer.seconds(self._sampler(member, samples))

    def gradient_error(self, member: TrainConfig, samples: Sequence[int]) -> Estimate | None:
        """The error of the gradient; None where there is no exact one to compare with."""
        gauge = self._gradients
        return None if gauge is None else gauge.error(self._sampler(member, samples))

    @cached_property
    def full_seconds(self) -> float | None:
        """What a step takes with whole neighbourhoods; None where these are too large."""
        if self._gradients is None:
            return None
        return self._timer.seconds(FullSampler(self.network.data.adjacency, self.network.layers))

    @cached_property
    def _timer(self) -> StepTimer:
        return StepTimer(self.network, self._loss, self.batches)

    @cached_property
    def _gradients(self) -> GradientGauge | None:
        if not GradientGauge.affordable(self.network, self.config.batch_size):
            return None
        return GradientGauge(self.network, self._loss, self.batches)

    def _sampler(self, member: TrainConfig, samples: Sequence[int]) -> LayerSampler:
        """A member in all sampled layers; what does not depend on t is kept for the next t."""
        if self._last is None or choices(self._last[0]) != choices(member):
            self._last = (member, self._made(member, samples))
        correct = member.correct_weights
        return self._last[1].drawing(samples, member.draws, correct_weights=correct)

    def _made(self, member: TrainConfig, samples: Sequence[int]) -> LayerSampler:
        adjacency = self.network.data.adjacency
        sampler = layer_sampler(member, adjacency, samples, own_rows=member.needs_own_rows)
        if member.distribution == "optimal":
            layers = range(self.network.layers)
            sampler.set_row_norms([self.network.row_norms(layer) for layer in layers])
        return sampler


def _check_fit(model: GCN, graph: Graph) -> None:
    check_width(model, graph.n_features, f"{graph.name} has")
    if (model.sizes[-1], model.multilabel) != (graph.n_classes, graph.multilabel):
        raise InputError(
            f"the model predicts {model.sizes[-1]} {_kind(model.multilabel)}, "
            f"{graph.name} has {graph.n_classes} {_kind(graph.multilabel)}"
        )


def _kind(multilabel: bool) -> str:
    return "labels, several a node" if multilabel else "classes, one a node"
