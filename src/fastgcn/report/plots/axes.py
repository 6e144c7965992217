"""Scales from numbers to places, and the ticks that people read them by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fastgcn.errors import InputError
from fastgcn.report.plots.svg import MARGIN, label, line, text_width

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers `low`..`high` laid out, evenly or by their logarithm, from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        place = math.log(value) if self.log else value
        return self.start + (place - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)


def fit_range(values: Sequence[float], *, log: bool, name: str) -> tuple[float, float]:
    """Round numbers around all finite values.

    >>> fit_range([3, 97], log=False, name="x")
    (0.0, 100.0)
    >>> fit_range([0.03, 4], log=True, name="x")
    (0.02, 5.0)
    """
    finite = [float(v) for v in values if math.isfinite(v)]
    if not finite:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(finite), max(finite)
    if log:
        if low <= 0:
            raise InputError(f"a logarithmic {name} axis needs positive numbers, got {low:g}")
        low, high = _round_log(low, up=False), _round_log(high, up=True)
        return (low, high) if low < high else (low / 2, high * 2)
    if low == high:
        return low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    step = _step(low, high)
    # Rounded to twelve places of the step, or 3 * 0.1 would not be 0.3.
    places = 12 - math.floor(math.log10(step))
    return (
        round(math.floor(low / step + 1e-9) * step, places),
        round(math.ceil(high / step - 1e-9) * step, places),
    )


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """All ticks of an axis written alike: as many decimals, or as powers of ten.

    >>> tick_texts([0.0, 0.5, 1.0])
    ['0.0', '0.5', '1.0']
    >>> tick_texts([0.001, 0.1, 1000])
    ['0.001', '0.1', '1,000']
    >>> tick_texts([1000, 1e6]), tick_texts([2e-06])
    (['10³', '10⁶'], ['2·10⁻⁶'])
    """
    if ticks and max(ticks) >= 1e5 and min(ticks) > 0:
        powers = [round(math.log10(tick)) for tick in ticks]
        if all(math.isclose(10.0**k, tick) for k, tick in zip(powers, ticks, strict=True)):
            return [_power(k) for k in powers]
    steps = {round(b - a, 12) for a, b in pairwise(ticks)}
    if len(steps) == 1 and 1e-6 < (step := steps.pop()) < 1e6:
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return [f"{tick:,.{decimals}f}" for tick in ticks]
    return [plain_number(tick) for tick in ticks]


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"


def plain_number(value: float) -> str:
    """A number of at most four digits that count.

    >>> plain_number(1234567.0), plain_number(0.12345), plain_number(12)
    ('1,235,000', '0.1235', '12')
    """
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 8:
        value = float(f"{value:.4g}")
        return (
            f"{value:,.{max(0, 3 - exponent)}f}".rstrip("0").rstrip(".")
            if exponent < 3
            else (f"{value:,.0f}")
        )
    mantissa = f"{value / 10**exponent:.3g}"
    return _power(exponent) if mantissa == "1" else f"{mantissa}·{_power(exponent)}"


def x_axis(scale: Scale, top: float, bottom: float) -> str:
    """Grid, line and numbers of an axis along the bottom."""
    ticks = scale.ticks()
    parts = [line(scale(tick), top, scale(tick), bottom, "fg-grid") for tick in ticks]
    parts.append(line(scale.start, bottom, scale.stop, bottom, "fg-axis"))
    for tick, text in zip(ticks, tick_texts(ticks), strict=True):
        # Of the paper's left edge, with room for letters that are wider than they are taken to be.
        inside = max(scale(tick), text_width(text) / 2 + MARGIN / 2)
        parts.append(label(inside, bottom + 17, text, anchor="middle", style="fg-soft"))
    return "".join(parts)


def y_axis(scale: Scale, left: float, right: float) -> str:
    """Grid and numbers of an axis along the left."""
    ticks = scale.ticks()
    parts = [line(left, scale(tick), right, scale(tick), "fg-grid") for tick in ticks]
    parts += [
        label(left - 6, scale(tick) + 5, text, anchor="end", style="fg-soft")
        for tick, text in zip(ticks, tick_texts(ticks), strict=True)
    ]
    return "".join(parts)


def _step(low: float, high: float, count: int = 5) -> float:
    """The smallest of 1, 2, 5 times a power of ten that needs at most `count` steps."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def _even_ticks(low: float, high: float) -> list[float]:
    step = _step(low, high)
    places = 12 - math.floor(math.log10(step))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, places) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, every so many of them; 1, 2 and 5 times those over few of them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    span = math.log10(high / low)
    factors = (1, 2, 5) if span <= 2 else (1,)
    every = max(1, math.ceil(span / 6))
    ticks = [m * 10.0**k for k in range(first, last + 1, every) for m in factors]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def _round_log(value: float, *, up: bool) -> float:
    """The next of 1, 2, 5 times a power of ten, up or down."""
    power = 10.0 ** math.floor(math.log10(value))
    if up:
        return float(next(m * power for m in (1, 2, 5, 10) if m * power >= value * (1 - 1e-6)))
    return float(next(m * power for m in (5, 2, 1) if m * power <= value * (1 + 1e-6)))
