"""Work that other threads do before it is needed, in the order in which it is needed."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Task = TypeVar("Task")
Result = TypeVar("Result")

# Passing an item to another thread costs about 20 µs. Items that are made quickly are passed
# together, as many as are made in this time; slow ones, which may be large, are passed one by one.
_CHUNK_SECONDS = 4e-3
_CHUNKS = 3  # chunks that are made and not yet taken


def ahead(items: Iterable[T]) -> Generator[T]:
    """The same items in the same order, made in advance by another thread.

    An exception in the thread is raised here in place of its item. Closing this iterator stops
    the thread.

    >>> list(ahead(range(5)))
    [0, 1, 2, 3, 4]
    """
    chunks: SimpleQueue[tuple[list[T], BaseException | None, bool]] = SimpleQueue()
    room = threading.Semaphore(_CHUNKS)
    stopped = threading.Event()

    def make() -> None:
        chunk: list[T] = []
        try:
            room.acquire()
            began = time.perf_counter()
            for item in items:
                if stopped.is_set():
                    return
                chunk.append(item)
                if time.perf_counter() - began >= _CHUNK_SECONDS:
                    chunks.put((chunk, None, False))
                    chunk = []
                    room.acquire()
                    began = time.perf_counter()
            chunks.put((chunk, None, True))
        except BaseException as error:  # raised again in the thread that waits
            chunks.put((chunk, error, True))

    maker = threading.Thread(target=make, name="fastgcn-ahead", daemon=True)
    try:
        maker.start()
        last = False
        while not last:
            chunk, error, last = chunks.get()
            room.release()
            yield from chunk
            if error is not None:
                raise error
    finally:
        stopped.set()
        room.release()
        if maker.ident is not None:
            maker.join()


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[Task], Result], tasks: Iterable[Task], waiting: int
) -> Iterator[Result]:
    """As `pool.map`, but at most `waiting` results wait, which bounds the memory.

    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(pool, abs, [-1, 2, -3], waiting=1))
    [1, 2, 3]
    """
    under_way: deque[Future[Result]] = deque()
    for task in tasks:
        under_way.append(pool.submit(work, task))
        if len(under_way) > waiting:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def usable_cores() -> int:
    """How many cores this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return allowed or 1
