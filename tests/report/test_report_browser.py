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
from fastgcn.report.page import Figure, Section, render_page
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
