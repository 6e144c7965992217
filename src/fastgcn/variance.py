"""How far a sampled convolution strays: Prop. 2, Thm 3 and Prop. 4 as plain functions.

One layer, before its nonlinearity. Â is (n, n); x (n,) or (n, d) holds the rows x(u) = H(u)W
that Â mixes; q (n,) is what vertices are drawn from; e = Âx is the truth. With u_1..u_t ~ q,

    y(v) = 1/t Σ_j Â(v,u_j) x(u_j) / q(u_j),      E y(v) = e(v)              (eq. 5 and 10)

and G = 1/s Σ_i y(v_i) is the average over s rows. Three variances are told apart:

* *independent* draws (`uniform_variance`, `optimal_variance`, `importance_variance`, all cases
  of `independent_variance`): what Prop. 2 to 4 state. The v_i are uniform over the vertices,
  and every v_i has its own u_1..u_t.
* a *shared* draw (`shared_variance`): what Alg. 1 and 2 do. One u_1..u_t serves every v_i, so
  the y(v_i) are correlated, and more rows do not average the error away.
* *per row* (`row_variance`): Σ_i Var y(v_i), the expected squared error of the rows, which is
  what the next layer sees. It is the same for shared and independent draws.

Scale. The paper writes convolutions as integrals, ∫ Â(v,u) x(u) dP(u), which for P uniform on
the graph's vertices are *means* over u, where eq. 1, 5 and 10 have *sums*. Everything here is
on the scale of the sums: kernel nÂ in the integrals, hence n² times what eq. 6, 8 and 9 print.
With c(u) = ‖Â(:,u)‖ = √n·b(u), this turns n²·∫b² dP into Σ c², and so on.

For x of d columns a variance is the sum of those of the d components, E‖y − E y‖², and |x(u)|
is the Euclidean norm of a row.
"""

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


def uniform_q(n: int) -> FloatArray:
    """(n,): q(u) = 1/n (Alg. 1).

    >>> uniform_q(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    return np.full(_count(n, "n"), 1.0 / n)


def importance_q(adj: Matrix) -> FloatArray:
    """(n,): q(u) ∝ ‖Â(:,u)‖² (Prop. 4, Alg. 2); uniform where Â has no entry.

    >>> importance_q(np.array([[3.0, 0.0], [0.0, 1.0]]))
    array([0.9, 0.1])
    """
    return _normalized(_column_squares(_matrix(adj)))


def optimal_q(adj: Matrix, x: Any, rows: RowIds | None = None) -> FloatArray:
    """(n,): q(u) ∝ ‖Â(:,u)‖·|x(u)| (Thm 3, eq. 7); uniform where all of these are zero.

    It minimises `independent_variance` and `row_variance`. With `rows`, the norms are those of
    the columns of Â(rows,:), which minimises `row_variance` over these rows.

    >>> optimal_q(np.array([[3.0, 0.0], [0.0, 1.0]]), [1.0, 2.0])
    array([0.6, 0.4])
    """
    matrix = _matrix(adj)
    chosen = matrix if rows is None else matrix[_row_ids(rows, matrix)]
    return _normalized(np.sqrt(_column_squares(chosen) * _squared_rows(_values(x, matrix))))


def uniform_variance(adj: Matrix, x: Any, s: int, t: int) -> float:
    """Var G of Prop. 2 (eq. 6): u and v uniform, every v with its own draw of u.

        R + 1/(st) Σ_u c(u)²|x(u)|²
        R = 1/s (1 − 1/t) mean_v|e(v)|² − 1/s |mean_v e(v)|²

    >>> uniform_variance(np.eye(2), [1.0, 1.0], s=1, t=1)  # y(v) is 0 or 2
    1.0
    """
    matrix, x, e = _convolution(adj, x)
    drawn = np.sum(_column_squares(matrix) * _squared_rows(x))
    return _not_negative(_rest(e, s, t) + drawn / (s * t))


def optimal_variance(adj: Matrix, x: Any, s: int, t: int) -> float:
    """Var G of Thm 3 (eq. 8), the least over all q: as Prop. 2, but u ~ `optimal_q(adj, x)`.

    R + 1/(st) · 1/n · (Σ_u c(u)|x(u)|)²
    """
    matrix, x, e = _convolution(adj, x)
    drawn = np.sqrt(_column_squares(matrix) * _squared_rows(x)).sum() ** 2 / len(x)
    return _not_negative(_rest(e, s, t) + drawn / (s * t))


def importance_variance(adj: Matrix, x: Any, s: int, t: int) -> float:
    """Var G of Prop. 4 (eq. 9): as Prop. 2, but u ~ `importance_q(adj)`.

        R + 1/(st) · 1/n · Σ_u c(u)² · Σ_u |x(u)|²

    It is below Prop. 2's exactly where c² and |x|² correlate positively over the vertices.
    The second sum runs over the u with c(u) > 0: the others are never drawn and never needed,
    though eq. 9 as printed counts them.
    """
    matrix, x, e = _convolution(adj, x)
    squares = _column_squares(matrix)
    drawn = squares.sum() * _squared_rows(x)[squares > 0].sum() / len(x)
    return _not_negative(_rest(e, s, t) + drawn / (s * t))


def independent_variance(adj: Matrix, x: Any, q: Any, s: int, t: int) -> float:
    """Var G for any q: v_1..v_s uniform with replacement, every v_i with its own u_1..u_t ~ q.

        R + 1/(st) · 1/n · Σ_u c(u)²|x(u)|² / q(u)

    (the appendix's proof of Thm 3, before q is chosen).
    """
    matrix, x, e = _convolution(adj, x)
    drawn = _over_q(_column_squares(matrix) * _squared_rows(x), q) / len(x)
    return _not_negative(_rest(e, s, t) + drawn / (s * t))


def shared_variance(adj: Matrix, x: Any, q: Any, rows: int | RowIds, t: int) -> float:
    """Var G where one draw u_1..u_t ~ q serves all rows, as in Alg. 1 and 2.

    Given rows v_1..v_s (node ids, repeats count), over the draw of u alone: with
    a(u) = 1/s Σ_i Â(v_i,u),

        1/t (Σ_u a(u)²|x(u)|² / q(u) − |Σ_u a(u)x(u)|²)

    With a number of rows s instead, the v_i too are drawn, uniformly with replacement: the
    mean of the above plus what the choice of rows adds, 1/s (mean_v|e(v)|² − |mean_v e(v)|²).
    For s = 1 it equals `independent_variance`; for s → ∞ it tends to the value for all rows
    and not to zero.

    >>> x, q = [1.0, 1.0], uniform_q(2)
    >>> shared_variance(np.eye(2), x, q, [0], t=1), shared_variance(np.eye(2), x, q, [0, 1], t=1)
    (1.0, 0.0)
    """
    matrix = _matrix(adj)
    x, t = _values(x, matrix), _count(t, "t")
    sizes, n = _squared_rows(x), len(x)
    if not isinstance(rows, int | np.integer):
        chosen = _row_ids(rows, matrix)
        mean = _column_sums(matrix[chosen]) / len(chosen)
        return _not_negative((_over_q(mean**2 * sizes, q) - np.sum((mean @ x) ** 2)) / t)
    s, e, mean = _count(rows, "rows"), matrix @ x, _column_sums(matrix) / n
    # Second moments of an average of s independent terms: |mean|² + (second moment − |mean|²)/s.
    second_moment = mean**2 + (_column_squares(matrix) / n - mean**2) / s
    truth = np.sum((mean @ x) ** 2)
    choice_of_rows = (np.sum(e**2) / n - truth) / s
    drawn = _over_q(second_moment * sizes, q) - truth - choice_of_rows
    return _not_negative(choice_of_rows + drawn / t)


def row_variance(adj: Matrix, x: Any, q: Any, t: int, rows: RowIds | None = None) -> float:
    """Σ_i Var y(v_i) over given rows (all n by default), over the draw of u_1..u_t ~ q.

        1/t (Σ_u ‖Â(rows,u)‖²|x(u)|² / q(u) − Σ_i |e(v_i)|²)

    This is E Σ_i ‖y(v_i) − e(v_i)‖², shared draw or not, and `optimal_q(adj, x, rows)` is the
    q that minimises it.

    >>> row_variance(np.eye(2), [1.0, 1.0], uniform_q(2), t=1)
    2.0
    """
    matrix = _matrix(adj)
    x = _values(x, matrix)
    if rows is not None:
        matrix = matrix[_row_ids(rows, matrix)]
    drawn = _over_q(_column_squares(matrix) * _squared_rows(x), q)
    return _not_negative((drawn - np.sum((matrix @ x) ** 2)) / _count(t, "t"))


def _rest(e: FloatArray, s: int, t: int) -> float:
    """R of Prop. 2, the part that no choice of q changes."""
    s, t = _count(s, "s"), _count(t, "t")
    second_moment = np.sum(e**2) / len(e)
    return float((1 - 1 / t) / s * second_moment - np.sum(e.mean(axis=0) ** 2) / s)


def _over_q(numerator: FloatArray, q: Any) -> float:
    """Σ_u numerator(u) / q(u), where a vertex that adds nothing may have q(u) = 0."""
    q = _numbers(q, "q")
    if q.shape != numerator.shape:
        raise InputError(f"q must have shape {numerator.shape}, one a vertex, got {q.shape}")
    if q.min() < 0 or abs(q.sum() - 1) > _SUM_TOLERANCE:
        raise InputError(
            f"q must be probabilities that sum to one, got a least of {q.min():g} and a sum of "
            f"{q.sum():g}; divide it by its sum"
        )
    lost = (q == 0) & (numerator > 0)
    if lost.any():
        raise InputError(
            f"q must be positive wherever Â and x are not zero, but vertex {np.argmax(lost)} "
            "would never be drawn and the estimate would be biased"
        )
    return float(np.divide(numerator, q, out=np.zeros_like(q), where=numerator > 0).sum())


def _not_negative(variance: float | np.floating[Any]) -> float:
    """The formulas subtract nearly equal numbers where a variance is zero."""
    return max(float(variance), 0.0)


def _normalized(weight: FloatArray) -> FloatArray:
    total = weight.sum()
    return weight / total if total > 0 else uniform_q(len(weight))


def _column_squares(matrix: csr_array) -> FloatArray:
    """(n,): c(u)² = Σ_v Â(v,u)²."""
    squares = np.square(matrix.data, dtype=np.float64)
    return _by_column(matrix, squares)


def _column_sums(matrix: csr_array) -> FloatArray:
    """(n,): Σ_v Â(v,u)."""
    return _by_column(matrix, matrix.data)


def _by_column(matrix: csr_array, entries: FloatArray) -> FloatArray:
    """(n,) float64: the sum of the entries of each column."""
    sums = np.bincount(matrix.indices, weights=entries, minlength=matrix.shape[1])
    return cast(FloatArray, sums)


def _squared_rows(x: FloatArray) -> FloatArray:
    """(n,): |x(u)|²."""
    return np.einsum("ud,ud->u", x, x)  # type: ignore[no-any-return]


def _convolution(adj: Matrix, x: Any) -> tuple[csr_array, FloatArray, FloatArray]:
    """Â, x as (n, d) and e = Âx."""
    matrix = _matrix(adj)
    x = _values(x, matrix)
    return matrix, x, matrix @ x


def _matrix(adj: Matrix) -> csr_array:
    """Â as CSR rows that hold no entry twice; an `Adjacency` is used as it is."""
    if isinstance(adj, Adjacency):
        return adj.to_scipy()
    given = adj if issparse(adj) else _numbers(adj, "Â")
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.shape[0]:
        raise InputError(f"Â must be a square matrix of one row a vertex, got shape {given.shape}")
    matrix = csr_array(given, copy=True)
    matrix.data = _numbers(matrix.data, "Â")
    matrix.sum_duplicates()
    return matrix


def _values(x: Any, matrix: csr_array) -> FloatArray:
    """x as (n, d) float64."""
    values = _numbers(x, "x")
    n = matrix.shape[0]
    if values.ndim not in (1, 2) or len(values) != n:
        raise InputError(f"x must have shape ({n},) or ({n}, d), got {values.shape}")
    return values.reshape(n, -1)


def _numbers(values: Any, what: str) -> FloatArray:
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


def _row_ids(rows: RowIds, matrix: csr_array) -> IntArray:
    ids = checks.integers(rows, "rows")
    if not ids.size:
        raise InputError("rows must name at least one vertex, got none")
    checks.in_range(ids, matrix.shape[0], "rows")
    return ids


def _count(value: int, what: str) -> int:
    if not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} must be a whole number of at least 1, got {value!r}")
    return int(value)
