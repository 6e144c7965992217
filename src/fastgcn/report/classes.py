"""Scores class by class, and which classes are taken for which."""

import numpy as np

from fastgcn.page import Content, Figure, Section, Table
from fastgcn.plots import heatmap
from fastgcn.report.judged import Judged
from fastgcn.types import IntArray

# Classes that a heat map can show on a phone, and confusions worth reading.
_SHOWN = 20
_LISTED = 10


def by_class(judged: Judged) -> Section:
    """Precision, recall and F1 of every class, and the confusions between them."""
    content: list[Content] = [_best_and_worst(judged)]
    if not judged.multilabel:
        matrix = confusion_matrix(judged)
        content.append(_matrix_figure(judged, matrix))
        content += _largest_confusions(judged, matrix)
    content += [_score_table(judged), judged.how]
    if judged.multilabel:
        content.append("A label counts as predicted where its probability is above one half.")
    question = f"Which {'labels' if judged.multilabel else 'classes'} does the model get right?"
    return Section("classes", f"Scores by {_unit(judged)}", question, content)


def _unit(judged: Judged) -> str:
    return "label" if judged.multilabel else "class"


def confusion_matrix(judged: Judged) -> IntArray:
    """(C, C): how many nodes of each true class (rows) are given each class (columns)."""
    c = len(judged.names)
    cells = judged.labels * c + judged.probabilities.argmax(axis=1)
    return np.bincount(cells, minlength=c * c).reshape(c, c)


def _best_and_worst(judged: Judged) -> str:
    met = [c for c, count in enumerate(judged.scores.support) if count]
    if not met:
        return "None of these nodes carries a label."
    f1 = judged.scores.f1
    best, worst = max(met, key=f1.__getitem__), min(met, key=f1.__getitem__)
    text = (
        f"Best is {judged.names[best]} (F1 {f1[best]:.3f}), hardest {judged.names[worst]} "
        f"(F1 {f1[worst]:.3f})."
    )
    never = len(judged.names) - len(met)
    if never:
        text += f" {never} of {len(judged.names)} do not occur among these nodes."
    return text


def _matrix_figure(judged: Judged, matrix: IntArray) -> Figure:
    support = matrix.sum(axis=1)
    shown = np.sort(np.argsort(-support, kind="stable")[:_SHOWN])
    share = 100 * matrix / np.maximum(support, 1)[:, None]
    names = [judged.names[c] for c in shown]
    left_out = len(judged.names) - len(shown)
    limited = f" The {len(shown)} largest of {len(judged.names)} classes." if left_out else ""
    svg = heatmap(
        np.round(share[np.ix_(shown, shown)]),
        names,
        names,
        title="Predicted class by true class, in % of the true class",
        description=f"The diagonal is what is right: {judged.scores.accuracy:.1%} of all nodes."
        + limited,
        row_label="true",
        column_label="predicted",
    )
    return Figure(
        svg,
        "Confusion matrix: of the nodes of each true class (row), the share that is given each "
        f"class (column), in per cent.{limited}",
    )


def _largest_confusions(judged: Judged, matrix: IntArray) -> list[Content]:
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    if not wrong.any():
        return ["No node is given a wrong class."]
    order = np.argsort(-wrong, axis=None, kind="stable")[:_LISTED]
    pairs = [divmod(int(cell), len(judged.names)) for cell in order]
    support = matrix.sum(axis=1)
    rows = [
        (judged.names[t], judged.names[p], f"{wrong[t, p]:,}", f"{wrong[t, p] / support[t]:.1%}")
        for t, p in pairs
        if wrong[t, p]
    ]
    caption = f"The largest of the {wrong.sum():,} confusions, and their share of the true class"
    return [Table(("true class", "predicted", "nodes", "share"), rows, caption)]


def _score_table(judged: Judged) -> Table:
    s = judged.scores
    rows = [
        (name, f"{p:.3f}", f"{r:.3f}", f"{f1:.3f}", f"{count:,}")
        for name, p, r, f1, count in zip(
            judged.names, s.precision, s.recall, s.f1, s.support, strict=True
        )
    ]
    unit = _unit(judged)
    return Table((unit, "precision", "recall", "F1", "nodes"), rows, f"Scores by {unit}")
