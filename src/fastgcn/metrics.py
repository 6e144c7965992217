"""Scores of predicted against true labels."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Metrics:
    """How good predictions are on some nodes.

    `micro_f1` counts all decisions together (for one class per node it equals the accuracy),
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
        nodes: how many were scored; `right` of them have all their labels right.
        loss: the sum of -log p over `decisions` decisions, p the probability of the truth.
        hits, guessed, true: (C,) nodes of each class: predicted correctly, predicted, and true.
    """

    nodes: int
    right: int
    loss: float
    decisions: int
    hits: IntArray
    guessed: IntArray
    true: IntArray

    @classmethod
    def of(cls, figures: Tensor) -> "Tally":
        """From `figures`, or from the sum of several of them."""
        loss, *whole = figures.tolist()
        nodes, right, decisions, *classes = map(int, whole)
        return cls(nodes, right, loss, decisions, *np.array(classes).reshape(3, -1))

    @property
    def figures(self) -> Tensor:
        """(4 + 3C,) float64: all counts in a row, for processes to add up."""
        facts = [self.loss, self.nodes, self.right, self.decisions]
        classes = np.concatenate([facts, self.hits, self.guessed, self.true])
        return torch.from_numpy(classes.astype(np.float64))

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


def tally(probabilities: FloatArray | Tensor, labels: IntArray | BoolArray | Tensor) -> Tally:
    """The counts for (k, C) probabilities against (k,) class ids or (k, C) label sets.

    Both are arrays, or both are tensors on one device. Tensors are counted where they are, and
    the host waits for them once.
    """
    if isinstance(probabilities, Tensor):
        assert isinstance(labels, Tensor)
        return read_tally(tally_on_device(probabilities, labels), len(labels))
    right, chances, classes = _count_all(np, probabilities, labels)
    loss = -np.log(np.clip(chances, 1e-12, 1.0)).sum()
    return Tally(len(right), int(right.sum()), float(loss), math.prod(chances.shape), *classes)


def tally_on_device(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The counts of a `Tally` (3 + 3C,), which `read_tally` reads; nothing here is waited for."""
    right, chances, classes = _count_all(torch, probabilities, labels)
    loss = -torch.log(torch.clip(chances, 1e-12, 1.0)).sum()
    facts = torch.stack([loss, right.sum().double()])
    decisions = torch.full_like(facts[:1], math.prod(chances.shape))
    return torch.cat([facts, decisions, *[part.double() for part in classes]])


def read_tally(found: Tensor, nodes: int) -> Tally:
    """The tally of so many nodes, from what `tally_on_device` has counted."""
    loss, right, decisions, *counts = found.tolist()
    classes = np.array(counts, np.int64).reshape(3, -1)
    return Tally(nodes, int(right), loss, int(decisions), *classes)


def _count_all(library: Any, found: Any, known: Any) -> tuple[Any, Any, list[Any]]:
    """Which nodes (k,) have all their labels right, the probability of each truth, and how many of
    each class are predicted correctly, predicted, and true; by numpy or by torch, which have the
    functions used here under the same names."""
    if known.ndim == 2:
        truth, guess = known > 0, found > 0.5
        chances = library.asarray(found, dtype=library.float64)
        chances = library.where(truth, chances, 1.0 - chances)
        return (
            (truth == guess).all(1),
            chances,
            [part.sum(0) for part in (truth & guess, guess, truth)],
        )
    best = found.argmax(1)
    right, n_classes = best == known, found.shape[1]
    counts = [(known, right), (best, None), (known, None)]
    return right, _of_classes(found, known), [_count(*each, n_classes) for each in counts]


def _of_classes(found: Any, known: Any) -> Any:
    """(k,) float64: of each row of (k, C), the entry of the class `known`."""
    if isinstance(found, Tensor):
        return found.gather(1, known[:, None])[:, 0].double()
    return found[np.arange(len(found)), known].astype(np.float64)


def _count(ids: Any, where: Any, n_classes: int) -> Any:
    """(C,) int64: how many of the class ids are of each class, counting only those `where` true.

    torch.bincount would make the host wait for the largest id.
    """
    if not isinstance(ids, Tensor):
        return np.bincount(ids if where is None else ids[where], minlength=n_classes)
    by = torch.ones_like(ids) if where is None else where.to(ids.dtype)
    return torch.zeros(n_classes, dtype=ids.dtype, device=ids.device).index_add_(0, ids, by)


def _share(part: AnyArray, whole: AnyArray) -> FloatArray:
    """part / whole, zero where `whole` is zero."""
    whole = np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
