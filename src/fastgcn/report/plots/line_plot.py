"""Lines through points, with their spread."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastgcn.errors import InputError
from fastgcn.report.plots.axes import Scale, fit_range, tick_texts, x_axis, y_axis
from fastgcn.report.plots.svg import (
    LINE,
    MARGIN,
    WIDTH,
    colour,
    head,
    label,
    legend,
    line,
    marker,
    number,
    picture,
    text_width,
)

_PLOT_HEIGHT = 230
# More points than this are a curve: markers would run together, spreads become a band.
_MANY = 40


@dataclass(frozen=True, slots=True)
class Series:
    """One line: points (x, y), ascending in x; a point that is not a number interrupts it.

    `spread` is half the height of a band, or of error bars, around the line.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    dashed: bool = False
    markers: bool = True


def lines(
    series: Sequence[Series],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    y_log: bool = False,
    y_range: tuple[float, float] | None = None,
) -> str:
    """A picture of lines over common axes.

    >>> curve = Series("loss", [1, 2, 3], [0.9, 0.5, 0.4])
    >>> svg = lines([curve], title="Loss", description="It falls.", x_label="epoch", y_label="loss")
    >>> svg.startswith("<svg"), svg.endswith("</svg>"), "<desc" in svg
    (True, True, True)
    """
    for one in series:
        _check(one)
    x_range = fit_range([x for s in series for x in s.x], log=x_log, name="x")
    y_range = y_range or fit_range(_heights(series, y_log), log=y_log, name="y")
    body, top = head(title)
    if len(series) > 1:
        keys, top = legend([(_key(s, i), s.label) for i, s in enumerate(series)], top)
        body += keys
    body += label(MARGIN, top + 14, y_label, style="fg-soft")
    top += LINE + 8
    bottom = top + _PLOT_HEIGHT
    y_scale = Scale(*y_range, bottom, top, y_log)
    left = MARGIN + 6 + max(text_width(text) for text in tick_texts(y_scale.ticks()))
    last = tick_texts(Scale(*x_range, 0, 1, x_log).ticks())[-1]
    x_scale = Scale(*x_range, left, WIDTH - MARGIN - max(8, text_width(last) / 2), x_log)
    body += y_axis(y_scale, left, x_scale.stop) + x_axis(x_scale, top, bottom)
    body += label((left + x_scale.stop) / 2, bottom + 36, x_label, anchor="middle", style="fg-soft")
    body += "".join(_draw(s, i, x_scale, y_scale) for i, s in enumerate(series))
    return picture(body, height=bottom + 46, title=title, description=description)


def _check(series: Series) -> None:
    lengths = {len(series.x), len(series.y), len(series.spread or series.y)}
    if len(lengths) > 1:
        raise InputError(
            f"x, y and spread of the line {series.label!r} must be equally long, "
            f"got lengths {sorted(lengths)}"
        )


def _heights(series: Sequence[Series], log: bool) -> list[float]:
    """All heights that the picture must hold; a log axis cannot hold a band that reaches zero."""
    heights = [y for s in series for y in s.y]
    for s in series:
        for y, spread in zip(s.y, s.spread or (), strict=False):
            heights += [v for v in (y - spread, y + spread) if not log or v > 0]
    return heights


def _key(series: Series, index: int) -> str:
    stroke = line(0, 7, 24, 7, _style(series, index)) if len(series.x) > 1 else ""
    return stroke + (marker(12, 7, index) if _marked(series) else "")


def _style(series: Series, index: int) -> str:
    return f"fg-line {colour(index)}" + (" fg-dash" if series.dashed else "")


def _marked(series: Series) -> bool:
    return series.markers and len(series.x) <= _MANY


def _draw(series: Series, index: int, x_scale: Scale, y_scale: Scale) -> str:
    """Spread below, then the line, then the markers."""
    floor, ceiling = sorted((y_scale.low, y_scale.high))

    def place(x: float, y: float) -> tuple[float, float]:
        return x_scale(x), y_scale(min(max(y, floor), ceiling))

    spread = series.spread or [0.0] * len(series.x)
    points = list(zip(series.x, series.y, spread, strict=True))
    whole = [point for point in points if all(map(math.isfinite, point))]
    parts = []
    if series.spread is not None and whole:
        low = [place(x, y - s) for x, y, s in whole]
        high = [place(x, y + s) for x, y, s in whole]
        if len(whole) > _MANY:
            parts.append(f'<path class="fg-band {colour(index)}" d="{_path(high + low[::-1])}z"/>')
        else:
            parts += [
                line(x, y1, x, y2, f"fg-line {colour(index)}")
                for (x, y1), (_, y2) in zip(low, high, strict=True)
            ]
    for stretch in _stretches(points):
        path = _path([place(x, y) for x, y, _ in stretch])
        parts.append(f'<path class="{_style(series, index)}" d="{path}"/>')
    if _marked(series):
        parts += [marker(*place(x, y), index) for x, y, _ in whole]
    return "".join(parts)


def _stretches(
    points: Sequence[tuple[float, float, float]],
) -> list[list[tuple[float, float, float]]]:
    """The runs of at least two points without a gap."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for point in points:
        if all(map(math.isfinite, point[:2])):
            runs[-1].append(point)
        else:
            runs.append([])
    return [run for run in runs if len(run) > 1]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
