"""What stands before every request: host, token, size and time; headers, metrics and one log line.

A log line has no ids, features or messages: only the route, the status, and how long it took.
"""

import asyncio
import gc
import json
import logging
import sys
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.values import ValueClass
from starlette.exceptions import HTTPException

from fastgcn.serve.limits import Limits, RequestError, is_loopback, same

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# What needs no token: signs of life, and the page, which has no data in it.
OPEN = ("/", "/healthz", "/readyz", "/docs", "/openapi.json")
STATIC = "/static/"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

# Requests with a body that are taken at once, for each place in a queue.
_BODIES = 2

log = logging.getLogger("fastgcn.serve")


class Measures:
    """Counters of a worker. With several workers, their files in a shared folder are added up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        given: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "fastgcn_requests", "Requests by route and status.", ("route", "status"), **given
        )
        self.seconds = Histogram(
            "fastgcn_request_seconds",
            "Seconds from a request to its answer.",
            ("route",),
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            **given,
        )
        self.together = Histogram(
            "fastgcn_requests_together",
            "Requests that one computation answered.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            **given,
        )
        self.rows = Counter("fastgcn_rows", "Nodes that were answered.", **given)
        self.waiting = Gauge(
            "fastgcn_waiting", "Requests in the queues.", multiprocess_mode="livesum", **given
        )
        self.release = Gauge(
            "fastgcn_release", "Number of the release.", multiprocess_mode="max", **given
        )

    def text(self) -> bytes:
        """In Prometheus's format."""
        registry = self.registry
        if ValueClass.__name__ == "MmapedValue":  # several workers
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        found: bytes = generate_latest(registry)
        return found


class Guard:
    """ASGI middleware around the application."""

    def __init__(self, app: Any, limits: Limits, token: str | None, measures: Measures) -> None:
        self.app, self.limits, self.token, self.measures = app, limits, token, measures
        self._inside = 0  # requests with a body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        number, began, status = uuid.uuid4().hex[:16], time.perf_counter(), 500
        scope.setdefault("state", {})["request"] = number

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(each for each in _HEADERS if each[0] not in own),
                    (b"x-request-id", number.encode()),
                ]
            await send(message)

        has_body = scope["method"] == "POST"
        self._inside += has_body
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self.app(scope, self._bounded(scope, receive), sending)
            else:
                await _answer(refusal, sending)
        finally:
            self._inside -= has_body
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "none")
            self.measures.requests.labels(route, str(status)).inc()
            self.measures.seconds.labels(route).observe(seconds)
            log.info(
                "request",
                extra={
                    "about": {
                        "id": number,
                        "method": scope["method"],
                        "route": route,
                        "status": status,
                        "ms": round(1000 * seconds, 2),
                        **scope["state"].get("about", {}),
                    }
                },
            )

    def _refusal(self, scope: Scope) -> RequestError | None:
        """Why a request is refused before anything of it is read; None if it is not."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        path = scope["path"]
        if self.token is None:
            # Without a token, a web page elsewhere could lead a browser here under its own name.
            if not is_loopback(_host(headers.get(b"host", b"").decode("latin-1"))):
                return RequestError(
                    400, "the Host header must name this machine, such as 127.0.0.1"
                )
        elif path not in OPEN and not path.startswith(STATIC):
            scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            if scheme.lower() != "bearer" or not same(given.strip(), self.token):
                return RequestError(
                    401, "a token is needed: send the header Authorization: Bearer TOKEN"
                )
        if path == "/reload" and self.token is None:
            return RequestError(
                403, "/reload needs a token: start the service with FASTGCN_TOKEN set"
            )
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip()
            if kind.lower() != "application/json":
                return RequestError(
                    415, "the body must be JSON: send Content-Type: application/json"
                )
            # Each may hold a whole body in memory.
            if self._inside > _BODIES * self.limits.queue:
                return RequestError(
                    429, "too many requests at once; ask again in a second", retry=1
                )
            length = headers.get(b"content-length", b"0")
            if not length.isdigit() or int(length[:20]) > self.limits.body:
                return self._too_large()
        return None

    def _too_large(self) -> RequestError:
        return RequestError(
            413, f"a body may have at most {self.limits.body:,} bytes; send several"
        )

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """`receive` that stops after too many bytes or seconds of a body."""
        read, deadline = 0, asyncio.get_running_loop().time() + self.limits.seconds
        if scope["method"] != "POST":
            return receive
        whole = False

        async def receiving() -> Message:
            nonlocal read, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408, f"the body did not arrive within {self.limits.seconds:g} seconds"
                ) from None
            whole = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > self.limits.body:
                raise HTTPException(413, str(self._too_large()))
            return message

        return receiving


def _host(value: str) -> str:
    """The name in a Host header, without its port."""
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.partition(":")[0]


async def _answer(error: RequestError, send: Send) -> None:
    body = error_body(str(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if error.retry is not None:
        headers.append((b"retry-after", b"%d" % error.retry))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    # The rest of the body is not read.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_body(message: str) -> bytes:
    """One sentence as JSON, without halves of characters that a client may have sent."""
    text = " ".join(message.split())
    return json.dumps({"error": text}).encode()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the event loop run soon after it is woken, beside threads that compute and the collector
    of garbage: its look at all that is loaded by now would take up to 0.2 seconds, again and again.

    What is loaded is still freed when nothing refers to it.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "process": record.process,
        }
        found |= getattr(record, "about", {})
        if record.exc_info is not None and record.exc_info[1] is not None:
            # Where it failed, and not what the message says: that may hold a value.
            error = record.exc_info[1]
            found["error"] = type(error).__name__
            found["where"] = [
                f"{frame.filename.rpartition('/fastgcn/')[2]}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)[-8:]
            ]
        return json.dumps(found)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "fastgcn.serve.guard.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {
        "fastgcn.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}
