"""Work in processes of their own: one with its seconds and peaks of memory, or many at once."""

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from fastgcn.errors import InputError

Record = dict[str, Any]
Item = TypeVar("Item")
Found = TypeVar("Found")

STATUS = Path("/proc/self/status")
_SAMPLE_SECONDS = 0.005


def fresh(function: Callable[..., Record], *args: Any, limit: int | None = None) -> Record:
    """What `function` returns in a new process, with that process's `seconds` and peaks in bytes.

    `peak` is VmHWM, all resident pages, those of mapped files too; `anonymous` leaves these out,
    for the system may drop them whenever it needs memory. `limit` bounds what the process
    allocates (RLIMIT_DATA).
    """
    if not STATUS.exists():
        raise InputError(f"peaks of memory need {STATUS}, which Linux has and this system has not")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_watched, function, args, limit).result()


def _watched(function: Callable[..., Record], args: tuple[Any, ...], limit: int | None) -> Record:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start = time.perf_counter()
    with AnonymousPeak() as anonymous:
        found = function(*args)
    seconds = round(time.perf_counter() - start, 4)
    peaks = {"peak": status_bytes("VmHWM"), "anonymous": anonymous.bytes}
    return {"seconds": seconds} | found | peaks


def together(
    function: Callable[[Item], Found], items: Sequence[Item], jobs: int
) -> Iterator[Found]:
    """What `function` returns for each item, as they are done, in so many processes at once.

    Each process keeps to one core, where the system allows that. Items begin in their order.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(
        min(jobs, len(items)),
        mp_context=context,
        initializer=_keep_to_one_core,
        initargs=(context.Value("i", 0),),
    ) as pool:
        try:
            for done in as_completed([pool.submit(function, item) for item in items]):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _keep_to_one_core(turn: Any) -> None:
    with turn.get_lock():
        number = turn.value
        turn.value += 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def status_bytes(field: str) -> int:
    """A number of bytes that Linux keeps of this process, such as VmHWM, its peak."""
    lines = STATUS.read_text(encoding="utf-8").splitlines()
    (line,) = (each for each in lines if each.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


class AnonymousPeak:
    """The largest RssAnon seen in a `with` block, by looking often: Linux keeps no peak of it."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "AnonymousPeak":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, status_bytes("RssAnon"))
            if self._stopped.wait(_SAMPLE_SECONDS):
                return
