"""A graph, a network and some batches, prepared once for everything that is measured on them."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.diagnose.convolutions import convolve, draw_batches, rows_below
from fastgcn.diagnose.estimates import Estimate
from fastgcn.diagnose.from_top import samples_from_top
from fastgcn.diagnose.gauge import Gauge, Laws
from fastgcn.diagnose.gradients import GradientGauge
from fastgcn.diagnose.members import choices
from fastgcn.diagnose.network import ExactNetwork
from fastgcn.diagnose.times import StepTimer
from fastgcn.errors import InputError
from fastgcn.graph import Graph
from fastgcn.inference import check_width
from fastgcn.losses import make_loss
from fastgcn.models import GCN
from fastgcn.runs import build_model
from fastgcn.samplers import FullSampler, LayerSampler
from fastgcn.samplers.choose import layer_sampler
from fastgcn.training_data import prepare
from fastgcn.types import IntArray

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
