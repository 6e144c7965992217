"""When to stop, and which epoch's weights to keep: decided on validation alone."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from fastgcn.config import TrainConfig

History = Sequence[dict[str, Any]]

# The authors' rule: from this epoch on, the last `_RECENT` losses against those before.
_WARM_UP = 30
_RECENT = 2


def should_stop(history: History, config: TrainConfig, best: int | None = None) -> bool:
    """Whether to stop after the last epoch of `history`; never after one without validation.

    * `authors`: after 30 validations, stop when the mean of the last 2 losses exceeds the mean
      of the 30 before them;
    * `patience`: stop after `patience` epochs, validated or not, without a better one.

    `best` is the position of the best epoch, where it is known already.
    """
    if config.early_stopping == "none" or not history or "val_loss" not in history[-1]:
        return False
    if config.early_stopping == "patience":
        best = best_epoch(history) if best is None else best
        return len(history) - 1 - best >= config.patience
    backwards = (record["val_loss"] for record in reversed(history) if "val_loss" in record)
    losses = list(islice(backwards, _RECENT + _WARM_UP))
    return len(losses) > _WARM_UP and bool(np.mean(losses[:_RECENT]) > np.mean(losses[_RECENT:]))


def best_epoch(history: History) -> int:
    """The position of the epoch to keep: highest validation micro-F1, lowest loss among equals.

    Where no epoch was validated it is the last one.
    """
    best = 0
    for position, record in enumerate(history):
        if is_better(record, history[best]):
            best = position
    return best


def is_better(record: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Whether an epoch is to be kept rather than an earlier one."""
    if "val_micro_f1" not in kept:
        return True
    if "val_micro_f1" not in record:
        return False
    score, other = ((each["val_micro_f1"], -each["val_loss"]) for each in (record, kept))
    return score > other
