"""A diagnosis as one self-contained HTML page."""

from fastgcn._version import __version__
from fastgcn.diagnose.diagnosis import Diagnosis
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


def _error_figures(found: Diagnosis) -> list[Figure]:
    figures = []
    for layer in sorted({m.layer for m in found.curves}, reverse=True):
        series = []
        for name in _names(found):
            points = [m for m in found.curves if (m.layer, name_of(m.member)) == (layer, name)]
            points = [m for m in points if m.error.value > 0]
            spread = [100 * (m.error.margin or 0.0) for m in points]
            series.append(
                Series(name, [m.t for m in points], [100 * m.error.value for m in points], spread)
            )
        svg = lines(
            series,
            title=f"Error of the convolution of layer {layer}",
            description="Relative errors fall as more vertices are drawn.",
            x_label="t, vertices drawn",
            y_label="% relative error",
            x_log=True,
            y_log=True,
        )
        figures.append(Figure(svg, f"Layer {layer}: relative error against sample size."))
    return figures


def _cost_figures(found: Diagnosis) -> list[Figure]:
    """Gradients against t and against time; none where they could not be measured."""
    by_size, by_time = [], []
    for name in _names(found):
        costs = [c for c in found.costs if name_of(c.member) == name]
        seen = [(c.t, 1000 * c.seconds, c.gradient) for c in costs]
        shown = [
            (t, ms, 100 * g.value, 100 * (g.margin or 0.0)) for t, ms, g in seen if g and g.value
        ]
        if shown:
            t, _, error, spread = zip(*shown, strict=True)
            by_size.append(Series(name, t, error, spread))
            _, ms, error, spread = zip(*sorted(shown, key=lambda point: point[1]), strict=True)
            by_time.append(Series(name, ms, error, spread))
    if not by_size:
        return []
    plots = (
        (by_size, "Error of the gradient", "t, vertices drawn", "sample size"),
        (by_time, "Error of the gradient for its time", "ms a step", "time a step"),
    )
    return [
        Figure(
            lines(
                series,
                title=title,
                description="Relative errors of sampled gradients of the same batches.",
                x_label=x_label,
                y_label="% relative error",
                x_log=True,
                y_log=True,
            ),
            f"Relative error of the gradient against {against}: the same batch, many draws, "
            "compared with whole neighbourhoods.",
        )
        for series, title, x_label, against in plots
    ]


def _names(found: Diagnosis) -> list[str]:
    return list(dict.fromkeys(name_of(m.member) for m in found.curves))
