"""One network on one training graph: errors of its layers and gradients, and times of steps."""

import copy
import statistics
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.arrays import IntArray
from fastgcn.backends.batches import Minibatches
from fastgcn.backends.data import make_loss, prepare
from fastgcn.backends.direct import make_step
from fastgcn.backends.exact import check_width
from fastgcn.backends.steps import Adam, flat_gradient
from fastgcn.config import TrainConfig
from fastgcn.diagnose.convolutions import (
    ExactNetwork,
    check_finite,
    convolve,
    draw_batches,
    rows_below,
)
from fastgcn.diagnose.gauge import Estimate, Gauge, SamplerCache, relative_error, samples_from_top
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import Task
from fastgcn.machine import choose_device
from fastgcn.model import as_gcn, build_model
from fastgcn.network import Network
from fastgcn.sampling.block import Block, Sampler
from fastgcn.sampling.layer import LayerSampler
from fastgcn.sampling.neighborhood import FullSampler

# Batches whose layers are measured.
_BATCHES = 8
# Gradients: batches, and draws of each. Large neighbourhoods get half as many of both, because
# gradients would take minutes; the largest get none. Sizes are numbers in the widest rows.
_GRADIENT_BATCHES, _GRADIENT_DRAWS = 4, 4
_LARGE, _LARGEST = 1 << 22, 1 << 28
# Times: steps measured after the first, which is left out; fewer if together they take longer
# than this. Quick steps need many, because a disturbance takes longer than one of them.
_STEPS, _SECONDS, _FEWEST = 31, 0.2, 2


class Session:
    """Measures members of the estimator family on one network and the same batches.

    `model` None: a network with the settings' sizes and random weights of the settings' seed.
    `t` is the sample size at which members are compared. The rows of a layer below the top one
    are those that the settings' own member draws with t vertices above.
    """

    def __init__(self, graph: Graph, config: TrainConfig, model: Network | None) -> None:
        self.config, self.t = config, config.layer_samples[-1]
        data = prepare(graph, config, None)
        if model is None:
            assert graph.task is not None
            sizes = [graph.n_features, *config.hidden_sizes, graph.n_outputs]
            model = build_model(config, sizes, graph.task)
            model.set_feature_statistics(data.statistics)
        _check_fit(model, graph)
        self.network = ExactNetwork(as_gcn(model, "diagnose"), data, config)
        self.n = data.adjacency.n
        self._samplers = SamplerCache(self.network)
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
            Gauge(member, self._samplers, layer, convolutions)
            for layer, convolutions in enumerate(self.convolutions)
        ]

    def needs(self, member: TrainConfig, target: float) -> list[tuple[int, Estimate]]:
        """The t of each sampled layer, from the input up, for a relative error, and the errors."""
        rng = np.random.default_rng(self.config.seed)
        return samples_from_top(member, self._samplers, self.convolutions[-1], target, rng)

    def seconds(self, member: TrainConfig, samples: Sequence[int]) -> float:
        """The time of a step with these sample sizes, one per layer."""
        return self._timer.seconds(self._sampler(member, samples))

    def gradient_error(self, member: TrainConfig, samples: Sequence[int]) -> Estimate | None:
        """The error of the gradient; None if the exact one is too large to compute."""
        gauge = self._gradients
        return None if gauge is None else gauge.error(self._sampler(member, samples))

    @cached_property
    def full_seconds(self) -> float | None:
        """The time of a step with whole neighbourhoods; None if these are too large."""
        if self._gradients is None:
            return None
        return self._timer.seconds(FullSampler(self.network.data.adjacency, self.network.layers))

    @cached_property
    def _timer(self) -> "StepTimer":
        return StepTimer(self.network, self._loss, self.batches)

    @cached_property
    def _gradients(self) -> "GradientGauge | None":
        if _widest_rows(self.network, self.config.batch_size) > _LARGEST:
            return None
        return GradientGauge(self.network, self._loss, self.batches)

    def _sampler(self, member: TrainConfig, samples: Sequence[int]) -> LayerSampler:
        layers = range(self.network.layers)
        return self._samplers.get(member, layers, samples, own_rows=member.needs_own_rows)


def _check_fit(model: Network, graph: Graph) -> None:
    check_width(model, graph.n_features, f"{graph.name} has")
    if (model.sizes[-1], model.task) != (graph.n_outputs, graph.task):
        raise InputError(
            f"the model predicts {_learned(model.sizes[-1], model.task)}, {graph.name} has "
            f"{_learned(graph.n_outputs, graph.task)}"
        )


def _learned(count: int, task: Task | None) -> str:
    kinds = {"multilabel": "labels, several per node", "regression": "number to predict, per node"}
    return f"{count} {kinds.get(task or '', 'classes, one per node')}"


class GradientGauge:
    """The error of sampled gradients: many draws against whole neighbourhoods, on equal batches.

    Dropout is off. Exact gradients are computed once.
    """

    def __init__(self, network: ExactNetwork, loss: nn.Module, batches: Sequence[Tensor]) -> None:
        share = 1 if _widest_rows(network, len(batches[0])) <= _LARGE else 2
        self.repeats = _GRADIENT_DRAWS // share
        self.network, self.loss = network, loss
        self.batches = batches[: _GRADIENT_BATCHES // share]
        full = FullSampler(network.data.adjacency, network.layers)
        self.exact = [self.gradient(full.sample(batch), batch) for batch in self.batches]
        for exact in self.exact:
            check_finite(exact.numpy(), network.data)

    def gradient(self, blocks: Sequence[Block], batch: Tensor) -> Tensor:
        """(P,): the derivatives of the batch's loss by all weights."""
        data, model = self.network.data, self.network.model.eval()
        x = data.rows(blocks[0].src)
        return flat_gradient(model, self.loss, blocks, x, data.labels[batch])

    def error(self, sampler: LayerSampler, *, seed: int = 0) -> Estimate:
        """√(E‖sampled − exact‖² / ‖exact‖²); batches are fixed, so only draws are random."""
        rng = torch.Generator().manual_seed(seed)
        squares = [
            [
                float((self.gradient(sampler.sample(batch, rng), batch) - exact).square().sum())
                for _ in range(self.repeats)
            ]
            for batch, exact in zip(self.batches, self.exact, strict=True)
        ]
        totals = np.array([float(exact.square().sum()) for exact in self.exact])
        covered = sum(map(len, self.batches)) / len(self.network.data.batch_nodes)
        return relative_error(np.array(squares), totals, covered)


def _widest_rows(network: ExactNetwork, batch_size: int) -> float:
    """About how many numbers the widest rows of a batch's whole neighbourhood have."""
    matrix = network.data.adjacency
    reached = batch_size * max(len(matrix.values) / matrix.n, 1.0) ** network.layers
    return float(min(reached, matrix.n)) * max(network.model.sizes)


class StepTimer:
    """Times training steps of a copy of the network, whose weights may change."""

    def __init__(self, network: ExactNetwork, loss: nn.Module, batches: Sequence[Tensor]) -> None:
        device = choose_device(network.config.device)
        self.network = network
        # Whole batches only: the last one of an epoch may be small, and a step with it quick.
        self.batches = [batch for batch in batches if len(batch) == max(map(len, batches))]
        self.model = copy.deepcopy(network.model).to(device).train()
        groups = [{"params": list(self.model.parameters()), "weight_decay": 0.0}]
        self.step = make_step(
            self.model, copy.deepcopy(loss).to(device), Adam(groups, network.config.learning_rate)
        )

    def seconds(self, sampler: Sampler) -> float:
        """The median over a few steps."""
        config, rng = self.network.config, torch.Generator().manual_seed(self.network.config.seed)
        self.model.dropout.rng = torch.Generator(next(self.model.parameters()).device)
        minibatches = Minibatches(self.network.data, config, self.model, sampler, rng)
        spent: list[float] = []
        while len(spent) <= _STEPS and (len(spent) <= _FEWEST or sum(spent) < _SECONDS):
            batch = self.batches[len(spent) % len(self.batches)]
            start = time.perf_counter()
            for part in minibatches.singly([batch]):
                self.step(part.blocks, part.x, part.labels)
            spent.append(time.perf_counter() - start)
        return statistics.median(spent[1:])
