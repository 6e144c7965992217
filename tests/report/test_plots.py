"""Pictures: well-formed, described, to scale, and refusing what cannot be drawn."""

import json
import math
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from fastgcn.errors import InputError
from fastgcn.report.plots import Series, bars, heatmap, lines, scatter

NASTY = 'a <b> & "c" \x00'
WORDS: dict[str, Any] = {"title": NASTY, "description": f"{NASTY} described"}


def draw_lines(*series: Series, **options: Any) -> str:
    return lines(series, x_label=NASTY, y_label=NASTY, **(WORDS | options))


def draw_heatmap(matrix: object, names: list[str]) -> str:
    return heatmap(matrix, names, names, row_label=NASTY, column_label=NASTY, **WORDS)


PICTURES: dict[str, Callable[[], str]] = {
    "lines": lambda: draw_lines(Series(NASTY, [1, 2], [3, 4]), Series("b", [1], [2])),
    "bars": lambda: bars([NASTY, "g"], [(NASTY, [1, 2]), ("b", [3, None])], y_label="y", **WORDS),
    "scatter": lambda: scatter([[0, 1], [2, 3]], [0, 1], [NASTY, "b"], **WORDS),
    "heatmap": lambda: draw_heatmap([[1, 2], [3, 0]], [NASTY, "b"]),
}


SPACE = "{http://www.w3.org/2000/svg}"
BLUE, ORANGE, HEAT = "#0072b2", "#d55e00", "#004c80"


def parts(svg: str, tag: str, **wanted: str) -> list[ET.Element]:
    """Elements with these attributes; `stroke_width` is the attribute stroke-width."""
    names = {name.replace("_", "-"): value for name, value in wanted.items()}
    found = ET.fromstring(svg).iter(SPACE + tag)
    return [e for e in found if all(e.get(name) == value for name, value in names.items())]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SPACE}text")]


def markers(svg: str, colour: str) -> list[ET.Element]:
    """The markers of a line, without the key in the legend, which is larger."""
    return [e for e in parts(svg, "path", fill=colour) if e.get("stroke-width") == "2"]


def curve(svg: str, colour: str = BLUE) -> ET.Element:
    """The line of a series."""
    (path,) = [e for e in parts(svg, "path", stroke=colour) if "L" in e.get("d", "")]
    return path


def points(path: str) -> list[tuple[float, float]]:
    """The corners of a path."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", path)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def widths(svg: str, colour: str) -> list[float]:
    """The lengths of horizontal bars, M0,0h LENGTH v18h -LENGTH Z."""
    bars = [
        re.fullmatch(r"M.*h(.*)v18h.*Z", e.get("d", "")) for e in parts(svg, "path", fill=colour)
    ]
    return [float(bar[1]) for bar in bars if bar is not None]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_stand_alone_and_describe_themselves(name: str) -> None:
    svg = PICTURES[name]()
    root = ET.fromstring(svg)
    title, description = root.find(f"{SPACE}title"), root.find(f"{SPACE}desc")
    assert title is not None
    assert description is not None
    assert title.text == r'a <b> & "c" \x00'
    assert description.text == r'a <b> & "c" \x00 described'
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "prefers-color-scheme:dark" in svg
    assert not re.search(r"(href|src)=|url\((?!#)|<script", svg)
    assert any(text.startswith("a <b>") for text in texts(svg))


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_the_same_whenever_they_are_drawn(name: str) -> None:
    assert PICTURES[name]() == PICTURES[name]()


def test_pictures_of_one_page_have_ids_of_their_own() -> None:
    ids = [i for draw in PICTURES.values() for i in re.findall(r' id="(\w+)"', draw())]
    assert len(ids) == len(set(ids)) == 2 * len(PICTURES)


def test_lines_are_to_scale() -> None:
    svg = draw_lines(Series("a", [0, 5, 10], [0, 1, 4]), y_range=(0, 4))
    (x0, y0), (x1, y1), (x2, y2) = points(curve(svg).get("d", ""))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y1) * 4 == pytest.approx(y0 - y2, abs=0.5)
    assert len(markers(svg, BLUE)) == 3, "a marker a point"


def test_logarithmic_lines_are_to_scale() -> None:
    svg = draw_lines(Series("a", [1, 10, 100], [1e-3, 1e-2, 1e-1]), x_log=True, y_log=True)
    (x0, y0), (x1, y1), (x2, y2) = points(curve(svg).get("d", ""))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert {"1", "10", "100", "0.001", "0.01", "0.1"} <= set(texts(svg))


def test_a_missing_point_interrupts_its_line() -> None:
    svg = draw_lines(Series("a", [1, 2, 3, 4, 5], [1, 2, math.nan, 3, 4]))
    stretches = curve(svg).get("d", "").split("M")[1:]
    assert [len(points(stretch)) for stretch in stretches] == [2, 2]
    assert len(markers(svg, BLUE)) == 4


@pytest.mark.parametrize(("count", "bands", "strokes"), [(5, 0, 5), (60, 1, 0)])
def test_spread_is_error_bars_or_a_band(count: int, bands: int, strokes: int) -> None:
    x = list(range(1, count + 1))
    svg = draw_lines(Series("a", x, [2.0] * count, spread=[0.5] * count))
    assert len(parts(svg, "path", fill=BLUE, fill_opacity="0.18")) == bands
    assert len(parts(svg, "line", stroke=BLUE)) == strokes


def test_a_spread_that_reaches_below_zero_fits_on_a_logarithmic_axis() -> None:
    svg = draw_lines(Series("a", [1, 2], [1.0, 2.0], spread=[3.0, 0.5]), y_log=True)
    (low, _) = parts(svg, "line", stroke=BLUE)
    (_, bottom), height = points(low.get("transform", ""))[0], float(low.get("y2", ""))
    assert bottom == pytest.approx(230), "down to the axis"
    assert 0 <= bottom + height < 230


def test_a_range_clips_what_lies_outside() -> None:
    svg = draw_lines(Series("a", [1, 2, 3], [-5, 1, 50]), y_range=(0, 2))
    assert [y for _, y in points(curve(svg).get("d", ""))] == pytest.approx([230, 115, 0])


@pytest.mark.parametrize("series", [[], [Series("a", [], [])], [Series("a", [1], [2])],
                                    [Series("a", [1, 2], [3, 3])],
                                    [Series("a", [1, 2], [math.nan] * 2)]])  # fmt: skip
@pytest.mark.parametrize("log", [False, True])
def test_lines_with_little_to_show(series: list[Series], log: bool) -> None:
    assert "<svg" in draw_lines(*series, x_log=log, y_log=log)


def test_series_differ_by_marker_and_dashes_too() -> None:
    svg = draw_lines(Series("a", [1, 2], [1, 2]), Series("b", [1, 2], [2, 3], dashed=True))
    shapes = {marker.get("d") for c in (BLUE, ORANGE) for marker in markers(svg, c)}
    assert len(shapes) == 2
    assert curve(svg).get("stroke-dasharray") is None
    assert curve(svg, ORANGE).get("stroke-dasharray") == "6,5"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: draw_lines(Series("a", [1, 2], [1])), "'a' must be equally long"),
        (lambda: draw_lines(Series("a", [1], [0]), y_log=True), "positive numbers, got 0"),
        (lambda: bars(["g"], [("s", [1, 2])], y_label="y", **WORDS), "must have 1 values"),
        (lambda: scatter([[1, 2, 3]], [0], ["a"], **WORDS), r"got shapes \(1, 3\)"),
        (lambda: draw_heatmap([[1, 2]], ["a", "b"]), r"got \(1, 2\)"),
    ],
    ids=["lengths", "log of zero", "values", "points", "matrix"],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw()


def test_bars_are_as_long_as_their_values() -> None:
    svg = bars(["g", "h"], [("s", [1.0, 4.0]), ("t", [None, 2.0])], y_label="y", **WORDS)
    first, second = widths(svg, BLUE), widths(svg, ORANGE)
    assert second[0] == 0, "an unknown value has no bar"
    assert first[1] == pytest.approx(4 * first[0], abs=0.5)
    assert second[1] == pytest.approx(2 * first[0], abs=0.5)
    assert texts(svg).count("no value") == 1


def test_equal_names_of_groups_are_kept_apart() -> None:
    svg = bars(["g", "g"], [("s", [1.0, 4.0])], y_label="y", **WORDS)
    assert len(widths(svg, BLUE)) == 2
    assert texts(svg).count("g") == 2


def test_the_shortest_bar_of_a_logarithmic_axis_can_be_seen() -> None:
    svg = bars(["g", "h"], [("s", [0.01, 1.0])], y_label="y", y_log=True, **WORDS)
    assert min(widths(svg, BLUE)) > 5


def test_negative_bars_lie_on_the_other_side_of_zero() -> None:
    svg = bars(["g", "h"], [("s", [2.0, -1.0])], y_label="y", **WORDS)
    up, down = (points(e.get("d", "").split("h")[0])[0][0] for e in parts(svg, "path", fill=BLUE))
    lengths = widths(svg, BLUE)
    assert down + lengths[1] == pytest.approx(up, abs=0.2)
    assert lengths[0] == pytest.approx(2 * lengths[1], abs=0.2)


def dots(svg: str) -> list[ET.Element]:
    """The points of a map, one path a category."""
    return parts(svg, "path", stroke_width="5")


@pytest.mark.parametrize(("classes", "looks"), [(3, 3), (16, 16), (41, 16)])
def test_a_map_gives_many_classes_a_common_look(classes: int, looks: int) -> None:
    rng = np.random.default_rng(0)
    category = np.concatenate([np.arange(classes), rng.integers(classes, size=300)])
    names = [f"n{c}" for c in range(classes)]
    svg = scatter(rng.normal(size=(len(category), 2)), category, names, **WORDS)
    assert len(dots(svg)) == looks
    assert len({(e.get("stroke"), e.get("stroke-linecap")) for e in dots(svg)}) == looks
    assert sum(path.get("d", "").count("M") for path in dots(svg)) == len(category)
    assert (f"{classes - 15} others" in texts(svg)) == (classes > 16)


def test_far_points_of_a_map_do_not_press_the_others_together() -> None:
    rng = np.random.default_rng(0)
    near = rng.normal(size=(1000, 2))
    svg = scatter(np.vstack([near, [[1e6, 0]]]), np.zeros(1001, int), ["a"], **WORDS)
    x = [float(n) for n in re.findall(r"M([\d.]+),", dots(svg)[0].get("d", ""))]
    assert np.std(x) > 30
    assert max(x) <= 404


def test_all_points_in_one_place_are_in_the_middle() -> None:
    svg = scatter(np.ones((3, 2)), [0, 0, 0], ["a"], **WORDS)
    assert dots(svg)[0].get("d", "").startswith("M202,190Z")


def test_heat_grows_with_the_value() -> None:
    svg = draw_heatmap([[0, 1], [5, 20]], ["a", "b"])
    shades = [float(e.get("fill-opacity", "")) for e in parts(svg, "path", fill=HEAT)]
    assert len(shades) == 3, "zero is paper"
    assert shades == sorted(shades)
    assert shades[-1] == 1


def test_a_heat_map_of_zeros_is_empty() -> None:
    assert not parts(draw_heatmap(np.zeros((2, 2)), ["a", "a"]), "path", fill=HEAT)


def test_many_classes_have_no_numbers_in_their_cells() -> None:
    few, many = (draw_heatmap(np.ones((n, n)), [f"n{i}" for i in range(n)]) for n in (4, 20))
    assert len(parts(few, "text", font_size="12px")) == texts(few).count("1") == 16
    assert "1" not in texts(many)


def test_no_two_ticks_read_the_same() -> None:
    """On linear and on logarithmic axes, over many ranges."""
    for low, high in ((0, 1e-9), (0.98, 0.99), (1, 1e9), (1e-9, 1e9), (3, 97), (1e-3, 1.1e-3)):
        for log in (False, True) if low else (False,):
            svg = draw_lines(Series("a", [1, 2], [low, high]), y_log=log)
            ticks = [e.text for e in parts(svg, "text", text_anchor="end", fill="#59636e")]
            assert len(set(ticks)) == len(ticks) <= 10, (low, high, log)


def test_a_line_of_one_point_is_visible_and_has_a_key() -> None:
    both = [Series("a", [1, 2], [1, 2], markers=False), Series("b", [1.5], [1.5], markers=False)]
    svg = draw_lines(*both)
    assert len(markers(svg, ORANGE)) == 1
    assert len(parts(svg, "path", fill=ORANGE)) == 2, "the point, and the key in the legend"


def test_points_say_their_values_and_belong_to_a_key() -> None:
    svg = draw_lines(Series(NASTY, [1, 2], [0.25, 4]), Series("b", [1], [2], [0.5]))
    groups = [g for g in ET.fromstring(svg).iter(f"{SPACE}g") if g.get("data-v")]
    said = [json.loads(group.get("data-v", "")) for group in groups]
    name = NASTY.replace("\x00", "\\x00")
    assert said == [[f"{name}: 0.25 at 1", f"{name}: 4 at 2"], ["b: 2 ± 0.5 at 1"]]
    assert [group.get("data-s") for group in groups] == ["0", "1"]
