"""Draws and blocks of many batches in one compiled call, for draws by points in [0, 1).

`place` (n,) int32 is work space that every function finds, and leaves, filled with -1.
"""

from typing import Any

import numpy as np
from numba import njit

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.kernels.draws import draw_entries, draw_folded, pick_by_sums, running_sums
from fastgcn.kernels.picks import number_columns, pick_entries, pick_reached, reach

Csr = tuple[IntArray, IntArray, FloatArray]
Law = tuple[FloatArray, FloatArray, IntArray]

# All `sample_by_` functions take batches (b, s), a row of `points` (b, t) for each, Â's indptr,
# indices and values, and `room` for their blocks, which they return. One function for all three
# would take three times as long to compile.

# The CSR arrays of several blocks, columns and values one behind the other and row offsets
# (b, s+1) counting from each block's first entry; their sources likewise; and (2, b+1) where the
# entries and the sources of each block begin.
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
    """Vertices from one q (n,), whatever the rows: `law` is q, its running sums and their guide.

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
def sample_all_drawn(
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
    """As `sample_by_vertices`; behind the sources of a block come those drawn that no row meets."""
    offsets, columns, values, met, starts = sample_by_vertices(
        law, renormalize, points, matrix, batches, own_rows, exact_self, place, blocks
    )
    sources, filled, end = np.empty(points.size + batches.size, np.int64), 0, np.int64(0)
    for b in range(len(batches)):
        begin, end = end, starts[1, b + 1]
        drawn, _ = draw_folded(law[1], law[2], points[b], place)
        for i in range(begin, end):
            place[met[i]] = 0
            sources[filled] = met[i]
            filled += 1
        for i in range(len(drawn)):
            if place[drawn[i]] < 0:
                sources[filled] = drawn[i]
                filled += 1
        for i in range(begin, end):
            place[met[i]] = -1
        starts[1, b + 1] = filled
    return offsets, columns, values, sources, starts


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
    """Vertices from q (n,) over those that some row of the batch has an entry for.

    Weights are as above, the sum of q being that over these vertices.
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
    """Columns of entries that ascending points fall on in proportion to |Â(v,u)|^power.

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
    """Distinct positions and their weights; none where nothing can be drawn."""
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
    """The blocks with number b entered: `part`, whose columns are numbered as in Â."""
    offsets, columns, values, sources, starts = blocks
    src, numbers = number_columns(rows if own_rows else rows[:0], part[1], place)
    start, first = starts[0, b], starts[1, b]
    end, last = start + len(numbers), first + len(src)
    if end > len(columns):
        columns, values = _grown(columns, 2 * end), _grown(values, 2 * end)
    # Loops, for assignments to slices take four seconds to compile.
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
