"""How a command ends: exit codes, signals, and errors inside.

Exit codes: 0 done, 1 the user's input or machine, 2 usage, 3 an error inside, and 128 plus its
number after a signal: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
"""

import contextlib
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fastgcn._version import __version__

INPUT, INSIDE = 1, 3

# Seconds that a training has to come to the end of its epoch. Docker kills 10 s after SIGTERM,
# Slurm and torchrun after 30 s.
_PATIENCE = 5.0
_REPEAT = 1.0  # seconds after which another Ctrl-C is a second one; torchrun sends each twice


class Stopped(BaseException):
    """A signal asks the command to stop; `hint` says how to go on.

    Not a KeyboardInterrupt, which typer would turn into an exit without a word.
    """

    def __init__(
        self, number: int, hint: str = "nothing was kept; the same command starts again"
    ) -> None:
        super().__init__(number)
        self.number, self.hint = number, hint

    @property
    def name(self) -> str:
        return "Ctrl-C" if self.number == signal.SIGINT else signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP, as shells count."""
        return 128 + self.number


class Signals:
    """Raises `Stopped` in the main thread when a signal arrives, or at the end of an epoch.

    Use it as a context manager around a command. Inside `at_epochs`, after the first epoch, a
    signal is kept until an epoch ends, `_PATIENCE` seconds at most. A second Ctrl-C stops at once.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._since = 0.0
        self._patient = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        self._received, self._patient = None, False
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread can handle signals
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # Ignored ones stay so: `nohup` ignores SIGHUP, `&` in a script SIGINT.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_waiting()
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler or signal.SIG_DFL)

    @contextlib.contextmanager
    def at_epochs(self) -> Iterator["Signals"]:
        """Keep a signal until the end of an epoch, when this object is called as a callback."""
        try:
            yield self
        finally:
            self._stop_waiting()

    def __call__(self, record: dict[str, Any]) -> None:
        """Stop here, after this epoch, if a signal has arrived."""
        # A longer epoch would not end in time. It loses nothing: the one before it is saved.
        self._patient = record["seconds"] < _PATIENCE
        if self._received is not None:
            self._stop_waiting()
            raise Stopped(self._received)

    def _wait(self) -> None:
        """Set the alarm, after which the end of the epoch is not waited for any longer."""
        if hasattr(signal, "setitimer"):
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._late)
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)

    def _stop_waiting(self) -> None:
        self._patient = False
        if hasattr(signal, "setitimer") and signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _arrived(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._received is not None:
            # What is under way stops already, and is cleaned up; only a person may cut that short.
            if number == signal.SIGINT and now - self._since > _REPEAT:
                raise Stopped(number)
            return
        self._received, self._since = number, now
        if not self._patient:
            raise Stopped(number)
        self._wait()
        if number == signal.SIGINT and sys.stderr.isatty():
            # Not `print`: this may have interrupted one.
            os.write(2, b"\nStopping after this epoch; Ctrl-C again stops at once.\n")

    def _late(self, *_: object) -> None:
        if self._received is not None:
            raise Stopped(self._received)


signals = Signals()


def report_failure(error: BaseException) -> str:
    """Write what to report about an error inside to a file; the sentence that says so."""
    import platform
    import tempfile

    about = f"fastgcn {__version__}, Python {platform.python_version()}, {platform.platform()}"
    text = "".join([f"{about}\n{shlex.join(sys.argv)}\n\n", *traceback.format_exception(error)])
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="fastgcn-error-", suffix=".txt", delete=False, encoding="utf-8",
            errors="backslashreplace",
        ) as file:  # fmt: skip
            file.write(text)
        where = f"please report it with the file {file.name}"
    except OSError:
        where = "please report it with what `fastgcn --debug COMMAND ...` prints"
    return f"something inside fastgcn failed ({what}), which is a bug and not your mistake; {where}"
