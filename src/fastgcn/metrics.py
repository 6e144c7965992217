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
    if labels.ndim == 2:
        truth, guess = labels.astype(bool), probabilities > 0.5
        chances = probabilities.astype(np.float64)
        loss = _cross_entropy(np.where(truth, chances, 1.0 - chances))
        accuracy = (truth == guess).all(axis=1).mean()
        hits = (truth & guess).sum(axis=0)
        guessed, true = guess.sum(axis=0), truth.sum(axis=0)
    else:
        best = probabilities.argmax(axis=1)
        loss = _cross_entropy(probabilities[np.arange(len(labels)), labels])
        accuracy = (best == labels).mean()
        hits, guessed, true = (
            np.bincount(ids, minlength=n_classes) for ids in (labels[best == labels], best, labels)
        )
    met = guessed + true
    precision, recall, f1 = _share(np.stack([hits, hits, 2 * hits]), np.stack([guessed, true, met]))
    return Metrics(
        micro_f1=float(_share(2 * hits.sum(), met.sum())),
        macro_f1=float(f1[met > 0].mean()) if met.any() else 0.0,
        accuracy=float(accuracy),
        loss=loss,
        n_nodes=len(labels),
        precision=tuple(precision.tolist()),
        recall=tuple(recall.tolist()),
        f1=tuple(f1.tolist()),
        support=tuple(true.tolist()),
    )


def _cross_entropy(chances: FloatArray) -> float:
    """The mean of -log, of the probabilities given to what is true."""
    return float(-np.log(np.clip(chances.astype(np.float64), 1e-12, 1.0)).mean())


def _share(part: AnyArray, whole: AnyArray) -> FloatArray:
    """part / whole, zero where there is nothing."""
    whole = np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
