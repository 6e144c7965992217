"""From training nodes to what a step needs: batches, their blocks, input rows and labels."""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.models import GCN
from fastgcn.samplers import Block, LayerSampler, Sampler
from fastgcn.sparse_rows import InputRows
from fastgcn.training_data import TrainingData

# Batches drawn in one compiled call, where the sampler can: enough for Python's part of the work
# to vanish, few enough to be ready soon.
_TOGETHER = 16


class Prepared(NamedTuple):
    """A batch ready for its step: blocks, input rows (k, F), perhaps sparse, and labels
    (s, ...)."""

    blocks: list[Block]
    x: InputRows
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
        yield from torch.split(nodes[:end], size)

    def prepared(self, batches: Iterable[Tensor]) -> Generator[Prepared]:
        """What a step needs of each batch."""
        first = True
        for together, blocks in self._sampled(iter(batches)):
            if first:
                top = blocks[0][-1] if blocks[0] else None
                self.empty_rows = top.empty_rows / len(together[0]) if top else 0.0
                first = False
            yield from self._with_inputs(together, blocks)

    def _sampled(
        self, batches: Iterator[Tensor]
    ) -> Iterator[tuple[list[Tensor], list[list[Block]]]]:
        """Batches and their blocks, as many at a time as the sampler draws together."""
        sampler = self.sampler
        if isinstance(sampler, LayerSampler) and sampler.draws_together:
            while together := list(islice(batches, _TOGETHER)):
                yield together, sampler.sample_many(together, self.rng)
        else:
            for batch in batches:
                yield [batch], [sampler.sample(batch, self.rng)]

    def _with_inputs(self, batches: list[Tensor], blocks: list[list[Block]]) -> Iterator[Prepared]:
        if self.inputs_can_be_mixed and self.first_layer.mix_first(blocks[0][0]):
            beside = self.first_layer.own_weight is not None
            for batch, (lowest, *others) in zip(batches, blocks, strict=True):
                x = self.data.mixed_rows(lowest, beside=beside)
                yield Prepared(others, x, self.data.labels[batch])
            return
        # One gathering of rows for all, cut into views.
        sources = [
            mine[0].src if mine else batch for batch, mine in zip(batches, blocks, strict=True)
        ]
        rows = self.data.input_rows(torch.cat(sources)).split([len(each) for each in sources])
        labels = torch.split(self.data.labels[torch.cat(batches)], [len(each) for each in batches])
        yield from map(Prepared, blocks, rows, labels)
