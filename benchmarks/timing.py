"""One way to take times: the sides of a comparison take turns, so that noise meets all of them.

A side does so many units of work when it is called. Before the first round each side works until
kernels are compiled and until it is known how many units make a turn. Each turn begins with a
pause, in which the threads of the side before go to sleep, and with a run-in that does not count,
because it meets what the side before left in the caches.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice

import numpy as np

from fastgcn.machine import thread_count
from fastgcn.progress import progress

Side = Callable[[int], object]  # does so many units of work

_PAUSE = 0.03  # seconds
_RUN_IN = 0.2  # of a turn


def seconds_in_turns(
    sides: Mapping[str, Side],
    *,
    rounds: int,
    chunk_seconds: float,
    what: str = "Timing",
) -> dict[str, list[float]]:
    """Seconds a unit of each side, by name, one number a round.

    A turn is about `chunk_seconds` of work, and at least one unit; 0 means one unit.

    >>> found = seconds_in_turns({"a": lambda count: None}, rounds=2, chunk_seconds=1e-4)
    >>> len(found["a"])
    2
    """
    found: dict[str, list[float]] = {name: [] for name in sides}
    with progress(what, (rounds + 1) * len(sides), "turns") as advance:
        lengths = {}
        for name, side in sides.items():
            lengths[name] = _units(side, chunk_seconds)
            advance(1)
        for _ in range(rounds):
            for name, side in sides.items():
                time.sleep(_PAUSE)
                side(round(_RUN_IN * lengths[name]))
                found[name].append(wall_clock(side, lengths[name]) / lengths[name])
                advance(1)
    return found


def medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each side's times."""
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def spread(seconds: Sequence[float]) -> float:
    """The median distance of the times from their median, as a part of it.

    >>> spread([1.0, 2.0, 2.5, 4.0, 2.0])
    0.25
    """
    middle = np.median(seconds)
    return float(np.median(np.abs(np.asarray(seconds) - middle)) / middle)


def repeated(calls: Iterable[Callable[[], object]]) -> Side:
    """A side whose units are these calls, one after the other and then from the first again."""
    endless = cycle(calls)

    def work(count: int) -> None:
        for call in islice(endless, count):
            call()

    return work


def on_threads(threads: int, side: Side) -> Side:
    """The same side on so many threads of torch and BLAS; 0 means all."""

    def work(count: int) -> None:
        with thread_count(threads):
            side(count)

    return work


def wall_clock(side: Side, units: int) -> float:
    start = time.perf_counter()
    side(units)
    return time.perf_counter() - start


def _units(side: Side, chunk_seconds: float) -> int:
    """How many units take about `chunk_seconds`, found by doing ever more of them."""
    first = wall_clock(side, 1)
    if chunk_seconds == 0 or (first > chunk_seconds and wall_clock(side, 1) > chunk_seconds):
        return 1
    length = 1
    for share in (0.01, 0.1, 1.0):
        length = max(1, round(share * chunk_seconds * length / wall_clock(side, length)))
    return length
