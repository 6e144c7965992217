"""The loss of a batch."""

import torch
from torch import nn

from fastgcn.config import TrainConfig
from fastgcn.graph import Graph
from fastgcn.training_data import TrainingData


def make_loss(data: TrainingData, graph: Graph, config: TrainConfig) -> nn.Module:
    """Cross entropy over classes, or for each label; `balanced` weighs classes by 1/frequency."""
    labels = data.labels[data.batch_nodes]
    if graph.multilabel:
        if config.class_weight == "none":
            return nn.BCEWithLogitsLoss()
        positive = labels.sum(dim=0)
        # A label that all nodes have, or none has, still weighs something.
        ratio = (len(labels) - positive).clamp(min=1) / positive.clamp(min=1)
        return nn.BCEWithLogitsLoss(pos_weight=ratio)
    if config.class_weight == "none":
        return nn.CrossEntropyLoss()
    counts = torch.bincount(labels, minlength=graph.n_classes).clamp(min=1)
    return nn.CrossEntropyLoss(weight=len(labels) / (graph.n_classes * counts.float()))
