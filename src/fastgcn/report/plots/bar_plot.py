"""Bars, lying down so that names and values have room on a phone."""

from collections.abc import Sequence

from fastgcn.errors import InputError
from fastgcn.report.plots.axes import Scale, fit_range, plain_number, x_axis
from fastgcn.report.plots.svg import (
    LINE,
    MARGIN,
    WIDTH,
    colour,
    head,
    label,
    legend,
    line,
    picture,
    rect,
    shorten,
    text_width,
)

_BAR = 18
_GAP = 12


def bars(
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None]]],
    *,
    title: str,
    description: str,
    y_label: str,
    y_log: bool = False,
    unit: str = "",
) -> str:
    """A group of bars, one a series, for every name in `groups`; None is a value not known.

    >>> svg = bars(["cora"], [("GCN", [0.81]), ("FastGCN", [None])], title="F1",
    ...            description="One of two.", y_label="micro-F1")
    >>> "0.81" in svg, "no value" in svg
    (True, True)
    """
    for name, values in series:
        if len(values) != len(groups):
            raise InputError(
                f"{name!r} must have {len(groups)} values, one a group, got {len(values)}"
            )
    known = [float(v) for _, values in series for v in values if v is not None]
    low, high = fit_range(known if y_log else [0.0, *known], log=y_log, name="value")
    if y_log and known and low == min(known):
        low /= 2  # or the shortest bar would have no length
    body, top = head(title)
    if len(series) > 1:
        keys, top = legend(
            [(rect(2, 0, 20, 14, f"fg-fill {colour(i)}"), s[0]) for i, s in enumerate(series)], top
        )
        body += keys
    one_each = len(series) == 1
    texts = [_text(v, unit) for _, values in series for v in values]
    left = MARGIN + (min(170.0, max(map(text_width, groups)) + 8) if one_each else 0.0)
    scale = Scale(low, high, left, WIDTH - MARGIN - 8 - max(map(text_width, texts)), y_log)
    rows = len(series) * (_BAR + 2) + _GAP + (0 if one_each else LINE)
    bottom = top + 6 + rows * len(groups)
    body += x_axis(scale, top, bottom)
    body += label(
        (scale.start + scale.stop) / 2, bottom + 36, y_label, anchor="middle", style="fg-soft"
    )
    for g, group in enumerate(groups):
        y = top + 6 + g * rows
        if one_each:
            body += label(left - 6, y + 14, shorten(group, left - MARGIN - 6), anchor="end")
        else:
            body += label(MARGIN, y + 14, shorten(group, WIDTH - 2 * MARGIN), style="fg-strong")
            y += LINE
        for i, (_, values) in enumerate(series):
            body += _bar(scale, values[g], y + i * (_BAR + 2), i, unit)
    body += line(left, top, left, bottom, "fg-axis")
    return picture(body, height=bottom + 46, title=title, description=description)


def _bar(scale: Scale, value: float | None, y: float, index: int, unit: str) -> str:
    zero = scale(scale.low if scale.log else 0.0)
    end = zero if value is None else scale(value)
    bar = rect(min(zero, end), y, abs(end - zero), _BAR, f"fg-fill {colour(index)}")
    style = "fg-soft" if value is None else ""
    return bar + label(max(zero, end) + 5, y + 14, _text(value, unit), style=style)


def _text(value: float | None, unit: str) -> str:
    return "no value" if value is None else plain_number(float(f"{value:.3g}")) + unit
