"""The summary: how good the run is."""

import math
from collections.abc import Iterable

import numpy as np

from fastgcn.page import Section, Table
from fastgcn.report.judged import PART_NAMES, Judged
from fastgcn.runs import Run

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
