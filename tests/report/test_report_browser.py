"""Pages in a real browser: quiet, complete, readable on a phone, in the dark and in print."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.pages import sections
from benchmarks.paper import experiments
from benchmarks.paper_scale import full
from benchmarks.results import Results

import fastgcn
from fastgcn.report import run_report
from fastgcn.report.page import Content, Figure, Section, Table, render_page
from fastgcn.report.plots import Series, bars, heatmap, lines, scatter
from tests.browser import DESKTOP, PHONE, Browser, check_page, chromium
from tests.communities import communities, quick

LONG = [f"A class <{c}> & with a long name" for c in range(25)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as window:
        yield window


def many_classes() -> str:
    graph = communities(n=300, classes=25, class_names=LONG)
    return run_report(fastgcn.fit(graph, quick()), graph)


def few_classes() -> str:
    graph = communities()
    return run_report(fastgcn.fit(graph, quick(epochs=50)), graph)


def gallery() -> str:
    """Pictures with much to hold."""
    words: dict[str, Any] = {
        "title": "A long title that takes more than one line on a phone",
        "description": "D",
    }
    ten = list(range(10))
    series = [Series(f"{LONG[i]}", ten, [i + k for k in ten], [1.0] * 10) for i in range(7)]
    powers = Series("powers", [1, 10, 1e3, 1e7], [1e-7, 1e-3, 1, 1e5])
    square = np.arange(625).reshape(25, 25)
    pictures = [
        lines(series, x_label="x", y_label="y", **words),
        lines([powers], x_label="x", y_label="y", x_log=True, y_log=True, **words),
        bars(LONG[:2], [(n, [1e-6, 12345.678]) for n in LONG[:3]], y_label="y", y_log=True,
             unit=" s", title="Bars", description="D"),
        bars(LONG[:2], [(n, [0.3, 1.2]) for n in LONG[:2]], y_label="y", title="Bars",
             description="D"),
        bars(LONG[:3], [("s", [1.0, -2.0, None])], y_label="y", title="Bars", description="D"),
        heatmap(square, LONG, LONG, row_label="true", column_label="predicted", **words),
        heatmap([[1, 2], [3, 1e6]], ["a", "b"], ["a", "b"], row_label="r", column_label="c",
                **words),
        scatter(np.random.default_rng(0).normal(size=(99, 2)), np.arange(99) % 25, LONG, **words),
    ]  # fmt: skip
    section = Section("pictures", "Pictures", "Does it fit?", [Figure(p, "P") for p in pictures])
    return render_page(title="Gallery", subtitle="S", sections=[section], footer="F")


def reproduction() -> str:
    """The paper's experiments, from the results that are on file."""
    folder = Path(__file__).parents[2] / "results"
    results = Results(folder / "reproduce.jsonl", also=[folder / "accuracy.jsonl"])
    shown = sections(experiments(full()), results)
    return render_page(title="Reproduction", subtitle="S", sections=shown, footer="F")


def hostile() -> str:
    """Names that are markup, in texts, attributes, pictures and a style's or a script's place."""
    names = ["</style><script>a()</script>", "</title></svg><img src=x>", '" onload="a()']
    graph = communities(name="</title><script>a()</script>", class_names=names)
    return run_report(fastgcn.fit(graph, quick()), graph)


PAGES = {
    "hostile": hostile,
    "few classes": few_classes,
    "many classes": many_classes,
    "gallery": gallery,
    "reproduction": reproduction,
}


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pages") / "page.html"
    file.write_text(PAGES[request.param]())
    return file


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_page_is_quiet_complete_and_within_its_width(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    check_page(browser, page, width=width, dark=dark)


def test_a_page_can_be_printed(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 10_000


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with one picture of each kind and a table that is out of order and too wide."""
    words: dict[str, Any] = {"title": "T", "description": "D"}
    curve = Series("curve", list(range(50)), [float(i % 7) for i in range(50)])
    pictures = [
        lines([curve, Series("dot", [25], [3.0])], x_label="x", y_label="y", **words),
        bars(["a", "b"], [("s", [1.0, 2.0]), ("t", [3.0, 4.0])], y_label="y", **words),
        heatmap([[1, 2], [3, 4]], ["p", "q"], ["u", "v"], row_label="r", column_label="c", **words),
        scatter([[0, 0], [9, 9]], [0, 1], ["c", "d"], hints=["node n1: c", "node n2: d"], **words),
    ]
    rows = [(f"name {v}", f"{v:,}", "x" * 60) for v in (1200, 3, 45)]
    table = Table(("name", "number", "word"), rows, "Numbers")
    content: list[Content] = [table, *(Figure(p, "P") for p in pictures)]
    section = Section("all", "All", "Does it move?", content)
    file = tmp_path_factory.mktemp("lively") / "page.html"
    file.write_text(render_page(title="T", subtitle="S", sections=[section], footer="F"))
    return file


POINT = """
const [which, kind, at] = WHERE;
const svg = document.querySelectorAll('figure > svg')[which];
const group = svg.querySelectorAll('[data-v]')[kind];
const each = JSON.parse(group.dataset.v).length === group.children.length;
const box = group.children[each ? at : 0].getBoundingClientRect();
let x = box.left + box.width / 2, y = box.top + box.height / 2;
if (!each) {
  const corner = group.children[0].getAttribute('d').match(/[ML][^MLZ]+/g)[at];
  const place = new DOMPoint(...corner.slice(1).split(',').map(Number))
    .matrixTransform(group.getScreenCTM());
  [x, y] = [place.x, place.y];
}
svg.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: y, bubbles: true}));
const tip = document.querySelector('.tip');
return tip.hidden ? null : tip.textContent;
"""


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ([0, 0, 3], "curve: 3 at 3"),
        ([0, 1, 0], "dot: 3 at 25"),
        ([1, 1, 0], "a, t: 3"),
        ([2, 0, 3], "q → v: 4"),
        ([3, 1, 0], "node n1: c"),  # the first category is drawn last, on top
    ],
)
def test_pictures_say_their_values_under_the_pointer(
    browser: Browser, lively: Path, where: list[int], text: str
) -> None:
    browser.open(lively)
    assert browser.script(POINT.replace("WHERE", str(where))) == text


def test_a_legend_switches_its_series(browser: Browser, lively: Path) -> None:
    browser.open(lively)
    shown = (
        "return [...document.querySelector('figure > svg').querySelectorAll('[data-s]')]"
        ".filter(g => g.getBoundingClientRect().height > 0).map(g => g.dataset.s)"
    )
    assert set(browser.script(shown)) == {"0", "1"}
    switch = "document.querySelector('figure > svg').querySelectorAll('text.switch')[0]"
    browser.script(f"{switch}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert set(browser.script(shown)) == {"1"}
    assert browser.script(f"return {switch}.getAttribute('aria-pressed')") == "false"
    press = "new KeyboardEvent('keydown', {key: 'Enter'})"
    browser.script(f"{switch}.dispatchEvent({press})")
    assert set(browser.script(shown)) == {"0", "1"}


def test_a_table_is_sorted_by_its_heads(browser: Browser, lively: Path) -> None:
    browser.open(lively)
    cells = "[...document.querySelectorAll('tbody td:nth-child(2)')]"
    column = f"return {cells}.map(c => c.textContent)"
    orders = [["3", "45", "1,200"], ["1,200", "45", "3"], ["1,200", "3", "45"]]
    for order in orders:
        browser.script("document.querySelectorAll('th button')[1].click()")
        assert browser.script(column) == order


def test_a_table_that_is_cut_on_a_phone_says_so(browser: Browser, lively: Path) -> None:
    cue = "return getComputedStyle(document.querySelector('figcaption'), '::after').content"
    browser.open(lively, width=PHONE)
    assert "scroll sideways" in browser.script(cue)
    browser.open(lively)
    assert "scroll sideways" not in browser.script(cue)


def test_a_wide_page_uses_its_width(browser: Browser, lively: Path) -> None:
    """Pictures lie beside each other, and the contents beside them."""
    browser.open(lively, width=1400)
    places = browser.script(
        "return [...document.querySelectorAll('.picture')].map(f => f.getBoundingClientRect())"
        ".map(b => [b.left, b.top, b.width])"
    )
    assert places[1][1] == places[2][1]
    assert places[1][0] < places[2][0]
    assert sum(width for _, top, width in places if top == places[1][1]) > 1000
    nav = browser.script("return document.querySelector('nav').getBoundingClientRect().right")
    assert nav < places[0][0]


def test_the_policy_stops_what_is_not_of_the_page(browser: Browser, tmp_path: Path) -> None:
    """Were markup ever to get into a page, no script of it would run and nothing be loaded."""
    markup = (
        "<svg><style>text{fill:red}</style></svg><style>h1{color:rgb(255,0,0)}</style>"
        "<script>document.title = 'owned'</script>"
        "<img src='x.png' onerror=\"document.title = 'owned'\">"
    )
    section = Section("bad", "Bad", "Does it run?", [Figure(markup, "B")])
    file = tmp_path / "page.html"
    file.write_text(render_page(title="Safe", subtitle="S", sections=[section], footer="F"))
    browser.open(file)
    assert browser.script("return document.title") == "Safe"
    colour = "getComputedStyle(document.querySelector('h1')).color"
    assert browser.script(f"return {colour}") != "rgb(255, 0, 0)"
    said = browser.console()
    assert len(said) >= 3
    assert all("Content Security Policy" in message for message in said), said
