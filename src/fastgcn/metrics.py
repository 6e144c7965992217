"""Scores of predicted against true labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgcn.types import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Metrics:
    """How good predictions are on some nodes.

    `micro_f1` counts all decisions together (for one class a node it equals the accuracy),
    `macro_f1` is the mean over classes of their F1, `loss` the mean cross entropy. A class
    that neither occurs nor is predicted is left out of `macro_f1`.
    """

    micro_f1: float
    macro_f1: float
    accuracy: float
    loss: float
    n_nodes: int
    precision: tuple[float, ...]  # per class
    recall: tuple[float, ...]
    f1: tuple[float, ...]
    support: tuple[int, ...]  # true nodes per class

    def scores(self) -> dict[str, Any]:
        """The four figures by name."""
        names = ("micro_f1", "macro_f1", "accuracy", "loss")
        return {name: getattr(self, name) for name in names}


def measure(probabilities: FloatArray, labels: IntArray | BoolArray) -> Metrics:
    """Scores of (k, C) probabilities against (k,) class ids or (k, C) label sets.

    >>> m = measure(np.array([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]), np.array([0, 1, 1]))
    >>> round(m.micro_f1, 3), m.support
    (0.667, (1, 2))
    """
    n_classes = probabilities.shape[1]
    safe = np.clip(probabilities.astype(np.float64), 1e-12, 1.0)
    if labels.ndim == 2:
        truth = labels.astype(bool)
        guess = probabilities > 0.5
        against = np.clip(1.0 - probabilities.astype(np.float64), 1e-12, 1.0)
        loss = float(-np.where(truth, np.log(safe), np.log(against)).mean())
    else:
        classes = np.arange(n_classes)
        truth = labels[:, None] == classes
        guess = probabilities.argmax(axis=1)[:, None] == classes
        loss = float(-np.log(safe[np.arange(len(labels)), labels]).mean())
    hits = (truth & guess).sum(axis=0)
    guessed, true = guess.sum(axis=0), truth.sum(axis=0)
    f1 = _share(2 * hits, guessed + true)
    met = (guessed + true) > 0
    return Metrics(
        micro_f1=float(_share(2 * hits.sum(), guessed.sum() + true.sum())),
        macro_f1=float(f1[met].mean()) if met.any() else 0.0,
        accuracy=float((truth == guess).all(axis=1).mean()),
        loss=loss,
        n_nodes=len(labels),
        precision=tuple(_share(hits, guessed).tolist()),
        recall=tuple(_share(hits, true).tolist()),
        f1=tuple(f1.tolist()),
        support=tuple(int(k) for k in true),
    )


def _share(part: AnyArray, whole: AnyArray) -> FloatArray:
    """part / whole, zero where there is nothing."""
    whole = np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
