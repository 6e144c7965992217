"""What the variances are given, checked and brought into one form."""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array, issparse

from fastgcn import checks
from fastgcn.adjacency import Adjacency
from fastgcn.errors import InputError
from fastgcn.types import FloatArray, IntArray

Matrix: TypeAlias = Adjacency | csr_array | FloatArray
RowIds: TypeAlias = Sequence[int] | IntArray

# How far the sum of q may be from one: more than float32 rounding, less than a forgotten factor.
_SUM_TOLERANCE = 1e-4


def as_matrix(adj: Matrix) -> csr_array:
    """Â as CSR rows that hold no entry twice; an `Adjacency` is used as it is."""
    if isinstance(adj, Adjacency):
        return adj.to_scipy()
    given = adj if issparse(adj) else as_numbers(adj, "Â")
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.shape[0]:
        raise InputError(f"Â must be a square matrix of one row a vertex, got shape {given.shape}")
    matrix = csr_array(given, copy=True)
    matrix.data = as_numbers(matrix.data, "Â")
    matrix.sum_duplicates()
    return matrix


def as_rows(x: Any, matrix: csr_array) -> FloatArray:
    """x as (n, d) float64."""
    values = as_numbers(x, "x")
    n = matrix.shape[0]
    if values.ndim not in (1, 2) or len(values) != n:
        raise InputError(f"x must have shape ({n},) or ({n}, d), got {values.shape}")
    return values.reshape(n, -1)


def as_numbers(values: Any, what: str) -> FloatArray:
    """A float64 array of finite numbers."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(
            f"{what} must be an array of numbers, got rows of unequal length"
        ) from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} must be numbers, got {array.dtype}")
    array = array.astype(np.float64, copy=False)
    checks.finite(array, what)
    return array


def row_ids(rows: RowIds, matrix: csr_array) -> IntArray:
    ids = checks.integers(rows, "rows")
    if not ids.size:
        raise InputError("rows must name at least one vertex, got none")
    checks.in_range(ids, matrix.shape[0], "rows")
    return ids


def count_of(value: int, what: str) -> int:
    if not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} must be a whole number of at least 1, got {value!r}")
    return int(value)


def convolution(adj: Matrix, x: Any) -> tuple[csr_array, FloatArray, FloatArray]:
    """Â, x as (n, d) and e = Âx."""
    matrix = as_matrix(adj)
    x = as_rows(x, matrix)
    return matrix, x, matrix @ x


def over_q(numerator: FloatArray, q: Any) -> float:
    """Σ_u numerator(u) / q(u), where a vertex that adds nothing may have q(u) = 0."""
    q = as_q(q, numerator)
    return float(np.divide(numerator, q, out=np.zeros_like(q), where=numerator > 0).sum())


def as_q(q: Any, needed: FloatArray) -> FloatArray:
    """q as (n,) float64 that sums to one, positive wherever `needed` (n,) is."""
    given = as_numbers(q, "q")
    if given.shape != needed.shape:
        raise InputError(f"q must have shape {needed.shape}, one a vertex, got {given.shape}")
    if given.min() < 0 or abs(given.sum() - 1) > _SUM_TOLERANCE:
        raise InputError(
            f"q must be probabilities that sum to one, got a least of {given.min():g} and a sum of "
            f"{given.sum():g}; divide it by its sum"
        )
    lost = (given == 0) & (needed > 0)
    if lost.any():
        raise InputError(
            f"q must be positive wherever Â and x are not zero, but vertex {np.argmax(lost)} "
            "would never be drawn and the estimate would be biased"
        )
    return given


def column_squares(matrix: csr_array) -> FloatArray:
    """(n,): c(u)² = Σ_v Â(v,u)²."""
    squares = np.square(matrix.data, dtype=np.float64)
    return _by_column(matrix, squares)


def column_sums(matrix: csr_array) -> FloatArray:
    """(n,): Σ_v Â(v,u)."""
    return _by_column(matrix, matrix.data)


def _by_column(matrix: csr_array, entries: FloatArray) -> FloatArray:
    """(n,) float64: the sum of the entries of each column."""
    sums = np.bincount(matrix.indices, weights=entries, minlength=matrix.shape[1])
    return cast(FloatArray, sums)


def squared_rows(x: FloatArray) -> FloatArray:
    """(n,): |x(u)|²."""
    return np.einsum("ud,ud->u", x, x)  # type: ignore[no-any-return]


def not_negative(variance: float | np.floating[Any]) -> float:
    """The formulas subtract nearly equal numbers where a variance is zero."""
    return max(float(variance), 0.0)
