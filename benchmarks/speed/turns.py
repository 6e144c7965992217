"""Times taken in turns: each side works for a while, then the next, so that noise meets all."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice

import numpy as np

from fastgcn.machine import thread_count
from fastgcn.progress import progress

Side = Callable[[int], object]  # does so many units of work

# Before a turn: threads of the side before, which wait for more work, go to sleep.
_PAUSE = 0.03
# The part of a turn that does not count: its begin meets what the side before left in caches.
_RUN_IN = 0.2


def repeated(calls: Iterable[Callable[[], object]]) -> Side:
    """A side whose units are these calls, one after the other and from the first again."""
    endless = cycle(calls)

    def work(count: int) -> None:
        for call in islice(endless, count):
            call()

    return work


def on_threads(threads: int, side: Side) -> Side:
    """The same on so many threads of torch and BLAS; 0 means all."""

    def work(count: int) -> None:
        with thread_count(threads):
            side(count)

    return work


def seconds_in_turns(
    sides: Mapping[str, Side], *, rounds: int, chunk_seconds: float, what: str = "Timing"
) -> dict[str, list[float]]:
    """Seconds a unit of each side, by name, one number a round.

    A turn is about `chunk_seconds` of work, and at least one unit, after a pause and a run-in
    that do not count; 0 means one unit. Work before the first round compiles kernels and finds
    how many units make a turn.

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
                found[name].append(_seconds(side, lengths[name]))
                advance(1)
    return found


def medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each side's times."""
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def _units(side: Side, chunk_seconds: float) -> int:
    """How many units take about `chunk_seconds`, by doing ever more of them."""
    first = _seconds(side, 1)
    if chunk_seconds == 0 or (first > chunk_seconds and _seconds(side, 1) > chunk_seconds):
        return 1
    length = 1
    for share in (0.01, 0.1, 1.0):
        length = max(1, round(share * chunk_seconds / _seconds(side, length)))
    return length


def _seconds(side: Side, units: int) -> float:
    """Seconds a unit."""
    start = time.perf_counter()
    side(units)
    return (time.perf_counter() - start) / units
