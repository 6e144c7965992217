"""The service under load: latency beside the bare call, and minutes of mixed load with faults.

A bounded generator in this process asks over a fixed number of connections. It keeps its schedule:
a request that is late because of the one before it counts from the time when it was due.
Every answer is compared with the prediction that the library gives.
"""

import asyncio
import gc
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil

import fastgcn
from fastgcn.arrays import FloatArray
from fastgcn.infer.tables import rows_as_json
from fastgcn.serve.answers import Served
from fastgcn.serve.limits import Limits
from fastgcn.serve.releases import Releases

TOKEN = "a-token-of-the-benchmark"
NODES, EDGES = 200_000, 2_000_000
_CONNECTIONS = 16
_BODY = 1 << 20  # bytes that the service under faults takes


@dataclass(frozen=True, slots=True)
class Case:
    """A store and two runs on it, in a folder."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @classmethod
    def prepared(cls, folder: Path, nodes: int = NODES, edges: int = EDGES) -> "Case":
        """Made once; the same seeds give the same case."""
        case = cls(folder)
        if not (case.store / "graph.json").exists():
            config = fastgcn.GenerateConfig(nodes=nodes, edges=edges, features=64, classes=10)
            fastgcn.generate(config, case.store)
        graph = fastgcn.load(case.store)
        for seed, name in enumerate(("one", "two")):
            if not (case.runs / name / "result.json").exists():
                fastgcn.fit(
                    graph, run_dir=case.runs / name, seed=seed, epochs=2, samples=400, hidden=64,
                    batch_size=1024, device="cpu",
                )  # fmt: skip
        return case

    def expected(self) -> dict[str, FloatArray]:
        """The probabilities of all nodes by run."""
        graph = fastgcn.load(self.store)
        return {n: fastgcn.predict(fastgcn.Run.load(self.runs / n), graph) for n in ("one", "two")}


@contextmanager
def service(case: Case, *options: str) -> Iterator[tuple[str, int, psutil.Process]]:
    """The real command in a process of its own: host, port and the process."""
    command = [sys.executable, "-m", "fastgcn", "serve", str(case.runs / "one"), "--runs",
               str(case.runs), "--port", "0", *options]  # fmt: skip
    environment = os.environ | {"FASTGCN_TOKEN": TOKEN}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        address = None
        while address is None:
            line = process.stderr.readline()
            assert line, "the service ended before it was ready"
            address = re.search(r"at http://([\d.]+):(\d+)", line)
        drain = threading.Thread(target=process.stderr.read)  # a full pipe would stop the service
        drain.start()
        try:
            yield address[1], int(address[2]), psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            drain.join()


class Connection:
    """One kept connection that asks and reads answers."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body; a connection that breaks is an `OSError`."""
        try:
            if self.streams is None:
                self.streams = await asyncio.open_connection(self.host, self.port)
            reader, writer = self.streams
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\n"
                f"Authorization: Bearer {TOKEN}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
            headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", headers)
            found = await reader.readexactly(int(length[1]) if length else 0)
            if "connection: close" in headers:
                self.close()
            return int(headers.split(" ", 2)[1]), found
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise OSError("the connection broke") from error

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


@dataclass(slots=True)
class Tally:
    """What came back, and how long it took."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    broken: list[float] = field(default_factory=list)  # when

    def quantiles(self) -> dict[str, float]:
        cuts = statistics.quantiles(self.seconds, n=1000)
        return {
            "p50_ms": 1e3 * cuts[499],
            "p99_ms": 1e3 * cuts[989],
            "max_ms": 1e3 * max(self.seconds),
        }


class Checker:
    """Compares answers with the expected probabilities."""

    def __init__(self, expected: dict[str, FloatArray]) -> None:
        self.expected = expected

    def right(self, body: bytes, nodes: list[int]) -> bool:
        answer = json.loads(body)
        want = self.expected[answer["run"]][nodes]
        rows = [[row[f"p_{c}"] for c in range(want.shape[1])] for row in answer["rows"]]
        return (
            bool(np.allclose(rows, want, atol=1e-5)) and [r["id"] for r in answer["rows"]] == nodes
        )


async def _paced(
    host: str, port: int, rate: float, seconds: float, checker: Checker, tally: Tally, nodes: int
) -> None:
    """Single known nodes, `rate` a second."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(_CONNECTIONS):
        free.put_nowait(Connection(host, port))
    rng, begin = random.Random(0), time.perf_counter()

    async def one(due: float) -> None:
        connection, node = await free.get(), rng.randrange(nodes)
        try:
            status, body = await connection.ask("POST", "/predict", b'{"ids": [%d]}' % node)
            tally.seconds.append(time.perf_counter() - due)
            tally.statuses[f"predict {status}"] += 1
            tally.wrong += status == 200 and not checker.right(body, [node])
        except OSError:
            tally.broken.append(time.perf_counter() - begin)
        finally:
            free.put_nowait(connection)

    async with asyncio.TaskGroup() as group:
        for i in range(int(rate * seconds)):
            due = begin + i / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(due))
    while not free.empty():
        free.get_nowait().close()


def bare_calls(case: Case, count: int = 500) -> dict[str, float]:
    """Milliseconds of the same answers without HTTP: from the table, and from the neighbourhood."""
    with TemporaryDirectory() as folder:
        releases = Releases(Path(folder), case.runs / "one", limits=replace(Limits(), field=10**9))
        served = releases.open(releases.publish("one"))
        rng = random.Random(0)

        def once(answer: Any) -> float:
            node, began = rng.randrange(served.graph.n_nodes), time.perf_counter()
            nodes = served.find([node])
            json.dumps(rows_as_json([served.prediction_table(nodes, answer(served, nodes), None)]))
            return time.perf_counter() - began

        def table(served: Served, nodes: Any) -> Any:
            return served.stored(nodes)

        def network(served: Served, nodes: Any) -> Any:
            return served.predicted([nodes])[0]

        found = {}
        for name, answer, times in (("table", table, count), ("network", network, count // 10)):
            seconds = [once(answer) for _ in range(times)]
            found[f"bare_{name}_ms"] = 1e3 * statistics.median(seconds)
        return found


def latency(case: Case, seconds: float, rate: float = 100.0) -> dict[str, Any]:
    """Single known nodes at a steady rate, one worker; the bare call before and after."""
    checker, nodes = Checker(case.expected()), fastgcn.load(case.store).n_nodes
    before = bare_calls(case)
    gc.freeze()  # the generator's own pauses, of up to 0.2 seconds, are not the service's
    tally = Tally()
    with service(case) as (host, port, _):
        warm = Tally()
        asyncio.run(_paced(host, port, rate, 2, checker, warm, nodes))
        asyncio.run(_paced(host, port, rate, seconds, checker, tally, nodes))
    after = bare_calls(case)
    bare = {name: (before[name] + after[name]) / 2 for name in before}
    found: dict[str, Any] = {
        "requests": len(tally.seconds),
        "wrong": tally.wrong,
        "broken": len(tally.broken),
    }
    found |= tally.quantiles()
    return found | bare | {"p50_over_bare": found["p50_ms"] / bare["bare_table_ms"]}


async def _faults(
    host: str, port: int, seconds: float, process: psutil.Process, checker: Checker, nodes: int
) -> dict[str, Any]:
    """Mixed questions and faults until the time is over; resident memory every second."""
    first = Connection(host, port)
    await first.ask("GET", "/readyz")  # waits for a worker
    first.close()
    begin, tally = time.perf_counter(), Tally()
    killed: list[float] = []
    memory: dict[int, list[tuple[int, int]]] = {}

    def over() -> bool:
        return time.perf_counter() - begin > seconds

    async def ask(
        connection: Connection, name: str, *given: Any, expected: tuple[int, ...] = (200, 429)
    ) -> bytes:
        try:
            status, body = await connection.ask(*given)
        except OSError:
            tally.broken.append(time.perf_counter() - begin)
            await asyncio.sleep(0.05)
            return b""
        tally.statuses[f"{name} {status}"] += 1
        tally.wrong += status not in expected
        return body if status == 200 else b""

    async def predictions(seed: int) -> None:
        connection, rng = Connection(host, port), random.Random(seed)
        while not over():
            some = [rng.randrange(nodes) for _ in range(rng.choice((1, 1, 1, 20)))]
            body = json.dumps({"ids": some}).encode()
            found = await ask(connection, "predict", "POST", "/predict", body)
            tally.wrong += bool(found) and not checker.right(found, some)
            await asyncio.sleep(rng.expovariate(20))
        connection.close()

    async def others(seed: int) -> None:
        connection, rng = Connection(host, port), random.Random(seed)
        while not over():
            node = rng.randrange(nodes)
            await ask(
                connection, "node", "GET", f"/nodes/{node}?explain=false", expected=(200, 429)
            )
            body = json.dumps({"ids": [node], "layer": 1}).encode()
            await ask(connection, "embed", "POST", "/embed", body)
            body = json.dumps({"id": node, "features": {"3": rng.gauss(0, 1)}}).encode()
            await ask(connection, "what-if", "POST", "/what-if", body, expected=(200, 413, 429))
            await ask(connection, "metrics", "GET", "/metrics", expected=(200,))
            await asyncio.sleep(rng.expovariate(1))
        connection.close()

    async def broken_bodies() -> None:
        connection = Connection(host, port)
        while not over():
            await ask(connection, "broken", "POST", "/predict", b'{"ids": [', expected=(400,))
            await ask(connection, "unknown", "POST", "/predict", b'{"ids": [-1]}', expected=(404,))
            large = b" " * (_BODY + 1)
            try:
                status, _ = await connection.ask("POST", "/predict", large)
                tally.statuses[f"oversized {status}"] += 1
                tally.wrong += status != 413
            except OSError:  # refused while it is still being sent
                tally.statuses["oversized refused"] += 1
            await asyncio.sleep(0.5)
        connection.close()

    async def slow_client() -> None:
        while not over():
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(
                    f"POST /predict HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n"
                    "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n".encode()
                )
                answer = asyncio.create_task(reader.read(100))
                while not answer.done() and not over():
                    writer.write(b" ")
                    await asyncio.wait([answer], timeout=1)
                if answer.done():
                    tally.statuses[f"slow {answer.result()[9:12].decode()}"] += 1
                else:
                    answer.cancel()
                writer.close()

    async def reloads() -> None:
        every = max(seconds / 8, 5)
        for turn in range(1000):
            for _ in range(int(every * 10)):
                if over():
                    return
                await asyncio.sleep(0.1)
            connection = Connection(host, port)  # the service closes one that is idle for so long
            body = json.dumps({"run": ("two", "one")[turn % 2]}).encode()
            await ask(connection, "reload", "POST", "/reload", body, expected=(200,))
            connection.close()

    async def killer() -> None:
        await asyncio.sleep(0.15 * seconds)
        workers = _workers(process)
        killed.append(time.perf_counter() - begin)
        workers[0].kill()

    async def watcher() -> None:
        while not over():
            for worker in _workers(process):
                with suppress(psutil.Error):  # the killed one
                    found = worker.memory_full_info()
                    memory.setdefault(worker.pid, []).append((found.rss, found.uss))
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for seed in range(4):
            group.create_task(predictions(seed))
        for seed in range(2):
            group.create_task(others(100 + seed))
        for each in (broken_bodies, slow_client, reloads, killer, watcher):
            group.create_task(each())
    # Connections to the killed worker break; no others may.
    lost = [when for when in tally.broken if not any(0 <= when - at < 10 for at in killed)]
    return {
        "statuses": dict(sorted(tally.statuses.items())),
        "wrong": tally.wrong,
        "broken_by_kill": len(tally.broken) - len(lost),
        "broken_otherwise": len(lost),
        **_flatness([memory[worker.pid] for worker in _workers(process)]),
    }


def _workers(process: psutil.Process) -> list[psutil.Process]:
    """The workers of a service: children that are large, not the resource tracker."""
    found = []
    for child in process.children():
        with suppress(psutil.Error):
            if child.memory_info().rss > 50 << 20:
                found.append(child)
    return found


def _flatness(workers: list[list[tuple[int, int]]]) -> dict[str, float]:
    """Resident memory of the workers that are left, and the largest growth of one of them: from
    the second quarter of its life to the last fifth."""
    found: dict[str, float] = {}
    for name, place in (("resident", 0), ("unshared", 1)):
        series = [[each[place] for each in worker] for worker in workers]
        early = [statistics.median(s[len(s) // 4 : len(s) // 2]) for s in series]
        late = [statistics.median(s[-len(s) // 5 :]) for s in series]
        found[f"{name}_mb"] = sum(late) / 1e6
        found[f"{name}_growth"] = max(b / a - 1 for a, b in zip(early, late, strict=True))
    return found


def faults(case: Case, seconds: float) -> dict[str, Any]:
    """Mixed load on two workers with a killed worker, bad bodies, a slow client and reloads."""
    checker, nodes = Checker(case.expected()), fastgcn.load(case.store).n_nodes
    options = ("--workers", "2", "--max-body", str(_BODY), "--max-seconds", "10")
    with service(case, *options) as (host, port, process):
        return asyncio.run(_faults(host, port, seconds, process, checker, nodes))
