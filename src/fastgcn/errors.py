"""The errors that users see. Each message names the wrong input and says how to fix it.

The command line prints a `FastGCNError` as one sentence and exits non-zero. Any other
exception is a bug in this package and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class FastGCNError(Exception):
    """Base of all errors that the caller can fix."""


class InputError(FastGCNError, ValueError):
    """Data or an argument is not what it must be."""


class FormatError(InputError):
    """A file or folder is not in the format it was read as."""


class UnsafeFileError(FormatError):
    """A file was refused because reading it would run code that it contains."""


class DivergedError(FastGCNError, ArithmeticError):
    """A loss or a weight of a training became NaN or infinite.

    Attributes:
        run: the best epoch before that, as a run that is not finished; None if there was none.
    """

    def __init__(self, message: str, run: Any = None) -> None:
        super().__init__(message)
        self.run = run


class MissingFileError(FastGCNError, FileNotFoundError):
    """A file or folder that is needed is not there."""


class DownloadError(FastGCNError, OSError):
    """A download failed, or the downloaded file is not the published one."""


class MissingDependencyError(FastGCNError, ImportError):
    """An optional library that this call needs is not installed."""


class WriteError(FastGCNError, OSError):
    """A file or folder could not be written, such as on a full disk."""


class BusyError(InputError):
    """Another process is writing there."""


class PeerError(FastGCNError, RuntimeError):
    """Another process of a distributed run does not answer."""


class ElsewhereError(FastGCNError):
    """A failure that another process of a distributed run reports."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """The `; did you mean ...?` part of a message; empty if no choice is similar."""
    close = get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def library(module: str, *, extra: str) -> Any:
    """Import `module`, which `pip install fastgcn[extra]` installs.

    >>> library("no_such_library", extra="pyg")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fastgcn.errors.MissingDependencyError: this needs no_such_library, which could not ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"this needs {module.partition('.')[0]}, which could not be imported ({error}); "
            f"install it with `pip install 'fastgcn[{extra}]'`"
        ) from error
