"""Minibatches: training nodes, their blocks, input rows and labels, prepared ahead of the step."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from fastgcn.backends.data import TrainingData
from fastgcn.backends.steps import Step
from fastgcn.config import TrainConfig
from fastgcn.features.plan import BATCHES_TOGETHER, GROUP_BYTES
from fastgcn.features.sparse import InputRows
from fastgcn.model import GCN, GraphConvolution
from fastgcn.network import Network
from fastgcn.sampling.block import Block, BlockGroup, Sampler
from fastgcn.sampling.layer import LayerSampler

# For an epoch of at most this many batches, starting another thread and waiting for it costs more
# time than it saves. If the sampler can, it draws all of them in one call.
_FEW_BATCHES = 64


class Minibatch(NamedTuple):
    """A batch ready for its step: blocks, input rows (k, F), perhaps sparse, and labels
    (s, ...)."""

    blocks: list[Block]
    x: InputRows
    labels: Tensor


@dataclass(frozen=True, slots=True)
class MinibatchGroup:
    """One batch and its blocks, or a group of batches, ready for steps.

    Attributes:
        x, labels: those of all batches, concatenated.
        top: the uppermost block, if it is not the last of `blocks`.
    """

    blocks: list[Block] | BlockGroup
    x: InputRows
    labels: Tensor
    top: Block | None = None

    def __len__(self) -> int:
        return len(self.blocks) if isinstance(self.blocks, BlockGroup) else 1

    @property
    def sizes(self) -> list[int]:
        """Nodes of each batch."""
        return [len(self.labels) // len(self)] * len(self)

    @property
    def empty_rows(self) -> float:
        """The share of rows of the first batch with no edge to any drawn vertex."""
        top: Block | BlockGroup | None = self.top
        if isinstance(self.blocks, BlockGroup):
            top = self.blocks
        elif self.blocks:
            top = self.blocks[-1]
        return top.empty_rows / self.sizes[0] if top is not None else 0.0

    def each(self) -> Iterator[Minibatch]:
        if isinstance(self.blocks, BlockGroup):
            for prepared in self.blocks.each(self.x, self.labels):
                yield Minibatch(*prepared)
        else:
            yield Minibatch(self.blocks, self.x, self.labels)

    def turned(self) -> "Iterator[MinibatchGroup]":
        """The batches one by one, with the transposes of blocks that steps on several threads need.

        Input rows have none: they have more entries, and the transpose is used once."""
        for blocks, x, labels in self.each():
            for block in blocks:
                block.turn()
            yield MinibatchGroup(blocks, x, labels, self.top)

    def steps(self, step: Step) -> list[float]:
        """The losses of a step for each batch."""
        if isinstance(self.blocks, BlockGroup):
            return step.many(self.blocks, self.x, self.labels)
        return [step(self.blocks, self.x, self.labels)]


class Minibatches:
    """Makes the batches of a run; everything random comes from `rng`, in the same order always."""

    def __init__(
        self,
        data: TrainingData,
        config: TrainConfig,
        model: Network,
        sampler: Sampler,
        rng: torch.Generator,
    ) -> None:
        self.data, self.config, self.sampler, self.rng = data, config, sampler, rng
        self.first_layer = model.convolutions[0] if isinstance(model, GCN) else None
        # If nothing changes X before it is mixed, rows of X need not be gathered first.
        self.inputs_can_be_mixed = (
            isinstance(model, GCN)
            and not (config.precompute or config.history)
            and model.dropout.rates[0] == 0
        )
        own = config.batch_size if getattr(sampler, "own_rows", False) else 0
        batch_bytes = 4 * (sum(getattr(sampler, "samples", ())) + own) * model.sizes[0]
        most = _FEW_BATCHES if self.quick else BATCHES_TOGETHER
        self.together = max(1, min(most, GROUP_BYTES // max(batch_bytes, 1)))
        self.empty_rows = 0.0  # of the first batch of an epoch, see `MinibatchGroup`

    def shuffled(self) -> Iterator[Tensor]:
        """The training nodes in a new order, cut into batches; all at once in a full pass."""
        if self.full_pass:
            yield self.data.batch_nodes
            return
        order = torch.randperm(len(self.data.batch_nodes), generator=self.rng)
        nodes, size = self.data.batch_nodes.index_select(0, order), self.config.batch_size
        end = len(nodes)
        if self.config.drop_last and end > size:
            end -= end % size
        yield from torch.split(nodes[:end], size)

    def singly(self, batches: Iterable[Tensor]) -> Generator[Minibatch]:
        """The batches, one at a time, ready for their steps."""
        for group in self.groups(batches):
            yield from group.each()

    def groups(self, batches: Iterable[Tensor]) -> Generator[MinibatchGroup]:
        """The same batches, in groups as large as the sampler draws together."""
        made = self._drawn_together(iter(batches)) if self._draws_together else self._drawn(batches)
        for number, group in enumerate(made):
            if number == 0:
                self.empty_rows = group.empty_rows
            yield group

    @property
    def quick(self) -> bool:
        """True if an epoch's batches are so few that a second thread would save no time."""
        few = len(self.data.batch_nodes) <= _FEW_BATCHES * self.config.batch_size
        return self.full_pass or (few and self._draws_together)

    @property
    def full_pass(self) -> bool:
        """True if an epoch is one step over all training nodes, with all of their neighbours."""
        return self.config.method == "gcn"

    @property
    def _draws_together(self) -> bool:
        return isinstance(self.sampler, LayerSampler) and self.sampler.draws_together

    def _drawn_together(self, batches: Iterator[Tensor]) -> Iterator[MinibatchGroup]:
        assert isinstance(self.sampler, LayerSampler)
        while together := list(islice(batches, self.together)):
            for group in self.sampler.sample_groups(together, self.rng):
                if self.inputs_can_be_mixed:
                    for batch, block in zip(group.dst, group.blocks(), strict=True):
                        yield self._with_inputs(batch, [block])
                else:
                    x = self.data.input_rows(group.src)
                    labels = self.data.labels.index_select(0, group.dst.reshape(-1))
                    yield MinibatchGroup(group, x, labels)

    def _drawn(self, batches: Iterable[Tensor]) -> Iterator[MinibatchGroup]:
        for batch in batches:
            if self.full_pass and batch is self.data.batch_nodes:
                yield self._whole
            else:
                yield self._with_inputs(batch, self.sampler.sample(batch, self.rng))

    @cached_property
    def _whole(self) -> MinibatchGroup:
        """The one batch of a full pass: nothing in it is drawn, so it is made once."""
        batch = self.data.batch_nodes
        return self._with_inputs(batch, self.sampler.sample(batch, self.rng))

    def _with_inputs(self, batch: Tensor, blocks: list[Block]) -> MinibatchGroup:
        labels = self.data.labels[batch]
        if self.first_layer is not None and self._mixes_inputs(blocks, self.first_layer):
            beside = self.first_layer.own_weight is not None
            x = self.data.mixed_rows(blocks[0], beside=beside)
            return MinibatchGroup(blocks[1:], x, labels, top=blocks[-1])
        sources = blocks[0].src if blocks else batch
        if self.first_layer is None:
            return MinibatchGroup(blocks, self.data.rows(sources), labels)
        if self.full_pass and not self.config.precompute:
            return MinibatchGroup(blocks, self.data.features.as_stored(sources.numpy()), labels)
        return MinibatchGroup(blocks, self.data.input_rows(sources), labels)

    def _mixes_inputs(self, blocks: list[Block], first_layer: GraphConvolution) -> bool:
        """True if ÂX of the first block is cheaper than gathering rows of X for it."""
        if not self.inputs_can_be_mixed or blocks[0].csr is None:
            return False
        return first_layer.mix_first(blocks[0])
