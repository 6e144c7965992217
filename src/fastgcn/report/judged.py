"""What the full network says of the nodes that a report judges it on."""

from dataclasses import dataclass

import numpy as np

from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.infer.predict import evaluate, predict
from fastgcn.metrics import Metrics, measure
from fastgcn.train.run import Run

PART_NAMES = {"test": "test", "val": "validation", "train": "training"}


@dataclass(frozen=True, slots=True)
class Judged:
    """Predictions and truth for k labelled nodes.

    Attributes:
        part: the part of the split that the nodes are from: test, validation or training.
        nodes: (k,) ids.
        labels: (k,) class ids or (k, C) label sets.
        probabilities: (k, C).
        scores: of those predictions.
        names: the C classes, by number where they have no names.
    """

    part: str
    nodes: IntArray
    labels: IntArray | BoolArray
    probabilities: FloatArray
    scores: Metrics
    names: tuple[str, ...]

    @property
    def multilabel(self) -> bool:
        return self.labels.ndim == 2

    @property
    def right(self) -> BoolArray:
        """(k,): whether the class, or all labels, of a node are predicted as they are."""
        if self.multilabel:
            return np.asarray(((self.probabilities > 0.5) == self.labels).all(axis=1))
        return np.asarray(self.probabilities.argmax(axis=1) == self.labels)

    @property
    def how(self) -> str:
        """How the predictions were made."""
        return (
            f"Predictions of the full network, without sampling, for the {len(self.nodes):,} "
            f"labelled {self.part} nodes, on the whole graph."
        )


def judge(run: Run, graph: Graph) -> Judged:
    """The run on the test nodes; without labelled ones, on validation or else training nodes."""
    part, nodes = _labelled_part(graph)
    # Evaluating anything checks that the network and the graph go together.
    evaluate(run, graph, nodes[:1])
    probabilities = predict(run, graph, nodes)
    assert graph.labels is not None
    labels = graph.labels[nodes]
    return Judged(
        part=PART_NAMES[part],
        nodes=nodes,
        labels=labels,
        probabilities=probabilities,
        scores=measure(probabilities, labels),
        names=_names(run, graph, probabilities.shape[1]),
    )


def _labelled_part(graph: Graph) -> tuple[str, IntArray]:
    parts = dict(graph.split.items())
    for name in PART_NAMES:
        nodes = parts[name]
        if graph.labels is not None and graph.labels.ndim == 1:
            nodes = nodes[graph.labels[nodes] >= 0]
        if graph.labels is not None and nodes.size:
            return name, np.asarray(nodes)
    raise InputError(
        f"{graph.name} has no labelled node in its split, and a report needs some; "
        "name a graph with labels, or give --split random"
    )


def _names(run: Run, graph: Graph, count: int) -> tuple[str, ...]:
    for names in (run.class_names, graph.class_names):
        if names is not None and len(names) == count:
            return tuple(names)
    return tuple(map(str, range(count)))
