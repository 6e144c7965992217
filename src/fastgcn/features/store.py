"""`FeatureStore`: the rows that the first layer reads, by node id, in memory or on disk.

`NodeFeatures` reads rows of X from the graph's feature matrix. ÂX, if it is precomputed, is a
`DenseStore`, a `SparseMatrix` (features.sparse) or an `EncodedStore` (features.encoded: half
precision, or in a file with its hot rows in memory). `SideBySide` concatenates two stores.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray, check_whole, forget
from fastgcn.errors import InputError
from fastgcn.features.sparse import InputRows, SparseMatrix
from fastgcn.graph.edges import Rows
from fastgcn.kernels.products import add_part_product, sparse_times_sparse
from fastgcn.progress import progress

# The share of stored cells from which on a sparse matrix counts as dense.
_NEARLY_DENSE = 0.2

# Bytes of float64 that statistics read at once, so that a memory map is read in pieces.
_CHUNK_BYTES = 1 << 26


class Statistics(NamedTuple):
    """Mean and scale of the columns, (F,) float32 each: (x - mean) · scale is standardised."""

    mean: FloatArray
    scale: FloatArray


def column_statistics(features: FloatArray | csr_array, nodes: IntArray) -> Statistics:
    """Mean and 1/sd of every column of an (N, F) matrix over the rows `nodes`, at least one.

    Sparse features keep a mean of zero, because subtracting another would fill the matrix; unless
    they are `nearly_dense`. A column that does not vary has scale one.

    >>> column_statistics(np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 9.0]]), np.array([0, 1]))
    Statistics(mean=array([2., 5.], dtype=float32), scale=array([1., 1.], dtype=float32))
    """
    return statistics_of(column_moments(features, nodes), sparse=isinstance(features, csr_array))


def nearly_dense(entries: int, cells: int) -> bool:
    """True if so many of a matrix's cells are stored that it is dense in effect.

    The columns of such a matrix share a large mean, from which networks learn slowly.
    """
    return entries >= _NEARLY_DENSE * cells


class ColumnMoments(NamedTuple):
    """Over `rows` rows with `entries` stored: each column's mean and its Σ (x - mean)², (F,)."""

    rows: int
    entries: int
    mean: FloatArray
    squares: FloatArray

    def joined(self, other: "ColumnMoments") -> "ColumnMoments":
        """The moments over the rows of both; no sums of raw squares, which would cancel."""
        total, difference = self.rows + other.rows, other.mean - self.mean
        entries = self.entries + other.entries
        if total == 0:
            return self
        squares = self.squares + other.squares
        squares += difference**2 * (self.rows * other.rows / total)
        mean = self.mean + difference * (other.rows / total)
        return ColumnMoments(total, entries, mean, squares)


def column_moments(features: FloatArray | csr_array, nodes: IntArray) -> ColumnMoments:
    """The moments over the rows `nodes`, which are read in pieces."""
    width = int(features.shape[1])
    found = ColumnMoments(0, 0, np.zeros(width), np.zeros(width))
    step = max(1, _CHUNK_BYTES // max(8 * width, 1))
    with progress("Measuring the features", len(nodes), "nodes") as advance:
        for start in range(0, len(nodes), step):
            ids = nodes[start : start + step]
            rows = features[ids]
            found = found.joined(ColumnMoments(len(ids), rows.size, *_moments(rows)))
            if isinstance(features, np.ndarray):
                forget(features)
            advance(len(ids))
    return found


def statistics_of(moments: ColumnMoments, *, sparse: bool) -> Statistics:
    """Statistics that give these columns standard deviation 1, and mean 0 unless sparse."""
    sparse = sparse and not nearly_dense(moments.entries, moments.rows * len(moments.mean))
    deviation = np.sqrt(moments.squares / moments.rows)
    scale = np.divide(1, deviation, out=np.ones(len(deviation)), where=deviation > 0)
    mean = np.zeros(len(scale)) if sparse else moments.mean
    return Statistics(mean.astype(np.float32), scale.astype(np.float32))


def _moments(rows: FloatArray | csr_array) -> tuple[FloatArray, FloatArray]:
    """(F,) the mean of each column, and the sum of squared distances from it."""
    if not isinstance(rows, csr_array):
        mean = rows.mean(axis=0, dtype=np.float64)
        return mean, np.square(rows - mean).sum(axis=0)
    n, width = rows.shape
    mean = np.bincount(rows.indices, weights=rows.data, minlength=width) / n
    distances = np.square(rows.data - mean[rows.indices])
    zeros = n - np.bincount(rows.indices, minlength=width)
    squares = np.bincount(rows.indices, weights=distances, minlength=width) + zeros * mean**2
    return mean, squares


def standardised(rows: FloatArray | csr_array, statistics: Statistics) -> FloatArray | csr_array:
    """(x - mean) · scale; in place, unless `rows` must become dense."""
    mean, scale = statistics
    if isinstance(rows, csr_array):
        if not mean.any():
            rows.data *= scale[rows.indices]
            return rows
        rows = rows.toarray()
    rows -= mean
    rows *= scale
    return rows


def divided_by_sums(rows: FloatArray | csr_array) -> FloatArray | csr_array:
    """Every row divided by the sum of its magnitudes, in place; a row of zeros is unchanged."""
    with np.errstate(over="ignore"):
        sums = np.asarray(abs(rows).sum(axis=1)).reshape(-1)
    if not np.isfinite(sums).all():
        raise InputError(
            "feature_scaling = row adds up a node's features, and here they are too large for "
            "that; divide them by a constant first"
        )
    scales: FloatArray = np.zeros(len(sums), np.float32)
    np.divide(1, sums, out=scales, where=sums > 0)
    if isinstance(rows, csr_array):
        rows.data *= np.repeat(scales, np.diff(rows.indptr))
        return rows
    rows *= scales[:, None]
    return rows


class FeatureStore(Protocol):
    """(n, width) float32 rows, read by node id.

    `take` and `between` return tensors, or a `SparseMatrix` if the store is sparse; both have
    `to(device)` and `@`, and may share memory with the store, so they must not be written to.
    """

    def __len__(self) -> int:
        """n, the number of rows."""
        ...

    @property
    def width(self) -> int: ...

    @property
    def on_disk(self) -> bool:
        """True if rows are read from a file and do not stay in memory."""
        ...

    def take(self, ids: IntArray) -> InputRows:
        """(len(ids), width): the rows `ids`, in that order."""
        ...

    def between(self, start: int, stop: int) -> InputRows:
        """(stop - start, width): the rows start..stop-1."""
        ...


@dataclass(frozen=True, slots=True)
class DenseStore:
    """The rows of an array in memory, or of a memory map.

    >>> DenseStore(np.eye(3, dtype=np.float32)).take(np.array([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """

    array: FloatArray

    def __len__(self) -> int:
        return int(self.array.shape[0])

    @property
    def width(self) -> int:
        return int(self.array.shape[1])

    @property
    def on_disk(self) -> bool:
        return isinstance(self.array, np.memmap)

    def take(self, ids: IntArray) -> Tensor:
        # Indexing by [ids] would take twice as long.
        return torch.from_numpy(self.array).index_select(0, torch.from_numpy(ids))

    def between(self, start: int, stop: int) -> Tensor:
        return torch.from_numpy(self.array[start:stop])


class SideBySide:
    """The rows of two dense stores concatenated: [left(v) | right(v)].

    For a first layer that takes ÂX and X; neither is copied as a whole.
    """

    def __init__(self, left: "DenseStore | NodeFeatures", right: "NodeFeatures") -> None:
        self.left, self.right = left, right

    def __len__(self) -> int:
        return len(self.left)

    @property
    def width(self) -> int:
        return self.left.width + self.right.width

    @property
    def on_disk(self) -> bool:
        return self.left.on_disk or self.right.on_disk

    def take(self, ids: IntArray) -> Tensor:
        return torch.cat([self.left.take(ids), self.right.take(ids)], dim=1)

    def between(self, start: int, stop: int) -> Tensor:
        return torch.cat([self.left.between(start, stop), self.right.between(start, stop)], dim=1)


class Stacked:
    """The rows of two dense stores, those of `lower` numbered after those of `upper`.

    For a graph that new nodes join.
    """

    def __init__(self, upper: "NodeFeatures", lower: "NodeFeatures") -> None:
        self.upper, self.lower = upper, lower

    def __len__(self) -> int:
        return len(self.upper) + len(self.lower)

    @property
    def width(self) -> int:
        return self.upper.width

    @property
    def on_disk(self) -> bool:
        return self.upper.on_disk or self.lower.on_disk

    def take(self, ids: IntArray) -> Tensor:
        first = ids < len(self.upper)
        rows = torch.empty((len(ids), self.width))
        rows[torch.from_numpy(first)] = self.upper.take(ids[first])
        rows[torch.from_numpy(~first)] = self.lower.take(ids[~first] - len(self.upper))
        return rows

    def between(self, start: int, stop: int) -> Tensor:
        return self.take(np.arange(start, stop))


class NodeFeatures:
    """Rows of an (N, F) feature matrix under ids 0..n-1, scaled; read on demand.

    Dense, memory-mapped and sparse matrices have the same interface. `nodes` (n,) is the row of
    each id; None if they are equal. `scaling`:

    * "row" divides every row by the sum of its magnitudes, as the authors' program does with
      counts of words; a row of zeros is unchanged;
    * "standard" standardises every column by `statistics`, those of the training nodes.

    Without `keep_pages`, the pages of a memory map are unmapped after every read, so that they
    do not fill the memory of this process.
    """

    def __init__(
        self,
        features: FloatArray | csr_array,
        scaling: str = "none",
        nodes: IntArray | None = None,
        statistics: Statistics | None = None,
        *,
        keep_pages: bool = True,
    ) -> None:
        assert (statistics is None) == (scaling != "standard")
        self.features, self.scaling, self.nodes = features, scaling, nodes
        self.statistics, self.keep_pages = statistics, keep_pages

    def __len__(self) -> int:
        return int(self.features.shape[0]) if self.nodes is None else len(self.nodes)

    @property
    def width(self) -> int:
        return int(self.features.shape[1])

    @property
    def on_disk(self) -> bool:
        return isinstance(self.features, np.memmap) and not self.keep_pages

    @property
    def sparse(self) -> bool:
        """True if rows are sparse: the features are, and no mean is subtracted from them."""
        centred = self.statistics is not None and bool(self.statistics.mean.any())
        return isinstance(self.features, csr_array) and not centred

    def sparse_rows(self, ids: IntArray) -> csr_array:
        """(len(ids), F) float32, only if the features are `sparse`; do not write to it."""
        assert self.sparse
        return cast(csr_array, self._rows(ids))

    def as_stored(self, ids: IntArray) -> InputRows:
        """(len(ids), F) float32, sparse if the features are, else dense; a copy."""
        return SparseMatrix.of(self.sparse_rows(ids)) if self.sparse else self.take(ids)

    def take(self, ids: IntArray) -> Tensor:
        """(len(ids), F) float32, dense, a copy."""
        rows = self._rows(ids)
        if isinstance(rows, csr_array):
            rows = rows.toarray()
        self._let_go()
        return torch.from_numpy(rows)

    def between(self, start: int, stop: int) -> Tensor:
        return self.take(np.arange(start, stop))

    def convolve(self, rows: Rows, beside: IntArray | None = None) -> Tensor:
        """(s, F) float32: the product of some rows of Â with the features, ÂX.

        With `beside` (s,), (s, 2F): the rows of X of these ids stand to the right.
        """
        mixed = torch.from_numpy(self._convolve(rows))
        self._let_go()
        return mixed if beside is None else torch.cat([mixed, self.take(beside)], dim=1)

    def parts(self, n_bytes: int) -> Iterator[tuple[int, FloatArray | csr_array]]:
        """All rows in order: the first id of each part, and its rows, about `n_bytes` of them.

        Rows that are in memory and need no scaling, and sparse rows, are one part.
        """
        as_they_are = self.scaling == "none" and self.nodes is None
        mapped = isinstance(self.features, np.memmap)
        n, step = len(self), max(1, n_bytes // max(4 * self.width, 1))
        if isinstance(self.features, csr_array) or (as_they_are and not mapped):
            step = max(n, 1)
        for first in range(0, n, step):
            stop = min(first + step, n)
            if mapped:
                check_whole(self.features)
            if not as_they_are:
                yield first, self._rows(np.arange(first, stop))
            else:
                yield first, self.features[first:stop] if mapped else self.features
            self.forget()

    def forget(self) -> None:
        """Unmap the pages of a memory map that were read."""
        if isinstance(self.features, np.ndarray):
            forget(self.features)

    def _let_go(self) -> None:
        if not self.keep_pages:
            self.forget()

    def _convolve(self, rows: Rows) -> FloatArray:
        if self.scaling == "none":
            # Read from the feature matrix, which may be a memory map, without gathering rows.
            columns = rows.indices if self.nodes is None else self.nodes[rows.indices]
            part = self.features
        else:
            needed, columns = np.unique(rows.indices, return_inverse=True)
            part = self._rows(needed)
        mixed = np.empty((len(rows.indptr) - 1, self.width), np.float32)
        add_product(Rows(rows.indptr, columns, rows.values), part, 0, mixed)
        return mixed

    def _rows(self, ids: IntArray) -> FloatArray | csr_array:
        """The scaled rows, sparse if the features are and no mean is subtracted from them."""
        rows = self.features[ids if self.nodes is None else self.nodes[ids]]
        if self.statistics is not None:
            return standardised(rows, self.statistics)
        return rows if self.scaling == "none" else divided_by_sums(rows)


def add_product(rows: Rows, part: FloatArray | csr_array, first: int, out: FloatArray) -> None:
    """out (s, F) = rows of Â times X, of which `part` holds the rows from `first` on.

    A dense part that does not begin X is added to what is in `out`; a sparse part is all of X.
    """
    if isinstance(part, csr_array):
        sparse_times_sparse(*rows, part.indptr, part.indices, part.data, out)
    else:
        add_part_product(*rows, np.asarray(part), first, out)
