"""How a figure is shown: what was asked beside what was measured, tables and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastgcn.report.page import Figure, Table, plain_number

DASH = "–"  # nothing was asked, or it does not exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One measured number and the bound asked of it, if any.

    >>> claim = Claim(what="a step / its floor", value=1.25, at_most=1.3)
    >>> claim.bound, claim.met
    ('at most 1.3', True)
    """

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""

    @property
    def bound(self) -> str:
        if self.at_most is not None:
            return f"at most {plain_number(self.at_most)}{self.unit}"
        return DASH if self.at_least is None else f"at least {plain_number(self.at_least)}"

    @property
    def met(self) -> bool | None:
        """None where nothing was asked."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure ready for a page: its claims first, then tables, then pictures by file name."""

    claims: Sequence[Claim]
    tables: Sequence[Table] = ()
    pictures: dict[str, Figure] = field(default_factory=dict)


def claims_table(claims: Sequence[Claim], caption: str) -> Table:
    """What was measured beside what was asked."""
    answers = {None: DASH, True: "yes", False: "no"}
    rows = [
        (claim.what, short(claim.value) + claim.unit, claim.bound, answers[claim.met])
        for claim in claims
    ]
    return Table(("", "measured", "bound", "met"), rows, caption)


def short(value: float) -> str:
    """Three digits that count.

    >>> short(0.123456), short(1234.5)
    ('0.123', '1,230')
    """
    return plain_number(float(f"{value:.3g}"))


def milliseconds(seconds: float) -> str:
    return short(1000 * seconds)


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f}"


def megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.0f}"
