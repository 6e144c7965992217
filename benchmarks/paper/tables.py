"""Figures as text, and tables with the paper's figures beside ours."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.paper.scale import DataSet
from fastgcn.report.page import Table

DASH = "–"  # what is not known


def mean_sd(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± standard deviation; of one value, that value.

    >>> mean_sd([0.85, 0.87]), mean_sd([0.85]), mean_sd([])
    ('0.860 ± 0.014', '0.850', '–')
    """
    if not values:
        return DASH
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def significant(value: float | None, digits: int = 3) -> str:
    """A number to so many significant digits, without an exponent.

    >>> significant(0.0084123), significant(58346.6), significant(None)
    ('0.00841', '58,347', '–')
    """
    if value is None:
        return DASH
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{decimals}f}"


def ratio(ours: float | None, theirs: float | None) -> str:
    """ours / theirs."""
    if ours is None or not theirs:
        return DASH
    return significant(ours / theirs)


def beside(theirs: float | None, data: DataSet, digits: int | None = None) -> str:
    """A figure of the paper, and on which data where ours are others."""
    if theirs is None:
        return DASH
    text = significant(theirs) if digits is None else f"{theirs:.{digits}f}"
    return text if data.from_paper else f"{text} on {data.paper}"


def against_paper(
    systems: Mapping[str, Callable[[DataSet], tuple[float | None, str, float | None]]],
    data: Sequence[DataSet],
    *,
    caption: str,
    digits: int | None = None,
) -> Table:
    """A row for every system on every data set: ours, the paper's, and their ratio.

    A system's function gives our figure, how it is written, and the paper's, which is written
    with so many decimals, or to three significant digits.
    """
    rows = []
    for each in data:
        for name, figures in systems.items():
            ours, text, theirs = figures(each)
            label = f"{each.label}: {name}"
            rows.append((label, text, beside(theirs, each, digits), ratio(ours, theirs)))
    return Table(("", "here", "the paper", "ratio"), rows, caption)


def listed(items: Sequence[Any]) -> str:
    """Items in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
