"""Cutting rows out of a CSR matrix, and scaling them to those of Â."""

from itertools import pairwise

import numpy as np
import torch
from numba import njit

from fastgcn.kernels.threads import over_ranges
from fastgcn.mapped import forget
from fastgcn.types import FloatArray, IntArray

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
