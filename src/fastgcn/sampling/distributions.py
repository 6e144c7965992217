"""The distributions q that the theory compares, and checks of the arguments of its functions."""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array, issparse

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.graph import checks
from fastgcn.graph.adjacency import Adjacency

Matrix: TypeAlias = Adjacency | csr_array | FloatArray
RowIds: TypeAlias = Sequence[int] | IntArray

# How far the sum of q may be from one: more than float32 rounding, less than a forgotten factor.
_SUM_TOLERANCE = 1e-4


def as_matrix(adj: Matrix) -> csr_array:
    """Â as CSR rows that hold no entry twice; an `Adjacency` is not copied."""
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
    """Σ_u numerator(u) / q(u); q(u) may be 0 if the numerator is."""
    q = as_q(q, numerator)
    return float(np.divide(numerator, q, out=np.zeros_like(q), where=numerator > 0).sum())


def as_q(q: Any, needed: FloatArray) -> FloatArray:
    """q as (n,) float64 that sums to one, positive wherever `needed` (n,) is."""
    given = as_numbers(q, "q")
    if given.shape != needed.shape:
        raise InputError(f"q must have shape {needed.shape}, one per vertex, got {given.shape}")
    if given.min() < 0 or abs(given.sum() - 1) > _SUM_TOLERANCE:
        raise InputError(
            f"q must be probabilities that sum to one, got the minimum {given.min():g} and the sum "
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
    """The variance, at least 0: the formulas subtract nearly equal numbers if it is zero."""
    return max(float(variance), 0.0)


def uniform_q(n: int) -> FloatArray:
    """(n,): q(u) = 1/n (Alg. 1).

    >>> uniform_q(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    return np.full(count_of(n, "n"), 1.0 / n)


def importance_q(adj: Matrix) -> FloatArray:
    """(n,): q(u) ∝ ‖Â(:,u)‖² (Prop. 4, Alg. 2); uniform if Â has no entry.

    >>> importance_q(np.array([[3.0, 0.0], [0.0, 1.0]]))
    array([0.9, 0.1])
    """
    return _normalized(column_squares(as_matrix(adj)))


def flat_q(adj: Matrix, power: float = 1.0) -> FloatArray:
    """(n,): q(u) ∝ ‖Â(:,u)‖^power; power 1 is the authors' program, 2 is `importance_q`.

    >>> flat_q(np.array([[3.0, 0.0], [0.0, 1.0]]))
    array([0.75, 0.25])
    """
    _check_power(power)
    return _normalized(column_squares(as_matrix(adj)) ** (power / 2))


def optimal_q(adj: Matrix, x: Any, rows: RowIds | None = None) -> FloatArray:
    """(n,): q(u) ∝ ‖Â(:,u)‖·|x(u)| (Thm 3, eq. 7); uniform if all of these are zero.

    It minimises `independent_variance` and `row_variance`. With `rows`, the norms are those of
    the columns of Â(rows,:), which minimises `row_variance` over these rows.

    >>> optimal_q(np.array([[3.0, 0.0], [0.0, 1.0]]), [1.0, 2.0])
    array([0.6, 0.4])
    """
    matrix = as_matrix(adj)
    chosen = matrix if rows is None else matrix[row_ids(rows, matrix)]
    return _normalized(np.sqrt(column_squares(chosen) * squared_rows(as_rows(x, matrix))))


def ladies_q(adj: Matrix, rows: RowIds, power: float = 2.0) -> FloatArray:
    """(n,): q(u) ∝ Σ_v |Â(v,u)|^power over these rows v alone.

    Power 2, the squared norms of their columns, is LADIES as published.

    >>> ladies_q(np.array([[3.0, 4.0], [0.0, 1.0]]), [0])
    array([0.36, 0.64])
    """
    columns, shares = along_entries(adj, rows, power)
    q = np.zeros(as_matrix(adj).shape[1])
    np.add.at(q, columns, shares)
    return _normalized(q)


def neighbors_q(adj: Matrix, q: Any, rows: RowIds) -> FloatArray:
    """(n,): q restricted to the columns in which `rows` have an entry, and renormalised.

    >>> neighbors_q(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0, 0, 1]]), [0.1, 0.3, 0.6], [0])
    array([0.25, 0.75, 0.  ])
    """
    matrix = as_matrix(adj)
    needed = column_squares(matrix[row_ids(rows, matrix)])
    return _normalized(np.where(needed > 0, as_q(q, needed), 0.0))


def off_diagonal(adj: Matrix) -> csr_array:
    """Â without its diagonal: the part that is sampled if Â(v,v)·x(v) is added exactly.

    Pass it instead of Â to any function here to get the figures for an exact self term.

    >>> off_diagonal(np.array([[3.0, 4.0], [0.0, 1.0]])).toarray()
    array([[0., 4.],
           [0., 0.]])
    """
    matrix = as_matrix(adj)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    off = rows != matrix.indices
    indptr = np.concatenate([[0], np.cumsum(off)])[matrix.indptr]
    return csr_array((matrix.data[off], matrix.indices[off], indptr), shape=matrix.shape)


def along_columns(adj: Matrix, q: Any, rows: RowIds) -> tuple[IntArray, FloatArray]:
    """The columns of `rows` in the order they occur in the rows, and `neighbors_q` of each.

    `neighbors_only` spreads stratified and systematic draws over [0, 1) in this order.

    >>> matrix = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [0, 0, 0]])
    >>> along_columns(matrix, uniform_q(3), [0, 1])
    (array([2, 0]), array([0.5, 0.5]))
    """
    matrix = as_matrix(adj)
    columns, first = np.unique(matrix[row_ids(rows, matrix)].indices, return_index=True)
    met = columns[np.argsort(first)].astype(np.int64)
    return met, neighbors_q(matrix, q, rows)[met]


def along_entries(adj: Matrix, rows: RowIds, power: float = 2.0) -> tuple[IntArray, FloatArray]:
    """The columns of the entries of `rows`, row after row, and the entries' shares of all
    |Â(v,u)|^power.

    `ladies` spreads stratified and systematic draws over [0, 1) in this order; the parts of a
    column add up to its `ladies_q`.

    >>> along_entries(np.array([[3.0, 4.0], [5.0, 0.0]]), [0, 1])
    (array([0, 1, 0]), array([0.18, 0.32, 0.5 ]))
    """
    _check_power(power)
    matrix = as_matrix(adj)
    chosen = matrix[row_ids(rows, matrix)]
    sizes = np.abs(chosen.data, dtype=np.float64) ** power * (chosen.data != 0)
    return chosen.indices.astype(np.int64), sizes / max(sizes.sum(), np.finfo(np.float64).tiny)


def _check_power(power: float) -> None:
    if not power >= 0:
        raise InputError(f"power must be at least 0, got {power}")


def _normalized(weight: FloatArray) -> FloatArray:
    total = weight.sum()
    return weight / total if total > 0 else uniform_q(len(weight))
