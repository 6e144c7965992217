"""Rows by number, from a file and from those of its rows that are in memory."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit, types

from fastgcn.arrays import AnyArray, IntArray

# A row that the system does not have in memory is waited for by the thread that asks for it;
# several ask at once.
_READERS = 16
_WORTH_SHARING = 256  # rows below which one thread has read them before others are awake

# The system's own, so that a compiled loop can read without Python's lock.
_pread: Any = types.ExternalFunction(
    "pread", types.intp(types.intc, types.intp, types.uintp, types.int64)
)


def gather_rows(
    ids: IntArray, descriptor: int, slots: IntArray, hot: AnyArray, out: AnyArray
) -> bool:
    """out (k, u) int16 = the rows `ids` of an open file of such rows, read in the file's order.

    `slots` (n,) says which row of `hot` is the same, -1 that none is; of length 0: none at all.
    Returns whether every row could be read.
    """
    order = np.argsort(ids)
    bounds = [0, len(ids)]
    if len(ids) >= _WORTH_SHARING:
        bounds = np.linspace(0, len(ids), _READERS + 1).astype(np.int64).tolist()
    read = _readers(os.getpid()).map(
        lambda part: _gather(part[0], part[1], order, ids, descriptor, slots, hot, out),
        pairwise(bounds),
    )
    return all(list(read))


@cache
def _readers(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(_READERS, thread_name_prefix="fastgcn-reader")


@njit(cache=True, nogil=True)
def _gather(
    start: int,
    stop: int,
    order: IntArray,
    ids: IntArray,
    descriptor: int,
    slots: IntArray,
    hot: AnyArray,
    out: AnyArray,
) -> bool:
    """Whether every row could be read."""
    row_bytes, begin = 2 * out.shape[1], out.ctypes.data
    for i in range(start, stop):
        place = order[i]
        row = ids[place]
        slot = slots[row] if len(slots) > 0 else -1
        if slot >= 0:
            for j in range(out.shape[1]):
                out[place, j] = hot[slot, j]
        else:
            done = 0
            while done < row_bytes:
                to, at = begin + place * row_bytes + done, row * row_bytes + done
                got = _pread(descriptor, to, row_bytes - done, at)
                if got <= 0:
                    return False
                done += got
    return True
