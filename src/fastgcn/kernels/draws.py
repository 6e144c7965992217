"""Drawing vertices: the inner loops.

`place` (n,) int32 is work space, filled with -1 before and after each call.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import FloatArray, IntArray


@njit(cache=True, nogil=True)
def running_sums(q: FloatArray, slots: int) -> Any:
    """(n,) running sums of q, and (slots,) int32: for every k the first u whose sum is above
    k/slots of the total.

    From there a draw finds its vertex in n/slots steps on average; a bisection takes log n.
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

    Returns distinct positions in the order first drawn, and how often each was drawn.
    """
    n, t, slots = len(cumulative), len(uniforms), len(guide)
    total = cumulative[n - 1]
    drawn, counts = np.empty(t, np.int64), np.empty(t, np.int64)
    found = 0
    for i in range(t):
        x = uniforms[i] * total
        u = np.int64(guide[int(uniforms[i] * slots)])  # a uniform below one stays below slots
        # Rounding may put the guide one step too far, or x at the total, which would draw a
        # vertex of q = 0.
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
    """Append to drawn[:known] those of `more` (distinct) that it does not hold, in order.

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

    Each pass makes the vertices with c·q(u) above one certain and spreads the rest of t over the
    others. c only grows, so the passes end when no further vertex becomes certain.
    """
    factor, certain = 0.0, -1
    while True:
        above, mass = 0, 0.0
        for u in range(len(q)):
            if factor * q[u] > 1:
                above += 1
            else:
                mass += q[u]
        if above == certain or above >= t:  # t or more only by rounding
            return factor
        certain = above
        factor = (t - above) / mass


def inclusion_probabilities(q: FloatArray, t: int) -> FloatArray:
    """(n,): p(u) = min(1, c·q(u)), summing to t, or to the number of q(u) > 0 if that is less."""
    if t >= np.count_nonzero(q):
        return (q > 0).astype(np.float64)
    p: FloatArray = inclusion_factor(q, t) * q
    p[p > 1 - 1e-9] = 1.0  # one up to rounding
    return p


@njit(cache=True, nogil=True)
def sized(value: float, power: float) -> float:
    """|value|^power; 0 for a value of 0, even if power is 0, so that zeros are never drawn."""
    size = abs(np.float64(value))
    if size == 0:
        return 0.0
    if power == 2:
        return size * size
    return size if power == 1 else size**power


@njit(cache=True, nogil=True)
def sums_of_powers(
    indptr: IntArray, indices: IntArray, values: FloatArray, power: float, off_diagonal: bool
) -> Any:
    """(n,) Σ_u |Â(v,u)|^power of each row and (n,) the sum over v of each column of Â (n, n).

    With `off_diagonal`, without Â(v,v).
    """
    n = len(indptr) - 1
    of_rows, of_columns = np.zeros(n), np.zeros(n)
    for v in range(n):
        for entry in range(indptr[v], indptr[v + 1]):
            if not (off_diagonal and indices[entry] == v):
                size = sized(values[entry], power)
                of_rows[v] += size
                of_columns[indices[entry]] += size
    return of_rows, of_columns


@njit(cache=True, nogil=True)
def draw_entries(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    lengths: FloatArray,
    power: float,
    points: FloatArray,
    off_diagonal: bool,
    place: IntArray,
) -> Any:
    """The columns of the entries that ascending `points` in [0, 1) fall on: distinct, and counts.

    The entries of `rows`, one after the other, divide [0, 1) in proportion to |Â(v,u)|^power,
    which add up to `lengths` row by row. With `off_diagonal`, entries Â(v,v) are left out.
    """
    total = lengths.sum()
    drawn, counts = np.empty(len(points), np.int64), np.zeros(len(points), np.int64)
    found = i = 0
    before = 0.0  # the length of the rows and entries before this one
    for r in range(len(rows)):
        end = before + lengths[r]
        last = np.int64(-1)
        if i < len(points) and points[i] * total < end:
            for entry in range(indptr[rows[r]], indptr[rows[r] + 1]):
                u, size = indices[entry], sized(values[entry], power)
                if size == 0 or (off_diagonal and u == rows[r]):
                    continue
                before, last = before + size, np.int64(u)
                while i < len(points) and points[i] * total < before:
                    found = _hit(last, drawn, counts, found, place)
                    i += 1
        # Rounding may leave points between the row's last entry and its end.
        while last >= 0 and i < len(points) and points[i] * total < end:
            found = _hit(last, drawn, counts, found, place)
            i += 1
        before = end
    for c in range(found):
        place[drawn[c]] = -1
    return drawn[:found], counts[:found]


@njit(cache=True, nogil=True, inline="always")
def _hit(u: Any, drawn: IntArray, counts: IntArray, found: int, place: IntArray) -> Any:
    if place[u] < 0:
        place[u] = found
        drawn[found] = u
        found += 1
    counts[place[u]] += 1
    return found


@njit(cache=True, nogil=True)
def entries_at(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    lengths: FloatArray,
    power: float,
    which: IntArray,
    points: FloatArray,
) -> Any:
    """The column of the entry that each point falls on.

    Point i lies in row rows[which[i]], at points[i] of its length. The entries of a row divide it
    in proportion to |Â(v,u)|^power, which add up to `lengths`; rows with points in them, and
    points in a row, ascend.
    """
    columns = np.empty(len(points), np.int64)
    at, row, before = np.int64(0), np.int64(-1), 0.0
    for i in range(len(points)):
        v = rows[which[i]]
        if which[i] != row:
            row, at, before = which[i], indptr[v], 0.0
        target = points[i] * lengths[which[i]]
        # Points that rounding leaves over fall on the last entry of a row.
        while at < indptr[v + 1] - 1:
            share = sized(values[at], power)
            if target < before + share:
                break
            before += share
            at += 1
        columns[i] = indices[at]
    return columns


@njit(cache=True, nogil=True)
def sums_of_columns(columns: IntArray, values: FloatArray, power: float, count: int) -> Any:
    """(count,) float64: Σ |value|^power of the entries in each column."""
    sums = np.zeros(count)
    for entry in range(len(columns)):
        sums[columns[entry]] += sized(values[entry], power)
    return sums


def draw_folded_reference(cumulative: FloatArray, uniforms: FloatArray) -> dict[int, int]:
    """How often each position is drawn by inverting the running sums."""
    total = cumulative[-1]
    points = np.minimum(uniforms * total, np.nextafter(total, 0))
    drawn, counts = np.unique(np.searchsorted(cumulative, points, side="right"), return_counts=True)
    return dict(zip(drawn.tolist(), counts.tolist(), strict=True))
