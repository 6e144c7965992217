"""Neighbour sampling on the CPU: k neighbours of every row, as GraphSAGE draws them."""

import numpy as np
from numba import njit, prange

from fastgcn.kernels.mixing import STEP, mix
from fastgcn.types import IntArray


@njit(cache=True, nogil=True, parallel=True)
def sample_neighbors(
    indptr: IntArray, indices: IntArray, rows: IntArray, k: int, seed: int, out: IntArray
) -> None:
    """Fill `out` (s, k) with k neighbours of each of `rows` (s,); -1 for a row without any.

    A row with at most k neighbours gives them all, then repeats of random ones as their paper
    has it ("with replacement where the sample is larger than the degree"); a longer one gives k
    distinct neighbours (Floyd's algorithm). Row i draws from its own stream, a counter under
    (seed, i), so the result does not depend on the number of threads.
    """
    for i in prange(len(rows)):
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
