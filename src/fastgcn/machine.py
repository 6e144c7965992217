"""The device and the CPU threads that a run uses."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import torch
from threadpoolctl import ThreadpoolController

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
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with _threads(threads or allowed or 1):
        yield


@contextmanager
def one_thread(wanted: bool, *, blas_alone: bool = False) -> Iterator[None]:
    """If `wanted`, run torch and BLAS on one thread: a small product is slower on two.

    With `blas_alone`, BLAS runs on one thread in any case, as `kernels.dense` wants it. BLAS
    keeps one thread until a later call changes it: whenever its threads are started, they keep a
    core busy for tens of milliseconds while they wait for more work.
    """
    before = torch.get_num_threads()
    count = 1 if wanted else before
    blas = 1 if blas_alone else count
    if blas != _blas_threads():
        _pools().limit(limits=blas, user_api="blas")
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
    """Call work(bounds[i], bounds[i+1]) for every i, on as many threads as torch uses.

    Numba's own threads are not used: its default pool must not be entered from two threads
    at once, and sampling runs beside the training step.
    """
    ranges = [(int(a), int(b)) for a, b in pairwise(bounds) if a < b]
    threads = torch.get_num_threads()
    if threads == 1 or len(ranges) == 1:
        for start, stop in ranges:
            work(start, stop)
        return
    for _ in _pool(threads, os.getpid()).map(lambda part: work(*part), ranges):
        pass


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """One pool per process, because threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="fastgcn")
