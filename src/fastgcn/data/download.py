"""Downloads that are whole or not there: resumed, checked, and renamed into place last."""

import hashlib
import os
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit

from fastgcn._version import __version__
from fastgcn.errors import DownloadError, InputError
from fastgcn.progress import progress

_CHUNK = 1 << 16
_BACKOFF = 0.5  # seconds before the second attempt, doubled before each one after
# Answers that may be another the next time; 416 because the part is dropped in between.
_PASSING = (408, 416, 425, 429, 500, 502, 503, 504)


class _PassingError(Exception):
    """Another attempt may succeed."""


class _LastingError(Exception):
    """Another attempt would meet the same."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the whole file must be; None where that is not known."""

    git_blob: str | None
    sha256: str | None
    size: int | None

    @property
    def identified(self) -> bool:
        """Whether a wrong file would be noticed: only then may an older part be continued."""
        return self.git_blob is not None or self.sha256 is not None

    def fault(self, file: IO[bytes]) -> str | None:
        """What is wrong with the whole `file`, or None."""
        length = file.seek(0, os.SEEK_END)
        if self.size is not None and length != self.size:
            return f"it has {length:,} bytes instead of {self.size:,}"
        blob_head = b"blob %d\0" % length
        for kind, algorithm, head, expected in (
            ("git blob id", "sha1", blob_head, self.git_blob),
            ("SHA-256", "sha256", b"", self.sha256),
        ):
            if expected is None:
                continue
            digest = hashlib.new(algorithm, head, usedforsecurity=False)
            file.seek(0)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
            if digest.hexdigest() != expected.lower():
                return f"its {kind} is {digest.hexdigest()} instead of {expected}"
        return None


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
    """Fetch `url` to `destination`, which is whole and checked once it exists.

    Bytes are gathered in `destination` + ".part". Where the content is known by `git_blob`
    (SHA-1 of `blob SIZE`, a zero byte and the content) or by `sha256`, a part that an earlier
    run left is continued. Any number of processes and threads may fetch the same file at once.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"a download needs an http or https address, got {url!r}")
    if attempts < 1:
        raise InputError(f"attempts must be at least 1, got {attempts}")
    expected = _Expected(git_blob, sha256, size)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _part_file(destination, keep=expected.identified) as part:
            _fill(part, url, expected, attempts, timeout)
    except (_LastingError, _PassingError, OSError) as error:
        raise DownloadError(
            f"could not download {destination.name} from {url}: {error}; "
            f"put the file at {destination} or set FASTGCN_DATA to a folder that has it"
        ) from error


@contextmanager
def _part_file(destination: Path, *, keep: bool) -> Iterator[IO[bytes]]:
    """A file that becomes `destination` when the block is left without an error.

    It is `destination`.part, kept after an error where `keep` says so, or a private file
    while another process or thread holds that one.
    """
    path = destination.with_name(f"{destination.name}.part")
    file = _opened_alone(path)
    private = file is None
    if file is None:
        path = destination.with_name(f"{destination.name}.{uuid.uuid4().hex}.part")
        file = path.open("a+b")
    with file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if private:  # Windows renames closed files only; the shared one stays locked
                file.close()
            path.replace(destination)
        except BaseException as error:
            on_disk_failure = isinstance(error, OSError)
            if private or not keep or on_disk_failure or file.seek(0, os.SEEK_END) == 0:
                path.unlink(missing_ok=True)
            raise


def _opened_alone(path: Path) -> IO[bytes] | None:
    """`path` opened for appending and locked against others, or None where it is in use.

    The lock goes with the process, so the part of a killed download is free at once.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    file = path.open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held the lock before may have renamed the file since it was opened here.
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
    except OSError:
        pass
    file.close()
    return None


def _fill(part: IO[bytes], url: str, expected: _Expected, attempts: int, timeout: float) -> None:
    """Append to `part` until it is what was expected."""
    for attempt in range(1, attempts + 1):
        if not expected.identified:
            part.truncate(0)
        resumed = part.seek(0, os.SEEK_END) > 0
        try:
            if resumed and expected.fault(part) is None:
                return
            _receive(part, url, expected, timeout)
            fault = expected.fault(part)
            if fault is None:
                return
            part.truncate(0)
            reason = f"what came was damaged and has been removed: {fault}"
            # A part that belonged to another version of the file explains it; else give up.
            raise _PassingError(reason) if resumed else _LastingError(reason)
        except _PassingError:
            if attempt == attempts:
                raise
        time.sleep(_BACKOFF * 2 ** (attempt - 1))


def _receive(part: IO[bytes], url: str, expected: _Expected, timeout: float) -> None:
    """Append what one request brings; the whole file again where it cannot be continued."""
    with _answer(part, url, timeout) as response:
        done = part.seek(0, os.SEEK_END)
        if response.status == 206:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
                part.truncate(0)
                raise _PassingError("the server sent another range than it was asked for")
        elif done:  # the server cannot continue and sends everything
            done = part.truncate(0)
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else expected.size
        name = urlsplit(url).path.rpartition("/")[2]
        with progress(f"Downloading {name}", total or 0, "bytes") as advance:
            advance(done)
            while chunk := _read(response):
                part.write(chunk)
                advance(len(chunk))
                done += len(chunk)
                if expected.size is not None and done > expected.size:
                    return  # wrong whatever follows, and it may have no end
    part.flush()
    if total is not None and done < total:
        raise _PassingError(f"the connection ended after {done:,} of {total:,} bytes")


def _answer(part: IO[bytes], url: str, timeout: float) -> HTTPResponse:
    """The answer to a request for what `part` lacks."""
    done = part.seek(0, os.SEEK_END)
    headers = {"User-Agent": f"fastgcn/{__version__}"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response: HTTPResponse = _opener().open(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416:
            part.truncate(0)
        kind = _PassingError if error.code in _PASSING else _LastingError
        raise kind(f"the server answered {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise _PassingError(str(getattr(error, "reason", error))) from error
    except ValueError as error:
        raise _LastingError(f"the address is not valid: {error}") from error
    return response


def _opener() -> urllib.request.OpenerDirector:
    """An opener for http and https alone, so that no redirect leads to a file or to ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (OSError, HTTPException) as error:
        raise _PassingError(f"the connection broke: {error}") from error
