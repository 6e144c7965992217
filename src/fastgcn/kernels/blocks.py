"""Making blocks: which entries of Â are in the columns drawn, and how columns are numbered.

The functions for many batches draw and pick in one compiled call, by points in [0, 1). `place`
(n,) int32 is work space, filled with -1 before and after each call.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.kernels.draws import draw_entries, draw_folded, running_sums, sized

Csr = tuple[IntArray, IntArray, FloatArray]
Law = tuple[FloatArray, FloatArray, IntArray]


@njit(cache=True, nogil=True)
def number_columns(rows: IntArray, columns: IntArray, place: IntArray) -> Any:
    """Number `rows` (distinct) first, then the other `columns` in the order they occur.

    Returns the nodes in the order of their numbers, and the number of every column. `place`
    (n,) int32 is work space, filled with -1 before and after.
    """
    nodes = np.empty(min(len(rows) + len(columns), len(place)), np.int64)
    numbers = np.empty(len(columns), np.int64)
    for i in range(len(rows)):
        nodes[i] = rows[i]
        place[rows[i]] = i
    known = len(rows)
    for i in range(len(columns)):
        if place[columns[i]] < 0:
            nodes[known] = columns[i]
            place[columns[i]] = known
            known += 1
        numbers[i] = place[columns[i]]
    for i in range(known):
        place[nodes[i]] = -1
    return nodes[:known], numbers


@njit(cache=True, nogil=True)
def reach(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    power: float,
    off_diagonal: bool,
    place: IntArray,
) -> Any:
    """The distinct columns u in which `rows` have entries, in the order they occur, and
    Σ_{v in rows} |Â(v,u)|^power.
    Also, for each entry of the rows, its column's position among these; -1 for entries that are
    skipped: zeros and, with `off_diagonal`, Â(v,v).
    """
    entries = 0
    for r in range(len(rows)):
        entries += indptr[rows[r] + 1] - indptr[rows[r]]
    at, capacity = np.empty(entries, np.int32), min(entries, len(place))
    found, sums = np.empty(capacity, np.int64), np.zeros(capacity)
    known = filled = 0
    for r in range(len(rows)):
        v = rows[r]
        for entry in range(indptr[v], indptr[v + 1]):
            u, size = indices[entry], sized(values[entry], power)
            number = -1
            if size != 0 and not (off_diagonal and u == v):
                number = place[u]
                if number < 0:
                    number = known
                    place[u] = number
                    found[number] = u
                    known += 1
                sums[number] += size
            at[filled] = number
            filled += 1
    for i in range(known):
        place[found[i]] = -1
    return found[:known], sums[:known], at


@njit(cache=True, nogil=True)
def pick_reached(
    indptr: IntArray,
    values: FloatArray,
    rows: IntArray,
    reached: tuple[IntArray, IntArray],
    drawn: IntArray,
    weights: FloatArray,
    exact_self: bool,
) -> Any:
    """As `pick_entries`, after `reach`: `reached` are its columns and its positions of entries;
    `drawn` are positions in these columns."""
    found, at = reached
    weight = np.zeros(len(found))
    for c in range(len(drawn)):
        weight[drawn[c]] = weights[c]
    picked_indptr = np.zeros(len(rows) + 1, np.int64)
    columns, picked = np.empty(len(at), np.int64), np.empty(len(at), np.float32)
    filled = before = 0
    for r in range(len(rows)):
        v = rows[r]
        for entry in range(indptr[v], indptr[v + 1]):
            number = at[before]
            before += 1
            if number < 0:
                if not exact_self or values[entry] == 0:
                    continue
                columns[filled], picked[filled] = v, values[entry]
            elif weight[number] == 0:
                continue
            else:
                columns[filled] = found[number]
                picked[filled] = values[entry] * weight[number]
            filled += 1
        picked_indptr[r + 1] = filled
    return picked_indptr, columns[:filled], picked[:filled]


@njit(cache=True, nogil=True)
def pick_entries(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    drawn: IntArray,
    weights: FloatArray,
    exact_self: bool,
    place: IntArray,
) -> Any:
    """Entries of `rows` in the columns `drawn`, times these columns' weights: indptr, the columns
    as they are numbered in Â, and values.

    With `exact_self`, an entry Â(v,v) is included unscaled, drawn or not.
    """
    for c in range(len(drawn)):
        place[drawn[c]] = c
    picked_indptr = np.zeros(len(rows) + 1, np.int64)
    entries = 0
    for r in range(len(rows)):
        entries += indptr[rows[r] + 1] - indptr[rows[r]]
    columns, picked = np.empty(entries, indices.dtype), np.empty(entries, np.float32)
    filled = 0
    for r in range(len(rows)):
        v = rows[r]
        for entry in range(indptr[v], indptr[v + 1]):
            u = indices[entry]
            c = place[u]
            own = exact_self and u == v
            if c < 0 and not own:
                continue
            columns[filled] = u
            picked[filled] = values[entry] if own else values[entry] * weights[c]
            filled += 1
        picked_indptr[r + 1] = filled
    for c in range(len(drawn)):
        place[drawn[c]] = -1
    return picked_indptr, columns[:filled], picked[:filled]


@njit(cache=True, nogil=True)
def has_repeats(nodes: IntArray, place: IntArray) -> bool:
    """True if a node occurs twice."""
    repeats = False
    for i in range(len(nodes)):
        repeats |= place[nodes[i]] >= 0
        place[nodes[i]] = i
    for i in range(len(nodes)):
        place[nodes[i]] = -1
    return repeats


@njit(cache=True, nogil=True)
def pick_by_sums(
    indptr: IntArray,
    indices: IntArray,
    values: FloatArray,
    rows: IntArray,
    drawn: IntArray,
    counts: IntArray,
    factor: float,
    power: float,
    exact_self: bool,
    place: IntArray,
) -> Any:
    """Entries of `rows` in the columns `drawn`, times count(u)·factor / Σ_v |Â(v,u)|^power: indptr,
    the columns as they are numbered in Â, and values.

    With `exact_self`, an entry Â(v,v) is included unscaled, drawn or not, and not in the sums.
    """
    for c in range(len(drawn)):
        place[drawn[c]] = c
    entries = 0
    for r in range(len(rows)):
        entries += indptr[rows[r] + 1] - indptr[rows[r]]
    picked_indptr = np.zeros(len(rows) + 1, np.int64)
    columns, picked = np.empty(entries, indices.dtype), np.empty(entries, np.float32)
    of = np.empty(entries, np.int32)  # which drawn column, -1 for an exact entry
    sums = np.zeros(len(drawn))
    filled = 0
    for r in range(len(rows)):
        v = rows[r]
        for entry in range(indptr[v], indptr[v + 1]):
            u = indices[entry]
            c = place[u]
            if exact_self and u == v:
                c = -1
            elif c < 0:
                continue
            else:
                sums[c] += sized(values[entry], power)
            columns[filled], picked[filled], of[filled] = u, values[entry], c
            filled += 1
        picked_indptr[r + 1] = filled
    for entry in range(filled):
        c = of[entry]
        if c >= 0:
            picked[entry] *= counts[c] * factor / sums[c]
    for c in range(len(drawn)):
        place[drawn[c]] = -1
    return picked_indptr, columns[:filled], picked[:filled]


# All `sample_by_` functions take batches (b, s), a row of `points` (b, t) for each, Â's indptr,
# indices and values, and `room` for their blocks, which they return. One function for all three
# would take three times as long to compile.

# The CSR arrays of several blocks: row offsets (b, s+1), counted from each block's first entry,
# then columns and values of all blocks, concatenated; the sources of all blocks, concatenated; and
# (2, b+1) where the entries and the sources of each block begin.
Blocks = tuple[IntArray, IntArray, FloatArray, IntArray, IntArray]


def room(points: FloatArray, batches: IntArray) -> Blocks:
    """An empty `Blocks`, its arrays of entries of a usual size."""
    count, size = batches.shape
    usual = max(1024, 4 * batches.size)
    return (
        np.empty((count, size + 1), np.int64),
        np.empty(usual, np.int64),
        np.empty(usual, np.float32),
        np.empty(points.size + batches.size, np.int64),
        np.zeros((2, count + 1), np.int64),
    )


@njit(cache=True, nogil=True)
def sample_by_vertices(
    law: Law,
    renormalize: bool,
    points: FloatArray,
    matrix: Csr,
    batches: IntArray,
    own_rows: bool,
    exact_self: bool,
    place: IntArray,
    blocks: Blocks,
) -> Any:
    """Vertices from one q (n,) for all rows: `law` is q, its running sums and their guide.

    A vertex weighs count/(t·q(u)); with `renormalize`, q is first divided by its sum.
    """
    indptr, indices, values = matrix
    for b in range(len(batches)):
        rows = batches[b]
        drawn, weights = _drawn(law, renormalize, points[b], place)
        part = pick_entries(indptr, indices, values, rows, drawn, weights, exact_self, place)
        blocks = _with_block(blocks, b, part, rows, own_rows, place)
    return blocks


@njit(cache=True, nogil=True)
def sample_by_reach(
    q: FloatArray,
    renormalize: bool,
    points: FloatArray,
    matrix: Csr,
    batches: IntArray,
    own_rows: bool,
    exact_self: bool,
    place: IntArray,
    blocks: Blocks,
) -> Any:
    """Vertices from q (n,), restricted to columns in which some row of the batch has an entry.

    Weights are as above, with the sum of q over these vertices.
    """
    indptr, indices, values = matrix
    for b in range(len(batches)):
        rows = batches[b]
        found, _, at = reach(indptr, indices, values, rows, 2.0, exact_self, place)
        among = q[found]
        cumulative, guide = running_sums(among, min(len(among), 2 * points.shape[1]))
        drawn, weights = _drawn((among, cumulative, guide), renormalize, points[b], place)
        part = pick_reached(indptr, values, rows, (found, at), drawn, weights, exact_self)
        blocks = _with_block(blocks, b, part, rows, own_rows, place)
    return blocks


@njit(cache=True, nogil=True)
def sample_by_entries(
    sums: FloatArray,
    power: float,
    points: FloatArray,
    matrix: Csr,
    batches: IntArray,
    own_rows: bool,
    exact_self: bool,
    place: IntArray,
    blocks: Blocks,
) -> Any:
    """Columns of entries drawn by ascending points, in proportion to |Â(v,u)|^power.

    `sums` (n,) are those of the rows.
    """
    indptr, indices, values = matrix
    for b in range(len(batches)):
        rows = batches[b]
        lengths = sums[rows]
        drawn, counts = draw_entries(
            indptr, indices, values, rows, lengths, power, points[b], exact_self, place
        )
        factor = lengths.sum() / points.shape[1]
        part = pick_by_sums(
            indptr, indices, values, rows, drawn, counts, factor, power, exact_self, place
        )
        blocks = _with_block(blocks, b, part, rows, own_rows, place)
    return blocks


@njit(cache=True, nogil=True, inline="always")
def _drawn(law: Law, renormalize: bool, points: FloatArray, place: IntArray) -> Any:
    """Distinct positions and their weights; none if nothing can be drawn."""
    q, cumulative, guide = law
    total = cumulative[-1] if len(cumulative) > 0 else 0.0
    if total == 0:
        return np.empty(0, np.int64), np.empty(0)
    drawn, counts = draw_folded(cumulative, guide, points, place)
    return drawn, counts * ((total if renormalize else 1.0) / len(points)) / q[drawn]


@njit(cache=True, nogil=True, inline="always")
def _with_block(
    blocks: Blocks, b: int, part: Csr, rows: IntArray, own_rows: bool, place: IntArray
) -> Any:
    """The blocks with `part`, whose columns are numbered as in Â, added as number b."""
    offsets, columns, values, sources, starts = blocks
    src, numbers = number_columns(rows if own_rows else rows[:0], part[1], place)
    start, first = starts[0, b], starts[1, b]
    end, last = start + len(numbers), first + len(src)
    if end > len(columns):
        columns, values = _grown(columns, 2 * end), _grown(values, 2 * end)
    # Loops, because assignments to slices take four seconds to compile.
    for r in range(len(rows) + 1):
        offsets[b, r] = part[0][r]
    for entry in range(len(numbers)):
        columns[start + entry], values[start + entry] = numbers[entry], part[2][entry]
    for i in range(len(src)):
        sources[first + i] = src[i]
    starts[0, b + 1], starts[1, b + 1] = end, last
    return offsets, columns, values, sources, starts


@njit(cache=True, nogil=True)
def _grown(array: AnyArray, size: int) -> Any:
    larger = np.empty(size, array.dtype)
    for i in range(len(array)):
        larger[i] = array[i]
    return larger
