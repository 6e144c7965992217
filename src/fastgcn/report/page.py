"""One self-contained HTML page of sections, tables and pictures; it loads no other files."""

import base64
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fastgcn.errors import InputError
from fastgcn.text import markdown_cell, printable


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column names its row. By default, long tables are folded."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    caption: str
    folded: bool | None = None

    @property
    def is_folded(self) -> bool:
        """True if only the caption shows until the reader opens the table."""
        return len(self.rows) > _FOLDED if self.folded is None else self.folded


@dataclass(frozen=True)
class Figure:
    """A picture, as an `<svg>` made by `fastgcn.report.plots`, inlined as it is."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Code:
    """Text to type or to paste."""

    text: str
    caption: str = ""


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

# A picture's own style: `fastgcn.report.plots` puts it before any text of the user's.
_STYLE = re.compile(r"<style>([^<]*)</style>")

# A table with more rows is folded.
_FOLDED = 12

Content = Table | Figure | Code | str  # text is a paragraph


@dataclass(frozen=True)
class Section:
    """A part of the page and the question that it answers; links point to `id`."""

    id: str
    title: str
    question: str
    content: Sequence[Content]


def render_page(*, title: str, subtitle: str, sections: Sequence[Section], footer: str) -> str:
    """The page as text; everything but the pictures is escaped.

    A content security policy forbids all that the page would load. Styles and scripts are
    allowed by their digests: its own, and the styles of its pictures. Without its script the page
    is complete; the script shows values under the pointer and sorts tables.

    >>> part = Section("scores", "Scores", "How good is it?", ["A < B."])
    >>> page = render_page(title="Run", subtitle="on cora", sections=[part], footer="")
    >>> '<section id="scores"' in page, "A &lt; B." in page
    (True, True)
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    for section in sections:
        for table in section.content:
            if isinstance(table, Table):
                _check(table)
    environment = Environment(
        loader=PackageLoader("fastgcn"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters["kind"] = lambda content: type(content).__name__
    environment.filters["alignments"] = _alignments
    style = environment.get_template("page.css").render()
    script = environment.get_template("page.js").render()
    figures = [part.svg for s in sections for part in s.content if isinstance(part, Figure)]
    styles = [f"\n{style}\n", *(each for svg in figures for each in _STYLE.findall(svg)[:1])]
    return (
        environment.get_template("page.html").render(
            title=title,
            subtitle=subtitle,
            sections=sections,
            footer=footer,
            style=style,
            script=script,
            policy=_policy(styles, f"\n{script}\n"),
        )
        + "\n"
    )


def _policy(styles: Sequence[str], script: str) -> str:
    """The page's content security policy: these styles, this script and an icon in the page."""
    allowed = " ".join(dict.fromkeys(map(_digest, styles)))
    return (
        f"default-src 'none'; style-src {allowed}; script-src {_digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def _printable(value: Any) -> Any:
    """Plain text with invisible characters shown; what is marked as safe stays as it is."""
    return printable(value, keep="\n\t") if type(value) is str else value


def _check(table: Table) -> None:
    for row in table.rows:
        if len(row) != len(table.head):
            raise InputError(
                f"a row of the table {table.caption!r} must have {len(table.head)} cells, "
                f"got {len(row)}"
            )


def _alignments(table: Table) -> list[str]:
    """The style of each column: numbers are right-aligned, names of rows and texts are not."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.head)
    return ["text" if i == 0 or _has_words(cells) else "number" for i, cells in enumerate(columns)]


def _has_words(cells: Sequence[str]) -> bool:
    return any(cell[:1].isalpha() for cell in cells)


def markdown(table: Table) -> str:
    """A table as Markdown, its caption below.

    >>> print(markdown(Table(("", "F1"), [("FastGCN", "0.85")], "Scores")))
    |  | F1 |
    |---|---|
    | FastGCN | 0.85 |
    <BLANKLINE>
    Scores
    <BLANKLINE>
    """

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(markdown_cell, cells)) + " |"

    rule = "|" + "---|" * len(table.head)
    return "\n".join([line(table.head), rule, *map(line, table.rows), "", table.caption, ""])


def plain_number(value: float) -> str:
    """A number rounded to four digits, as text.

    >>> plain_number(1234567.0), plain_number(0.12345), plain_number(12)
    ('1,235,000', '0.1235', '12')
    >>> plain_number(2e-6), plain_number(1e9)
    ('2·10⁻⁶', '10⁹')
    """
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 8:
        rounded = f"{float(f'{value:.4g}'):,.{max(0, 3 - exponent)}f}"
        return rounded.rstrip("0").rstrip(".") if exponent < 3 else rounded
    mantissa = f"{value / 10**exponent:.3g}"
    power = "10" + str(exponent).translate(_SUPERSCRIPT)
    return power if mantissa == "1" else f"{mantissa}·{power}"
