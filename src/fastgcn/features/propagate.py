"""ÂX, computed once: dense in memory, sparse, or chunk by chunk for a file."""

from collections.abc import Callable, Iterator
from typing import IO

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.features.sparse import SparseMatrix
from fastgcn.features.store import NodeFeatures, add_product
from fastgcn.graph.adjacency import Adjacency, AdjacencyRows, Rows
from fastgcn.progress import progress
from fastgcn.scratch import reserve

# Bytes of the rows of ÂX that one reading of the features goes into, where the result is a file.
CHUNK_BYTES = 3 << 24

# Bytes of the features that are read at once. Few enough to add little to what the result takes;
# a row of the result is read and written once for each part, so that smaller ones cost time.
_PART_BYTES = 1 << 25

_ROWS_AT_ONCE = 1 << 15  # between two signs of progress

# A part of the features for so many bytes of the result: all are read again for every chunk.
_PART_SHARE = 8

_TRIED = 256  # rows of Â from which its mean number of entries is told


def propagate(
    adjacency: AdjacencyRows, features: NodeFeatures, *, out: IO[bytes] | None = None
) -> FloatArray:
    """(n, F) float32: the rows of ÂX, from features read part after part.

    With `out`, the result is a memory map over that open file (raw float32), of any size, which
    can be read only.
    """
    n, width = adjacency.n, features.width
    if out is None:
        rows: FloatArray = np.empty((n, width), np.float32)
        with progress("Precomputing ÂX", n * len(features), "pairs of nodes") as advance:
            _multiply(adjacency.rows(np.arange(n)), features, rows, _PART_BYTES, advance)
        return rows
    reserve(out, 4 * n * width)
    out.seek(0)
    for _, rows in propagated(adjacency, features, [(0, n)], CHUNK_BYTES):
        out.write(rows.data)
    out.flush()
    return np.memmap(out, np.float32, "r", shape=(n, width))


def propagated(
    adjacency: AdjacencyRows,
    features: NodeFeatures,
    ranges: list[tuple[int, int]],
    n_bytes: int,
    multiple: int = 1,
) -> Iterator[tuple[int, FloatArray]]:
    """The rows of ÂX in some ranges of nodes, in chunks of about `n_bytes`: the first node of
    each chunk and its rows (s, F) float32, which the next chunk overwrites. The number of rows in
    a chunk is a `multiple` of the one given, except for the last chunk of a range.
    """
    part_bytes, width = max(n_bytes // _PART_SHARE, _PART_BYTES), features.width
    row_bytes = max(4 * width + mean_row_bytes(adjacency), 1)
    at_once = max(n_bytes - part_bytes, CHUNK_BYTES) // row_bytes
    at_once = max(at_once // multiple, 1) * multiple
    longest = max((stop - start for start, stop in ranges), default=0)
    buffer = np.empty((min(at_once, longest), width), np.float32)
    asked = sum(stop - start for start, stop in ranges)
    with progress("Precomputing ÂX", asked * len(features), "pairs of nodes") as advance:
        for first, last in ranges:
            for start in range(first, last, at_once):
                stop = min(start + at_once, last)
                matrix, rows = _rows_between(adjacency, start, stop), buffer[: stop - start]
                _multiply(matrix, features, rows, part_bytes, advance)
                yield start, rows


def mean_row_bytes(adjacency: AdjacencyRows) -> int:
    """Bytes that a row of Â takes on average while it is used; 0 where all of Â is in memory."""
    if isinstance(adjacency, Adjacency) or adjacency.n == 0:
        return 0
    tried = np.linspace(0, adjacency.n - 1, min(adjacency.n, _TRIED)).astype(np.int64)
    return 12 * len(adjacency.rows(tried).indices) // len(tried)


def _rows_between(adjacency: AdjacencyRows, start: int, stop: int) -> Rows:
    """Rows that follow each other; views where all are at hand."""
    if isinstance(adjacency, Adjacency):
        return Rows(adjacency.indptr[start : stop + 1], adjacency.indices, adjacency.values)
    return adjacency.rows(np.arange(start, stop))


def _multiply(
    matrix: Rows,
    features: NodeFeatures,
    out: FloatArray,
    part_bytes: int,
    advance: Callable[[int], None],
) -> None:
    """out (s, F) = some rows of Â times X."""
    for first, part in features.parts(part_bytes):
        for start in range(0, len(out), _ROWS_AT_ONCE):
            rows = matrix._replace(indptr=matrix.indptr[start : start + _ROWS_AT_ONCE + 1])
            into = out[start : start + _ROWS_AT_ONCE]
            add_product(rows, part, first, into)
            advance(len(into) * int(part.shape[0]))


# Share of entries of ÂX that are not zero, up to which they are kept alone: a dense
# product takes a fifth of the time a multiplication.
_DENSEST = 0.2

_TRIED_ROWS = 256  # rows of ÂX from which that share is told
_ENTRY_BYTES = 8  # an int32 and a float32


def sparse_inputs(
    rows: Rows, features: NodeFeatures, own: IntArray | None, fits: Callable[[int], bool]
) -> SparseMatrix | None:
    """(s, F): some rows of Â times X; None where it would not be sparse, or `fits` refuses it.

    With `own` (s,), (s, 2F): the rows of X under these ids to the right of that. `fits` is asked
    about a number of bytes.
    """
    if not features.sparse:
        return None
    needed, columns = np.arange(len(features)), rows.indices
    if len(columns) < len(features):
        needed, columns = np.unique(columns, return_inverse=True)
    x = features.sparse_rows(needed)
    n = len(rows.indptr) - 1
    mix = csr_array((rows.values, columns, rows.indptr), shape=(n, len(needed)))
    tried = mix[:: max(n // _TRIED_ROWS, 1)] @ x
    density = tried.nnz / max(tried.shape[0] * features.width, 1)
    n_bytes = int(density * n * features.width + (0 if own is None else x.nnz)) * _ENTRY_BYTES
    if density > _DENSEST or not fits(n_bytes):
        return None
    mixed = _product(mix, x)
    if own is not None:
        mixed = csr_array(hstack([mixed, features.sparse_rows(own)], format="csr"))
    mixed.sort_indices()
    return SparseMatrix.of(mixed)


def _product(mix: csr_array, x: csr_array) -> csr_array:
    parts = []
    n = mix.shape[0]
    with progress("Precomputing ÂX", n, "rows") as advance:
        for start in range(0, max(n, 1), _ROWS_AT_ONCE):
            parts.append(mix[start : start + _ROWS_AT_ONCE] @ x)
            advance(parts[-1].shape[0])
    return csr_array(vstack(parts, format="csr"))
