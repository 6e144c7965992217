"""The error of sampled gradients: the same batch, whole neighbourhoods against many draws."""

import copy
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.backends.batches import Minibatches
from fastgcn.backends.steps import Adam, flat_gradient, make_step
from fastgcn.diagnose.convolutions import ExactNetwork
from fastgcn.diagnose.gauge import Estimate, relative_error
from fastgcn.machine import choose_device
from fastgcn.sampling import Block, FullSampler, LayerSampler, Sampler

# Numbers in the widest rows of a whole neighbourhood beyond which its gradient is not computed.
_LARGEST = 1 << 28
# Batches, and draws of each; and the numbers beyond which half as many of both must do, lest the
# gradients take minutes.
_BATCHES, _REPEATS = 4, 4
_LARGE = 1 << 22


class GradientGauge:
    """Gradients of a network's loss on the first of some batches, dropout off; exact ones are
    computed once."""

    def __init__(self, network: ExactNetwork, loss: nn.Module, batches: Sequence[Tensor]) -> None:
        share = 1 if _numbers(network, len(batches[0])) <= _LARGE else 2
        self.repeats = _REPEATS // share
        self.network, self.loss, self.batches = network, loss, batches[: _BATCHES // share]
        full = FullSampler(network.data.adjacency, network.layers)
        self.exact = [self.gradient(full.sample(batch), batch) for batch in self.batches]

    @staticmethod
    def affordable(network: ExactNetwork, batch_size: int) -> bool:
        """Whether the whole neighbourhood of a batch is no more than can be held."""
        return _numbers(network, batch_size) <= _LARGEST

    def gradient(self, blocks: Sequence[Block], batch: Tensor) -> Tensor:
        """(P,): the derivatives of the batch's loss by all weights."""
        data, model = self.network.data, self.network.model.eval()
        x = data.rows(blocks[0].src)
        return flat_gradient(model, self.loss, blocks, x, data.labels[batch])

    def error(self, sampler: LayerSampler, *, seed: int = 0) -> Estimate:
        """√(E‖sampled − exact‖² / ‖exact‖²): the batch is fixed, so that only draws make noise."""
        rng = torch.Generator().manual_seed(seed)
        squares = [
            [
                float((self.gradient(sampler.sample(batch, rng), batch) - exact).square().sum())
                for _ in range(self.repeats)
            ]
            for batch, exact in zip(self.batches, self.exact, strict=True)
        ]
        totals = np.array([float(exact.square().sum()) for exact in self.exact])
        looked_at = sum(map(len, self.batches)) / len(self.network.data.batch_nodes)
        return relative_error(np.array(squares), totals, looked_at)


def _numbers(network: ExactNetwork, batch_size: int) -> float:
    """About how many the widest rows of a batch's whole neighbourhood have."""
    matrix = network.data.adjacency
    reached = batch_size * max(len(matrix.values) / matrix.n, 1.0) ** network.layers
    return float(min(reached, matrix.n)) * max(network.model.sizes)


# Steps measured after the first, which is not; fewer where they take longer than this together.
# Quick ones are many: those of a small graph take less than what disturbs a few of them.
_STEPS = 31
_SECONDS = 0.2
_FEWEST = 2


class StepTimer:
    """Times steps of a copy of the network, which may move as it likes."""

    def __init__(self, network: ExactNetwork, loss: nn.Module, batches: Sequence[Tensor]) -> None:
        device = choose_device(network.config.device)
        # Whole ones: the last of an epoch may be a small one, and a step with it quick.
        self.network = network
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
        feed = Minibatches(self.network.data, config, self.model, sampler, rng)
        spent: list[float] = []
        while len(spent) <= _STEPS and (len(spent) <= _FEWEST or sum(spent) < _SECONDS):
            batch = self.batches[len(spent) % len(self.batches)]
            start = time.perf_counter()
            for part in feed.singly([batch]):
                self.step(part.blocks, part.x, part.labels)
            spent.append(time.perf_counter() - start)
        return statistics.median(spent[1:])
