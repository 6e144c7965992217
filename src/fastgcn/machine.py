"""The device and the CPU threads that a run uses."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

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
    if alone != _blas_threads():
        _pools().limit(limits=alone, user_api="blas")
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
    """Called first in a thread that trains: torch has one thread there, `over_ranges` some."""
    torch.set_num_threads(1)
    _pooled.threads = threads


def _blas_threads() -> int:
    return max((pool.num_threads for pool in _pools().lib_controllers
                if pool.user_api == "blas"), default=1)  # fmt: skip


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _pools().limit(limits=count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


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
    others = min(pool_threads(), len(ranges)) - 1
    left = iter(ranges)  # each thread takes the next one

    def take() -> None:
        for start, stop in left:
            work(start, stop)

    helping = [_pool(pool_threads(), os.getpid()).submit(take) for _ in range(others)]
    if not helping:
        take()
        return
    try:
        take()
    finally:
        # Who has not begun by now is not needed any more.
        running = [each for each in helping if not each.cancel()]
        wait(running)
    for each in running:
        each.result()


def cuts(length: int, size: int) -> list[int]:
    """Bounds of ranges of `size`, and a shorter last one: the same on any number of threads.

    >>> cuts(5, 2)
    [0, 2, 4, 5]
    """
    return [*range(0, length, size), length]


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """One pool per process, because threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="fastgcn")
