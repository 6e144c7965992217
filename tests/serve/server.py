"""A service in a thread of this process, on a free port, and a client that asks it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
import uvicorn

from fastgcn.serve.app import create_app
from fastgcn.serve.limits import Limits
from fastgcn.serve.releases import Releases

TOKEN = "a-token-for-these-tests"


class Client:
    """Asks a service; answers come with their status."""

    def __init__(self, address: str, token: str | None) -> None:
        self.address, self._session = address, requests.Session()
        self._session.trust_env = False
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, **given: Any) -> requests.Response:
        return self._session.get(self.address + path, timeout=60, **given)

    def post(self, path: str, body: Any = None, **given: Any) -> requests.Response:
        given = {"json": body} | given if body is not None else given
        return self._session.post(self.address + path, timeout=60, **given)

    def close(self) -> None:
        self._session.close()


@contextmanager
def serving(
    first: Path, *, runs: Path | None = None, token: str | None = TOKEN, on_demand: bool = False,
    **limits: Any,
) -> Iterator[Client]:  # fmt: skip
    """A client of a new service."""
    with TemporaryDirectory() as folder:
        releases = Releases(
            Path(folder), first, runs, on_demand=on_demand, limits=replace(Limits(), **limits)
        )
        releases.publish(first.name)
        config = uvicorn.Config(
            create_app(releases, token), port=0, log_config=None, access_log=False, http="h11",
            ws="none",
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the service did not start"
                time.sleep(0.02)
            port = server.servers[0].sockets[0].getsockname()[1]
            client = Client(f"http://127.0.0.1:{port}", token)
            try:
                yield client
            finally:
                client.close()
        finally:
            server.should_exit = True
            thread.join()
