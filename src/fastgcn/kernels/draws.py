"""Drawing vertices: the inner loops.

`place` (n,) int32 is work space that every function finds, and leaves, filled with -1.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.types import FloatArray, IntArray


@njit(cache=True, nogil=True)
def running_sums(q: FloatArray, slots: int) -> Any:
    """(n,) running sums of q, and (slots,) int32: for every k the first u whose sum is above
    k/slots of the total.

    From there a draw finds its vertex in n/slots steps on average, where a bisection takes log n.
    """
    n = len(q)
    cumulative, guide = np.empty(n), np.empty(slots, np.int32)
    total = 0.0
    for u in range(n):
        total += q[u]
        cumulative[u] = total
    u = 0
    for k in range(slots):
        while u < n - 1 and cumulative[u] <= k * (total / slots):
            u += 1
        guide[k] = u
    return cumulative, guide


@njit(cache=True, nogil=True)
def draw_folded(
    cumulative: FloatArray, guide: IntArray, uniforms: FloatArray, place: IntArray
) -> Any:
    """The u with cumulative[u-1] <= x < cumulative[u] for each x = uniform·total, folded.

    Distinct positions in the order they first came up, and how often each did.
    """
    n, t, slots = len(cumulative), len(uniforms), len(guide)
    total = cumulative[n - 1]
    drawn, counts = np.empty(t, np.int64), np.empty(t, np.int64)
    found = 0
    for i in range(t):
        x = uniforms[i] * total
        u = np.int64(guide[int(uniforms[i] * slots)])  # a uniform below one stays below slots
        # Rounding may put the guide one step too far on, or x at the total, where a vertex
        # that cannot be drawn would be met.
        while u > 0 and cumulative[u - 1] > x:
            u -= 1
        while u < n - 1 and cumulative[u] <= x:
            u += 1
        while u > 0 and cumulative[u] == cumulative[u - 1]:
            u -= 1
        if place[u] < 0:
            place[u] = found
            drawn[found] = u
            counts[found] = 0
            found += 1
        counts[place[u]] += 1
    for i in range(found):
        place[drawn[i]] = -1
    return drawn[:found], counts[:found]


@njit(cache=True, nogil=True)
def append_new(drawn: IntArray, known: int, more: IntArray, place: IntArray) -> int:
    """Put those of `more` (distinct) that are not in drawn[:known] behind these, in order.

    Returns how many positions `drawn` now holds.
    """
    for i in range(known):
        place[drawn[i]] = i
    count = known
    for i in range(len(more)):
        if place[more[i]] < 0:
            drawn[count] = more[i]
            count += 1
    for i in range(known):
        place[drawn[i]] = -1
    return count


@njit(cache=True, nogil=True)
def inclusion_factor(q: FloatArray, t: int) -> float:
    """The c with Σ_u min(1, c·q(u)) = t, for more than t positive q(u).

    Each pass gives the vertices above one their place for certain and spreads what is left of t
    over the others; c only grows, so that it ends when no vertex joins the certain ones.
    """
    factor, certain = 0.0, -1
    while True:
        above, mass = 0, 0.0
        for u in range(len(q)):
            if factor * q[u] > 1:
                above += 1
            else:
                mass += q[u]
        if above == certain or above >= t:  # as many as t only by rounding
            return factor
        certain = above
        factor = (t - above) / mass


def inclusion_probabilities(q: FloatArray, t: int) -> FloatArray:
    """(n,): p(u) = min(1, c·q(u)) that sum to t, or to as many as have q(u) > 0."""
    if t >= np.count_nonzero(q):
        return (q > 0).astype(np.float64)
    p: FloatArray = inclusion_factor(q, t) * q
    p[p > 1 - 1e-9] = 1.0  # one but for rounding is one
    return p
