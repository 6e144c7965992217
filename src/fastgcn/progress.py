"""Progress for anything that takes more than a second: a bar on a terminal, lines elsewhere.

The library is silent unless standard error is a terminal. The command line calls `plain_lines()`
so that logs and pipes see progress too, and `fit(progress=True)` does the same while it trains. A
notebook sees notes, and lines only if it asks for progress.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fastgcn.text import printable

_DELAY = 1.0  # seconds before anything is shown
_LINE_EVERY = 5.0  # seconds between plain lines

_plain = False
_silent = False


def plain_lines(on: bool = True) -> None:
    """Print plain progress lines if standard error is not a terminal."""
    global _plain
    _plain = on


def silent() -> None:
    """Show nothing: another process prints for this one."""
    global _silent
    _silent = True


@contextmanager
def shown(on: bool | None) -> Iterator[None]:
    """Show progress and notes inside, or with False nothing; None changes nothing."""
    global _plain, _silent
    before = _plain, _silent
    if on is not None:
        _plain, _silent = _plain or on, _silent or not on
    try:
        yield
    finally:
        _plain, _silent = before


def visible() -> bool:
    """True if progress is shown, as bars or as lines."""
    return not _silent and (sys.stderr.isatty() or _plain)


_collected: ContextVar[list[str] | None] = ContextVar("notes", default=None)


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """Collect the notes of this thread in a list instead of printing them.

    >>> with collected_notes() as notes:
    ...     note("Note: two rows have no age.")
    >>> notes
    ['Note: two rows have no age.']
    """
    found: list[str] = []
    before = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(before)


def note(text: str) -> None:
    """Print a line for people, if progress is shown or a notebook runs this."""
    kept = _collected.get()
    if kept is not None:
        kept.append(text)
    elif visible() or (not _silent and "ipykernel" in sys.modules):
        print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def progress(what: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Show the progress of `what`; the caller adds the work done, in units of `total`.

    >>> with progress("Sorting edges", 10, "buckets") as advance:
    ...     for _ in range(10):
    ...         advance(1)
    """
    show = _Bar if sys.stderr.isatty() else _Lines if _plain else None
    if show is None or _silent:
        yield lambda _: None
        return
    display = show(printable(what), total, unit)
    try:
        yield display.advance
        display.finish()
    finally:
        display.close()


class _Lines:
    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.next_line = time.monotonic() + _DELAY
        self.shown: int | None = None

    def advance(self, done: int) -> None:
        self.done += done
        if time.monotonic() >= self.next_line:
            self.next_line = time.monotonic() + _LINE_EVERY
            self._line()

    def finish(self) -> None:
        """Print the last line too if any line was printed."""
        if self.shown is not None and self.shown < self.total:
            self.done = self.total
            self._line()

    def _line(self) -> None:
        self.shown = self.done
        share = self.done / max(self.total, 1)
        entries = f"{self.done:,} of {self.total:,} {self.unit}".rstrip()
        print(f"{self.what}: {share:.0%} ({entries})", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class _Bar:
    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.start = time.monotonic()
        self.bar: object | None = None

    def advance(self, done: int) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import Progress

        self.done += done
        if self.bar is None:
            if time.monotonic() - self.start < _DELAY:
                return
            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(escape(self.what), total=self.total)
        assert isinstance(self.bar, Progress)
        self.bar.update(self.task, completed=self.done)

    def finish(self) -> None:
        pass  # closing the bar removes it

    def close(self) -> None:
        from rich.progress import Progress

        if isinstance(self.bar, Progress):
            self.bar.stop()
