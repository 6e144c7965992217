"""Cutting rows out of a CSR matrix, and scaling them to those of Â."""

from itertools import pairwise

import numpy as np
import torch
from numba import njit

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.graph.csr import damaged
from fastgcn.kernels.threads import over_ranges
from fastgcn.scratch import forget

# Entries below which a second thread costs more to wake than it saves.
_WORTH_SHARING = 1 << 18

# Entries after which what was read of a memory map is let go: rows here and there soon map it all.
_PIECE_ENTRIES = 1 << 19

_NO_WEIGHTS = np.empty(0, np.float32)


def cut_rows(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    nodes: IntArray,
    *,
    loops: bool = False,
) -> tuple[IntArray, IntArray, FloatArray]:
    """The CSR arrays of the rows `nodes` (s,): `indptr` (s+1,) int64, `indices`, float32 `values`.

    `weights` None stands for ones. With `loops`, row i also has the column nodes[i], which the
    matrix must not have, with the value one, in its ascending place.
    """
    counts = indptr[nodes + 1] - indptr[nodes] + loops
    starts = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    columns = np.empty(starts[-1], indices.dtype)
    values = np.empty(starts[-1], np.float32)
    matrix = indptr, indices, _NO_WEIGHTS if weights is None else weights
    bounds = np.searchsorted(starts, np.arange(0, starts[-1], _PIECE_ENTRIES)).tolist()
    for first, last in pairwise([*bounds, len(nodes)]):
        over_ranges(
            lambda a, b: _cut(a, b, *matrix, nodes, loops, starts, columns, values),
            first + _shares(starts[first : last + 1] - starts[first]),
        )
        if len(bounds) > 1:
            forget(indices)
            forget(matrix[2])
    return starts, columns, values


def scale_rows(
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    own: FloatArray,
    others: FloatArray | None,
) -> None:
    """values(i, u) *= own[i] · others[u] in float64; `own` (s,), `others` by column, None: ones."""
    factors = np.empty(0) if others is None else others
    over_ranges(lambda a, b: _scale(a, b, indptr, columns, values, own, factors), _shares(indptr))


def _shares(indptr: IntArray) -> IntArray:
    """Ranges of rows with about equally many entries, one a thread where that pays."""
    rows = len(indptr) - 1
    if indptr[-1] < _WORTH_SHARING:
        return np.array([0, rows])
    shares = np.linspace(0, indptr[-1], torch.get_num_threads() + 1)[1:-1]
    return np.array([0, *np.searchsorted(indptr, shares), rows])


@njit(cache=True, nogil=True)
def _cut(
    start: int,
    stop: int,
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray,
    nodes: IntArray,
    loops: bool,
    starts: IntArray,
    columns: IntArray,
    values: FloatArray,
) -> None:
    for i in range(start, stop):
        node, at = nodes[i], starts[i]
        loop_to_come = loops
        for entry in range(indptr[node], indptr[node + 1]):
            if loop_to_come and indices[entry] > node:
                columns[at], values[at] = node, 1
                at += 1
                loop_to_come = False
            columns[at] = indices[entry]
            values[at] = weights[entry] if len(weights) > 0 else 1
            at += 1
        if loop_to_come:
            columns[at], values[at] = node, 1


@njit(cache=True, nogil=True)
def _scale(
    start: int,
    stop: int,
    indptr: IntArray,
    columns: IntArray,
    values: FloatArray,
    own: FloatArray,
    others: FloatArray,
) -> None:
    for i in range(start, stop):
        for entry in range(indptr[i], indptr[i + 1]):
            value = values[entry] * own[i]
            if len(others) > 0:
                value *= others[columns[entry]]
            values[entry] = value


_NO_INDUCED_WEIGHTS = np.empty(0, np.float32)
_PIECES = 8  # a call is cut into, so that threads share it evenly


def count_inside(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    nodes: IntArray,
    position: IntArray,
) -> tuple[IntArray, FloatArray]:
    """(s,) how many entries of the rows `nodes` have their column inside, and (s,) their sums.

    `position` (n,) is a node's number among those inside, -1 for all others. That the rows lie
    within the entries is known (`check_rows`); columns of a damaged file are refused, so that
    `cut_inside` can rely on those counted.
    """
    counts, sums = np.empty(len(nodes), np.int64), np.empty(len(nodes))
    matrix = indptr, indices, _NO_INDUCED_WEIGHTS if weights is None else weights
    over_ranges(lambda a, b: _count(a, b, *matrix, nodes, position, counts, sums), _pieces(nodes))
    if len(counts) and counts.min() < 0:
        raise damaged(indices, f"it names a column outside of 0..{len(position) - 1:,}")
    return counts, sums


def cut_inside(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    nodes: IntArray,
    position: IntArray,
    counts: IntArray,
    *,
    loops: bool,
) -> tuple[IntArray, IntArray, FloatArray]:
    """The CSR arrays of the rows `nodes`, columns renumbered by `position`, which ascends.

    `counts` (s,) are those of `count_inside`. With `loops`, a row also has its own column.
    """
    starts = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum(counts + loops, out=starts[1:])
    columns = np.empty(starts[-1], position.dtype)
    values = np.empty(starts[-1], np.float32)
    matrix = indptr, indices, _NO_INDUCED_WEIGHTS if weights is None else weights
    over_ranges(
        lambda a, b: _cut_induced(a, b, *matrix, nodes, position, loops, starts, columns, values),
        _pieces(nodes),
    )
    return starts, columns, values


def _pieces(nodes: IntArray) -> IntArray:
    return np.linspace(0, len(nodes), _PIECES + 1).astype(np.int64)


@njit(cache=True, nogil=True)
def _count(
    start: int,
    stop: int,
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray,
    nodes: IntArray,
    position: IntArray,
    counts: IntArray,
    sums: FloatArray,
) -> None:
    for i in range(start, stop):
        count, total = 0, 0.0
        for entry in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            column = indices[entry]
            if column < 0 or column >= len(position):
                count = -1
                break
            if position[column] >= 0:
                count += 1
                total += weights[entry] if len(weights) > 0 else 1.0
        counts[i], sums[i] = count, total


@njit(cache=True, nogil=True)
def _cut_induced(
    start: int,
    stop: int,
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray,
    nodes: IntArray,
    position: IntArray,
    loops: bool,
    starts: IntArray,
    columns: IntArray,
    values: FloatArray,
) -> None:
    for i in range(start, stop):
        own, at = position[nodes[i]], starts[i]
        loop_to_come = loops
        for entry in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            column = position[indices[entry]]
            if column < 0:
                continue
            if loop_to_come and column > own:
                columns[at], values[at] = own, 1
                at += 1
                loop_to_come = False
            columns[at] = column
            values[at] = weights[entry] if len(weights) > 0 else 1
            at += 1
        if loop_to_come:
            columns[at], values[at] = own, 1
