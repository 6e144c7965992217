"""A matrix as shaded cells, such as a confusion matrix."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgcn.errors import InputError
from fastgcn.report.plots.axes import plain_number
from fastgcn.report.plots.svg import (
    LINE,
    MARGIN,
    TEXT,
    WIDTH,
    escape,
    head,
    label,
    number,
    picture,
    rect,
    shorten,
    text_width,
)

# The room that names may take, and the smallest cell that a number is written into.
_NAMES = 110
_WRITTEN = 26
_LARGEST_CELL = 44


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
    >>> svg.count('class="fg-heat"')
    3
    """
    cells = np.asarray(matrix, dtype=np.float64)
    if cells.shape != (len(row_names), len(column_names)) or not cells.size:
        raise InputError(
            f"a heat map of {len(row_names)} rows and {len(column_names)} columns needs a matrix "
            f"of that shape, got {cells.shape}"
        )
    body, top = head(title)
    left = MARGIN + 8 + min(_NAMES, max(map(text_width, row_names)))
    size = min(_LARGEST_CELL, (WIDTH - MARGIN - left) / len(column_names))
    body += label(MARGIN, top + 14, f"{row_label} ↓   {column_label} →", style="fg-soft")
    names, top = _column_names(column_names, left, top + LINE, size)
    body += names
    letter = _letter(size)
    for r, name in enumerate(row_names):
        body += _name(left - 6, top + (r + 0.5) * size, name, letter)
        for c in range(len(column_names)):
            body += _cell(left + c * size, top + r * size, size, cells[r, c], cells.max())
    bottom = top + size * len(row_names)
    body += rect(left, top, size * len(column_names), bottom - top, "fg-axis")
    return picture(body, height=bottom + MARGIN, title=title, description=description)


def _column_names(names: Sequence[str], left: float, top: float, size: float) -> tuple[str, float]:
    """Names above the columns, standing up where they are wider than a cell."""
    letter = _letter(size)
    widest = max(text_width(name, letter) for name in names)
    if widest < size - 3:
        parts = [
            _name(left + (c + 0.5) * size, top + 10, name, letter, anchor="middle")
            for c, name in enumerate(names)
        ]
        return "".join(parts), top + LINE
    bottom = top + 6 + min(_NAMES, widest)
    turned = []
    for c, name in enumerate(names):
        place = f"translate({number(left + (c + 0.5) * size)} {number(bottom - 5)}) rotate(-90)"
        turned.append(f'<g transform="{place}">{_name(0, 0, name, letter, anchor="start")}</g>')
    return "".join(turned), bottom


def _letter(size: float) -> float:
    """The height of names beside cells of this size."""
    return TEXT if size > 2 * TEXT else min(12, 0.8 * size)


def _name(x: float, middle: float, name: str, letter: float, *, anchor: str = "end") -> str:
    text = escape(shorten(name, _NAMES, letter))
    return (
        f'<text x="{number(x)}" y="{number(middle + letter * 0.35)}" text-anchor="{anchor}" '
        f'style="font-size:{number(letter)}px">{text}</text>'
    )


def _cell(x: float, y: float, size: float, value: float, largest: float) -> str:
    if value == 0:
        return ""
    # The root makes the rare cells visible, which are what one looks for.
    shade = (value / largest) ** 0.6
    cell = rect(x, y, size, size, "fg-heat", f' fill-opacity="{shade:.2f}"')
    if size < _WRITTEN:
        return cell
    style = "fg-small fg-on" if shade > 0.68 else "fg-small"
    text = plain_number(float(f"{value:.2g}"))
    return cell + label(x + size / 2, y + size / 2 + 4.5, text, anchor="middle", style=style)
