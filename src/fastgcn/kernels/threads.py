"""Run a loop on several Python threads; compiled loops release Python's lock."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch

from fastgcn.arrays import IntArray


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
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="fastgcn")
