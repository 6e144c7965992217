"""Trainings whose numbers go wrong: which one was not finite, and what to change."""

import math
from collections.abc import Mapping

from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.features.extremes import LARGE, OVERFLOWING, Extreme
from fastgcn.graph.graph import Graph
from fastgcn.metrics import Metrics
from fastgcn.model import all_finite

# A learning rate above this is worth mentioning whatever else there is.
_HIGH_RATE = 0.1


class NotFiniteError(Exception):
    """A number of an epoch is NaN or infinite; the message says which."""


def check_epoch(loss: float, weights: Mapping[str, Tensor]) -> None:
    """Raise `NotFiniteError` if an epoch's loss, or a weight after it, is not finite."""
    if not math.isfinite(loss):
        raise NotFiniteError(f"the loss is {loss:g}")
    if not all_finite(weights.values()):
        raise NotFiniteError("a weight is not finite")


def check_validation(scores: Metrics | None) -> None:
    """Raise `NotFiniteError` if the validation loss is not finite."""
    if scores is not None and not math.isfinite(scores.loss):
        raise NotFiniteError(f"the validation loss is {scores.loss:g}")


def what_to_change(largest: Extreme, graph: Graph, config: TrainConfig) -> str:
    """What to change so that a training does not diverge, by the features and the settings."""
    features = _feature_change(largest, graph, config.feature_scaling)
    rate = f"lower learning_rate, which is {config.learning_rate:g}"
    if features:
        return f"{features}; and {rate}" if config.learning_rate > _HIGH_RATE else features
    if config.feature_scaling == "none" and config.learning_rate <= _HIGH_RATE:
        return f"{rate}, or scale the features, feature_scaling = standard"
    return rate


def _feature_change(largest: Extreme, graph: Graph, scaling: str) -> str:
    """What to do about the feature farthest from zero; empty if it is harmless."""
    shown = largest.shown(graph.node_ids, graph.feature_names)
    if not math.isfinite(largest.value):
        return f"{shown}: fill or drop such values first"
    if largest.size > LARGE and scaling == "none":
        return f"{shown}: scale the features, feature_scaling = standard"
    if largest.size > OVERFLOWING:
        return f"{shown}: divide the features by a constant first"
    return ""
