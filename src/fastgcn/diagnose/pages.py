"""A diagnosis as one self-contained HTML page."""

from fastgcn._version import __version__
from fastgcn.diagnose.diagnosis import Diagnosis
from fastgcn.diagnose.estimates import Estimate
from fastgcn.diagnose.members import name_of
from fastgcn.diagnose.tables import SIZES_NOTE, how, member_table, size_tables
from fastgcn.page import Figure, Section, render_page
from fastgcn.plots import Series, lines


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
