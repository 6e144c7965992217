"""The summary: how good the run is."""

import math
from collections.abc import Iterable

import numpy as np

from fastgcn.arrays import IntArray
from fastgcn.graph.graph import Graph
from fastgcn.metrics import measure
from fastgcn.report.judged import PART_NAMES, Judged
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import bars, heatmap
from fastgcn.train.run import Run

_SCORES = ("micro_f1", "macro_f1", "accuracy", "loss")


def headline(run: Run, judged: Judged) -> str:
    """The one line under the title."""
    return (
        f"micro-F1 {judged.scores.micro_f1:.4f} on {len(judged.nodes):,} {judged.part} nodes; "
        f"epoch {run.metrics['best_epoch']} of {run.metrics['epochs']} kept, "
        f"seed {run.config.seed}"
    )


def summary(run: Run, judged: Judged) -> Section:
    rows = [
        (f"{PART_NAMES[part]}, in training", *_texts(run.metrics[f"{part}_{s}"] for s in _SCORES))
        for part in ("val", "test")
        if f"{part}_micro_f1" in run.metrics
    ]
    if not _recorded(run, judged):
        here = judged.scores
        rows.append((f"{judged.part}, for this report", *_texts(getattr(here, s) for s in _SCORES)))
    return Section(
        "summary",
        "Summary",
        "How good is the model?",
        [
            _against_the_commonest(judged),
            Table(("nodes", "micro-F1", "macro-F1", "accuracy", "loss"), rows, "Scores"),
            _how(run, judged),
        ],
    )


def _texts(values: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"{value:.4f}" for value in values)


def _recorded(run: Run, judged: Judged) -> bool:
    """Whether training came to the same scores, up to rounding."""
    part = next(key for key, name in PART_NAMES.items() if name == judged.part)
    return math.isclose(
        run.metrics.get(f"{part}_loss", math.nan), judged.scores.loss, rel_tol=1e-3
    ) and math.isclose(run.metrics[f"{part}_micro_f1"], judged.scores.micro_f1, abs_tol=1e-3)


def _against_the_commonest(judged: Judged) -> str:
    """The score, beside what one gets without looking at a node."""
    score = judged.scores
    if judged.multilabel:
        return (
            f"Of all decisions whether a node carries a label, taken together, micro-F1 is "
            f"{score.micro_f1:.4f}; all labels of a node are right for {score.accuracy:.1%} of "
            f"the {judged.part} nodes."
        )
    commonest = int(np.bincount(judged.labels).argmax())
    share = float((judged.labels == commonest).mean())
    return (
        f"The class is right for {score.accuracy:.1%} of the {judged.part} nodes; always naming "
        f"the commonest class, {judged.names[commonest]}, would be right for {share:.1%}."
    )


def _how(run: Run, judged: Judged) -> str:
    kept = (
        "The weights are those of the epoch that validation chose."
        if "val_loss" in run.metrics
        else "There were no validation nodes, so the weights are those of the last epoch."
    )
    joined = ""
    if run.config.evaluation_graph == "joined" and run.config.inductive:
        joined = (
            " In training, nodes were judged on the graph of training nodes and their own part "
            "alone (evaluation_graph = joined)."
        )
    return (
        f"{judged.how} {kept}{joined} Micro-F1 counts all decisions together, macro-F1 is the mean "
        "over classes, and the loss is the mean cross entropy."
    )


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


# Fewer nodes than this say little about their bin.
_ENOUGH = 20


def by_degree(graph: Graph, judged: Judged) -> Section:
    """Micro-F1 (the accuracy, for one class a node) in the degree bins 0, 1, 2-3, 4-7, ..."""
    degrees = np.diff(graph.indptr)[judged.nodes]
    bins = np.where(degrees > 0, np.floor(np.log2(np.maximum(degrees, 1))).astype(int) + 1, 0)
    names, scores, counts = [], [], []
    for number in np.unique(bins):
        chosen = bins == number
        names.append(_bin_name(int(number)))
        scores.append(measure(judged.probabilities[chosen], judged.labels[chosen]).micro_f1)
        counts.append(int(chosen.sum()))
    what = "micro-F1" if judged.multilabel else "accuracy"
    svg = bars(
        names,
        [(what, scores)],
        title=f"{what[0].upper()}{what[1:]} by degree",
        description="; ".join(f"{n}: {s:.3f}" for n, s in zip(names, scores, strict=True)) + ".",
        y_label=what,
    )
    rows = [
        (name, f"{count:,}", f"{score:.4f}")
        for name, count, score in zip(names, counts, scores, strict=True)
    ]
    return Section(
        "degree",
        "Degree",
        "Are nodes with few neighbours predicted worse?",
        [
            _comparison(names, scores, counts, what),
            Figure(svg, f"{what[0].upper()}{what[1:]} of the {judged.part} nodes by degree."),
            Table(("degree", "nodes", what), rows, "Degree bins"),
            f"{judged.how} A node's degree is its number of neighbours in the whole graph; each "
            "bin is twice as wide as the one before.",
        ],
    )


def _bin_name(number: int) -> str:
    """The degrees of a bin: 0, 1, 2-3, 4-7, ..."""
    if number < 2:
        return str(number)
    return f"{2 ** (number - 1):,}–{2**number - 1:,}"


def _comparison(names: list[str], scores: list[float], counts: list[int], what: str) -> str:
    """The lowest bin against the highest, of those with enough nodes to say something."""
    solid = [i for i, count in enumerate(counts) if count >= _ENOUGH]
    if len(solid) < 2:
        return f"There are too few nodes to compare degrees: no two bins have {_ENOUGH}."
    low, high = solid[0], solid[-1]
    return (
        f"With {names[low]} {'neighbour' if names[low] == '1' else 'neighbours'} the {what} is "
        f"{scores[low]:.3f} ({counts[low]:,} nodes), with {names[high]} it is {scores[high]:.3f} "
        f"({counts[high]:,} nodes)."
    )
