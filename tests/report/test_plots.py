"""Pictures: well-formed, described, to scale, and refusing what cannot be drawn."""

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgcn.errors import InputError
from fastgcn.report.plots import Series, bars, heatmap, lines, scatter
from fastgcn.report.plots.axes import Scale, fit_range, tick_texts

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


def parts(svg: str, style: str) -> list[ET.Element]:
    """Elements that have a class."""
    found = ET.fromstring(svg).iter()
    return [element for element in found if style in element.get("class", "").split()]


def points(element: ET.Element) -> list[tuple[float, float]]:
    """The corners of a path."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_stand_alone_and_describe_themselves(name: str) -> None:
    svg = PICTURES[name]()
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    title, description = root.find(f"{space}title"), root.find(f"{space}desc")
    assert title is not None
    assert description is not None
    assert title.text == 'a <b> & "c" �'
    assert description.text == 'a <b> & "c" � described'
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "prefers-color-scheme:dark" in svg
    assert not re.search(r"(href|src)=|url\(|<script", svg)
    shown = [element.text for element in root.iter(f"{space}text")]
    assert any(text and text.startswith("a <b>") for text in shown)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_the_same_whenever_they_are_drawn(name: str) -> None:
    assert PICTURES[name]() == PICTURES[name]()


def test_pictures_of_one_page_have_ids_of_their_own() -> None:
    ids = [i for draw in PICTURES.values() for i in re.findall(r' id="(\w+)"', draw())]
    assert len(ids) == len(set(ids)) == 2 * len(PICTURES)


def test_lines_are_to_scale() -> None:
    svg = draw_lines(Series("a", [0, 5, 10], [0, 1, 4]), y_range=(0, 4))
    (path,) = [e for e in parts(svg, "fg-line") if "fg-c0" in e.get("class", "")]
    (x0, y0), (x1, y1), (x2, y2) = points(path)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y1) * 4 == pytest.approx(y0 - y2, abs=0.5)
    assert len(parts(svg, "fg-fill")) == 3, "a marker a point"


def test_logarithmic_lines_are_to_scale() -> None:
    svg = draw_lines(Series("a", [1, 10, 100], [1e-3, 1e-2, 1e-1]), x_log=True, y_log=True)
    (path,) = [e for e in parts(svg, "fg-line") if "fg-c0" in e.get("class", "")]
    (x0, y0), (x1, y1), (x2, y2) = points(path)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


def test_a_missing_point_interrupts_its_line() -> None:
    svg = draw_lines(Series("a", [1, 2, 3, 4, 5], [1, 2, math.nan, 3, 4]))
    assert [len(points(path)) for path in parts(svg, "fg-line")] == [2, 2]
    assert len(parts(svg, "fg-fill")) == 4


@pytest.mark.parametrize(("count", "bands", "strokes"), [(5, 0, 6), (60, 1, 1)])
def test_spread_is_error_bars_or_a_band(count: int, bands: int, strokes: int) -> None:
    x = list(range(1, count + 1))
    svg = draw_lines(Series("a", x, [2.0] * count, spread=[0.5] * count))
    assert len(parts(svg, "fg-band")) == bands
    assert len(parts(svg, "fg-line")) == strokes


def test_a_spread_that_reaches_below_zero_fits_on_a_logarithmic_axis() -> None:
    svg = draw_lines(Series("a", [1, 2], [1.0, 2.0], spread=[3.0, 0.5]), y_log=True)
    height = float(ET.fromstring(svg).get("viewBox", "").split()[3])
    for path in parts(svg, "fg-line"):
        assert all(0 <= y <= height for _, y in points(path))


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
    widths = [float(e.get("width", "0")) for e in parts(svg, "fg-fill")][2:]  # after the legend
    assert widths[1] == 0, "a value that is not known has no bar"
    assert widths[2] == pytest.approx(4 * widths[0], abs=0.5)
    assert widths[3] == pytest.approx(2 * widths[0], abs=0.5)
    assert svg.count("no value") == 1


def test_the_shortest_bar_of_a_logarithmic_axis_can_be_seen() -> None:
    svg = bars(["g", "h"], [("s", [0.01, 1.0])], y_label="y", y_log=True, **WORDS)
    assert min(float(e.get("width", "0")) for e in parts(svg, "fg-fill")) > 5


def test_negative_bars_lie_on_the_other_side_of_zero() -> None:
    svg = bars(["g", "h"], [("s", [2.0, -1.0])], y_label="y", **WORDS)
    up, down = parts(svg, "fg-fill")
    assert float(down.get("x", "")) + float(down.get("width", "")) == pytest.approx(
        float(up.get("x", "")), abs=0.2
    )


@pytest.mark.parametrize(("classes", "looks"), [(3, 3), (16, 16), (41, 16)])
def test_a_map_gives_many_classes_a_common_look(classes: int, looks: int) -> None:
    rng = np.random.default_rng(0)
    category = np.concatenate([np.arange(classes), rng.integers(classes, size=300)])
    names = [f"n{c}" for c in range(classes)]
    svg = scatter(rng.normal(size=(len(category), 2)), category, names, **WORDS)
    dots = parts(svg, "fg-dots")
    assert len(dots) == 2 * looks, "a key and the points of each"
    drawn = sum(path.get("d", "").count("M") for path in dots[looks:])
    assert drawn == len(category)
    assert (f"{classes - 15} others" in svg) == (classes > 16)


def test_far_points_of_a_map_do_not_press_the_others_together() -> None:
    rng = np.random.default_rng(0)
    near = rng.normal(size=(1000, 2))
    svg = scatter(np.vstack([near, [[1e6, 0]]]), np.zeros(1001, int), ["a"], **WORDS)
    x = [float(n) for n in re.findall(r"M([\d.]+) ", parts(svg, "fg-dots")[1].get("d", ""))]
    assert np.std(x) > 30
    assert max(x) <= 420


def test_all_points_in_one_place_are_in_the_middle() -> None:
    svg = scatter(np.ones((3, 2)), [0, 0, 0], ["a"], **WORDS)
    assert parts(svg, "fg-dots")[1].get("d", "").startswith("M210 ")


def test_heat_grows_with_the_value() -> None:
    svg = draw_heatmap([[0, 1], [5, 20]], ["a", "b"])
    shades = [float(e.get("fill-opacity", "")) for e in parts(svg, "fg-heat")]
    assert len(shades) == 3, "zero is paper"
    assert shades == sorted(shades)
    assert shades[-1] == 1


def test_many_classes_have_no_numbers_in_their_cells() -> None:
    few, many = (draw_heatmap(np.ones((n, n)), [f"n{i}" for i in range(n)]) for n in (4, 20))
    assert len(parts(few, "fg-small")) == 16
    assert not parts(many, "fg-small")


finite = st.floats(-1e9, 1e9, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-9)
positive = st.floats(1e-9, 1e9)


@given(st.lists(finite, min_size=1, max_size=5))
def test_an_even_axis_holds_all_values_between_round_ones(values: list[float]) -> None:
    check_axis(values, log=False)


@given(st.lists(positive, min_size=1, max_size=5))
def test_a_logarithmic_axis_holds_all_values_between_round_ones(values: list[float]) -> None:
    check_axis(values, log=True)


def check_axis(values: list[float], *, log: bool) -> None:
    low, high = fit_range(values, log=log, name="x")
    slack = 1e-6 * max(abs(low), abs(high))
    assert low < high
    assert low - slack <= min(values)
    assert max(values) <= high + slack
    scale = Scale(low, high, 10, 110, log)
    assert scale(low) == pytest.approx(10)
    assert scale(high) == pytest.approx(110)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 10
    assert all(a < b for a, b in pairwise(ticks))
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert len(set(tick_texts(ticks))) == len(ticks), "no two ticks read the same"
