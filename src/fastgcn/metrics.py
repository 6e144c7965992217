"""Scores of predictions, and how outputs become probabilities and classes, or numbers."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import AnyArray, BoolArray, FloatArray, IntArray, is_finite

_LOWER_IS_BETTER = ("loss", "calibration_error", "mae", "rmse")

# The scores that every validation has: of classes, and of numbers.
CLASS_SCORES = ("micro_f1", "macro_f1", "accuracy", "loss")
NUMBER_SCORES = ("r2", "mae", "rmse", "loss")
USUAL = frozenset(CLASS_SCORES)

# What `evaluate` adds to the four scores that every validation has.
MORE = ("balanced_accuracy", "f1", "roc_auc", "average_precision", "calibration_error")

_BINS = 15  # of the calibration error


@dataclass(frozen=True, slots=True)
class Decision:
    """How a network's outputs become probabilities, and these a class.

    Attributes:
        temperature: outputs are divided by it before the softmax (or sigmoid).
        positive: of two classes, the one that the threshold, F1 and recall@K are about.
        threshold: the least probability of the positive class at which it is predicted; one half
            stands for the more probable class, whatever their number.
    """

    temperature: float = 1.0
    positive: int | None = None
    threshold: float = 0.5

    def to_dict(self) -> dict[str, Any]:
        """As plain data; without `positive` if there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def classes(self, probabilities: Any) -> Any:
        """(k,) class ids for (k, C) probabilities, an array or a tensor.

        >>> Decision(positive=0, threshold=0.3).classes(np.array([[0.4, 0.6], [0.1, 0.9]])).tolist()
        [0, 1]
        """
        if self.positive is None or self.threshold == 0.5 or probabilities.shape[1] != 2:
            return probabilities.argmax(1)
        found = probabilities[:, self.positive] >= self.threshold
        number = found.long() if isinstance(found, Tensor) else found.astype(np.int64)
        return number if self.positive == 1 else 1 - number


@dataclass(frozen=True, slots=True)
class Target:
    """How a network's outputs become numbers in the user's units: output · scale + mean.

    Attributes:
        mean, scale: mean and standard deviation of the training nodes' targets.
        loss: what was trained by, mse or huber.
    """

    mean: float = 0.0
    scale: float = 1.0
    loss: str = "mse"

    def standardized(self, values: Any) -> Any:
        """Numbers in units of `scale`, from the mean: what the network learns."""
        return (values - self.mean) / (self.scale or 1.0)

    def losses(self, errors: FloatArray) -> FloatArray:
        """The loss of each standardised error: its square, or Huber's with δ = 1."""
        size = np.abs(errors)
        if self.loss != "huber":
            return size**2
        return np.where(size <= 1, 0.5 * size**2, size - 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """How good predictions are on some nodes; NaN, or empty, where a task has no such score.

    Of classes, `micro_f1` counts all decisions together (for one class per node it equals the
    accuracy), `macro_f1` is the mean over classes of their F1, `loss` the mean cross entropy. A
    class that neither occurs nor is predicted is left out of `macro_f1`.

    Of numbers, `r2` is the share of the variance that is explained (0: no better than the mean of
    these nodes), `mae` and `rmse` are the mean absolute and the root of the mean squared error in
    the user's units, and `loss` is the mean loss of standardised numbers, as in training.
    """

    loss: float
    n_nodes: int
    micro_f1: float = math.nan
    macro_f1: float = math.nan
    accuracy: float = math.nan
    precision: tuple[float, ...] = ()  # per class
    recall: tuple[float, ...] = ()
    f1: tuple[float, ...] = ()
    support: tuple[int, ...] = ()  # true nodes per class
    r2: float = math.nan
    mae: float = math.nan
    rmse: float = math.nan
    more: Mapping[str, float] = field(default_factory=dict)  # such as roc_auc, if asked for

    def __eq__(self, other: object) -> bool:
        """Equal in every score; a score that both lack is equal too."""
        if not isinstance(other, Metrics):
            return NotImplemented
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return all(a == b or (a != a and b != b) for a, b in pairs)

    def scores(self) -> dict[str, Any]:
        """The four figures of the task by name, and those of `more`."""
        names = NUMBER_SCORES if math.isnan(self.accuracy) else CLASS_SCORES
        return {name: getattr(self, name) for name in names} | dict(self.more)


def better(name: str, value: float) -> float:
    """The value with a sign such that higher is better."""
    return -value if name in _LOWER_IS_BETTER else value


def measure(
    predictions: FloatArray, labels: AnyArray, rule: Decision | Target | None = None
) -> Metrics:
    """Scores of (k, C) probabilities against (k,) class ids or (k, C) label sets, or of numbers
    against (k,) numbers.

    >>> m = measure(np.array([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]), np.array([0, 1, 1]))
    >>> round(m.micro_f1, 3), m.support
    (0.667, (1, 2))
    """
    return tally(predictions, labels, rule).metrics()


class Sums(Protocol):
    """Sums from which all scores follow; those of disjoint sets of nodes add up."""

    @classmethod
    def of(cls, figures: Tensor) -> Self: ...

    @property
    def figures(self) -> Tensor: ...

    def metrics(self) -> Metrics: ...


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


@dataclass(frozen=True, slots=True)
class ErrorSums:
    """Sums over nodes from which the scores of predicted numbers follow.

    Attributes:
        nodes: how many were scored.
        loss: of the losses; `absolute` and `squared` of the errors in the user's units.
        unexplained: of the squared errors of standardised numbers.
        total, squares: of the true standardised numbers and of their squares. Their mean is near
            zero, so the variance follows without loss of digits.
    """

    nodes: float
    loss: float
    absolute: float
    squared: float
    unexplained: float
    total: float
    squares: float

    @classmethod
    def of(cls, figures: Tensor) -> "ErrorSums":
        return cls(*figures.tolist())

    @property
    def figures(self) -> Tensor:
        return torch.tensor([getattr(self, n) for n in self.__dataclass_fields__]).double()

    @classmethod
    def between(cls, found: AnyArray, known: AnyArray, target: Target) -> "ErrorSums":
        """Of predictions against true numbers (k,), both in the user's units."""
        errors, truth = found.reshape(-1) - known, target.standardized(known)
        scaled = errors / (target.scale or 1.0)
        with np.errstate(over="ignore"):  # the loss of an infinite prediction is reported as such
            sums = (target.losses(scaled), np.abs(errors), errors**2, scaled**2, truth, truth**2)
            return cls(len(known), *(float(each.sum()) for each in sums))

    def metrics(self) -> Metrics:
        n = self.nodes
        variation = self.squares - self.total**2 / n
        if variation > 1e-12 * self.squares:
            r2 = 1 - self.unexplained / variation
        else:  # all true numbers are equal; as in scikit-learn
            r2 = float(self.unexplained == 0)
        return Metrics(
            loss=self.loss / n,
            n_nodes=int(n),
            r2=r2,
            mae=self.absolute / n,
            rmse=math.sqrt(self.squared / n) if self.squared == self.squared else math.nan,
        )


def tally(
    predictions: FloatArray | Tensor,
    labels: AnyArray | Tensor,
    rule: Decision | Target | None = None,
) -> Tally | ErrorSums:
    """The sums for (k, C) probabilities against (k,) class ids or (k, C) label sets; with a
    `Target`, for (k,) or (k, 1) numbers against (k,) numbers.

    Both are arrays, or both are tensors on one device. Classes of tensors are counted where they
    are, and the host waits for them once.
    """
    if isinstance(rule, Target):
        found, known = (_host(each) for each in (predictions, labels))
        return ErrorSums.between(found, known, rule)
    probabilities, decision = predictions, rule
    if isinstance(probabilities, Tensor):
        assert isinstance(labels, Tensor)
        return read_tally(tally_on_device(probabilities, labels, decision), len(labels))
    right, chances, classes = _count_all(np, probabilities, labels, decision)
    loss = -np.log(np.clip(chances, 1e-12, 1.0)).sum()
    return Tally(len(right), int(right.sum()), float(loss), math.prod(chances.shape), *classes)


def _host(values: AnyArray | Tensor) -> AnyArray:
    found: AnyArray = values.cpu().numpy() if isinstance(values, Tensor) else values
    return found


def tally_on_device(
    probabilities: Tensor, labels: Tensor, decision: Decision | None = None
) -> Tensor:
    """The counts of a `Tally` (3 + 3C,), which `read_tally` reads; nothing here is waited for."""
    right, chances, classes = _count_all(torch, probabilities, labels, decision)
    loss = -torch.log(torch.clip(chances, 1e-12, 1.0)).sum()
    facts = torch.stack([loss, right.sum().double()])
    decisions = torch.full_like(facts[:1], math.prod(chances.shape))
    return torch.cat([facts, decisions, *[part.double() for part in classes]])


def read_tally(found: Tensor, nodes: int) -> Tally:
    """The tally of so many nodes, from what `tally_on_device` has counted."""
    loss, right, decisions, *counts = found.tolist()
    classes = np.array(counts, np.int64).reshape(3, -1)
    return Tally(nodes, int(right), loss, int(decisions), *classes)


def _count_all(
    library: Any, found: Any, known: Any, decision: Decision | None
) -> tuple[Any, Any, list[Any]]:
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
    best = (decision or Decision()).classes(found)
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


def scored(
    found: Any,
    labels: Any,
    rule: Decision | Target,
    also: Iterable[str] = (),
    *,
    reduce: Callable[[Sums], Sums] = lambda own: own,
    gather: Callable[[Any, Any], tuple[Any, Any]] = lambda rows, known: (rows, known),
) -> Metrics:
    """Scores of (k, C) probabilities, with those of the names `also` that are defined for them; or
    of predicted numbers, which have no others.

    If several processes have some nodes each, `reduce` adds up their tallies, and `gather` joins
    their rows, which scores that depend on an order of all nodes need.
    """
    metrics = reduce(tally(found, labels, rule)).metrics()
    names = set(also) - USUAL
    if not names or isinstance(rule, Target):
        return metrics
    rows, known = map(_host, gather(found, labels))
    if not is_finite(rows):
        return metrics
    values = {name: _score(name, metrics, rows, known, rule) for name in sorted(names)}
    return replace(metrics, more={n: v for n, v in values.items() if v is not None})


def _score(
    name: str, metrics: Metrics, found: FloatArray, labels: AnyArray, decision: Decision
) -> float | None:
    """A score by its name; None if it is not defined for these nodes."""
    positive = decision.positive if found.shape[1] == 2 and labels.ndim == 1 else None
    if name == "balanced_accuracy":
        met = [r for r, count in zip(metrics.recall, metrics.support, strict=True) if count]
        return float(np.mean(met)) if labels.ndim == 1 and met else None
    if name == "f1":
        return None if positive is None else metrics.f1[positive]
    if name == "calibration_error":
        return _calibration_error(found, labels)
    truth = labels > 0 if labels.ndim == 2 else labels[:, None] == np.arange(found.shape[1])
    if name in ("roc_auc", "average_precision"):
        columns = range(found.shape[1]) if positive is None else [positive]
        return _ranking(name, found[:, columns], truth[:, columns])
    return _recall_at(name, found, truth, positive)


def _ranking(name: str, found: FloatArray, truth: AnyArray) -> float | None:
    """The score of each class against all others; the mean over classes."""
    score = roc_auc if name == "roc_auc" else average_precision
    # Not defined for a class that all of these nodes have, or none.
    mixed = np.flatnonzero(truth.any(0) & ~truth.all(0))
    each = [score(truth[:, c].astype(bool), found[:, c]) for c in mixed]
    return float(np.mean(each)) if each else None


# As in scikit-learn. Loading that takes a second and 200 MB, in every training.


def roc_auc(truth: BoolArray, found: FloatArray) -> float:
    """The probability that a positive scores above a negative; equal scores count as one half.

    >>> roc_auc(np.array([True, False, True, False]), np.array([0.9, 0.8, 0.8, 0.1]))
    0.875
    """
    _, place, counts = np.unique(found, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # equal scores share their mean rank
    positive = int(truth.sum())
    above = ranks[truth].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (len(truth) - positive)))


def average_precision(truth: BoolArray, found: FloatArray) -> float:
    """The mean of the precision at each threshold, weighted by the recall that it adds.

    >>> average_precision(np.array([True, False, True]), np.array([0.9, 0.8, 0.1]))
    0.8333333333333333
    """
    _, place, counts = np.unique(-found, return_inverse=True, return_counts=True)
    positives = np.bincount(place, weights=truth)
    precision = np.cumsum(positives) / np.cumsum(counts)
    return float((positives * precision).sum() / positives.sum())


def _recall_at(name: str, found: FloatArray, truth: AnyArray, positive: int | None) -> float | None:
    """Two classes: the share of the positive nodes that are among the K highest of all nodes.

    Otherwise, the mean over nodes of the share of their classes that are among their K highest.
    """
    text, percent = name.removeprefix("recall@").removesuffix("%"), name.endswith("%")
    value = float(text)
    if positive is not None:
        most = math.ceil(len(found) * value / 100) if percent else int(value)
        first = np.argsort(-found[:, positive], kind="stable")[:most]
        total = np.count_nonzero(truth[:, positive])
        return float(truth[first, positive].sum() / total) if total else None
    if percent or value > found.shape[1]:
        return None
    first = np.argsort(-found, axis=1, kind="stable")[:, : int(value)]
    counts = truth.sum(1)
    hits = np.take_along_axis(truth, first, 1).sum(1)
    return float(np.mean(hits[counts > 0] / counts[counts > 0])) if counts.any() else None


def _calibration_error(found: FloatArray, labels: AnyArray) -> float:
    """The mean distance between probability and frequency, over 15 equal bins of probability.

    For one class a node it is about the most probable class; otherwise about every label.
    """
    if labels.ndim == 2:
        sure, right = found.ravel(), (labels > 0).ravel()
    else:
        sure, right = found.max(1), found.argmax(1) == labels
    bins = np.minimum((sure * _BINS).astype(np.int64), _BINS - 1)
    gaps = np.bincount(bins, weights=sure.astype(np.float64) - right, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(sure))
