"""How good the predictions are: sections on the scores, the classes, the degrees and the map."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.errors import InputError, nearest
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import has_label
from fastgcn.infer.predict import as_trained, embed, evaluate, predict
from fastgcn.metrics import Decision, Metrics, measure
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import bars, heatmap, scatter
from fastgcn.train.run import Run

PART_NAMES = {"test": "test", "val": "validation", "train": "training"}
# Classes that a heat map can show on a phone, and confusions worth reading.
_SHOWN, _LISTED = 20, 10
# The worst errors that are listed.
LISTED = 15
EXPLAIN = "fastgcn explain RUN --node ID shows why a node is predicted as it is."
# A degree bin with fewer nodes than this is not compared.
_ENOUGH = 20
# More points would hide each other; also bounds the map's size and the time it takes.
_POINTS = 2_000


@dataclass(frozen=True, slots=True)
class Scored:
    """Predictions for k labelled nodes and their scores.

    Attributes:
        part: the part of the split that the nodes are from: test, val or train.
        nodes: (k,) ids.
        scores: of those predictions.
    """

    part: str
    nodes: IntArray
    scores: Metrics

    @property
    def part_name(self) -> str:
        return PART_NAMES[self.part]

    @property
    def how(self) -> str:
        """How the predictions were made."""
        return (
            f"Predictions of the full network, without sampling, for the {len(self.nodes):,} "
            f"labelled {self.part_name} nodes, on the whole graph."
        )


@dataclass(frozen=True, slots=True)
class Evaluated(Scored):
    """Predictions and truth for k labelled nodes.

    Attributes:
        labels: (k,) class ids or (k, C) label sets.
        probabilities: (k, C).
        names: the C classes, by number if they have no names.
        decision: how probabilities become a class.
    """

    labels: IntArray | BoolArray
    probabilities: FloatArray
    names: tuple[str, ...]
    decision: Decision = field(default_factory=Decision)

    @property
    def multilabel(self) -> bool:
        return self.labels.ndim == 2


def evaluate_run(run: Run, graph: Graph, part: str | None = None) -> Evaluated:
    """Predict the labelled nodes of a part; by default the first of test, val, train with some."""
    graph = as_trained(run, graph)
    part, nodes = labelled_part(graph, PART_NAMES if part is None else (part,))
    evaluate(run, graph, nodes[:1])  # checks that the network and the graph fit together
    probabilities = predict(run, graph, nodes)
    assert graph.labels is not None
    labels = cast(IntArray | BoolArray, graph.labels[nodes])
    count = probabilities.shape[1]
    known = (names for names in (run.class_names, graph.class_names) if names is not None)
    names = next((names for names in known if len(names) == count), range(count))
    scores = measure(probabilities, labels, run.model.decision)
    shown, decision = tuple(map(str, names)), run.model.decision
    return Evaluated(part, nodes, scores, labels, probabilities, shown, decision)


def labelled_part(graph: Graph, names: Iterable[str]) -> tuple[str, IntArray]:
    parts = dict(graph.split.items())
    for name in names if graph.labels is not None else ():
        if name not in parts:
            raise InputError(
                f"a part of the split is one of {', '.join(parts)}, got {name!r}"
                f"{nearest(name, parts)}"
            )
        nodes = np.asarray(parts[name])
        if graph.labels is not None:
            nodes = nodes[has_label(graph.labels[nodes])]
        if nodes.size:
            return name, nodes
    raise InputError(
        f"{graph.name} has no labelled node in {_named(names)}, and its predictions cannot be "
        "compared; name a graph with labels, or give --split random"
    )


def _named(parts: Iterable[str]) -> str:
    names = list(parts)
    return "its split" if len(names) > 1 else f"the {names[0]} part of its split"


def headline(run: Run, found: Evaluated) -> str:
    """The line under the title."""
    return f"micro-F1 {found.scores.micro_f1:.4f} {on_nodes(run, found)}"


def on_nodes(run: Run, found: Scored) -> str:
    """Of which nodes a score is, and of which epoch of the run."""
    return (
        f"on {len(found.nodes):,} {found.part_name} nodes; "
        f"{run.kept}, "
        f"seed {run.config.seed}{'' if run.stopped is None else '; training is not finished'}"
    )


def score_rows(run: Run, found: Scored, form: str) -> list[tuple[str, ...]]:
    """Rows of a table: the scores of training, and those of this report if they differ."""
    here = found.scores.scores()
    recorded = {
        part: {name: run.metrics.get(f"{part}_{name}", math.nan) for name in here}
        for part in ("val", "test")
        if f"{part}_loss" in run.metrics
    }
    rows = [(f"{PART_NAMES[part]}, in training", scores) for part, scores in recorded.items()]
    same = recorded.get(found.part, {})
    if any(
        not math.isclose(same.get(name, math.nan), here[name], rel_tol=1e-3, abs_tol=near)
        for name, near in (("loss", 0.0), ("micro_f1", 1e-3))
        if name in here
    ):
        rows.append((f"{found.part_name}, for this report", here))
    return [(name, *(format(value, form) for value in scores.values())) for name, scores in rows]


def summary(run: Run, found: Evaluated) -> Section:
    """The scores of training, and those of this report if they differ."""
    cells = score_rows(run, found, ".4f")
    table = Table(("nodes", "micro-F1", "macro-F1", "accuracy", "loss"), cells, "Scores")
    means = (
        " Micro-F1 counts all decisions together, macro-F1 is the mean over classes, and the loss "
        "is the mean cross entropy."
    )
    scored = how_scored(run, found.how) + means
    content: list[Content] = [_against_the_commonest(found), table, scored]
    if run.stopped is not None:
        content.insert(0, f"This run is not finished: {run.stopped}.")
    return Section("summary", "Summary", "How good is the model?", content)


def _against_the_commonest(found: Evaluated) -> str:
    """The score, compared with always naming the commonest class."""
    score = found.scores
    if found.multilabel:
        return (
            f"Over all decisions for each node and label, micro-F1 is {score.micro_f1:.4f}; all "
            f"labels of a node are right for {score.accuracy:.1%} of the {found.part_name} nodes."
        )
    commonest = int(np.bincount(found.labels).argmax())
    share = float((found.labels == commonest).mean())
    return (
        f"The class is right for {score.accuracy:.1%} of the {found.part_name} nodes; always "
        f"naming the commonest class, {found.names[commonest]}, would be right for {share:.1%}."
    )


def how_scored(run: Run, how: str) -> str:
    """How predictions were made, and of which weights and graph."""
    kept = (
        "The weights are those of the epoch that validation chose."
        if "val_loss" in run.metrics
        else "There were no validation nodes, so the weights are those of the last epoch."
    )
    if run.model.ensemble > 1:
        kept += f" The model is the mean of {run.model.ensemble} networks from different seeds."
    joined = ""
    if run.config.evaluation_graph == "joined" and run.config.inductive:
        joined = (
            " In training, nodes were evaluated on the graph of training nodes and their own part "
            "alone (evaluation_graph = joined)."
        )
    return f"{how} {kept}{joined}"


def by_class(found: Evaluated) -> Section:
    """Precision, recall and F1 of every class, and the confusions between them."""
    unit, units = ("label", "labels") if found.multilabel else ("class", "classes")
    content: list[Content] = [_best_and_worst(found)]
    if not found.multilabel:
        matrix = confusion_matrix(found)
        content += [_matrix_figure(found, matrix), _largest_confusions(found, matrix)]
    s = found.scores
    columns = zip(found.names, s.precision, s.recall, s.f1, s.support, strict=True)
    rows = [(name, f"{p:.3f}", f"{r:.3f}", f"{f1:.3f}", f"{n:,}") for name, p, r, f1, n in columns]
    content.append(Table((unit, "precision", "recall", "F1", "nodes"), rows, f"Scores by {unit}"))
    content.append(found.how)
    if found.multilabel:
        content.append("A label counts as predicted if its probability is above one half.")
    question = f"Which {units} does the model get right?"
    return Section("classes", f"Scores by {unit}", question, content)


def confusion_matrix(found: Evaluated) -> IntArray:
    """(C, C): how many nodes of each true class (rows) are predicted as each class (columns)."""
    c = len(found.names)
    cells = found.labels * c + found.decision.classes(found.probabilities)
    return np.bincount(cells, minlength=c * c).reshape(c, c)


def _best_and_worst(found: Evaluated) -> str:
    met = [c for c, count in enumerate(found.scores.support) if count]
    if not met:
        return "None of these nodes has a label."
    f1 = found.scores.f1
    best, worst = max(met, key=f1.__getitem__), min(met, key=f1.__getitem__)
    text = (
        f"Best is {found.names[best]} (F1 {f1[best]:.3f}), hardest {found.names[worst]} "
        f"(F1 {f1[worst]:.3f})."
    )
    never = len(found.names) - len(met)
    return text + (f" {never} of {len(found.names)} do not occur here." if never else "")


def _matrix_figure(found: Evaluated, matrix: IntArray) -> Figure:
    support = matrix.sum(axis=1)
    shown = np.sort(np.argsort(-support, kind="stable")[:_SHOWN])
    share = 100 * matrix / np.maximum(support, 1)[:, None]
    names = [found.names[c] for c in shown]
    limited = (
        f" The {len(shown)} largest of {len(found.names)} classes."
        if len(shown) < len(found.names)
        else ""
    )
    svg = heatmap(
        np.round(share[np.ix_(shown, shown)]),
        names,
        names,
        title="Predicted class by true class, in % of the true class",
        description=f"The diagonal is right: {found.scores.accuracy:.1%} of all nodes.{limited}",
        row_label="true",
        column_label="predicted",
    )
    return Figure(
        svg,
        "Confusion matrix: of the nodes of each true class (row), the share that is predicted as "
        f"each class (column), in per cent.{limited}",
    )


def _largest_confusions(found: Evaluated, matrix: IntArray) -> Content:
    support, wrong = matrix.sum(axis=1), matrix.copy()
    np.fill_diagonal(wrong, 0)
    if not wrong.any():
        return "Every node is predicted correctly."
    order = np.argsort(-wrong, axis=None, kind="stable")[:_LISTED]
    rows = [
        (found.names[t], found.names[p], f"{wrong[t, p]:,}", f"{wrong[t, p] / support[t]:.1%}")
        for t, p in zip(*np.unravel_index(order, wrong.shape), strict=True)
        if wrong[t, p]
    ]
    caption = f"The largest of the {wrong.sum():,} confusions, and their share of the true class"
    return Table(("true class", "predicted", "nodes", "share"), rows, caption)


def by_degree(graph: Graph, found: Evaluated) -> Section:
    """Micro-F1 (the accuracy, for one class per node) in the degree bins 0, 1, 2-3, 4-7, ..."""
    names, members = degree_bins(graph, found.nodes)
    scores, counts = [], []
    for chosen in members:
        some = found.probabilities[chosen], found.labels[chosen]
        scores.append(measure(*some, found.decision).micro_f1)
        counts.append(int(chosen.sum()))
    what, title = ("micro-F1", "Micro-F1") if found.multilabel else ("accuracy", "Accuracy")
    svg = bars(
        names,
        [(what, scores)],
        title=f"{title} by degree",
        description="; ".join(f"{n}: {s:.3f}" for n, s in zip(names, scores, strict=True)) + ".",
        y_label=what,
    )
    columns = zip(names, counts, scores, strict=True)
    rows = [(name, f"{count:,}", f"{score:.4f}") for name, count, score in columns]
    content: list[Content] = [
        lowest_and_highest(names, scores, counts, what),
        Figure(svg, f"{title} of the {found.part_name} nodes by degree."),
        Table(("degree", "nodes", what), rows, "Degree bins"),
        f"{found.how} The degree of a node is its number of neighbours in the whole graph; each "
        "bin is twice as wide as the one before.",
    ]
    return Section("degree", "Degree", "Are nodes with few neighbours predicted worse?", content)


def degree_bins(graph: Graph, nodes: IntArray) -> tuple[list[str], list[BoolArray]]:
    """The names of the degree bins that nodes (k,) are in, and which nodes (k,) are in each."""
    degrees = np.diff(graph.indptr)[nodes]
    bins = np.where(degrees > 0, np.floor(np.log2(np.maximum(degrees, 1))).astype(int) + 1, 0)
    met = [int(number) for number in np.unique(bins)]
    names = [str(k) if k < 2 else f"{2 ** (k - 1):,}–{2**k - 1:,}" for k in met]
    return names, [bins == number for number in met]


def lowest_and_highest(names: list[str], scores: list[float], counts: list[int], what: str) -> str:
    """Compare the lowest bin with the highest, among those with enough nodes."""
    solid = [i for i, count in enumerate(counts) if count >= _ENOUGH]
    if len(solid) < 2:
        return f"There are too few nodes to compare degrees: no two bins have {_ENOUGH}."
    low, high = solid[0], solid[-1]
    return (
        f"With {names[low]} {'neighbour' if names[low] == '1' else 'neighbours'} the {what} is "
        f"{scores[low]:.3f} ({counts[low]:,} nodes), with {names[high]} it is {scores[high]:.3f} "
        f"({counts[high]:,} nodes)."
    )


def embedding_map(run: Run, graph: Graph, found: Evaluated) -> Section:
    """The two directions in which the last hidden rows vary most."""
    every = len(found.nodes)
    chosen = drawn(every, run.config.seed)
    layer = max(1, run.config.layers - 1)
    rows = embed(run, graph, found.nodes[chosen], layer=layer)
    points, share = principal_plane(rows)
    if found.multilabel:
        right = (found.probabilities[chosen] > 0.5) == found.labels[chosen]
        category = right.all(axis=1).astype(int)
        names: tuple[str, ...] = ("some label wrong", "all labels right")
        shows = "Marks show if all labels of a node are right."
    else:
        category, names = np.asarray(found.labels[chosen]), found.names
        shows = _same_class_nearby(points, category)
    svg = scatter(
        points,
        category,
        names,
        title="The nodes as the network sees them",
        description=f"A map of {len(points):,} nodes. {shows}",
        hints=[
            f"{own_id(graph, node)}: {names[c]}"
            for node, c in zip(found.nodes[chosen], category, strict=True)
        ],
    )
    which = "class scores" if layer == run.config.layers else f"hidden layer {layer}"
    of = f"all {every:,} {found.part_name} nodes"
    if len(points) < every:
        of = f"{len(points):,} {found.part_name} nodes, drawn at random from {every:,}"
    content: list[Content] = [
        f"The plane shows {share:.0%} of the variance of the rows. {shows}",
        Figure(svg, f"{len(points):,} {found.part_name} nodes in the plane of most variance."),
        f"Rows of the {which} ({rows.shape[1]} numbers a node) of the full network for {of}, "
        "projected onto their first two principal components. The few points that lie far out "
        "are drawn at the edge.",
    ]
    question = "Does the network keep the classes apart?"
    return Section("map", "Map of the embeddings", question, content)


def own_id(graph: Graph, node: Any) -> str:
    """The user's own id of a node."""
    return str(node if graph.node_ids is None else graph.node_ids[int(node)])


def drawn(every: int, seed: int) -> IntArray:
    """The numbers of the nodes that a picture shows: all, or a random part of many."""
    if every <= _POINTS:
        return np.arange(every)
    return np.sort(np.random.default_rng(seed).choice(every, _POINTS, replace=False))


def principal_plane(rows: FloatArray) -> tuple[FloatArray, float]:
    """(k, 2): rows (k, d) in the plane of most variance, and the share of variance it holds."""
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    # An axis may point either way; the largest entry decides, so that the map is always the same.
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    points = np.zeros((len(rows), 2))
    kept = min(2, len(singular))
    points[:, :kept] = (left * singular * signs)[:, :kept]
    total = float((singular**2).sum())
    return points, float((singular[:2] ** 2).sum() / total) if total else 1.0


def _same_class_nearby(points: FloatArray, category: IntArray) -> str:
    """How often the nearest point on the map is of the same class, and how often by chance."""
    if len(points) < 2:
        return "There is one node only."
    square = (points**2).sum(axis=1)
    distance: Any = square[:, None] + square - 2 * points @ points.T
    np.fill_diagonal(distance, np.inf)
    same = float((category[distance.argmin(axis=1)] == category).mean())
    counts = np.bincount(category)
    chance = float((counts * (counts - 1)).sum() / (len(points) * (len(points) - 1)))
    return (
        f"The nearest point on the map is of the same class for {same:.0%} of the nodes; by "
        f"chance it would be for {chance:.0%}."
    )
