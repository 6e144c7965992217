"""The device and the CPU threads that a run uses."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from queue import SimpleQueue
from typing import cast

import torch
from threadpoolctl import ThreadpoolController

from fastgcn.ahead import usable_cores
from fastgcn.arrays import IntArray
from fastgcn.errors import InputError


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"device {name} is not available: there is no CUDA device here; use cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name} is not available: the CUDA devices here are numbered from 0 to "
            f"{torch.cuda.device_count() - 1}"
        )
    return device


@contextmanager
def memory_of_device() -> Iterator[None]:
    """Turn torch's out-of-memory errors into one that says which settings to lower."""
    try:
        yield
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # the CPU's allocator has no class of its own
            raise InputError(
                "this takes more memory than the process can have; lower batch_size, samples or "
                "hidden"
            ) from error
        # Pinning memory and loading kernels raise no error class of their own.
        if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in str(error):
            raise
        raise InputError(
            "the GPU has too little memory for this; lower batch_size, samples or hidden, or use "
            "--features host, or --device cpu"
        ) from error


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Run torch and numpy's BLAS on `threads` threads; 0 means all that this process may use."""
    with _threads(threads or usable_cores()):
        yield


@contextmanager
def one_thread(wanted: bool, *, pool: bool = False) -> Iterator[None]:
    """If `wanted`, run torch, BLAS and `over_ranges` on one thread: a small product is slower on
    two.

    With `pool`, torch and BLAS run on one thread in any case, and `over_ranges` on all unless one
    is `wanted`. Their own threads keep a core busy for milliseconds after each call, in case there
    is more to do, and ours could use it. BLAS keeps one thread until a later call changes it.
    """
    torchs, ours, told = torch.get_num_threads(), pool_threads(), getattr(_pooled, "threads", 0)
    count = 1 if wanted else torchs
    alone = 1 if pool else count
    _limit_blas(alone)
    torch.set_num_threads(alone)
    _pooled.threads = 1 if wanted else ours
    try:
        yield
    finally:
        torch.set_num_threads(torchs)
        _pooled.threads = told


_pooled = threading.local()


def pool_threads() -> int:
    """How many threads `over_ranges` uses, if it is called from this thread."""
    return getattr(_pooled, "threads", 0) or torch.get_num_threads()


def begin_thread(threads: int) -> None:
    """Called first in a thread that trains: torch has one thread there, `over_ranges` some.

    BLAS has one thread in the whole process from now on, until a later call changes it.
    """
    torch.set_num_threads(1)
    _limit_blas(1)
    _pooled.threads = threads


def share_pool(threads: int, number: int, count: int) -> None:
    """`over_ranges`, called from this thread, uses share number 0, 1, ... of `count` nearly equal
    shares of some threads; at least one."""
    _pooled.threads = max(1, threads // count + (number < threads % count))


def _limit_blas(count: int) -> int:
    """Let BLAS have `count` threads, called from any thread; returns how many it had.

    threadpoolctl lets only the first thread that asks change OpenBLAS, until it is told otherwise,
    and ignores all others. Two trainings beside each other then took ten times as long.
    """
    found = [each for each in _pools().lib_controllers if each.user_api == "blas"]
    before = max((each.num_threads for each in found), default=1)
    if before != count:
        for each in found:
            if hasattr(each, "clear_controlling_thread"):  # from threadpoolctl 3.8 on
                each.clear_controlling_thread(force=True)
            each.set_num_threads(count)
    return before


@contextmanager
def _threads(count: int) -> Iterator[None]:
    torchs, blas = torch.get_num_threads(), _limit_blas(count)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(torchs)
        _limit_blas(blas)


@cache
def _pools() -> ThreadpoolController:
    # Loads the BLAS of compiled kernels, so that threadpoolctl finds it.
    import scipy.linalg.cython_blas  # noqa: F401

    return ThreadpoolController()


def over_ranges(work: Callable[[int, int], None], bounds: "IntArray | Sequence[int]") -> None:
    """Call work(bounds[i], bounds[i+1]) for every i, on `pool_threads()` threads.

    Numba's own threads are not used: its default pool must not be entered from two threads
    at once, and sampling runs beside the training step.
    """
    ranges = [(int(a), int(b)) for a, b in pairwise(bounds) if a < b]
    share(work, ranges)


def share(
    work: Callable[[int, int], None],
    ranges: Sequence[tuple[int, int]],
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Call work(start, stop) for every range, on `pool_threads()` threads.

    The caller waits for the helpers that have begun, unless all is `ended` when no range is left.
    """
    others = min(pool_threads(), len(ranges)) - 1
    if others <= 0:
        for start, stop in ranges:
            work(start, stop)
        return
    helpers = _helpers(others)
    shared = _Shared(work, ranges, len(helpers))
    for helper in helpers:
        helper.help_with(shared)
    shared.finish(ended)


# A helper that is woken too late is not waited for. Another is made unless there are so many
# threads for each that is wanted.
_MOST_THREADS = 8


class _Shared:
    """Ranges of one call of `over_ranges`, of which each thread takes the next one."""

    def __init__(
        self, work: Callable[[int, int], None], ranges: Sequence[tuple[int, int]], helpers: int
    ) -> None:
        self._work, self._left = work, iter(ranges)
        # A helper takes a ticket first. Who has none by the end is not needed any more.
        self._tickets = [None] * helpers
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self._helpers = helpers

    def _take(self) -> None:
        for start, stop in self._left:
            self._work(start, stop)

    def help(self) -> None:
        """Called by a helper: take ranges until none is left."""
        try:
            self._tickets.pop()
        except IndexError:
            return
        failed = None
        try:
            self._take()
        except BaseException as error:  # raised again by `finish`
            failed = error
        self._ended.put(failed)

    def finish(self, ended: Callable[[], bool]) -> None:
        """Called by the owner: take ranges too, and wait for the helpers that have begun, unless
        all is `ended`."""
        waits = True
        try:
            self._take()
            waits = not ended()
        finally:
            begun = self._helpers - self._cancelled()
            failed = [self._ended.get() for _ in range(begun if waits else 0)]
        for error in failed:
            if error is not None:
                raise error

    def _cancelled(self) -> int:
        """Take the tickets of helpers that have not begun."""
        count = 0
        while self._tickets:
            try:
                self._tickets.pop()
                count += 1
            except IndexError:
                break
        return count


class _Helper:
    """A thread that waits for work. A lock wakes it: a pool's queue and futures take five times as
    long, and a step shares work twenty times."""

    def __init__(self, idle: "list[_Helper]") -> None:
        self._idle, self._shared = idle, cast(_Shared, None)
        self._wake = threading.Lock()
        self._wake.acquire()
        threading.Thread(target=self._run, name="fastgcn", daemon=True).start()

    def help_with(self, shared: _Shared) -> None:
        self._shared = shared
        self._wake.release()

    def _run(self) -> None:
        torch.set_num_threads(1)
        while True:
            self._wake.acquire()
            shared, self._shared = self._shared, cast(_Shared, None)
            shared.help()
            del shared  # it may hold large arrays
            self._idle.append(self)


def _helpers(wanted: int) -> list[_Helper]:
    """So many threads that have nothing to do, or fewer if most are late on a busy machine."""
    idle, found = _idle_helpers(os.getpid()), list[_Helper]()
    for _ in range(wanted):
        try:
            found.append(idle.pop())
        except IndexError:
            if threading.active_count() > _MOST_THREADS * wanted:
                break
            found.append(_Helper(idle))
    return found


def cuts(length: int, size: int) -> list[int]:
    """Bounds of ranges of `size`, and a shorter last one: the same on any number of threads.

    >>> cuts(5, 2)
    [0, 2, 4, 5]
    """
    return [*range(0, length, size), length]


@cache
def _idle_helpers(process: int) -> list[_Helper]:  # noqa: ARG001
    """One list per process, because threads do not survive a fork."""
    return []
