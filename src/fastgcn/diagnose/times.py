"""What a step takes: drawing, gathering, forward, backward and Adam, measured."""

import copy
import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fastgcn.adam import Adam
from fastgcn.batches import Feed
from fastgcn.diagnose.network import ExactNetwork
from fastgcn.machine import choose_device
from fastgcn.samplers import Sampler
from fastgcn.steps import make_step

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
        feed = Feed(self.network.data, config, self.model, sampler, rng)
        spent: list[float] = []
        while len(spent) <= _STEPS and (len(spent) <= _FEWEST or sum(spent) < _SECONDS):
            batch = self.batches[len(spent) % len(self.batches)]
            start = time.perf_counter()
            for part in feed.prepared([batch]):
                self.step(part.blocks, part.x, part.labels)
            spent.append(time.perf_counter() - start)
        return statistics.median(spent[1:])
