"""Scores of predicted against true labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgcn.arrays import AnyArray, BoolArray, FloatArray, IntArray


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
    return tally(probabilities, labels).metrics()


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts from which all scores follow; those of disjoint sets of nodes add up.

    Attributes:
        nodes: how many were judged, and `right` of them in all their labels.
        loss: the sum of -log, of the probabilities given to what is true, of `decisions` many.
        hits, guessed, true: (C,) nodes of each class that were found, predicted, and there.
    """

    nodes: int
    right: int
    loss: float
    decisions: int
    hits: IntArray
    guessed: IntArray
    true: IntArray

    def summed(self, add: Callable[[FloatArray], FloatArray]) -> "Tally":
        """The tally of all processes together; `add` sums an array of numbers over them."""
        single = [self.nodes, self.right, self.loss, self.decisions]
        by_class = [self.hits, self.guessed, self.true]
        sums = add(np.concatenate([single, *by_class]).astype(np.float64))
        nodes, right, loss, decisions = sums[:4].tolist()
        hits, guessed, true = sums[4:].astype(np.int64).reshape(3, -1)
        return Tally(int(nodes), int(right), loss, int(decisions), hits, guessed, true)

    def metrics(self) -> Metrics:
        hits, met = self.hits, self.guessed + self.true
        parts, wholes = np.stack([hits, hits, 2 * hits]), np.stack([self.guessed, self.true, met])
        precision, recall, f1 = _share(parts, wholes)
        return Metrics(
            micro_f1=float(_share(2 * hits.sum(), met.sum())),
            macro_f1=float(f1[met > 0].mean()) if met.any() else 0.0,
            accuracy=self.right / self.nodes,
            loss=self.loss / self.decisions,
            n_nodes=self.nodes,
            precision=tuple(precision.tolist()),
            recall=tuple(recall.tolist()),
            f1=tuple(f1.tolist()),
            support=tuple(self.true.tolist()),
        )


def tally(probabilities: FloatArray, labels: IntArray | BoolArray) -> Tally:
    """What (k, C) probabilities get right of (k,) class ids or (k, C) label sets."""
    n_classes = probabilities.shape[1]
    if labels.ndim == 2:
        truth, guess = labels.astype(bool), probabilities > 0.5
        chances: FloatArray = probabilities.astype(np.float64)
        chances = np.where(truth, chances, 1.0 - chances)
        right = (truth == guess).all(axis=1)
        hits, guessed, true = (part.sum(axis=0) for part in (truth & guess, guess, truth))
    else:
        best = probabilities.argmax(axis=1)
        chances = probabilities[np.arange(len(labels)), labels]
        right = best == labels
        hits, guessed, true = (
            np.bincount(ids, minlength=n_classes) for ids in (labels[right], best, labels)
        )
    surprise = -np.log(np.clip(chances.astype(np.float64), 1e-12, 1.0))
    counts = len(labels), int(np.count_nonzero(right))
    return Tally(*counts, float(surprise.sum()), surprise.size, hits, guessed, true)


def _share(part: AnyArray, whole: AnyArray) -> FloatArray:
    """part / whole, zero where there is nothing."""
    whole = np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
