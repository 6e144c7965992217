"""Does a node's degree decide how well it is predicted?"""

import numpy as np

from fastgcn.graph import Graph
from fastgcn.metrics import measure
from fastgcn.page import Figure, Section, Table
from fastgcn.plots import bars
from fastgcn.report.judged import Judged

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
