"""Figure 2: uniform against importance sampling."""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.published import F1
from benchmarks.paper.sample_sizes import sized_case
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.tables import DASH, beside, listed, mean, mean_sd, ratio
from benchmarks.paper.trainings import Case
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import Series, lines

_LAWS = ("importance", "uniform")

Scores = dict[str, dict[int, list[float]]]  # by distribution and sample size


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:
    """Trainings with both distributions at every size."""
    for data in scale.data:
        for law in _LAWS:
            for t in data.sizes:
                yield from _case(data, law, t).plan(kept)


def _case(data: DataSet, law: str, t: int) -> Case:
    return sized_case(data, t, seeds=data.size_seeds, how=law, distribution=law)


def present(scale: Scale, kept: Kept) -> Section:
    """F1 against sample size for both distributions."""
    content: list[Content] = []
    for data in scale.data:
        scores: Scores = {
            law: {
                t: [s["test_micro_f1"] for s in _case(data, law, t).scores(kept)]
                for t in data.sizes
            }
            for law in _LAWS
        }
        content += [_table(data, scores), *_plot(data, scores), *_finding(data, scores)]
    content.append(
        "The paper draws this figure without printing its numbers or sizes, after stating that "
        "all experiments from there on precompute the first layer, so one layer is sampled here "
        "too; sizes are those that its text names and some around them. Its F1 at the size of its "
        "Figure 3 stands beside ours. Mean ± sd of the test micro-F1 over seeds, at one learning "
        f"rate a data set, the preset's: {_rates(scale)}."
    )
    return Section(
        "figure2",
        "Uniform and importance sampling (Figure 2)",
        "Does importance sampling give more accurate networks than uniform sampling?",
        content,
    )


def _rates(scale: Scale) -> str:
    return listed(
        [f"{d.config.learning_rate:g} on {d.label}, at most {d.size_epochs} epochs"
         for d in scale.data]
    )  # fmt: skip


def _table(data: DataSet, scores: Scores) -> Table:
    rows = []
    for t in data.sizes:
        ours = {law: scores[law][t] for law in _LAWS}
        theirs = F1["fastgcn"][data.paper] if t == data.config.samples else None
        gain = DASH
        if all(ours.values()):
            gain = f"{np.mean(ours['importance']) - np.mean(ours['uniform']):+.4f}"
        rows.append(
            (
                str(t),
                mean_sd(ours["uniform"], 4),
                mean_sd(ours["importance"], 4),
                gain,
                beside(theirs, data, 3),
                ratio(mean(ours["importance"]), theirs),
                " and ".join(str(len(ours[law])) for law in ("uniform", "importance")),
            )
        )
    head = ("t", "uniform", "importance", "gain", "the paper", "ratio", "seeds")
    return Table(head, rows, f"Test micro-F1 on {data.label}")


def _plot(data: DataSet, scores: Scores) -> list[Figure]:
    series = []
    for law in _LAWS:
        known = [t for t in data.sizes if scores[law][t]]
        if known:
            spread = [float(np.std(scores[law][t], ddof=len(scores[law][t]) > 1)) for t in known]
            means = [float(np.mean(scores[law][t])) for t in known]
            series.append(Series(law, known, means, spread))
    if not series:
        return []
    svg = lines(
        series,
        title=f"Uniform and importance sampling, {data.label}",
        description=f"Test micro-F1 on {data.label} against the sample size t, with error bars "
        "of one standard deviation over seeds. " + " ".join(_finding(data, scores)),
        x_label="sample size t",
        y_label="test micro-F1",
        x_log=True,
    )
    return [Figure(svg, f"{data.label}: mean and standard deviation over seeds")]


def _finding(data: DataSet, scores: Scores) -> list[str]:
    known = [t for t in data.sizes if all(scores[law][t] for law in _LAWS)]
    if not known:
        return []
    above = sum(_gain(scores, t) >= 0 for t in known)
    clear = sum(_gain(scores, t) > _standard_error(scores, t) for t in known)
    return [
        f"{data.label}: importance is at or above uniform at {above} of {len(known)} sizes, "
        f"and above by more than the standard error of the difference at {clear}."
    ]


def _gain(scores: Scores, t: int) -> float:
    return float(np.mean(scores["importance"][t]) - np.mean(scores["uniform"][t]))


def _standard_error(scores: Scores, t: int) -> float:
    """Of the difference of the two means; infinite where there is one seed."""
    both: list[Sequence[float]] = [scores[law][t] for law in _LAWS]
    if min(map(len, both)) < 2:
        return float("inf")
    return float(np.sqrt(sum(np.var(values, ddof=1) / len(values) for values in both)))
