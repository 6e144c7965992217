"""The time that numba takes to compile kernels, which is booked apart from their work.

A kernel is compiled when it is first called, and kept on disk for later processes. `clock` stands
still while one is compiled; `take_seconds` says how long that took.
"""

import time
from typing import Any

from numba.core import event

from fastgcn.progress import note


class _Watch(event.Listener):
    """Adds up the seconds of compiling. numba's lock lets one thread compile at a time."""

    def __init__(self) -> None:
        self._depth = 0  # a kernel is compiled while its caller is
        self._said = False
        # Seconds until now, and when the compiling under way began; replaced as one for `clock`.
        self._state: tuple[float, float | None] = 0.0, None
        self._taken = 0.0

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if self._depth == 0:
            if not self._said:
                note("Compiling kernels, once: later starts load them from disk")
            self._said = True
            self._state = self._state[0], time.perf_counter()
        self._depth += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        self._depth -= 1
        if self._depth == 0:
            self._state = self.seconds(time.perf_counter()), None

    def seconds(self, now: float) -> float:
        """Seconds of compiling until `now`."""
        done, began = self._state
        return done if began is None else done + max(now - began, 0.0)

    def take(self) -> float:
        """Seconds of compiling that no call has returned before."""
        total = self.seconds(time.perf_counter())
        self._taken, new = total, total - self._taken
        return new


_watch = _Watch()
event.register("numba:compile", _watch)  # type: ignore[no-untyped-call]


def clock() -> float:
    """Seconds, as `time.perf_counter`, without those in which a kernel was compiled.

    What another thread compiles is left out too: the work that is timed usually waits for it.
    """
    now = time.perf_counter()
    return now - _watch.seconds(now)


def take_seconds() -> float:
    """Seconds of compiling in this process that have not been taken before."""
    return _watch.take()
