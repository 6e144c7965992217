"""The loss of a batch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fastgcn.config import TrainConfig
from fastgcn.graph import Graph
from fastgcn.training_data import TrainingData


def make_loss(data: TrainingData, graph: Graph, config: TrainConfig) -> nn.Module:
    """Cross entropy over classes, or for each label; `balanced` weighs classes by 1/frequency."""
    return loss_for(data.labels[data.batch_nodes], graph, config)


def loss_for(
    labels: Tensor,
    graph: Graph,
    config: TrainConfig,
    summed: Callable[[Tensor], Tensor] = lambda counts: counts,
) -> nn.Module:
    """The same, given the labels of the training nodes, or of some of them and how their counts
    are `summed` with those of the others."""
    if graph.multilabel:
        if config.class_weight == "none":
            return nn.BCEWithLogitsLoss()
        positive = summed(labels.sum(dim=0))
        negative = summed((1 - labels).sum(dim=0))
        # A label that all nodes have, or none has, still weighs something.
        return nn.BCEWithLogitsLoss(pos_weight=negative.clamp(min=1) / positive.clamp(min=1))
    if config.class_weight == "none":
        return nn.CrossEntropyLoss()
    counts = summed(torch.bincount(labels, minlength=graph.n_classes))
    weight = counts.sum() / (graph.n_classes * counts.clamp(min=1).float())
    return nn.CrossEntropyLoss(weight=weight)
