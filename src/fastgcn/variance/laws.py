"""The distributions q that vertices are drawn from, densely and from their definitions."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn.errors import InputError
from fastgcn.types import FloatArray, IntArray
from fastgcn.variance.inputs import (
    Matrix,
    RowIds,
    as_matrix,
    as_q,
    as_rows,
    column_squares,
    count_of,
    row_ids,
    squared_rows,
)


def uniform_q(n: int) -> FloatArray:
    """(n,): q(u) = 1/n (Alg. 1).

    >>> uniform_q(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    return np.full(count_of(n, "n"), 1.0 / n)


def importance_q(adj: Matrix) -> FloatArray:
    """(n,): q(u) ∝ ‖Â(:,u)‖² (Prop. 4, Alg. 2); uniform where Â has no entry.

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
    """(n,): q(u) ∝ ‖Â(:,u)‖·|x(u)| (Thm 3, eq. 7); uniform where all of these are zero.

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
    """Â without its diagonal: what is sampled where Â(v,v)·x(v) is added in full.

    Every function here, given it in the place of Â, speaks of the exact self term.

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
    """The columns of `rows` in the order in which the rows meet them, and `neighbors_q` of each.

    So `neighbors_only` spreads stratified and systematic draws over [0, 1).

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

    So `ladies` spreads stratified and systematic draws over [0, 1); the stretches of a column
    add up to its `ladies_q`.

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
