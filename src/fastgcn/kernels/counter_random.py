"""Random bits from counters: each thread makes the numbers of its part on its own."""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.machine import cuts, over_ranges, pool_threads

STEP = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True, inline="always")
def mix(x: Any) -> Any:
    """The output function of SplitMix64: 64 well-mixed bits of any 64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# Rates are rounded to multiples of 2^-16, so that one 64-bit draw decides four entries.
_GRAINS = 1 << 16

# Entries of a mask that a thread makes at a time.
_TOGETHER = 1 << 16


def dropout_mask(seed: int, rate: float, out: FloatArray, times: FloatArray | None = None) -> None:
    """Fill `out`, flat, with 0 for a share `rate` of its entries, 1/(1 - rate) for the others;
    multiplied by `times`, if that is given."""
    bits, (dropped, value) = np.uint64(seed), mask_values(rate)

    def fill(start: int, stop: int) -> None:
        fill_mask(bits, start // 4, dropped, value, out[start:stop])
        if times is not None:
            out[start:stop] *= times[start:stop]

    over_ranges(fill, cuts(len(out), _TOGETHER))


def mask_values(rate: float) -> tuple[int, np.float32]:
    """How many of 2^16 values mean that an entry is dropped, and the others' value 1/(1 - rate)."""
    if rate == 0:
        return 0, np.float32(1)
    dropped = min(max(round(rate * _GRAINS), 1), _GRAINS - 1)
    return dropped, np.float32(_GRAINS / (_GRAINS - dropped))


@njit(cache=True, nogil=True)
def fill_mask(
    seed: np.uint64, first: int, dropped: int, value: np.float32, out: FloatArray
) -> None:
    """The part of a dropout mask that begins with its entry 4·first."""
    whole = len(out) // 4
    for block in range(whole):
        bits = mix(seed + STEP * np.uint64(first + block + 1))
        at = 4 * block
        # Written out: the compiler does not unroll a loop over the four parts.
        a, b = np.int64(bits) & 0xFFFF, np.int64(bits >> np.uint64(16)) & 0xFFFF
        c, d = np.int64(bits >> np.uint64(32)) & 0xFFFF, np.int64(bits >> np.uint64(48))
        out[at] = value if a >= dropped else np.float32(0)
        out[at + 1] = value if b >= dropped else np.float32(0)
        out[at + 2] = value if c >= dropped else np.float32(0)
        out[at + 3] = value if d >= dropped else np.float32(0)
    bits = mix(seed + STEP * np.uint64(first + whole + 1))
    for part in range(len(out) - 4 * whole):
        grain = np.int64(bits >> np.uint64(16 * part)) & 0xFFFF
        out[4 * whole + part] = value if grain >= dropped else np.float32(0)


# Below this many draws, waking a second thread costs more time than it saves.
_WORTH_SHARING = 1 << 14


def sample_neighbors(
    indptr: IntArray, indices: IntArray, rows: IntArray, k: int, seed: int, out: IntArray
) -> None:
    """Fill `out` (s, k) with k neighbours of each of `rows` (s,); -1 for a row without any.

    A row with at most k neighbours gives them all, then random repeats, as in GraphSAGE's paper
    ("with replacement where the sample is larger than the degree"); a longer one gives k
    distinct neighbours (Floyd's algorithm). Row i has its own random stream, a counter under
    (seed, i), so the result does not depend on the number of threads.
    """
    pieces = pool_threads() if len(rows) * k >= _WORTH_SHARING else 1
    over_ranges(
        lambda a, b: _sample_rows(a, b, indptr, indices, rows, k, seed, out),
        np.linspace(0, len(rows), pieces + 1).astype(np.int64),
    )


@njit(cache=True, nogil=True)
def _sample_rows(
    first: int,
    last: int,
    indptr: IntArray,
    indices: IntArray,
    rows: IntArray,
    k: int,
    seed: int,
    out: IntArray,
) -> None:
    for i in range(first, last):
        start = indptr[rows[i]]
        degree = indptr[rows[i] + 1] - start
        state = mix(np.uint64(seed) + STEP * np.uint64(i + 1))
        for j in range(k):
            if degree == 0:
                out[i, j] = -1
                continue
            if degree <= k and j < degree:
                out[i, j] = indices[start + j]
                continue
            state += STEP
            bits = mix(state) >> np.uint64(32)
            if degree <= k:
                out[i, j] = indices[start + np.int64(bits * np.uint64(degree) >> np.uint64(32))]
                continue
            top = degree - k + j
            pick = indices[start + np.int64(bits * np.uint64(top + 1) >> np.uint64(32))]
            for earlier in range(j):
                if out[i, earlier] == pick:
                    pick = indices[start + top]
                    break
            out[i, j] = pick
