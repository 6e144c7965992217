"""Appendix D: SGD with a consistent gradient converges as O(1/k)."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.paper.descent import BATCH, RIDGE, descend, regression
from benchmarks.paper.graphs import OWN_SPLIT, graph
from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.scale import Scale
from benchmarks.paper.tables import DASH, significant
from benchmarks.results import Record
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import Series, lines

DATA = "digits"  # comes with the package; small enough to solve exactly
_DRAWS = {1: "one draw a step", 2: "two draws a step"}
_POINTS = 40  # of a curve


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:  # noqa: ARG001
    """A descent for each sample size and estimator."""
    for draws in _DRAWS:
        for t in scale.descent_sizes:
            yield Measurement(
                f"{DATA}: SGD, {_DRAWS[draws]}, t = {t}",
                _key(scale, draws, t),
                partial(_measure, scale, draws, t),
            )


def _key(scale: Scale, draws: int, t: int) -> Record:
    return {
        "experiment": "convergence",
        "data": DATA,
        "draws": draws,
        "t": t,
        "batch": BATCH,
        "ridge": RIDGE,
        "steps": scale.steps,
        "runs": scale.descents,
    }


def _measure(scale: Scale, draws: int, t: int) -> Record:
    problem = regression(graph(DATA, OWN_SPLIT), t)
    descent = descend(problem, draws=draws, steps=scale.steps, runs=scale.descents)
    shown = np.unique(np.geomspace(1, scale.steps, _POINTS).round().astype(int))
    return {
        "k": shown.tolist(),
        "distance": [float(f"{d:.4g}") for d in descent.distance[shown - 1]],
        "slope": descent.slope,
        "within_bound": descent.within_bound,
        "bias": float(np.sum((problem.limit - problem.best) ** 2)),
        "size": float(np.sum(problem.best**2)),
    }


def present(scale: Scale, kept: Kept) -> Section:
    """Squared distances against k, and their slopes."""
    found = {
        (draws, t): kept.get(_key(scale, draws, t))
        for draws in _DRAWS
        for t in scale.descent_sizes
    }  # fmt: skip
    known = {key: value for key, value in found.items() if value is not None}
    content: list[Content] = [_plot(draws, known) for draws in _DRAWS if _of(known, draws)]
    content += [_table(scale, found), *_findings(scale, known)]
    content.append(
        f"Ridge regression on one convolution of {DATA}, where the optimum W* is solved for "
        f"exactly: batches of {BATCH} rows, blocks of t vertices from the importance sampler that "
        f"trains networks, steps 1/(lk) with l the least curvature, {scale.steps:,} steps, means "
        f"over {scale.descents} repetitions; slopes are fitted to the last nine tenths of the "
        "steps. With one draw a step, as in training, the gradient is consistent but biased: it "
        "leads to the minimiser W_t of the loss plus the sampling variance, also known exactly, "
        "and distances are to that point. With two independent draws a step it is unbiased, and "
        "distances are to W*. G is the largest root mean square of a gradient on the way, for no "
        "strictly convex function has bounded gradients everywhere. The paper states the theorem "
        "without an experiment."
    )
    return Section(
        "convergence",
        "Convergence (appendix D, theorem 5)",
        "Does SGD with sampled gradients converge as O(1/k) on a strictly convex problem?",
        content,
    )


def _of(known: dict[tuple[int, int], Record], draws: int) -> dict[int, Record]:
    return {t: value for (kind, t), value in known.items() if kind == draws}


def _plot(draws: int, known: dict[tuple[int, int], Record]) -> Figure:
    ours = _of(known, draws)
    series = [
        Series(f"t = {t}", value["k"], value["distance"], markers=False)
        for t, value in ours.items()
    ]
    first = next(iter(ours.values()))
    k, start = first["k"], first["distance"][0]
    series.append(Series("1/k", k, [start / step for step in k], dashed=True, markers=False))
    goal = "W_t" if draws == 1 else "W*"
    slopes = ", ".join(f"{value['slope']:.2f} for t = {t}" for t, value in ours.items())
    svg = lines(
        series,
        title=f"Squared distance to {goal}, {_DRAWS[draws]}",
        description=f"Mean squared distance to {goal} against the step k, both on logarithmic "
        f"scales, with a line of slope -1. Slopes: {slopes}.",
        x_label="step k",
        y_label=f"mean squared distance to {goal}",
        x_log=True,
        y_log=True,
    )
    return Figure(svg, f"Mean squared distance to {goal}, {_DRAWS[draws]}; dashed: 1/k")


def _table(scale: Scale, found: dict[tuple[int, int], Record | None]) -> Table:
    rows = []
    for t in scale.descent_sizes:
        one, two = (found[draws, t] for draws in _DRAWS)
        cells = [str(t)]
        for value in (one, two):
            cells.append(DASH if value is None else f"{value['slope']:.2f}")
            cells.append(
                DASH if value is None else f"{value['within_bound']:,} of {scale.steps - 2:,}"
            )
        off = None if one is None else one["bias"] / one["size"]
        rows.append((*cells, significant(off)))
    head = ("t", "one draw", "bound holds", "two draws", "bound holds", "‖W_t − W*‖² / ‖W*‖²")
    return Table(
        head,
        rows,
        "Slope of log distance over log k (the theorem: -1), steps at which the theorem's bound "
        "holds, and how far one draw's limit is from the optimum",
    )


def _findings(scale: Scale, known: dict[tuple[int, int], Record]) -> list[str]:
    if not known:
        return []
    slopes = [value["slope"] for value in known.values()]
    steps = scale.steps - 2
    bounded = sum(value["within_bound"] == steps for value in known.values())
    texts = [
        f"Slopes lie between {min(slopes):.2f} and {max(slopes):.2f}; the bound of the theorem "
        f"holds at every step in {bounded} of {len(known)} descents."
    ]
    biases = {t: value["bias"] for t, value in _of(known, 1).items() if value["bias"] > 0}
    if len(biases) > 1:
        slope = np.polyfit(np.log(list(biases)), np.log(list(biases.values())), 1)[0]
        texts.append(
            f"The squared bias of one draw's limit falls as t to the power {slope:.2f}: the "
            "estimator is consistent."
        )
    return [" ".join(texts)]
