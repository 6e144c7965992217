"""Appendix C: accuracy on training and test nodes while training goes on."""

from benchmarks.paper.kept import Kept
from benchmarks.paper.published import SYSTEMS
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.systems import comparison
from benchmarks.paper.tables import DASH, significant
from benchmarks.paper.total_time import plan
from benchmarks.paper.trainings import CURVE_NODES
from benchmarks.results import Record
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import Series, lines

__all__ = ["plan", "present"]  # the same trainings as for the total time

_PARTS = {"train": "training", "test": "test"}
_MARGIN = 0.02


def present(scale: Scale, kept: Kept) -> Section:
    """A curve a system, for training and for test nodes."""
    content: list[Content] = []
    for data in scale.data:
        curves = _curves(data, kept)
        if curves:
            content += [_plot(data, curves, part) for part in _PARTS]
    content += [
        _table(scale, kept),
        "One training a system, seed 0, of those of Figure 3. The clock runs while batches are "
        "trained on, and stands while nodes are judged. Training nodes are judged by the full "
        "network on the whole graph. Where a part has more than "
        f"{CURVE_NODES:,} nodes, {CURVE_NODES:,} of them are judged, always the same. The paper "
        "draws these curves without printing numbers.",
    ]
    return Section(
        "accuracy-vs-time",
        "Accuracy against time (appendix C)",
        "How soon is each system how accurate?",
        content,
    )


def _curves(data: DataSet, kept: Kept) -> dict[str, Record]:
    """The curve of seed 0 by system."""
    found = {}
    for system, case in comparison(data).items():
        runs = case.scores(kept, timed=True)
        if runs and runs[0]["curve"]["seconds"]:
            found[system] = runs[0]["curve"]
    return found


def _plot(data: DataSet, curves: dict[str, Record], part: str) -> Figure:
    series = [
        Series(SYSTEMS[system], curve["seconds"], curve[part], markers=False)
        for system, curve in curves.items()
    ]
    ends = ", ".join(f"{SYSTEMS[s]} ends at {curve[part][-1]:.3f}" for s, curve in curves.items())
    svg = lines(
        series,
        title=f"{data.label}: accuracy on {_PARTS[part]} nodes",
        description=f"Accuracy on {_PARTS[part]} nodes against seconds of training, on a "
        f"logarithmic scale: {ends}.",
        x_label="seconds of training",
        y_label="accuracy",
        x_log=True,
    )
    return Figure(svg, f"{data.label}: accuracy on {_PARTS[part]} nodes over training time")


def _table(scale: Scale, kept: Kept) -> Table:
    rows = []
    for data in scale.data:
        curves = _curves(data, kept)
        level = max((max(curve["test"]) for curve in curves.values()), default=0.0) - _MARGIN
        for system, name in SYSTEMS.items():
            curve = curves.get(system)
            best, level_text, when = DASH, DASH, DASH
            if curve is not None:
                best, level_text = f"{max(curve['test']):.3f}", f"{level:.3f}"
                when = _reached(curve, level)
            rows.append((f"{data.label}: {name}", best, level_text, when))
    return Table(
        ("", "best test accuracy", "level", "seconds to it"),
        rows,
        f"When the test accuracy first reaches {_MARGIN} below the best of all systems",
    )


def _reached(curve: Record, level: float) -> str:
    pairs = zip(curve["seconds"], curve["test"], strict=True)
    return next((significant(seconds) for seconds, test in pairs if test >= level), "never")
