"""How far probabilities can be trusted: curves over all thresholds, calibration, worst errors."""

import numpy as np

from fastgcn.arrays import BoolArray, FloatArray
from fastgcn.graph.graph import Graph
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import Series, lines
from fastgcn.report.quality import EXPLAIN, LISTED, Evaluated, own_id

# Classes that have a curve of their own, and the points that a curve is thinned to.
_CURVES, _POINTS = 7, 120
_BINS = 10  # of the calibration


def probability_sections(found: Evaluated) -> list[Section]:
    """Sections on thresholds and calibration; none if a probability is not finite."""
    if not np.isfinite(found.probabilities).all():
        return []
    return [thresholds(found), calibration(found)]


def thresholds(found: Evaluated) -> Section:
    """Precision against recall, and the ROC curve: of one class if there are two, else of each."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    members = _members(found)
    chosen = _with_curves(found, members)
    areas = {
        c: (
            float(average_precision_score(members[:, c], found.probabilities[:, c])),
            float(roc_auc_score(members[:, c], found.probabilities[:, c])),
        )
        for c in range(len(found.names))
        if 0 < members[:, c].sum() < len(members)
    }
    if not chosen:
        text = "All nodes are of one class, so there is nothing to tell apart."
        return _section([text])
    rows = [
        (found.names[c], f"{ap:.4f}", f"{auc:.4f}", f"{members[:, c].mean():.1%}")
        for c, (ap, auc) in areas.items()
    ]
    best, worst = (pick(areas, key=lambda c: areas[c][0]) for pick in (max, min))
    said = f"The average precision of {found.names[best]} is {areas[best][0]:.3f}"
    if worst != best and len(chosen) > 1:
        said += f", the highest; that of {found.names[worst]} is {areas[worst][0]:.3f}, the lowest"
    limited = (
        f" The {len(chosen)} most frequent of {len(found.names)} classes."
        if 1 < len(chosen) < len(areas)
        else ""
    )
    head = ("class", "average precision", "ROC-AUC", "share of nodes")
    return _section(
        [
            f"{said}. A guess at random has as average precision the share of the class, and a "
            "ROC-AUC of one half.",
            _precision_recall(found, members, chosen, limited),
            _roc(found, members, chosen, limited),
            Table(head, rows, "Areas under the curves"),
            "Each class is told from all others by its probability, at every threshold.",
        ]
    )


def _section(content: list[Content]) -> Section:
    question = "How do right and wrong alarms trade off?"
    return Section("thresholds", "Precision, recall and ROC", question, content)


def _members(found: Evaluated) -> BoolArray:
    """(k, C): True where a node is of a class."""
    if found.multilabel:
        return np.asarray(found.labels, bool)
    labels = np.asarray(found.labels)
    return np.asarray(labels[:, None] == np.arange(len(found.names)))


def _with_curves(found: Evaluated, members: BoolArray) -> list[int]:
    """Classes whose curves are drawn: the positive one of two, or the most frequent ones."""
    counts = members.sum(axis=0)
    able = [c for c in range(len(found.names)) if 0 < counts[c] < len(members)]
    if len(found.names) == 2 and not found.multilabel and able:
        positive = found.decision.positive
        return [int(np.argmin(counts)) if positive is None else positive]
    return sorted(sorted(able, key=lambda c: -counts[c])[:_CURVES])


def _thinned(x: FloatArray, y: FloatArray) -> tuple[list[float], list[float]]:
    """At most `_POINTS` points of a curve, with its ends."""
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), _POINTS)).round().astype(int))
    return x[keep].tolist(), y[keep].tolist()


def _precision_recall(
    found: Evaluated, members: BoolArray, chosen: list[int], limited: str
) -> Figure:
    from sklearn.metrics import precision_recall_curve

    series = []
    for c in chosen:
        precision, recall, _ = precision_recall_curve(members[:, c], found.probabilities[:, c])
        x, y = _thinned(recall[::-1], precision[::-1])
        series.append(Series(found.names[c], x, y, markers=False))
    svg = lines(
        series,
        title="Precision against recall",
        description=f"One line for each of {len(series)} classes. The upper right is best.",
        x_label="recall: share of the class that is found",
        y_label="precision",
        y_range=(0, 1),
    )
    return Figure(svg, f"Precision against recall at every threshold.{limited}")


def _roc(found: Evaluated, members: BoolArray, chosen: list[int], limited: str) -> Figure:
    from sklearn.metrics import roc_curve

    series = []
    for c in chosen:
        false, true, _ = roc_curve(members[:, c], found.probabilities[:, c])
        series.append(Series(found.names[c], *_thinned(false, true), markers=False))
    series.append(Series("chance", [0, 1], [0, 1], dashed=True, markers=False))
    svg = lines(
        series,
        title="ROC: right alarms against false alarms",
        description="One line for each class, and chance. The upper left is best.",
        x_label="share of the others that is named wrongly",
        y_label="share of the class that is found",
        y_range=(0, 1),
    )
    return Figure(svg, f"ROC curves at every threshold.{limited}")


def calibration(found: Evaluated) -> Section:
    """How often predictions are right, by how sure the network is of them."""
    sure, right = _confidence(found)
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(place, minlength=_BINS)
    met = [b for b in range(_BINS) if counts[b]]
    mean = [float(sure[place == b].mean()) for b in met]
    share = [float(right[place == b].mean()) for b in met]
    off = float(sum(counts[b] * abs(m - s) for b, m, s in zip(met, mean, share, strict=True)))
    off /= len(sure)
    gap = float(sure.mean() - right.mean())
    lean = "as sure as it is right"
    if abs(gap) >= 0.001:
        lean = "too sure" if gap > 0 else "not sure enough"
    svg = lines(
        [
            Series("network", mean, share),
            Series("if probabilities were right", [0, 1], [0, 1], dashed=True, markers=False),
        ],
        title="How often a prediction is right, by its probability",
        description=f"{len(met)} bins; the expected calibration error is {off:.3f}.",
        x_label="probability of the prediction",
        y_label="share that is right",
        y_range=(0, 1),
    )
    rows = [
        (f"{b / _BINS:.1f} to {(b + 1) / _BINS:.1f}", f"{counts[b]:,}", f"{m:.3f}", f"{s:.3f}")
        for b, m, s in zip(met, mean, share, strict=True)
    ]
    what = "decisions" if found.multilabel else "nodes"
    temperature = found.decision.temperature
    fitted = (
        f" Outputs are divided by a temperature of {temperature:g}, fitted on validation nodes."
        if temperature != 1.0
        else ""
    )
    content: list[Content] = [
        f"Predictions have a mean probability of {sure.mean():.3f} and are right for "
        f"{right.mean():.3f} of the {what}: on the whole the network is {lean}. Probabilities are "
        f"off by {off:.3f} on average over the bins.{fitted}",
        Figure(svg, "On the dashed line, probabilities are what they say."),
        Table(("probability", what, "mean", "right"), rows, "Bins of probability"),
    ]
    question = "Can its probabilities be taken at their word?"
    return Section("calibration", "Calibration", question, content)


def _confidence(found: Evaluated) -> tuple[FloatArray, BoolArray]:
    """The probability of each prediction, and whether it is right; of each label if several."""
    p = np.asarray(found.probabilities, np.float64)
    if found.multilabel:
        said = p > 0.5
        return np.where(said, p, 1 - p).ravel(), (said == found.labels).ravel()
    classes = found.decision.classes(p)
    return p[np.arange(len(p)), classes], np.asarray(classes == found.labels)


def worst_errors(graph: Graph, found: Evaluated) -> Section:
    """The wrong predictions of which the network is most sure, with their ids."""
    degrees = np.diff(graph.indptr)[found.nodes]
    p = np.asarray(found.probabilities, np.float64)
    rows: list[tuple[str, ...]]
    head: tuple[str, ...]
    if found.multilabel:
        wrong = (p > 0.5) != found.labels
        order = np.argsort(-np.abs(p - found.labels), axis=None, kind="stable")[:LISTED]
        picks = [(int(i), int(c)) for i, c in zip(*np.unravel_index(order, p.shape), strict=True)]
        head = ("node", "label", "is it so", "probability", "degree")
        rows = [
            (own_id(graph, found.nodes[i]), found.names[c], "yes" if found.labels[i, c] else "no",
             f"{p[i, c]:.4f}", f"{degrees[i]:,}")
            for i, c in picks if wrong[i, c]
        ]  # fmt: skip
        count = int(wrong.sum())
    else:
        classes, labels = found.decision.classes(p), np.asarray(found.labels)
        at = np.flatnonzero(classes != labels)
        sure = p[at, classes[at]]
        head = ("node", "true", "predicted", "its probability", "that of the truth", "degree")
        rows = [
            (own_id(graph, found.nodes[i]), found.names[labels[i]], found.names[classes[i]],
             f"{p[i, classes[i]]:.4f}", f"{p[i, labels[i]]:.4f}", f"{degrees[i]:,}")
            for i in at[np.argsort(-sure, kind="stable")][:LISTED]
        ]  # fmt: skip
        count = len(at)
    content: list[Content] = ["Every prediction is right."]
    if rows:
        listed = f"The {len(rows)} worst of {count:,} errors" if len(rows) < count else "All errors"
        content = [
            f"{listed}, by how sure the network is of them. A label that is wrong in the data is "
            "often among the first.",
            Table(head, rows, "Errors, the surest first", folded=False),
            EXPLAIN,
        ]
    return Section("worst", "Worst errors", "Which predictions are furthest off?", content)
