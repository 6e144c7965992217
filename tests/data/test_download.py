"""Downloads from a local server that behaves well, badly, or not at all."""

import hashlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fastgcn.data import download as module
from fastgcn.data.download import download
from fastgcn.errors import DownloadError, InputError

CONTENT = bytes(range(256)) * 1000
BLOB = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server does, changed by the tests, and what it was asked."""

    body: bytes = CONTENT
    statuses: list[int] = field(default_factory=list)  # errors answered first, in this order
    cuts: list[int] = field(default_factory=list)  # bytes after which the first answers break
    asked: list[str] = field(default_factory=list)
    redirect: str | None = None
    announced: bool = True  # whether there is a Content-Length
    hold: threading.Event | None = None  # the connection stays open until this
    endless: bool = False  # the body is sent again and again
    trickle: float = 0.0  # seconds between single bytes


class Handler(BaseHTTPRequestHandler):
    def __init__(self, *args: object, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        super().__init__(*args)  # type: ignore[arg-type]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        how = self.behaviour
        how.asked.append(self.path)
        if how.statuses:
            return self.send_error(how.statuses.pop(0))
        if how.redirect:
            self.send_response(302)
            self.send_header("Location", how.redirect)
            return self.end_headers()
        self.send_response(200)
        if how.announced:
            self.send_header("Content-Length", str(len(how.body)))
        self.end_headers()
        while how.trickle:
            try:
                self.wfile.write(b"x")
                time.sleep(how.trickle)
            except OSError:
                return None
        self.wfile.write(how.body[: how.cuts.pop(0) if how.cuts else len(how.body)])
        if how.hold:
            how.hold.wait()
        while how.endless:
            try:
                self.wfile.write(how.body)
            except OSError:
                break
        return None


@dataclass
class Server:
    url: str
    behaviour: Behaviour


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "_BACKOFF", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    behaviour = Behaviour()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, behaviour=behaviour)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Server(f"http://127.0.0.1:{httpd.server_port}/some/file.bin", behaviour)
        httpd.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "file.bin"


def left_behind(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def test_good(server: Server, target: Path) -> None:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    download(server.url, target, git_blob=BLOB, sha256=sha256, size=len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert left_behind(target) == ["file.bin"]
    assert server.behaviour.asked == ["/some/file.bin"]


def test_empty_file(server: Server, target: Path) -> None:
    server.behaviour.body = b""
    download(server.url, target, git_blob="e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")  # git's own
    assert target.read_bytes() == b""


@pytest.mark.parametrize("body", [CONTENT[:-1] + b"!", CONTENT + b"!", b"<html>sign in</html>"])
def test_corrupted(server: Server, target: Path, body: bytes) -> None:
    server.behaviour.body = body
    with pytest.raises(DownloadError, match=rf"file\.bin from {server.url}.*damaged.*removed"):
        download(server.url, target, git_blob=BLOB)
    assert left_behind(target) == []
    assert server.behaviour.asked == ["/some/file.bin"], "the same again would not help"


def test_wrong_sha256_and_wrong_size(server: Server, target: Path) -> None:
    with pytest.raises(DownloadError, match="SHA-256 is [0-9a-f]{64} instead of 00"):
        download(server.url, target, sha256="00")
    with pytest.raises(DownloadError, match="256,000 bytes or more instead of 7"):
        download(server.url, target, size=7)
    assert left_behind(target) == []


def test_corrupted_leaves_what_was_there_before(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"older")
    server.behaviour.body = b"damaged"
    with pytest.raises(DownloadError):
        download(server.url, target, git_blob=BLOB)
    assert target.read_bytes() == b"older"
    assert left_behind(target) == ["file.bin"]


def test_not_found(server: Server, target: Path) -> None:
    server.behaviour.statuses = [404]
    with pytest.raises(DownloadError, match=rf"404 Not Found; put the file at {target} or set"):
        download(server.url, target, git_blob=BLOB)
    assert left_behind(target) == []
    assert len(server.behaviour.asked) == 1


def test_passing_server_errors_are_retried(server: Server, target: Path) -> None:
    server.behaviour.statuses = [503, 429]
    download(server.url, target, git_blob=BLOB, attempts=3)
    assert target.read_bytes() == CONTENT


def test_server_down(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACKOFF", 0.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file.bin"
        with pytest.raises(DownloadError, match=f"{url}.*refused"):
            download(url, target, git_blob=BLOB)
    assert left_behind(target) == []


def test_silent_server_times_out(target: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin"
        with pytest.raises(DownloadError, match="timed out"):
            download(url, target, git_blob=BLOB, attempts=1, timeout=0.05)
    assert left_behind(target) == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "/etc/hostname"])
def test_only_http(url: str, target: Path) -> None:
    with pytest.raises(InputError, match="http or https"):
        download(url, target)
    assert not target.parent.exists()


def test_redirects_stay_on_http(server: Server, target: Path) -> None:
    for redirect in ("file:///etc/hostname", "ftp://127.0.0.1/x"):
        server.behaviour.redirect = redirect
        with pytest.raises(DownloadError):
            download(server.url, target)
        assert left_behind(target) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1/a b", "http://127.0.0.1/ü", "http://"])
def test_addresses_that_are_not_valid(url: str, target: Path) -> None:
    with pytest.raises(DownloadError):
        download(url, target, git_blob=BLOB, attempts=1)


def test_attempts_must_be_positive(target: Path) -> None:
    with pytest.raises(InputError, match="attempts must be at least 1, got 0"):
        download("http://127.0.0.1/", target, attempts=0)


def test_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DownloadError, match=r"could not download x\.bin"):
        download(server.url, tmp_path / "file" / "x.bin")


def test_many_threads_at_once(server: Server, target: Path) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def fetch() -> None:
        start.wait()
        try:
            download(server.url, target, git_blob=BLOB)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert target.read_bytes() == CONTENT
    assert left_behind(target) == ["file.bin"]


@pytest.mark.parametrize("attempts", [1, 2])
def test_truncated_answers(server: Server, target: Path, attempts: int) -> None:
    server.behaviour.cuts = [1000] * attempts
    with pytest.raises(DownloadError, match=r"1000 bytes read.*FASTGCN_DATA"):
        download(server.url, target, git_blob=BLOB, attempts=attempts)
    assert left_behind(target) == []
    server.behaviour.cuts = [1000] * attempts
    download(server.url, target, git_blob=BLOB, attempts=attempts + 1)
    assert target.read_bytes() == CONTENT


def test_truncation_without_a_length_is_seen_by_the_size(server: Server, target: Path) -> None:
    server.behaviour.cuts = [1000]
    server.behaviour.announced = False
    with pytest.raises(DownloadError, match="it has 1,000 bytes instead of 256,000"):
        download(server.url, target, size=len(CONTENT))
    assert left_behind(target) == []


def test_an_endless_answer_is_ended(server: Server, target: Path) -> None:
    server.behaviour.endless = True
    server.behaviour.announced = False
    with pytest.raises(DownloadError, match="it has 262,144 bytes or more instead of 256,000"):
        download(server.url, target, size=len(CONTENT))
    assert left_behind(target) == []


def test_an_endless_answer_of_unknown_size_is_ended(server: Server, target: Path) -> None:
    server.behaviour.endless = True
    server.behaviour.announced = False
    with pytest.raises(DownloadError, match="it has 1,048,576 bytes or more instead of at most 1 "):
        download(server.url, target, git_blob=BLOB, most=10**6)
    assert left_behind(target) == []


def test_an_answer_that_announces_too_much_is_not_read(server: Server, target: Path) -> None:
    with pytest.raises(DownloadError, match="it has 256,000 bytes or more instead of at most 0 MB"):
        download(server.url, target, git_blob=BLOB, most=1000)
    assert left_behind(target) == []


@pytest.mark.parametrize("announced", [True, False])
def test_a_trickle_ends_at_the_deadline(server: Server, target: Path, announced: bool) -> None:
    """No read of it times out."""
    server.behaviour.trickle = 0.02
    server.behaviour.announced = announced
    began = time.monotonic()
    with pytest.raises(DownloadError, match=r"it was not complete after 0\.3 seconds"):
        download(server.url, target, git_blob=BLOB, timeout=5, deadline=0.3)
    assert time.monotonic() - began < 3
    assert left_behind(target) == []
    server.behaviour.trickle = 0.0


def test_an_answer_in_small_pieces_is_counted_as_it_is(server: Server, target: Path) -> None:
    server.behaviour.body = b"abc"
    download(server.url, target, size=3)
    assert target.read_bytes() == b"abc"


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "127.0.0.1.example.org"])
def test_http_needs_a_digest(host: str, target: Path) -> None:
    with pytest.raises(InputError, match="without a digest needs an https address"):
        download(f"http://{host}/file.bin", target, size=3)


def test_a_redirect_away_from_https_needs_a_digest(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_is_private", lambda url: "file.bin" in url)
    server.behaviour.redirect = server.url.replace("file.bin", "other")
    with pytest.raises(DownloadError, match="it comes from .*other, which is not https"):
        download(server.url, target)
    assert left_behind(target) == []


_RUN = "import sys, pathlib; from fastgcn.data.download import download; "
_RUN += "download(sys.argv[1], pathlib.Path(sys.argv[2]), git_blob=sys.argv[3])"


def test_full_disk_leaves_nothing(server: Server, target: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    command = [sys.executable, "-c", limit + _RUN, server.url, str(target), BLOB]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "DownloadError: could not download file.bin" in done.stderr
    assert "File too large" in done.stderr
    assert left_behind(target) == []


def test_works_after_a_killed_process(server: Server, target: Path) -> None:
    server.behaviour.cuts = [200_000]
    server.behaviour.hold = threading.Event()
    with subprocess.Popen([sys.executable, "-c", _RUN, server.url, target, BLOB]) as process:
        while not server.behaviour.asked or not target.parent.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    server.behaviour.hold.set()
    assert not target.exists()
    download(server.url, target, git_blob=BLOB)
    assert target.read_bytes() == CONTENT


def test_progress_is_shown_to_the_end(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, int, list[int]]] = []

    @contextmanager
    def recorded(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        assert unit == "bytes"
        shown.append((what, total, []))
        yield shown[-1][2].append

    monkeypatch.setattr(module, "progress", recorded)
    download(server.url, target, git_blob=BLOB)
    [(what, total, steps)] = shown
    assert (what, total) == ("Downloading file.bin", len(CONTENT))
    assert sum(steps) >= total
