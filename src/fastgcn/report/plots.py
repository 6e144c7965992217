"""Four pictures as SVG, described in Vega-Lite and drawn by vl-convert.

Each function returns one `<svg>` that can be put into a page or saved as a file. It loads no
other files, its text is real text, and it follows the reader's light or dark theme. `docs/adr/0006`
says why Vega-Lite draws them.
"""

import html
import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from fastgcn.errors import InputError
from fastgcn.report.page import plain_number
from fastgcn.text import printable

Spec = dict[str, Any]

# Units of the view box. A phone shows the width in about 350 pixels, so text of 14 units is about
# 12 pixels high there and 17 on a desktop.
WIDTH = 420
_HEIGHT = 230
# The average width of a character, rounded up.
_CHARACTER = 7.8

# A colour on white paper and its counterpart on a dark screen. The first eight are for series:
# they are Okabe and Ito's, which colour-blind readers can distinguish, with enough contrast.
SERIES = ("#0072b2", "#d55e00", "#00835f", "#aa4499", "#8a6d00", "#3d8fc7", "#882255", "#4d5560")
PAPER, INK, SOFT, _GRID, _HEAT = "#ffffff", "#1b1f24", "#59636e", "#dfe3e8", "#004c80"
_DARK = dict(
    zip(
        (*SERIES, PAPER, INK, SOFT, _GRID, _HEAT),
        ("#5ab4ec", "#ff9a5c", "#35c99c", "#e59ad4", "#ecc94b", "#a5d4ff", "#f2839b", "#b4bdc8",
         "#14181d", "#e8ebee", "#a4adb8", "#2f3740", "#6cbcf0"),
        strict=True,
    )
)  # fmt: skip
_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
_CONFIG: Spec = {
    "aria": False,
    "font": "Arial, sans-serif",
    "background": PAPER,
    "view": {"stroke": None},
    "title": {"color": INK, "fontSize": 15, "fontWeight": 600, "anchor": "start",
              "frame": "bounds", "offset": 10, "lineHeight": 19},
    "axis": {"labelColor": SOFT, "titleColor": SOFT, "gridColor": _GRID, "domainColor": SOFT,
             "labelFontSize": 14, "titleFontSize": 14, "titleFontWeight": "normal",
             "ticks": False, "labelPadding": 6, "titlePadding": 8, "gridWidth": 1,
             "labelOverlap": "greedy", "labelSeparation": 10},
    "legend": {"labelColor": INK, "labelFontSize": 14, "orient": "top",
               "columnPadding": 14, "rowPadding": 4, "symbolSize": 90, "title": None},
    "text": {"color": INK, "fontSize": 14},
    "point": {"filled": True, "opacity": 1, "size": 60},
}  # fmt: skip

# Series differ by more than their colour. A line without markers has a stroke in the legend.
_MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
_STROKE, _DASHES = "M-1,-.15H1V.15H-1Z", "M-1,-.15H-.2V.15H-1ZM.2,-.15H1V.15H.2Z"
# 100,000 and more as 1e5, less than 0.001 as 1e-4.
_LOG_LABEL = (
    "datum.value >= 1e5 || datum.value < 1e-3 ? replace(format(datum.value, '~e'), '+', '')"
    " : format(datum.value, ',~g')"
)
# Attributes and elements that Vega writes and that have no effect here.
_UNUSED = re.compile(
    r' (?:aria-\w+|role|pointer-events|font-family|class)="[^"]*"| opacity="1"'
    r'|<path[^>]* d="(?:M0,0h0v0h0Z)?"(?: display="none")?/>'
)
_LAYER = re.compile(r'class="mark-[^"]* n(\d+)_marks"')
# A series with more points than this is drawn as a curve: markers would run together, and the
# spread becomes a band.
_MANY = 40
# Room for the names of rows and columns, and the smallest cell that a number fits into.
_NAMES, _WRITTEN, _LARGEST_CELL = 120, 26, 44


@dataclass(frozen=True, slots=True)
class Series:
    """One line: points (x, y), ascending in x; NaN interrupts the line.

    `spread` is half the height of a band, or of error bars, around the line. Without `line` there
    are only the points.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    dashed: bool = False
    markers: bool = True
    line: bool = True

    @property
    def marked(self) -> bool:
        """True if each point has a marker; without one, a single point would be invisible."""
        alone = len(self.x) == 1 or not self.line
        return alone or (self.markers and len(self.x) <= _MANY)


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
        lengths = {len(one.x), len(one.y), len(one.spread or one.y)}
        if len(lengths) > 1:
            raise InputError(
                f"x, y and spread of the line {one.label!r} must be equally long, "
                f"got lengths {sorted(lengths)}"
            )
    x_scale = _scale([x for s in series for x in s.x], log=x_log, name="x")
    y_scale = _scale([y for s in series for y in _heights(s, y_log)], log=y_log, name="y")
    if y_range is not None:
        y_scale |= {"domain": list(y_range), "clamp": True}
    # The label of the y axis stands above the axis, horizontally.
    above = {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleBaseline": "bottom",
             "titleX": -4, "titleY": -8}  # fmt: skip
    x = {"type": "quantitative", "scale": x_scale, "axis": _axis(x_label, x_scale)}
    y = {"type": "quantitative", "scale": y_scale, "axis": _axis(y_label, y_scale) | above}
    floor = y_scale["domain"][0] if y_log else -math.inf
    layers = [each for i, s in enumerate(series) for each in _drawn(s, i, x, y, floor)]
    if len(series) > 1:
        keys = [(s.label, _color(i), _key(s, i)) for i, s in enumerate(series)]
        layers.append(_legend(keys, offset=30))  # the label of the y axis is in between
    return picture({"height": _HEIGHT, "layer": layers}, title=title, description=description)


def against(
    x: Any,
    y: Any,
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    hints: Sequence[str] = (),
) -> str:
    """Points (x, y) on equal axes, with the line on which both are equal.

    The few points beyond the middle 99 % of the numbers are drawn at the edge.

    >>> svg = against([1, 2], [1, 3], title="Two", description="One is right.", x_label="true",
    ...               y_label="predicted")
    >>> svg.count('stroke-linecap="round"')
    1
    """
    points = np.stack([np.asarray(x, np.float64), np.asarray(y, np.float64)], axis=1)
    low, high = (float(end) for end in np.quantile(points, [0.005, 0.995]))
    room = 0.04 * (high - low) or 1.0
    bounds = low - room, high + room
    scale: Spec = {"domain": list(bounds), "nice": False}
    placed = np.clip(points, *bounds)
    above = {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleBaseline": "bottom",
             "titleX": -4, "titleY": -8}  # fmt: skip
    channels: Spec = {
        "x": {"field": "x", "type": "quantitative", "scale": scale, "axis": _axis(x_label, scale)},
        "y": {"field": "y", "type": "quantitative", "scale": scale,
              "axis": _axis(y_label, scale) | above},
    }  # fmt: skip
    order = {"field": "i", "type": "quantitative"}
    ends = [{"i": i, "x": end, "y": end} for i, end in enumerate(bounds)]
    line = {"type": "line", "stroke": SOFT, "strokeWidth": 1.5}
    dots = {"type": "line", "stroke": _color(0), "strokeWidth": 4, "strokeCap": "round"}
    layers = [
        hinted(layer(_gaps(placed), dots, order=order, **channels), hints),
        layer(ends, line, order=order, **channels),
    ]
    return picture({"height": 380, "layer": layers}, title=title, description=description)


def bars(
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None]]],
    *,
    title: str,
    description: str,
    y_label: str,
    y_log: bool = False,
    unit: str = "",
    long_names: bool = False,
) -> str:
    """Horizontal bars: one per series for every name in `groups`; None is an unknown value.

    Names stand above the bars if there are several series, or with `long_names`; else beside them.

    >>> svg = bars(["cora"], [("GCN", [0.81]), ("FastGCN", [None])], title="F1",
    ...            description="One of two.", y_label="micro-F1")
    >>> "0.81" in svg, "no value" in svg
    (True, True)
    """
    for name, values in series:
        if len(values) != len(groups):
            raise InputError(
                f"{name!r} must have {len(groups)} values, one per group, got {len(values)}"
            )
    known = [value for _, values in series for value in values if value is not None]
    texts = [[_value_text(v, unit) for v in values] for _, values in series]
    scale = _bar_scale(known, y_log, max((len(t) for each in texts for t in each), default=0))
    start = scale["domain"][0] if y_log else 0.0
    many = len(series) > 1 or long_names
    rows: list[list[Spec]] = [[] for _ in series]
    hints: list[list[str]] = [[] for _ in series]
    heads: list[Spec] = []
    names: list[str] = []
    for g, group in enumerate(groups):
        if many:  # the name has a row of its own, above the group's bars
            heads.append({"row": len(names), "text": shorten(group, WIDTH - 20)})
            names.append("")
        for i, (name, values) in enumerate(series):
            end = values[g] or start
            bar = {"start": start, "end": end, "at": max(start, end)}
            rows[i].append(bar | {"row": len(names), "text": texts[i][g]})
            hints[i].append(f"{group}, {name}: {texts[i][g]}")
            names.append("" if many else group)
    axis = None if many else _names_axis(None, names)
    y = _names_channel("row", axis, len(names))
    x = {"type": "quantitative", "scale": scale, "axis": _axis(y_label, scale)}
    layers: list[Spec] = []
    for i, (own, texted) in enumerate(zip(rows, hints, strict=True)):
        bar_mark: Spec = {"type": "bar", "height": 18, "color": _color(i)}
        text_mark: Spec = {"type": "text", "align": "left", "dx": 5}
        drawn = layer(own, bar_mark, y=y, x=x | {"field": "start"}, x2={"field": "end"})
        written = layer(own, text_mark, y=y, x=x | {"field": "at"}, text={"field": "text"})
        layers += [hinted(drawn, texted, i), hinted(written, [], i)]
    if many:
        left: Spec = {"type": "text", "align": "left", "fontWeight": 600, "x": 0}
        layers.append(layer(heads, left, y=y, text={"field": "text"}))
    if len(series) > 1:
        layers.append(_legend([(s, _color(i), _MARKERS[1]) for i, (s, _) in enumerate(series)]))
    step = {"step": 22 if many else 28}
    return picture({"height": step, "layer": layers}, title=title, description=description)


def heatmap(
    matrix: Any,
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    title: str,
    description: str,
    row_label: str,
    column_label: str,
) -> str:
    """Cells (r, c) shaded from zero to the largest value; numbers where there is room.

    >>> svg = heatmap([[9, 1], [0, 5]], ["a", "b"], ["a", "b"], title="T", description="D",
    ...               row_label="true", column_label="predicted")
    >>> svg.startswith("<svg"), "predicted" in svg
    (True, True)
    """
    cells = np.asarray(matrix, dtype=np.float64)
    if cells.shape != (len(row_names), len(column_names)) or not cells.size:
        raise InputError(
            f"a heat map of {len(row_names)} rows and {len(column_names)} columns needs a matrix "
            f"of that shape, got {cells.shape}"
        )
    # The power makes small values visible, which are the interesting ones.
    shades = (cells / (cells.max() or 1)) ** 0.6
    values: list[Spec] = [
        {"r": int(r), "c": int(c), "shade": round(float(shades[r, c]), 2),
         "text": _cell_text(cells[r, c]),
         "ink": PAPER if shades[r, c] > 0.68 else INK}
        for r, c in np.argwhere(cells)
    ]  # fmt: skip
    left = 40 + min(_NAMES, _CHARACTER * max(map(len, row_names)))
    size = min(_LARGEST_CELL, (WIDTH - left) / len(column_names))
    written = size >= _WRITTEN
    letter = 14 if written else min(12, 0.8 * size)
    upright = max(map(len, column_names)) * _CHARACTER < size
    across = _names_axis(column_label, column_names, size=letter)
    top = across | {"orient": "top", "labelAngle": 0 if upright else -90}
    y = _names_channel("r", _names_axis(row_label, row_names, size=letter), len(row_names))
    x = _names_channel("c", top, len(column_names))
    shade = {"field": "shade", "type": "quantitative", "scale": None}
    ink = {"field": "ink", "type": "nominal", "scale": None}
    hints = [
        f"{row_names[r]} → {column_names[c]}: {plain_number(float(cells[r, c]))}"
        for r, c in np.argwhere(cells)
    ]
    rects = layer(values, {"type": "rect", "fill": _HEAT}, x=x, y=y, fillOpacity=shade)
    layers = [hinted(rects, hints)]
    if written:
        mark: Spec = {"type": "text", "fontSize": 12}
        layers.append(layer(values, mark, x=x, y=y, text={"field": "text"}, color=ink))
    spec = {"width": {"step": size}, "height": {"step": size}, "layer": layers,
            "config": {"view": {"stroke": SOFT}}}  # fmt: skip
    return picture(spec, title=title, description=description)


def scatter(
    points: Any,
    category: Any,
    names: Sequence[str],
    *,
    title: str,
    description: str,
    hints: Sequence[str] = (),
) -> str:
    """A map of points (n, 2), coloured by `category` (n,), whose names are in the legend.

    `hints` are texts for each point, shown when a page's reader points at it.

    The most frequent categories each have a colour and shape, the others share one. Both axes
    have the same unit of length and no numbers; outlying points are drawn at the edge.

    >>> svg = scatter([[0, 0], [1, 1]], [0, 1], ["a", "b"], title="Two", description="Apart.")
    >>> svg.count('stroke-linecap="round"')
    2
    """
    xy = np.asarray(points, dtype=np.float64)
    ids = np.asarray(category, dtype=np.int64)
    if xy.ndim != 2 or xy.shape[1] != 2 or len(xy) != len(ids):
        raise InputError(
            f"a map needs (n, 2) points and n categories, got shapes {xy.shape} and {ids.shape}"
        )
    counts = np.bincount(ids, minlength=len(names))
    present, limit = int(np.count_nonzero(counts)), 2 * len(SERIES)
    own = np.sort(np.argsort(-counts, kind="stable")[: present if present <= limit else limit - 1])
    groups = [
        (ids == c, str(names[c]), _color(i), "square" if i >= len(SERIES) else "round")
        for i, c in enumerate(own)
    ]
    if present > len(own):
        groups.append((~np.isin(ids, own), f"{present - len(own)} others", SOFT, "round"))
    # The middle 99 % of each coordinate fill the frame. The few points further out, which would
    # press the others together, are drawn at its edge.
    low, high = np.quantile(xy, [0.005, 0.995], axis=0)
    room = np.array([WIDTH - 16.0, 380.0])
    unit = float(((high - low) / (room - 20)).max()) or 1.0
    placed = np.clip((xy - (low + high) / 2) / unit, -room / 2 + 5, room / 2 - 5)
    layers = []
    for key, (chosen, _, color, cap) in reversed(list(enumerate(groups))):
        texts = [hints[int(i)] for i in np.flatnonzero(chosen)] if hints else []
        layers.append(hinted(_dots(placed[chosen], room / 2, color, cap), texts, key))
    layers.append(
        _legend([(name, color, _MARKERS[cap == "square"]) for _, name, color, cap in groups])
    )
    spec = {"height": room[1], "layer": layers, "config": {"view": {"stroke": _GRID}}}
    return picture(spec, title=title, description=description)


def _dots(points: np.ndarray[Any, Any], half: Any, color: str, cap: str) -> Spec:
    """Points as lines of no length whose caps are the dots: a tenth of the size of circles."""
    values = _gaps(points.round(1))
    mark = {"type": "line", "stroke": color, "strokeWidth": 5, "strokeCap": cap}
    channels = {
        name: {"field": name, "type": "quantitative", "axis": None,
               "scale": {"domain": [-side, side], "nice": False}}
        for name, side in zip("xy", half, strict=True)
    }  # fmt: skip
    return layer(values, mark, order={"field": "i", "type": "quantitative"}, **channels)


def _gaps(points: np.ndarray[Any, Any]) -> list[Spec]:
    """The points of a line that is interrupted after each of them."""
    values: list[Spec] = []
    for x, y in points:
        values += [{"i": len(values), "x": x, "y": y}, {"i": len(values) + 1, "x": x, "y": None}]
    return values


def _color(index: int) -> str:
    return SERIES[index % len(SERIES)]


def _value_text(value: float | None, unit: str) -> str:
    return "no value" if value is None else plain_number(float(f"{value:.3g}")) + unit


def _clean(text: str) -> str:
    """Printable text: a character that XML forbids would make vl-convert kill the process."""
    return printable(text, keep="\n\t")


def _cell_text(value: float) -> str:
    text = plain_number(float(f"{value:.2g}"))
    return text if len(text) <= 5 else f"{value:.0e}".replace("e+0", "e")


def shorten(text: str, width: float) -> str:
    """Clean text; its middle is left out if it is wider than `width`."""
    text, kept = _clean(text), int(width / _CHARACTER)
    return text if len(text) <= kept else f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}"


def _scale(values: Iterable[float], *, log: bool, name: str) -> Spec:
    """A linear scale that rounds its ends, or a logarithmic one a little wider than the values."""
    if not log:
        return {"zero": False, "nice": True}
    finite = [float(v) for v in values if math.isfinite(v)] or [1.0, 10.0]
    if min(finite) <= 0:
        raise InputError(f"a logarithmic {name} axis needs positive numbers, got {min(finite):g}")
    wider = max((max(finite) / min(finite)) ** 0.04, 1.05)
    domain = [min(finite) / wider, max(finite) * wider]
    return {"type": "log", "domain": domain, "nice": False, "clamp": True}


def _bar_scale(known: Sequence[float], log: bool, letters: int) -> Spec:
    """Room for all bars and, to the right of the longest, for a text of `letters` letters."""
    share = 1 / (1 - min(0.5, (_CHARACTER * letters + 10) / 300))
    if log:
        scale = _scale(known, log=True, name="value")
        low, high = scale["domain"][0] / 1.5, scale["domain"][1]
        return scale | {"domain": [low, low * (high / low) ** share]}
    low, high = min([0.0, *known]), max([0.0, *known]) or 1.0
    return {"domain": [low, low + (high - low) * share], "nice": False}


def _axis(title: str, scale: Spec) -> Spec:
    axis: Spec = {"title": _clean(title), "tickCount": 5}
    if scale.get("type") == "log":
        ticks = _log_ticks(*scale["domain"])
        # If a narrow range holds fewer ticks, Vega places evenly spaced ones.
        axis |= {"labelExpr": _LOG_LABEL} | ({"values": ticks} if len(ticks) > 2 else {})
    return axis


def _names_axis(title: str | None, names: Sequence[str], *, size: float = 14) -> Spec:
    """An axis with names instead of 0, 1, ...; names may be equal to each other."""
    short = [shorten(name, _NAMES) for name in names]
    # A browser's font may be wider than the one that the picture is laid out with.
    room = _CHARACTER * size / 14 * max(map(len, short), default=0) + 8
    label = {"labelExpr": f"{json.dumps(short)}[datum.value]", "labelFontSize": size}
    plain = {"labelColor": INK, "labelOverlap": False, "grid": False, "domain": False}
    return {"title": title and _clean(title), "minExtent": room} | label | plain


def _names_channel(field: str, axis: Spec | None, count: int) -> Spec:
    scale = {"domain": list(range(count)), "padding": 0}
    return {"field": field, "type": "ordinal", "axis": axis, "scale": scale}


def _log_ticks(low: float, high: float) -> list[float]:
    """About six powers of ten; 1, 2 and 5 times those over few decades, 1 to 9 times over one."""
    span = math.log10(high / low)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = tuple(range(1, 10)) if span <= 0.8 else (1, 2, 5) if span <= 2 else (1,)
    ticks = [f * 10.0**k for k in powers[:: math.ceil(span / 6)] for f in factors]
    return [tick for tick in ticks if low <= tick <= high]


def layer(values: list[Spec], mark: Spec, **channels: Spec) -> Spec:
    return {"data": {"values": values}, "mark": mark, "encoding": channels}


def hinted(drawn: Spec, hints: Sequence[str], key: int | None = None) -> Spec:
    """A layer whose points say these texts when a page's reader points at them.

    `key` is the place in the legend that switches the layer on and off.
    """
    return drawn | {"hints": [_clean(hint) for hint in hints], "key": key}


def _legend(entries: Sequence[tuple[str, str, str]], offset: int = 8) -> Spec:
    """Names with their colours and shapes above the picture, in as many columns as fit."""
    names, colors, shapes = zip(*entries, strict=True)
    names, order = tuple(map(_clean, names)), list(range(len(names)))
    columns = len(names)
    while columns > 1 and _legend_width(names, columns) > WIDTH:
        columns -= 1
    legend = {"columns": columns, "offset": offset, "labelLimit": WIDTH - 60,
              "symbolStrokeWidth": 0, "labelExpr": f"{json.dumps(names)}[datum.value]"}  # fmt: skip
    key = {"field": "key", "type": "ordinal", "legend": legend}
    return layer(
        [],
        {"type": "point"},
        color=key | {"scale": {"domain": order, "range": list(colors)}},
        shape=key | {"scale": {"domain": order, "range": list(shapes)}},
    )


def _legend_width(names: Sequence[str], columns: int) -> float:
    """The approximate width of a legend; each column is as wide as its longest name."""
    longest = [max(map(len, names[column::columns])) for column in range(columns)]
    return sum(38 + _CHARACTER * letters for letters in longest)


def _key(series: Series, index: int) -> str:
    """The shape that stands for a line in the legend."""
    if series.marked:
        return _MARKERS[index % len(_MARKERS)]
    return _DASHES if series.dashed else _STROKE


def _heights(series: Series, log: bool) -> list[float]:
    """All y values that the picture must show; a log axis cannot show a band that reaches zero."""
    ends = [y + d for y, s in zip(series.y, series.spread or (), strict=False) for d in (-s, s)]
    return [*series.y, *(y for y in ends if y > 0 or not log)]


def _drawn(series: Series, index: int, x: Spec, y: Spec, floor: float) -> list[Spec]:
    """A series as layers from the lowest up: its spread, the line, the markers."""
    color = _color(index)
    values: list[Spec] = []
    for place, height, s in zip(series.x, series.y, series.spread or series.y, strict=True):
        ends = {"low": max(height - s, floor), "high": height + s} if series.spread else {}
        found = {"x": place, "y": height} | ends
        values.append({k: float(v) if math.isfinite(v) else None for k, v in found.items()})
    whole = [value for value in values if None not in value.values()]
    x, y = x | {"field": "x"}, y | {"field": "y"}
    low, high = y | {"field": "low"}, {"field": "high"}
    layers = []
    hints = [_hint(series, value) for value in whole]
    if series.spread is not None:
        many = len(whole) > _MANY
        mark: Spec = {"type": "area", "fill": color, "fillOpacity": 0.18}
        bar: Spec = {"type": "rule", "stroke": color, "strokeWidth": 2, "strokeCap": "round"}
        spread = layer(whole, mark if many else bar, x=x, y=low, y2=high)
        layers.append(hinted(spread, [], index))
    if len(values) > 1 and series.line:
        mark = {"type": "line", "stroke": color, "strokeWidth": 2, "strokeJoin": "round"}
        dash = {"strokeDash": [6, 5]} if series.dashed else {"strokeCap": "round"}
        line = layer(values, mark | dash, x=x, y=y)
        layers.append(hinted(line, [] if series.marked else hints, index))
    if series.marked:
        mark = {"type": "point", "fill": color, "shape": _key(series, index)}
        layers.append(hinted(layer(whole, mark, x=x, y=y), hints, index))
    return layers


def _hint(series: Series, value: Spec) -> str:
    margin = f" ± {plain_number(value['high'] - value['y'])}" if "high" in value else ""
    return f"{series.label}: {plain_number(value['y'])}{margin} at {plain_number(value['x'])}"


def picture(spec: Spec, *, title: str, description: str) -> str:
    """The `<svg>` of a specification, with its name and description for screen readers."""
    import vl_convert

    title, description = _clean(title), _clean(description)
    whole: Spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": WIDTH,
        "padding": 8,
        "autosize": {"type": "pad" if "width" in spec else "fit-x", "contains": "padding"},
        "title": textwrap.wrap(title, 46),
    }
    config = _CONFIG | spec.pop("config", {})
    spec["layer"], notes = _named_layers(spec["layer"])
    svg = vl_convert.vegalite_to_svg(whole | spec | {"config": config})
    found = re.match(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"[^>]*><rect[^>]*>', svg)
    assert found is not None
    width, height = max(float(found[1]), WIDTH), float(found[2])
    body = re.sub("<[^>]+>", lambda tag: _marked(tag[0], notes), svg[found.end() :])
    # Ids must differ between the pictures of a page, and be the same each time it is made.
    key = sha256((title + description + body).encode()).hexdigest()[:10]
    body = re.sub(r'(<[^>]* id="|url\(#)', rf"\g<1>p{key}-", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fg-plot" '
        f'viewBox="0 0 {width:g} {height:g}" width="{1.25 * width:g}" height="{1.25 * height:g}" '
        f'role="img" aria-labelledby="t{key} d{key}"><title id="t{key}">{html.escape(title)}'
        f'</title><desc id="d{key}">{html.escape(description)}</desc><style>{_style(body)}</style>'
        f'<rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>{body}'
    )


def _named_layers(layers: Sequence[Spec]) -> tuple[list[Spec], list[str]]:
    """The layers as Vega-Lite knows them, named by number, and attributes for their marks."""
    named, notes = [], []
    for number, each in enumerate(layers):
        plain = {k: v for k, v in each.items() if k not in ("hints", "key")}
        named.append(plain | {"name": f"n{number}"})
        hints = json.dumps(each.get("hints", []), ensure_ascii=False, separators=(",", ":"))
        notes.append(
            (f' data-v="{html.escape(hints)}"' if each.get("hints") else "")
            + (f' data-s="{each["key"]}"' if each.get("key") is not None else "")
        )
    return named, notes


def _marked(tag: str, notes: Sequence[str]) -> str:
    """A tag of Vega's without what is not used; marks get their hints, and legends a handle."""
    found = _LAYER.search(tag)
    extra = notes[int(found[1])] if found else ' data-k=""' if "role-legend-" in tag else ""
    end = -2 if tag.endswith("/>") else -1
    return _UNUSED.sub("", tag[:end]) + extra + tag[end:] if extra else _UNUSED.sub("", tag)


def _style(body: str) -> str:
    """The style: the reader's own font, and the dark version of each colour that is used."""
    rules = [
        f'.fg-plot [{part}="{light}"]{{{part}:{dark}}}'
        for light, dark in _DARK.items()
        for part in ("fill", "stroke")
        if light == PAPER or f'{part}="{light}"' in body
    ]
    dark = f"@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}"
    return f".fg-plot text{{font-family:{_FONT}}}{dark}"
