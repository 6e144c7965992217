"""Downloads by pooch; a downloaded file exists only once it is complete and checked."""

import hashlib
import os
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from fastgcn._version import __version__
from fastgcn.errors import DownloadError, InputError
from fastgcn.progress import progress

_CHUNK = 1 << 16
_BACKOFF = 0.5  # seconds before the second attempt; doubled before each further one
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # status codes after which a retry may succeed


class _WrongContentError(Exception):
    """The server sent another file than the one expected."""


def download(
    url: str,
    destination: Path,
    *,
    git_blob: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    attempts: int = 3,
    timeout: float = 30.0,
) -> None:
    """Fetch `url` to `destination`, which is complete and checked once it exists.

    The content is compared with `git_blob` (SHA-1 of `blob SIZE`, a zero byte and the content),
    `sha256` and `size`, if they are given. Any number of processes and threads may fetch the
    same file at once: each writes its own file, which is renamed at the end.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"a download needs an http or https address, got {url!r}")
    if attempts < 1:
        raise InputError(f"attempts must be at least 1, got {attempts}")
    part = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.partial")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            _fetch(url, part, size, attempts, timeout)
            _check(part, git_blob, sha256, size)
            part.replace(destination)
        finally:
            part.unlink(missing_ok=True)
    # requests and urllib3 raise subclasses of OSError and ValueError.
    except (OSError, ValueError, _WrongContentError) as error:
        raise DownloadError(
            f"could not download {destination.name} from {url}: {_reason(error)}; "
            f"put the file at {destination} or set FASTGCN_DATA to a folder that has it"
        ) from error


def _fetch(url: str, part: Path, size: int | None, attempts: int, timeout: float) -> None:
    """Write the server's answer to `part`; retries after a temporary error."""
    import requests
    from pooch import HTTPDownloader

    # A compressed answer would not have the size of the file.
    headers = {"User-Agent": f"fastgcn/{__version__}", "Accept-Encoding": "identity"}
    name = urlsplit(url).path.rpartition("/")[2]
    passing = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    for attempt in range(1, attempts + 1):
        with ExitStack() as stack, part.open("wb") as file:
            bar = _DownloadBar(name, size, stack)
            fetch = HTTPDownloader(bar, _CHUNK, headers=headers, timeout=timeout)
            try:
                fetch(url, file, None)
                os.fsync(file.fileno())
                return
            except requests.HTTPError as error:
                code = None if error.response is None else error.response.status_code
                if code not in _PASSING or attempt == attempts:
                    raise
            except passing:
                if attempt == attempts:
                    raise
        time.sleep(_BACKOFF * 2 ** (attempt - 1))


class _DownloadBar:
    """Shows pooch's progress as ours, and ends a download that is longer than `most` bytes."""

    total = 0  # set by pooch

    def __init__(self, name: str, most: int | None, stack: ExitStack) -> None:
        self._name, self._most, self._stack = name, most, stack
        self._advance: Callable[[int], None] | None = None
        self._received = 0

    def update(self, n_bytes: int) -> None:
        if self._advance is None:
            shown = progress(f"Downloading {self._name}", self.total, "bytes")
            self._advance = self._stack.enter_context(shown)
        self._advance(n_bytes)
        self._received += n_bytes
        surely = self._received - _CHUNK  # pooch counts the last chunk as a whole one
        if self._most is not None and surely > self._most:
            raise _WrongContentError(f"it has over {surely:,} bytes instead of {self._most:,}")

    def reset(self) -> None:
        """Pooch calls `reset` and then `update` with the total at the end."""
        self._advance, self._received = lambda _: None, -self.total

    def close(self) -> None: ...


def _check(path: Path, git_blob: str | None, sha256: str | None, size: int | None) -> None:
    """Raise unless the file has this size and these digests, where they are given."""
    length = path.stat().st_size
    if size is not None and length != size:
        raise _WrongContentError(f"it has {length:,} bytes instead of {size:,}")
    for kind, algorithm, head, expected in (
        ("git blob id", "sha1", b"blob %d\0" % length, git_blob),
        ("SHA-256", "sha256", b"", sha256),
    ):
        if expected is None:
            continue
        digest = hashlib.new(algorithm, head, usedforsecurity=False)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != expected.lower():
            raise _WrongContentError(f"its {kind} is {digest.hexdigest()} instead of {expected}")


def _reason(error: BaseException) -> str:
    """What went wrong, in words: requests' own messages name its objects."""
    import requests

    if isinstance(error, _WrongContentError):
        return f"the downloaded file was wrong and has been removed: {error}"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    return str(first) or type(first).__name__
