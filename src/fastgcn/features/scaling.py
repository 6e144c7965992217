"""How features are scaled: by row sums, or by each column's mean and standard deviation."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
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

    Sparse features keep a mean of zero, because subtracting another would fill the matrix. A
    column that does not vary has scale one.

    >>> column_statistics(np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 9.0]]), np.array([0, 1]))
    Statistics(mean=array([2., 5.], dtype=float32), scale=array([1., 1.], dtype=float32))
    """
    return statistics_of(column_moments(features, nodes), sparse=isinstance(features, csr_array))


class ColumnMoments(NamedTuple):
    """Over `rows` rows: each column's mean and its Σ (x - mean)², (F,) float64."""

    rows: int
    mean: FloatArray
    squares: FloatArray

    def joined(self, other: "ColumnMoments") -> "ColumnMoments":
        """The moments over the rows of both. Sums of raw squares would cancel."""
        total, difference = self.rows + other.rows, other.mean - self.mean
        if total == 0:
            return self
        squares = self.squares + other.squares
        squares += difference**2 * (self.rows * other.rows / total)
        return ColumnMoments(total, self.mean + difference * (other.rows / total), squares)


def column_moments(features: FloatArray | csr_array, nodes: IntArray) -> ColumnMoments:
    """The moments over the rows `nodes`, which are read in pieces."""
    if isinstance(features, csr_array):
        check_sparse(features)
    width = int(features.shape[1])
    found = ColumnMoments(0, np.zeros(width), np.zeros(width))
    step = max(1, _CHUNK_BYTES // max(8 * width, 1))
    with progress("Measuring the features", len(nodes), "nodes") as advance:
        for start in range(0, len(nodes), step):
            ids = nodes[start : start + step]
            found = found.joined(ColumnMoments(len(ids), *_moments(features[ids])))
            if isinstance(features, np.ndarray):
                forget(features)
            advance(len(ids))
    return found


def statistics_of(moments: ColumnMoments, *, sparse: bool) -> Statistics:
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


def standardised(rows: FloatArray | csr_array, statistics: Statistics) -> FloatArray | csr_array:
    """(x - mean) · scale, in place where `rows` need not become dense."""
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
    """Every row over the sum of its magnitudes, in place; a row of zeros stays."""
    sums = np.asarray(abs(rows).sum(axis=1)).reshape(-1)
    scales: FloatArray = np.zeros(len(sums), np.float32)
    np.divide(1, sums, out=scales, where=sums > 0)
    if isinstance(rows, csr_array):
        rows.data *= np.repeat(scales, np.diff(rows.indptr))
        return rows
    rows *= scales[:, None]
    return rows
