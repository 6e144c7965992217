"""When to stop, and which epoch's weights to keep: decided on validation alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgcn.config import TrainConfig

History = Sequence[dict[str, Any]]

# The authors' rule: from this epoch on, the last `_RECENT` losses against those before.
_WARM_UP = 30
_RECENT = 2


def should_stop(history: History, config: TrainConfig) -> bool:
    """Whether to stop after the last epoch of `history`; never after one without validation.

    * `authors`: after 30 validations, stop when the mean of the last 2 losses exceeds the mean
      of the 30 before them;
    * `patience`: stop after `patience` epochs, validated or not, without a better one.
    """
    if config.early_stopping == "none" or not history or "val_loss" not in history[-1]:
        return False
    if config.early_stopping == "patience":
        return len(history) - 1 - best_epoch(history) >= config.patience
    losses = [record["val_loss"] for record in history if "val_loss" in record]
    before = losses[-_RECENT - _WARM_UP : -_RECENT]
    return len(losses) > _WARM_UP and bool(np.mean(losses[-_RECENT:]) > np.mean(before))


def best_epoch(history: History) -> int:
    """The position of the epoch to keep: highest validation micro-F1, lowest loss among equals.

    Where no epoch was validated it is the last one.
    """
    scores = {i: r["val_micro_f1"] for i, r in enumerate(history) if "val_micro_f1" in r}
    if not scores:
        return len(history) - 1
    highest = max(scores.values())
    equals = (i for i, score in scores.items() if score == highest)
    return min(equals, key=lambda i: (history[i]["val_loss"], i))
