"""Batches and steps that all ranks take together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from fastgcn.adam import Adam
from fastgcn.batches import Feed, Parcel
from fastgcn.distributed.channel import Channel
from fastgcn.distributed.sampler import ShareSampler
from fastgcn.models import GCN
from fastgcn.samplers.block import Block
from fastgcn.sparse_rows import InputRows
from fastgcn.steps import AutogradStep, loss_of


@dataclass(frozen=True, slots=True)
class ShareParcel(Parcel):
    """Own part of a batch; `nodes` and `empty` count those of all ranks."""

    nodes: int = 0
    empty: int = 0

    @property
    def sizes(self) -> list[int]:
        return [self.nodes]

    @property
    def empty_rows(self) -> float:
        return self.empty / self.nodes


class ShareFeed(Feed):
    """Makes own parts of the batches that all ranks draw from the same generator."""

    def _drawn(self, batches: Iterable[Tensor]) -> Iterator[Parcel]:
        assert isinstance(self.sampler, ShareSampler)
        for batch in batches:
            blocks, own = self.sampler.sample(batch, self.rng), self.sampler.own(batch)
            x = self.data.input_rows(blocks[0].src if blocks else own)
            empty = blocks[-1].empty_rows if blocks else 0
            labels = self.data.labels[own]
            yield ShareParcel(blocks, x, labels, nodes=len(batch), empty=empty)


class SharedStep(AutogradStep):
    """A step along the gradient of the whole batch's loss, of which each rank has its part.

    The loss is Σ_v w(v)·l(v) / Σ_v w(v) over the nodes of all ranks. Ranks add up the derivatives
    of their sums, the sums and the weights in one message, and divide.
    """

    def __init__(self, model: GCN, loss: nn.Module, optimizer: Adam, channel: Channel) -> None:
        super().__init__(model, summed(loss), optimizer)
        self.channel = channel

    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        own = loss_of(self.model, self.loss, blocks, x, labels)
        own.backward()  # type: ignore[no-untyped-call]
        parameters = list(self.model.parameters())
        parts = [cast(Tensor, p.grad).reshape(-1) for p in parameters]
        facts = torch.stack([own.detach(), weight_of(self.loss, labels.to(own.device))])
        whole = self.channel.reduce(torch.cat([*parts, facts]), "gradients")
        *gradients, (total, weight) = torch.split(whole, [*(p.numel() for p in parameters), 2])
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = (gradient / weight).view_as(parameter)
        self.move()
        return float(total / weight)


def summed(loss: nn.Module) -> nn.Module:
    """The same loss, summed over nodes and not averaged."""
    if isinstance(loss, nn.BCEWithLogitsLoss):
        return nn.BCEWithLogitsLoss(pos_weight=loss.pos_weight, reduction="sum")
    assert isinstance(loss, nn.CrossEntropyLoss)
    return nn.CrossEntropyLoss(weight=loss.weight, reduction="sum")


def weight_of(loss: nn.Module, labels: Tensor) -> Tensor:
    """(): what the sum over nodes is divided by to be their mean."""
    if labels.ndim == 1 and isinstance(weight := loss.weight, Tensor):
        return weight[labels].sum()
    return torch.tensor(float(labels.numel()), device=labels.device)
