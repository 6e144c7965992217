"""A diagnosis as tables, as plain data for JSON, and as a page."""

from collections.abc import Sequence
from typing import Any

from fastgcn._version import __version__
from fastgcn.diagnose.diagnosis import Diagnosis, Measurement, choices, name_of
from fastgcn.diagnose.gauge import Estimate, percent
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
    """One table for each member measured against t: errors, gradients and times."""
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
    """Says what the figures were computed from, and how certain they are."""
    if found.complete:
        one_layer = len({m.layer for m in found.members}) == 1
        batches = "one batch" if found.batches == 1 else f"{found.batches} batches"
        said = (
            f"Over all {found.training_nodes:,} training nodes, in {batches}: closed forms "
            f"{'' if one_layer else 'of the top layer '}are exact, ± is the 95 % interval of "
            "measured errors."
        )
    else:
        said = (
            f"Estimated from {found.rows:,} rows of each of {found.batches} random batches of the "
            f"{found.training_nodes:,} training nodes; ± is the 95 % interval."
        )
    if found.without_history:
        said += " The settings' history is left out: its gain is known only after training."
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
        "costs": [
            choices(cost.member)
            | {"t": cost.t, "seconds": cost.seconds}
            | _with_margin("gradient", cost.gradient)
            for cost in found.costs
        ],
        "advice": [
            {
                "target": advice.target,
                "worth_sampling": advice.worth_sampling,
                "use": {}
                if advice.offer is None
                else choices(advice.offer.member) | {"samples": list(advice.offer.samples)},
                "seconds": advice.seconds,
                "sentence": advice.sentence,
            }
            for advice in found.advice
        ],
    }


def _measured(m: Measurement) -> dict[str, Any]:
    errors = _with_margin("closed", m.closed) | _with_margin("drawn", m.drawn)
    where = {"layer": m.layer, "t": m.t}
    return choices(m.member) | where | errors | {"empty_rows": m.empty_rows}


def _cells(m: Measurement) -> Sequence[str]:
    closed = "none" if m.closed is None else percent(m.closed)
    return closed, percent(m.drawn), f"{100 * m.empty_rows:.1f} %"


def _with_margin(name: str, estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_margin": estimate.margin}


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
            "How fast do errors fall with more draws, and what do these cost?",
            [*_figures(found), SIZES_NOTE, *size_tables(found)],
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
        "its expected squared error, divided by the sum of its squares, over the rows of a batch. "
        "Sizes follow from closed forms; among the members that reach the target, the fastest is "
        f"named. {how(found)}"
    )


# A point of a line: t, milliseconds a step, an error and its margin in per cent.
_Point = tuple[int, float, float, float]


def _figures(found: Diagnosis) -> list[Figure]:
    """Errors of each layer's convolution, from the top, and of the gradient if it was measured."""
    seconds = {(name_of(cost.member), cost.t): cost.seconds for cost in found.costs}
    names = list(dict.fromkeys(name_of(m.member) for m in found.curves))
    figures = []
    for layer in sorted({m.layer for m in found.curves}, reverse=True):
        errors = [(name_of(m.member), m.t, m.error) for m in found.curves if m.layer == layer]
        points = {name: _points(name, errors, seconds) for name in names}
        what = f"the convolution of layer {layer}"
        figures += _against_size_and_time(points, what, "compared with whole neighbourhoods")
    errors = [(name_of(c.member), c.t, c.gradient) for c in found.costs if c.gradient is not None]
    points = {name: _points(name, errors, seconds) for name in names}
    measured = {name: line for name, line in points.items() if line}
    note = "the same batch, many draws, compared with whole neighbourhoods"
    return figures + (_against_size_and_time(measured, "the gradient", note) if measured else [])


def _points(
    name: str,
    errors: Sequence[tuple[str, int, Estimate]],
    seconds: dict[tuple[str, int], float],
) -> list[_Point]:
    """The errors of one member; an error of zero has no place on a logarithmic axis."""
    return [
        (t, 1000 * seconds[name, t], 100 * error.value, 100 * (error.margin or 0.0))
        for of, t, error in errors
        if of == name and error.value > 0
    ]


def _against_size_and_time(points: dict[str, list[_Point]], what: str, note: str) -> list[Figure]:
    """Two pictures of the same errors: against the sample size and against the time of a step."""
    axes = ((0, "t, vertices drawn", "sample size"), (1, "ms a step", "the time of a step"))
    figures = []
    for axis, x_label, against in axes:
        series = []
        for name, line in points.items():
            ordered = sorted(line, key=lambda point: point[axis])
            x, errors, margins = ([point[k] for point in ordered] for k in (axis, 2, 3))
            series.append(Series(name, x, errors, margins))
        svg = lines(
            series,
            title=f"Error of {what}" + (" for its time" if axis else ""),
            description=f"Relative errors of {what} against {against}.",
            x_label=x_label,
            y_label="% relative error",
            x_log=True,
            y_log=True,
        )
        figures.append(Figure(svg, f"Relative error of {what} against {against}: {note}."))
    return figures
