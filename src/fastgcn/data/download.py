"""Downloads by pooch; a downloaded file exists only once it is complete and checked."""

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from fastgcn._version import __version__
from fastgcn.errors import DownloadError, InputError
from fastgcn.memory import shown_bytes
from fastgcn.progress import progress

_CHUNK = 1 << 16
_MOST = 1 << 30  # bytes of a file whose size is not known
_BACKOFF = 0.5  # seconds before the second attempt; doubled before each further one
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # status codes after which a retry may succeed
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class _WrongContentError(Exception):
    """The server sent another file than the one expected."""


def download(
    url: str,
    destination: Path,
    *,
    git_blob: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    most: int = _MOST,
    attempts: int = 3,
    timeout: float = 30.0,
    deadline: float = 600.0,
) -> None:
    """Fetch `url` to `destination`, which is complete and checked once it exists.

    The content is compared with `git_blob` (SHA-1 of `blob SIZE`, a zero byte and the content),
    `sha256` and `size`, if they are given. Without a digest, the address must be https, or of
    this machine. An answer of more than `size` bytes, or of more than `most` if the size is not
    known, is ended. One read may take `timeout` seconds, and all attempts together `deadline`.
    Any number of processes and threads may fetch the same file at once: each writes its own
    file, which is renamed at the end.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"a download needs an http or https address, got {url!r}")
    checked = git_blob is not None or sha256 is not None
    if not checked and not _is_private(url):
        raise InputError(
            f"a download without a digest needs an https address, got {url!r}; "
            "anyone on the way could change the file"
        )
    if attempts < 1:
        raise InputError(f"attempts must be at least 1, got {attempts}")
    part = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.partial")
    fetch = _Fetch(url, part, size, most, checked)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            _within(deadline, lambda: fetch.run(attempts, timeout))
            _check(part, git_blob, sha256, size)
            part.replace(destination)
        finally:
            fetch.stopped.set()
            part.unlink(missing_ok=True)
    # requests and urllib3 raise subclasses of OSError and ValueError.
    except (OSError, ValueError, _WrongContentError) as error:
        raise DownloadError(
            f"could not download {destination.name} from {url}: {_reason(error)}; "
            f"put the file at {destination} or set FASTGCN_DATA to a folder that has it"
        ) from error


def _is_private(url: str) -> bool:
    """True if nobody on the way can change the answer: https, or a server on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _THIS_MACHINE


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Run `work` on a thread of its own; raises `TimeoutError` if it takes longer.

    A server that sends a byte now and then never lets a read time out, so nothing in this
    thread could end it.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="fastgcn-download", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"it was not complete after {seconds:g} seconds")
    if failed:
        raise failed[0]


class _Fetch:
    """Writes the server's answer to a file, as long as it is one that may be written."""

    def __init__(self, url: str, part: Path, size: int | None, most: int, checked: bool) -> None:
        self._url, self._part, self._checked = url, part, checked
        self._size, self._most = size, most if size is None else size
        self.stopped = threading.Event()

    def run(self, attempts: int, timeout: float) -> None:
        """Retries after a temporary error."""
        import requests
        from pooch import HTTPDownloader

        # A compressed answer would not have the size of the file.
        headers = {"User-Agent": f"fastgcn/{__version__}", "Accept-Encoding": "identity"}
        passing = (
            requests.ConnectionError,
            requests.Timeout,
            requests.exceptions.ChunkedEncodingError,
        )
        for attempt in range(1, attempts + 1):
            with ExitStack() as stack, self._part.open("wb") as file:
                fetch = HTTPDownloader(
                    chunk_size=_CHUNK,
                    headers=headers,
                    timeout=timeout,
                    hooks={"response": lambda answer, **_: self._begin(answer, stack)},
                )
                try:
                    fetch(self._url, _Sink(file, self), None)
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

    def _begin(self, answer: Any, stack: ExitStack) -> None:
        """Look at an answer's head; answers that redirect come here too."""
        stack.callback(answer.close)
        if not self._checked and not _is_private(answer.url):
            raise _WrongContentError(f"it comes from {answer.url}, which is not https")
        length = str(answer.headers.get("content-length", ""))
        announced = int(length) if length.isdecimal() and len(length) < 19 else 0
        if answer.ok:
            self._check_length(announced)
        name = urlsplit(self._url).path.rpartition("/")[2]
        self._received = 0
        shown = progress(f"Downloading {name}", self._size or announced, "bytes")
        self._advance = stack.enter_context(shown)

    def receive(self, n_bytes: int) -> None:
        if self.stopped.is_set():
            raise TimeoutError
        self._received += n_bytes
        self._check_length(self._received)
        self._advance(n_bytes)

    def _check_length(self, length: int) -> None:
        if length > self._most:
            expected = f"at most {shown_bytes(self._most)}"
            expected = expected if self._size is None else f"{self._size:,}"
            raise _WrongContentError(f"it has {length:,} bytes or more instead of {expected}")


class _Sink:
    """The file that pooch writes to."""

    def __init__(self, file: IO[bytes], fetch: _Fetch) -> None:
        self._file, self._fetch = file, fetch

    def write(self, data: bytes) -> None:
        self._fetch.receive(len(data))
        self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


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
        return f"the downloaded file is damaged and was removed: {error}"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    return str(first) or type(first).__name__
