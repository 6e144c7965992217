"""Preparing the next batches while the current one is computed."""

import threading
import time
from collections.abc import Generator, Iterable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

# Handing over costs some 20 µs, so that quick items travel together: as many as are made in
# this many seconds. Slow ones, which may be large, travel alone.
_PARCEL_SECONDS = 4e-3
_PARCELS = 3  # made and not yet taken


def ahead(items: Iterable[T]) -> Generator[T]:
    """The same items in the same order, made by a thread that is a little ahead.

    An exception in the thread is raised here, where its item would have come; closing this
    iterator stops the thread.

    >>> list(ahead(range(5)))
    [0, 1, 2, 3, 4]
    """
    parcels: SimpleQueue[tuple[list[T], BaseException | None, bool]] = SimpleQueue()
    room = threading.Semaphore(_PARCELS)
    stopped = threading.Event()

    def make() -> None:
        parcel: list[T] = []
        try:
            room.acquire()
            began = time.perf_counter()
            for item in items:
                if stopped.is_set():
                    return
                parcel.append(item)
                if time.perf_counter() - began >= _PARCEL_SECONDS:
                    parcels.put((parcel, None, False))
                    parcel = []
                    room.acquire()
                    began = time.perf_counter()
            parcels.put((parcel, None, True))
        except BaseException as error:  # whatever it is, it belongs to the one who waits
            parcels.put((parcel, error, True))

    maker = threading.Thread(target=make, name="fastgcn-ahead", daemon=True)
    maker.start()
    try:
        last = False
        while not last:
            parcel, error, last = parcels.get()
            room.release()
            yield from parcel
            if error is not None:
                raise error
    finally:
        stopped.set()
        room.release()
        maker.join()
