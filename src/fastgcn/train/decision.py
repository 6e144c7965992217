"""What validation decides beside the weights: the metric, a temperature and a threshold; and what
is said about scores."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.config import TrainConfig
from fastgcn.graph.labels import Task
from fastgcn.metrics import Decision, Metrics

# Of two classes, one with a smaller share of the training nodes is rare: predicting the other for
# all nodes would have a micro-F1 above 0.9.
_RARE = 0.1

# A temperature is fitted on at most so many nodes: it is one number.
_MOST_NODES = 10_000

# A threshold needs this many nodes of both classes to choose by.
_FEWEST = 5

# Ranking scores of more probabilities than this take seconds; `fastgcn evaluate` computes them.
_MOST_ENTRIES = 1 << 22


def chosen_metric(config: TrainConfig, counts: IntArray, task: Task) -> str:
    """The name of what validation selects by; `counts` (C,) are of the training nodes."""
    if config.metric != "auto":
        return config.metric
    if task == "regression":
        return "r2"
    rare = len(counts) == 2 and task == "classification" and counts.min() < _RARE * counts.sum()
    return "average_precision" if rare else "micro_f1"


def positive_class(counts: IntArray, *, multilabel: bool) -> int | None:
    """Of two classes the rarer one, or the second of equal ones; None if there are others."""
    if multilabel or len(counts) != 2:
        return None
    return int(counts[0] >= counts[1])


def decide(
    logits: FloatArray, labels: AnyArray, start: Decision, metric: str, *, calibrate: bool
) -> Decision:
    """Temperature and threshold from logits (k, C) and labels of the validation nodes."""
    found = replace(start, temperature=fit_temperature(logits, labels) if calibrate else 1.0)
    if start.positive is None or labels.ndim == 2:
        return found
    scaled = logits.astype(np.float64) / found.temperature
    margin = scaled[:, start.positive] - scaled[:, 1 - start.positive]
    with np.errstate(over="ignore"):
        chance = 1 / (1 + np.exp(-margin))
    return replace(found, threshold=fit_threshold(chance, labels == start.positive, metric))


def fit_temperature(logits: FloatArray, labels: AnyArray) -> float:
    """T > 0 with the lowest loss of softmax(logits / T), or of the sigmoids; 1 if it does not help.

    It helps if one that is fitted on every second node lowers the loss of the others, and the
    other way round.
    """
    step = math.ceil(len(logits) / _MOST_NODES)
    rows, known = logits[::step].astype(np.float64), labels[::step]
    if len(rows) < 4 or not np.isfinite(rows).all():
        return 1.0
    guess = rows > 0 if known.ndim == 2 else rows.argmax(1)
    if np.array_equal(guess, known > 0 if known.ndim == 2 else known):
        return 1.0  # all are right: the lowest loss would be that of T = 0, which is sure of all
    before = after = 0.0
    for half in (0, 1):
        fitted, others = ((rows[k::2], known[k::2]) for k in (half, 1 - half))
        before += _loss(*others, 1.0) * len(others[0])
        after += _loss(*others, _best(*fitted)) * len(others[0])
    return round(_best(rows, known), 4) if after < before else 1.0


def _best(rows: FloatArray, known: AnyArray) -> float:
    from scipy.optimize import minimize_scalar  # takes long to load

    found = minimize_scalar(
        lambda log: _loss(rows, known, math.exp(log)),
        bounds=(-4.0, 4.0),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(found.x)


def _loss(rows: FloatArray, known: AnyArray, temperature: float) -> float:
    """The mean cross entropy of softmax(rows / T), or of sigmoids for label sets."""
    scaled = rows / temperature
    if known.ndim == 2:
        return float((np.logaddexp(0, scaled) - scaled * (known > 0)).mean())
    scaled -= scaled.max(1, keepdims=True)
    right = scaled[np.arange(len(known)), known]
    return float((np.log(np.exp(scaled).sum(1)) - right).mean())


def fit_threshold(chance: FloatArray, truth: AnyArray, metric: str) -> float:
    """The least probability (k,) at which to predict the positive class, by `metric`.

    Accuracy and micro-F1 keep one half. Macro-F1 and balanced accuracy choose their own best. For
    all other metrics it is the best F1 of the positive class.
    """
    positives = int(truth.sum())
    few = min(positives, len(truth) - positives) < _FEWEST
    if metric in ("micro_f1", "accuracy") or few:
        return 0.5
    order = np.argsort(-chance, kind="stable")
    ranked, right = chance[order], np.cumsum(truth[order])
    predicted = np.arange(1, len(ranked) + 1)
    negatives = len(ranked) - positives
    rejected = negatives - (predicted - right)  # negatives below the threshold
    f1 = 2 * right / (predicted + positives)
    if metric == "macro_f1":
        gain = f1 + 2 * rejected / np.maximum(len(ranked) - predicted + negatives, 1)
    elif metric == "balanced_accuracy":
        gain = right / positives + rejected / negatives
    else:
        gain = f1
    # Only between two different probabilities, in the middle.
    ends = np.flatnonzero(ranked[:-1] > ranked[1:])
    if not len(ends):
        return 0.5
    best = ends[np.argmax(gain[ends])]
    return float((ranked[best] + ranked[best + 1]) / 2)


def usual_scores(n_classes: int, n_nodes: int, *, multilabel: bool) -> tuple[str, ...]:
    """The scores that a finished run has on a part of the split, beside the usual four."""
    names = ["balanced_accuracy", "f1", "calibration_error"]
    if n_classes * n_nodes <= _MOST_ENTRIES:
        names += ["roc_auc", "average_precision"]
        names += ["recall@5%"] if n_classes == 2 and not multilabel else []
    return tuple(names)


def warnings(metric: str, part: str, scores: Metrics, counts: IntArray, names: Any) -> list[str]:
    """Sentences about scores on a part of the split that are no better than a guess."""
    if not scores.support:
        return [_worse_than_the_mean(part, scores)] if scores.r2 <= 0 else []
    support = np.array(scores.support)
    if len(counts) < 2 or scores.n_nodes != support.sum():  # several labels a node
        return []
    found, common = [], int(np.argmax(counts))
    if np.count_nonzero(support) == 1:
        (only,) = np.flatnonzero(support)
        found.append(
            f"All labelled {part} nodes are of class {_named(names, int(only))}, so scores on them "
            "say little; draw another split (--split random)."
        )
    elif metric in ("micro_f1", "accuracy"):
        share = support[common] / scores.n_nodes
        if scores.accuracy <= share:
            found.append(
                f"The model is no better than a guess: {scores.accuracy:.4f} of the {part} nodes "
                f"are right, and {share:.4f} are of the commonest class, "
                f"{_named(names, common)}. Look at the features and edges, or choose another "
                "metric (--metric macro_f1, or average_precision for two classes)."
            )
    elif scores.more.get("roc_auc", 1.0) <= 0.5:
        found.append(
            f"The model is no better than a guess: its ROC-AUC on the {part} nodes is "
            f"{scores.more['roc_auc']:.4f}. Look at the features and edges."
        )
    return found


def _worse_than_the_mean(part: str, scores: Metrics) -> str:
    return (
        f"The model is no better than a constant: its R² on the {part} nodes is {scores.r2:.4f}, "
        "and predicting their mean for all of them has 0. Look at the features and edges, or train "
        "longer."
    )


def _named(names: Any, number: int) -> str:
    return str(names[number]) if names is not None else str(number)
