"""A diagnosis as tables of text, as plain data, and in words."""

from collections.abc import Sequence
from typing import Any

from fastgcn._version import __version__
from fastgcn.diagnose.diagnosis import Advice, Cost, Diagnosis, Measurement
from fastgcn.diagnose.gauge import Estimate, percent
from fastgcn.diagnose.session import choices, name_of
from fastgcn.report.page import Figure, Section, Table, render_page
from fastgcn.report.plots import Series, lines

_ERRORS = ("closed form", "as drawn", "empty rows")


def member_table(found: Diagnosis) -> Table:
    """All members at one t, the best first in each layer."""
    ordered = sorted(found.members, key=lambda m: (-m.layer, m.error.value))
    t = found.members[0].t
    return Table(
        ("member", "layer", *_ERRORS),
        [(name_of(m.member), str(m.layer), *_cells(m)) for m in ordered],
        f"Relative error of a convolution from t = {t:,} vertices, the best first. {how(found)}",
    )


def size_tables(found: Diagnosis) -> list[Table]:
    """Of a few members each: errors, gradients and times against t."""
    costs = {(name_of(cost.member), cost.t): cost for cost in found.costs}
    rows: dict[str, list[tuple[str, ...]]] = {}
    for m in found.curves:
        name = name_of(m.member)
        cost = costs[name, m.t]
        gradient = "not measured" if cost.gradient is None else percent(cost.gradient)
        time = f"{1000 * cost.seconds:.3g}"
        row = (f"{m.t:,}", str(m.layer), *_cells(m), gradient, time)
        rows.setdefault(name, []).append(row)
    head = ("t", "layer", *_ERRORS, "gradient", "ms a step")
    return [Table(head, cells, name) for name, cells in rows.items()]


SIZES_NOTE = (
    "Against t: the settings' own member, and of each distribution the one that needs the fewest "
    "vertices. Gradients and times are those of a step with t vertices in all sampled layers; "
    "times are medians, measured on this machine."
)


def how(found: Diagnosis) -> str:
    """What the figures were taken from, and how sure they are."""
    if found.complete:
        one_layer = len({m.layer for m in found.members}) == 1
        batches = "one batch" if found.batches == 1 else f"{found.batches} batches"
        said = (
            f"Over all {found.training_nodes:,} training nodes, in {batches}: closed forms "
            f"{'' if one_layer else 'of the top layer '}are exact, ± is the 95 % interval of what "
            "was drawn."
        )
    else:
        said = (
            f"Estimated from {found.rows:,} rows of each of {found.batches} random batches of the "
            f"{found.training_nodes:,} training nodes; ± is the 95 % interval."
        )
    if found.without_history:
        said += " The settings' history is left out: what it gains, only training can tell."
    return said


def as_data(found: Diagnosis) -> dict[str, Any]:
    """Everything as plain data, ready for JSON."""
    return {
        "dataset": found.dataset,
        "nodes": found.nodes,
        "training_nodes": found.training_nodes,
        "network": "trained" if found.trained else "random",
        "samples": found.members[0].t,
        "batch_size": found.config.batch_size,
        "batches": found.batches,
        "rows": found.rows,
        "complete": found.complete,
        "without_history": found.without_history,
        "full_seconds": found.full_seconds,
        "members": [_measured(m) for m in found.members],
        "curves": [_measured(m) for m in found.curves],
        "costs": [_cost(cost) for cost in found.costs],
        "advice": [_advice(advice) for advice in found.advice],
    }


def _cells(m: Measurement) -> Sequence[str]:
    closed = "none" if m.closed is None else percent(m.closed)
    return closed, percent(m.drawn), f"{100 * m.empty_rows:.1f} %"


def _measured(m: Measurement) -> dict[str, Any]:
    closed = (
        {} if m.closed is None else {"closed": m.closed.value, "closed_margin": m.closed.margin}
    )
    return {
        **choices(m.member),
        "layer": m.layer,
        "t": m.t,
        **closed,
        "drawn": m.drawn.value,
        "drawn_margin": m.drawn.margin,
        "empty_rows": m.empty_rows,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    gradient = {}
    if cost.gradient is not None:
        gradient = {"gradient": cost.gradient.value, "gradient_margin": cost.gradient.margin}
    return {**choices(cost.member), "t": cost.t, "seconds": cost.seconds, **gradient}


def _advice(advice: Advice) -> dict[str, Any]:
    offer = advice.offer
    use = {} if offer is None else {**choices(offer.member), "samples": list(offer.samples)}
    return {
        "target": advice.target,
        "worth_sampling": advice.worth_sampling,
        "use": use,
        "seconds": advice.seconds,
        "sentence": advice.sentence,
    }


def diagnosis_page(found: Diagnosis) -> str:
    """The page as HTML."""
    sections = [
        Section(
            "answer",
            "How many samples",
            "What should be drawn, and how much of it?",
            [*(advice.sentence for advice in found.advice), _answer_note(found)],
        ),
        Section(
            "sizes",
            "Against the sample size",
            "How fast do errors fall as more is drawn, and what does it cost?",
            [*_error_figures(found), *_cost_figures(found), SIZES_NOTE, *size_tables(found)],
        ),
        Section(
            "members",
            "All members",
            "Which distribution, draws and self term are the best here?",
            [member_table(found)],
        ),
    ]
    weights = "trained" if found.trained else "random"
    return render_page(
        title=f"Sampling on {found.dataset}",
        subtitle=f"{found.nodes:,} nodes to draw from; a network with {weights} weights",
        sections=sections,
        footer=f"Made by fastgcn {__version__}.",
    )


def _answer_note(found: Diagnosis) -> str:
    return (
        "The error of a sampled convolution is relative to the convolution itself: the root of "
        "its expected squared error over that of its squares, over the rows of a batch. Sizes "
        "follow from closed forms, and among members that reach the target the quickest by the "
        f"clock is named. {how(found)}"
    )


# Of a line: t, milliseconds a step, an error and its margin, in percent.
_Point = tuple[int, float, float, float]


def _error_figures(found: Diagnosis) -> list[Figure]:
    """Convolutions, layer by layer from the top, against t and against time."""
    seconds = {(name_of(cost.member), cost.t): cost.seconds for cost in found.costs}
    figures = []
    for layer in sorted({m.layer for m in found.curves}, reverse=True):
        by_name: dict[str, list[_Point]] = {name: [] for name in _names(found)}
        for m in found.curves:
            name = name_of(m.member)
            if m.layer == layer and m.error.value > 0:
                by_name[name].append(_point(m.t, seconds[name, m.t], m.error))
        what = f"the convolution of layer {layer}"
        figures += _figures(by_name, what, "compared with whole neighbourhoods")
    return figures


def _cost_figures(found: Diagnosis) -> list[Figure]:
    """Gradients against t and against time; none where they could not be measured."""
    by_name: dict[str, list[_Point]] = {name: [] for name in _names(found)}
    for cost in found.costs:
        if cost.gradient is not None and cost.gradient.value > 0:
            by_name[name_of(cost.member)].append(_point(cost.t, cost.seconds, cost.gradient))
    shown = {name: points for name, points in by_name.items() if points}
    how = "the same batch, many draws, compared with whole neighbourhoods"
    return _figures(shown, "the gradient", how) if shown else []


def _point(t: int, seconds: float, error: Estimate) -> _Point:
    return t, 1000 * seconds, 100 * error.value, 100 * (error.margin or 0.0)


def _figures(by_name: dict[str, list[_Point]], what: str, how: str) -> list[Figure]:
    """The errors of something against sample size, and against the time of a step."""
    axes = ((0, "t, vertices drawn", "sample size"), (1, "ms a step", "the time of a step"))
    figures = []
    for axis, x_label, against in axes:
        series = []
        for name, points in by_name.items():
            line = sorted(points, key=lambda point: point[axis])
            errors, spread = [point[2] for point in line], [point[3] for point in line]
            series.append(Series(name, [point[axis] for point in line], errors, spread))
        svg = lines(
            series,
            title=f"Error of {what}" + (" for its time" if axis else ""),
            description=f"Relative errors of {what} against {against}.",
            x_label=x_label,
            y_label="% relative error",
            x_log=True,
            y_log=True,
        )
        figures.append(Figure(svg, f"Relative error of {what} against {against}: {how}."))
    return figures


def _names(found: Diagnosis) -> list[str]:
    return list(dict.fromkeys(name_of(m.member) for m in found.curves))
