"""The page: escaped, whole, loading nothing, and made for every reader."""

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from fastgcn.errors import InputError
from fastgcn.report.page import Code, Figure, Section, Table, render_page

NASTY = "<img src=x onerror=alert(1)> & \"quotes\" 'too'"
VOID = {"meta", "link", "img", "br"}


class Reader(HTMLParser):
    """Follows the tags of a page, and fails where one is not closed by its own."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


def page(*content: Table | Figure | Code | str) -> str:
    sections = [
        Section("first", NASTY, NASTY, content),
        Section("second", "Second", "And then?", ["Nothing."]),
    ]
    return render_page(title=NASTY, subtitle=NASTY, sections=sections, footer=NASTY)


def test_everything_but_pictures_is_escaped() -> None:
    svg = "<svg><path d='M0 0'/></svg>"
    text = page(NASTY, Table((NASTY,), [(NASTY,)], NASTY), Code(NASTY, NASTY), Figure(svg, NASTY))
    reader = Reader(text)
    assert not reader.all("img")
    assert svg in text
    # title, h1, subtitle, footer; contents, heading, question; paragraph; table (3); code (2);
    # caption of the picture
    assert reader.text.count(NASTY) == 4 + 3 + 1 + 3 + 2 + 1


def test_a_page_loads_nothing() -> None:
    text = page("A paragraph.")
    reader = Reader(text)
    assert not any(reader.all(tag) for tag in ("img", "iframe", "object"))
    assert reader.all("script") == [{}], "its own script, in the page"
    assert [link["href"] for link in reader.all("link")] == ["data:,"]
    assert not re.search(r"https?:|@import|url\(", text)


def test_the_page_forbids_loading_and_all_scripts_but_its_own() -> None:
    svg = "<svg><style>.a{fill:red}</style></svg>"
    text = page(Figure(svg, "P"))
    metas = Reader(text).all("meta")
    (policy,) = [
        meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    own = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{own}'"
    digest = base64.b64encode(sha256(b".a{fill:red}").digest()).decode()
    assert f"'sha256-{digest}'" in rules["style-src"]
    assert "unsafe" not in policy


def test_invisible_characters_are_shown() -> None:
    text = page("\x1b[31m\u202e", Code("a\n\tb", "two\x00lines"))
    assert r"\x1b[31m\u202e" in text
    assert r"two\x00lines" in text
    assert "a\n\tb" in text


def test_contents_lead_to_every_section() -> None:
    reader = Reader(page())
    sections = [section["id"] for section in reader.all("section")]
    assert sections == ["first", "second"]
    assert [a["href"] for a in reader.all("a")] == [f"#{name}" for name in sections]


def test_tables_name_their_rows_and_columns() -> None:
    rows = [("a", "1.5", "good"), ("b", "-2", "bad")]
    reader = Reader(page(Table(("name", "number", "word"), rows, "About them")))
    heads = [(th["scope"], th["class"]) for th in reader.all("th")]
    assert heads == [("col", "text"), ("col", "number"), ("col", "text")] + [("row", "text")] * 2
    assert [td["class"] for td in reader.all("td")] == ["number", "text"] * 2
    boxes = [box for box in reader.all("div") if box["class"] == "wide"]
    assert [box["aria-label"] for box in boxes] == ["About them"]


def test_long_tables_are_folded_unless_they_are_the_point() -> None:
    rows = [(str(i), "x") for i in range(13)]
    folded = Reader(page(Table(("a", "b"), rows, "Long")))
    assert len(folded.all("details")) == 1
    assert "(13 rows)" in folded.text
    assert not Reader(page(Table(("a", "b"), rows[:12], "Short"))).all("details")
    assert not Reader(page(Table(("a", "b"), rows, "Long", folded=False))).all("details")


def test_a_table_without_rows_has_its_head() -> None:
    assert len(Reader(page(Table(("a", "b"), [], "empty"))).all("th")) == 2


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="'Sizes' must have 2 cells, got 1"):
        page(Table(("a", "b"), [("1",)], "Sizes"))


def test_the_page_says_how_it_is_to_be_read() -> None:
    text = page()
    reader = Reader(text)
    assert reader.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in reader.all(
        "meta"
    )
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
