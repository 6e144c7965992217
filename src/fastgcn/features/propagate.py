"""ÂX, computed once: dense in memory, sparse, or chunk by chunk for a file."""

from collections.abc import Callable, Iterator
from typing import IO

import numpy as np
import torch
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.features.sparse import SparseMatrix
from fastgcn.features.store import NodeFeatures, add_product
from fastgcn.graph.adjacency import Adjacency, AdjacencyRows
from fastgcn.graph.edges import Rows
from fastgcn.kernels.products import add_part_product, sorted_times_dense
from fastgcn.progress import progress
from fastgcn.scratch import Room, Scratch, reserve

# Bytes of rows of ÂX computed in one pass over the features, if the result is a file.
CHUNK_BYTES = 3 << 24

# Bytes of the features read at once: few enough to add little to the memory of the result. Each
# part reads and writes every row of the result, so smaller parts cost time.
_PART_BYTES = 1 << 25

_ROWS_AT_ONCE = 1 << 15  # between two updates of the progress

# One part of the features takes at least 1/8 of a chunk's bytes: every chunk reads all parts.
_PART_SHARE = 8

_TRIED = 256  # rows of Â from which its mean number of entries is estimated


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
    """Mean bytes of a row of Â while it is used; 0 if all of Â is in memory."""
    if isinstance(adjacency, Adjacency) or adjacency.n == 0:
        return 0
    tried = np.linspace(0, adjacency.n - 1, min(adjacency.n, _TRIED)).astype(np.int64)
    return 12 * len(adjacency.rows(tried).indices) // len(tried)


def _rows_between(adjacency: AdjacencyRows, start: int, stop: int) -> Rows:
    """Rows start..stop-1; views if all of Â is stored."""
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


# ÂX is kept sparse up to this share of nonzero entries: in a dense product, a multiplication
# takes a fifth of the time.
_DENSEST = 0.2

_TRIED_ROWS = 256  # rows of ÂX from which that share is estimated
_ENTRY_BYTES = 8  # an int32 and a float32


def sparse_inputs(
    rows: Rows, features: NodeFeatures, own: IntArray | None, fits: Callable[[int], bool]
) -> SparseMatrix | None:
    """(s, F): some rows of Â times X; None if it is not sparse, or too large for `fits`.

    With `own` (s,), (s, 2F): the rows of X of these ids stand to the right. `fits(n_bytes)` says
    if the result may take that much memory.
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


_FILE_PART_BYTES = 1 << 26  # of rows in a file that are read at a time


class RowBuffer:
    """A row for each of `nodes` (k,), ascending, filled chunk by chunk and read by node id.

    Its width is that of the first chunk. If it exceeds the `room` in memory, it is in a file.

    >>> buffer = RowBuffer(np.array([3, 5, 8]))
    >>> buffer.put(0, torch.tensor([[1.0], [2.0]]))
    >>> buffer.put(2, torch.tensor([[3.0]]))
    >>> buffer.take(np.array([8, 3]))
    tensor([[3.],
            [1.]])
    """

    def __init__(self, nodes: IntArray, room: Room | None = None) -> None:
        self.nodes, self.room, self.rows = nodes, room, torch.empty(0, 0)
        self._file: Scratch | None = None
        self._made = False

    @classmethod
    def of(cls, nodes: IntArray, rows: Tensor) -> "RowBuffer":
        """A buffer that is full, over the same rows."""
        buffer = cls(nodes)
        buffer.rows, buffer._made = rows, True
        return buffer

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def put(self, start: int, chunk: Tensor) -> None:
        """Write the chunk to the rows of the nodes from position `start` on."""
        if not self._made:
            self._make(chunk)
        if self._file is None:
            self.rows[start : start + len(chunk)] = chunk
        else:
            self._file.put(start, chunk.numpy())

    def _make(self, chunk: Tensor) -> None:
        shape, self._made = (len(self.nodes), chunk.shape[1]), True
        place = None if self.room is None else self.room.place(4 * shape[0] * shape[1])
        if place is None:
            self.rows = chunk.new_empty(shape)
        else:
            self._file = Scratch(shape, np.float32, place)
            self.rows = torch.from_numpy(self._file.array)

    def take(self, ids: IntArray) -> Tensor:
        """(len(ids), d): the rows of these nodes; a view if these are all nodes in order."""
        found = rows_of(ids, self.nodes, self.rows)
        self._forget()
        return found

    def mixed(self, csr: tuple[IntArray, IntArray, FloatArray]) -> FloatArray:
        """Some rows of a sparse matrix, whose columns ascend in each row, times these rows."""
        z = self.rows.numpy()
        if not self.on_disk:
            return sorted_times_dense(*csr, z)
        # Reads the file in order, because a node's neighbours are scattered over it.
        out = np.empty((len(csr[0]) - 1, z.shape[1]), np.float32)
        step = max(1, _FILE_PART_BYTES // (4 * z.shape[1]))
        for first in range(0, len(z), step):
            add_part_product(*csr, z[first : first + step], first, out)
            self._forget()
        return out

    def _forget(self) -> None:
        if self._file is not None:
            self._file.forget()


def rows_of(ids: IntArray, nodes: IntArray, rows: Tensor) -> Tensor:
    """(len(ids), d): the rows of `ids`, from `rows` (k, d) of `nodes` (k,), ascending."""
    if np.array_equal(ids, nodes):
        return rows
    places = torch.from_numpy(np.searchsorted(nodes, ids)).to(rows.device)
    return rows.index_select(0, places)
