"""Starting the service: one process, or several workers that share the socket and the releases."""

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from fastgcn.errors import InputError
from fastgcn.progress import silent
from fastgcn.serve.guard import LOGGING
from fastgcn.serve.limits import check_exposure
from fastgcn.serve.releases import Releases

# Connections at once; each takes a few tens of kilobytes.
_CONNECTIONS = 1_000

# Settings of glibc's malloc.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8


def serve(
    releases: Releases,
    *,
    host: str,
    port: int,
    token: str | None,
    workers: int = 1,
    threads: int = 1,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Answer requests until a signal; `on_ready` is told the address before."""
    check_exposure(host, token)
    with TemporaryDirectory(prefix="fastgcn-serve-") as folder, _listening(host, port) as listener:
        releases = replace(releases, folder=Path(folder))
        releases.publish(releases.first.name)
        config = uvicorn.Config(
            partial(_app, releases, token, threads),
            factory=True,
            http="h11",
            ws="none",
            workers=workers,
            log_config=LOGGING,
            access_log=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(releases.limits.seconds) + 1,
            timeout_worker_healthcheck=30,
        )
        silent()  # the log has only lines of JSON
        listener.listen(2_048)  # who asks before the workers are ready waits
        on_ready(_address(listener))
        if workers == 1:
            uvicorn.Server(config).run([listener])
            return
        # Counters of all workers are added up from files in this folder.
        counters = Path(folder) / "counters"
        counters.mkdir()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(counters)
        supervisor = Multiprocess(config, sockets=[listener])
        supervisor.run()
        if any(each.exitcode == STARTUP_FAILURE for each in supervisor.processes):
            raise InputError("a worker of the service could not start; its last lines say why")


def steady_memory() -> None:
    """Let glibc give large arrays back to the system at once, and share what it keeps.

    By default it keeps arrays of up to 32 MB in a heap for each thread: with reloads and large
    neighbourhoods, two workers of 320 MB grew by 12 % in a minute.
    """
    with suppress(OSError, AttributeError):  # another C library has no such settings
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, 1 << 18)
        libc.mallopt(_ARENA_MAX, 2)


def _app(releases: Releases, token: str | None, threads: int) -> object:
    """The application, made in the worker."""
    from fastgcn.serve.app import create_app

    steady_memory()
    silent()
    return create_app(releases, token, threads)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that other processes can take over, bound before anything is computed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"the service cannot listen on {host} port {port}: {reason}") from None
    listener.set_inheritable(True)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
