"""Feature rows by id: the one way that training and inference read features.

Dense, memory-mapped and sparse features look the same from here; only the rows asked for are
ever read.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.graph.adjacency import Rows
from fastgcn.graph.csr import check_sparse
from fastgcn.progress import progress
from fastgcn.scratch import forget

# Bytes of float64 that statistics look at together, so that a memory map is read in pieces.
_CHUNK_BYTES = 1 << 26


class Statistics(NamedTuple):
    """What standardises features: (x - mean) · scale, each (F,) float32."""

    mean: FloatArray
    scale: FloatArray


def column_statistics(features: FloatArray | csr_array, nodes: IntArray) -> Statistics:
    """Mean and 1/sd of every column of an (N, F) matrix over the rows `nodes`, at least one.

    Sparse features keep a mean of zero, for subtracting another would fill the matrix. A column
    that does not vary has scale one.

    >>> column_statistics(np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 9.0]]), np.array([0, 1]))
    Statistics(mean=array([2., 5.], dtype=float32), scale=array([1., 1.], dtype=float32))
    """
    return statistics_of(column_moments(features, nodes), sparse=isinstance(features, csr_array))


class Moments(NamedTuple):
    """Of so many `rows`: (F,) float64, each column's mean and its Σ (x - mean)²."""

    rows: int
    mean: FloatArray
    squares: FloatArray

    def joined(self, other: "Moments") -> "Moments":
        """Those of both together; sums of raw squares would cancel."""
        total, difference = self.rows + other.rows, other.mean - self.mean
        if total == 0:
            return self
        squares = self.squares + other.squares
        squares += difference**2 * (self.rows * other.rows / total)
        return Moments(total, self.mean + difference * (other.rows / total), squares)


def column_moments(features: FloatArray | csr_array, nodes: IntArray) -> Moments:
    """Of the rows `nodes`, read in pieces."""
    if isinstance(features, csr_array):
        check_sparse(features)
    width = int(features.shape[1])
    found = Moments(0, np.zeros(width), np.zeros(width))
    step = max(1, _CHUNK_BYTES // max(8 * width, 1))
    with progress("Measuring the features", len(nodes), "nodes") as advance:
        for start in range(0, len(nodes), step):
            ids = nodes[start : start + step]
            found = found.joined(Moments(len(ids), *_moments(features[ids])))
            if isinstance(features, np.ndarray):
                forget(features)
            advance(len(ids))
    return found


def statistics_of(moments: Moments, *, sparse: bool) -> Statistics:
    """What brings these columns to mean 0, unless sparse, and to standard deviation 1."""
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


class FeatureRows:
    """Rows of an (N, F) feature matrix under ids 0..n-1.

    `nodes` (n,) says which row an id stands for, None that they are the same. `scaling`:

    * "row" divides every row by the sum of its magnitudes, as the authors' program does with
      counts of words; a row of zeros stays;
    * "standard" standardises every column by `statistics`, those of the training nodes.
    """

    def __init__(
        self,
        features: FloatArray | csr_array,
        scaling: str = "none",
        nodes: IntArray | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        assert (statistics is None) == (scaling != "standard")
        if isinstance(features, csr_array):
            check_sparse(features)
        self.features, self.scaling, self.nodes = features, scaling, nodes
        self.statistics = statistics

    @property
    def width(self) -> int:
        return int(self.features.shape[1])

    @property
    def n(self) -> int:
        return int(self.features.shape[0]) if self.nodes is None else len(self.nodes)

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse: the features are, and no mean is taken off them."""
        centred = self.statistics is not None and bool(self.statistics.mean.any())
        return isinstance(self.features, csr_array) and not centred

    def sparse_rows(self, ids: IntArray) -> csr_array:
        """(len(ids), F) float32, of features that are `sparse`; not to be written to."""
        assert self.sparse
        return cast(csr_array, self._rows(ids))

    def __call__(self, ids: IntArray) -> FloatArray:
        """(len(ids), F) float32, dense, a copy."""
        rows = self._rows(ids)
        return cast(FloatArray, rows.toarray() if isinstance(rows, csr_array) else rows)

    def convolve(self, rows: Rows, beside: IntArray | None = None) -> FloatArray:
        """(s, F) float32: the product of some rows of Â with the features, ÂX.

        With `beside` (s,), (s, 2F): the rows of X under these ids to the right of that.
        """
        mixed = self._convolve(rows)
        return mixed if beside is None else np.concatenate([mixed, self(beside)], axis=1)

    def parts(self, n_bytes: int) -> Iterator[tuple[int, "FloatArray | csr_array"]]:
        """All rows in order: the first id of each part, and its rows, about `n_bytes` of them.

        What is in memory as it is wanted, and what is sparse, is one part.
        """
        as_they_are = self.scaling == "none" and self.nodes is None
        mapped = isinstance(self.features, np.memmap)
        step = max(1, n_bytes // max(4 * self.width, 1))
        if isinstance(self.features, csr_array) or (as_they_are and not mapped):
            step = max(self.n, 1)
        for first in range(0, self.n, step):
            stop = min(first + step, self.n)
            if not as_they_are:
                yield first, self._rows(np.arange(first, stop))
            else:
                yield first, self.features[first:stop] if mapped else self.features
            self.forget()

    def forget(self) -> None:
        """Let go of the rows that were read of a memory map."""
        if isinstance(self.features, np.ndarray):
            forget(self.features)

    def _convolve(self, rows: Rows) -> FloatArray:
        from fastgcn.kernels.products import add_part_product, sparse_times_sparse  # loads numba

        if self.scaling == "none":
            # Straight from the feature matrix, which may be a memory map: nothing is gathered.
            columns = rows.indices if self.nodes is None else self.nodes[rows.indices]
            part = self.features
        else:
            needed, columns = np.unique(rows.indices, return_inverse=True)
            part = self._rows(needed)
        matrix = rows.indptr, columns, rows.values
        mixed = np.empty((len(rows.indptr) - 1, self.width), np.float32)
        if isinstance(part, csr_array):
            sparse_times_sparse(*matrix, part.indptr, part.indices, part.data, mixed)
        else:
            add_part_product(*matrix, np.asarray(part), 0, mixed)
        return mixed

    def _rows(self, ids: IntArray) -> FloatArray | csr_array:
        """The scaled rows, sparse where the features are and no mean is taken off them."""
        rows = self.features[ids if self.nodes is None else self.nodes[ids]]
        if self.statistics is not None:
            return _standardised(rows, self.statistics)
        if self.scaling == "none":
            return rows
        sums = np.asarray(abs(rows).sum(axis=1)).reshape(-1)
        scales: FloatArray = np.zeros(len(sums), np.float32)
        np.divide(1, sums, out=scales, where=sums > 0)
        if isinstance(rows, csr_array):
            rows.data *= np.repeat(scales, np.diff(rows.indptr))
            return rows
        rows *= scales[:, None]
        return rows


def _standardised(rows: FloatArray | csr_array, statistics: Statistics) -> FloatArray | csr_array:
    mean, scale = statistics
    if isinstance(rows, csr_array):
        if not mean.any():
            rows.data *= scale[rows.indices]
            return rows
        rows = rows.toarray()
    rows -= mean  # in place: they are a copy already, and may be many
    rows *= scale
    return rows
