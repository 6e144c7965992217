"""From training nodes to what a step needs: batches, their blocks, input rows and labels."""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.models import GCN
from fastgcn.samplers import Block, LayerSampler, Sampler
from fastgcn.training_data import TrainingData

# Batches drawn in one compiled call, where the sampler can: enough for Python's part of the work
# to vanish, few enough to be ready soon.
_TOGETHER = 16


class Prepared(NamedTuple):
    """A batch ready for its step: blocks, input rows (k, F), labels (s, ...)."""

    blocks: list[Block]
    x: Tensor
    labels: Tensor


class Feed:
    """Makes the batches of a run; everything random comes from `rng`, in the same order always."""

    def __init__(
        self,
        data: TrainingData,
        config: TrainConfig,
        model: GCN,
        sampler: Sampler,
        rng: torch.Generator,
    ) -> None:
        self.data, self.config, self.sampler, self.rng = data, config, sampler, rng
        self.first_layer = model.convolutions[0]
        # Where nothing is done to X before it is mixed, rows of X need not be gathered first.
        self.inputs_can_be_mixed = (
            not (config.precompute or config.history) and model.dropout.rates[0] == 0
        )
        self.empty_rows = 0.0  # share of rows that met no vertex, in the first batch of an epoch

    def shuffled(self) -> Iterator[Tensor]:
        """The training nodes in a new order, cut into batches."""
        order = torch.randperm(len(self.data.batch_nodes), generator=self.rng)
        nodes, size = self.data.batch_nodes[order], self.config.batch_size
        if self.config.method == "gcn":
            size = len(nodes)  # the original GCN takes one step an epoch
        end = len(nodes)
        if self.config.drop_last and end > size:
            end -= end % size
        for start in range(0, end, size):
            yield nodes[start : start + size]

    def prepared(self, batches: Iterable[Tensor]) -> Generator[Prepared]:
        """What a step needs of each batch."""
        for number, (batch, blocks) in enumerate(self._sampled(iter(batches))):
            if number == 0:
                self.empty_rows = blocks[-1].empty_rows / len(batch) if blocks else 0.0
            if self.inputs_can_be_mixed and self.first_layer.mix_first(blocks[0]):
                beside = self.first_layer.own_weight is not None
                x = self.data.mixed_rows(blocks[0], beside=beside)
                blocks = blocks[1:]
            else:
                x = self.data.rows(blocks[0].src if blocks else batch)
            yield Prepared(blocks, x, self.data.labels[batch])

    def _sampled(self, batches: Iterator[Tensor]) -> Iterator[tuple[Tensor, list[Block]]]:
        if not (isinstance(self.sampler, LayerSampler) and self.sampler.draws_together):
            for batch in batches:
                yield batch, self.sampler.sample(batch, self.rng)
            return
        while together := list(islice(batches, _TOGETHER)):
            yield from zip(together, self.sampler.sample_many(together, self.rng), strict=True)
