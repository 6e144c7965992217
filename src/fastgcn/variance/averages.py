"""Prop. 2, Thm 3 and Prop. 4: the average of rows, with a draw each or a shared one."""

from typing import Any

import numpy as np

from fastgcn.types import FloatArray
from fastgcn.variance.inputs import (
    Matrix,
    RowIds,
    as_matrix,
    as_rows,
    column_squares,
    column_sums,
    convolution,
    count_of,
    not_negative,
    over_q,
    row_ids,
    squared_rows,
)


def uniform_variance(adj: Matrix, x: Any, s: int, t: int) -> float:
    """Var G of Prop. 2 (eq. 6): u and v uniform, every v with its own draw of u.

        R + 1/(st) Σ_u c(u)²|x(u)|²
        R = 1/s (1 − 1/t) mean_v|e(v)|² − 1/s |mean_v e(v)|²

    >>> uniform_variance(np.eye(2), [1.0, 1.0], s=1, t=1)  # y(v) is 0 or 2
    1.0
    """
    matrix, x, e = convolution(adj, x)
    drawn = np.sum(column_squares(matrix) * squared_rows(x))
    return not_negative(_rest(e, s, t) + drawn / (s * t))


def optimal_variance(adj: Matrix, x: Any, s: int, t: int) -> float:
    """Var G of Thm 3 (eq. 8), the least over all q: as Prop. 2, but u ~ `optimal_q(adj, x)`.

    R + 1/(st) · 1/n · (Σ_u c(u)|x(u)|)²
    """
    matrix, x, e = convolution(adj, x)
    drawn = np.sqrt(column_squares(matrix) * squared_rows(x)).sum() ** 2 / len(x)
    return not_negative(_rest(e, s, t) + drawn / (s * t))


def importance_variance(adj: Matrix, x: Any, s: int, t: int) -> float:
    """Var G of Prop. 4 (eq. 9): as Prop. 2, but u ~ `importance_q(adj)`.

        R + 1/(st) · 1/n · Σ_u c(u)² · Σ_u |x(u)|²

    It is below Prop. 2's exactly where c² and |x|² correlate positively over the vertices.
    The second sum runs over the u with c(u) > 0: the others are never drawn and never needed,
    though eq. 9 as printed counts them.
    """
    matrix, x, e = convolution(adj, x)
    squares = column_squares(matrix)
    drawn = squares.sum() * squared_rows(x)[squares > 0].sum() / len(x)
    return not_negative(_rest(e, s, t) + drawn / (s * t))


def independent_variance(adj: Matrix, x: Any, q: Any, s: int, t: int) -> float:
    """Var G for any q: v_1..v_s uniform with replacement, every v_i with its own u_1..u_t ~ q.

        R + 1/(st) · 1/n · Σ_u c(u)²|x(u)|² / q(u)

    (the appendix's proof of Thm 3, before q is chosen).
    """
    matrix, x, e = convolution(adj, x)
    drawn = over_q(column_squares(matrix) * squared_rows(x), q) / len(x)
    return not_negative(_rest(e, s, t) + drawn / (s * t))


def shared_variance(adj: Matrix, x: Any, q: Any, rows: int | RowIds, t: int) -> float:
    """Var G where one draw u_1..u_t ~ q serves all rows, as in Alg. 1 and 2.

    Given rows v_1..v_s (node ids, repeats count), over the draw of u alone: with
    a(u) = 1/s Σ_i Â(v_i,u),

        1/t (Σ_u a(u)²|x(u)|² / q(u) − |Σ_u a(u)x(u)|²)

    With a number of rows s instead, the v_i too are drawn, uniformly with replacement: the
    mean of the above plus what the choice of rows adds, 1/s (mean_v|e(v)|² − |mean_v e(v)|²).
    For s = 1 it equals `independent_variance`; for s → ∞ it tends to the value for all rows
    and not to zero.

    >>> x, q = [1.0, 1.0], [0.5, 0.5]
    >>> shared_variance(np.eye(2), x, q, [0], t=1), shared_variance(np.eye(2), x, q, [0, 1], t=1)
    (1.0, 0.0)
    """
    matrix = as_matrix(adj)
    x, t = as_rows(x, matrix), count_of(t, "t")
    sizes, n = squared_rows(x), len(x)
    if not isinstance(rows, int | np.integer):
        chosen = row_ids(rows, matrix)
        mean = column_sums(matrix[chosen]) / len(chosen)
        return not_negative((over_q(mean**2 * sizes, q) - np.sum((mean @ x) ** 2)) / t)
    s, e, mean = count_of(rows, "rows"), matrix @ x, column_sums(matrix) / n
    # Second moments of an average of s independent terms: |mean|² + (second moment − |mean|²)/s.
    second_moment = mean**2 + (column_squares(matrix) / n - mean**2) / s
    truth = np.sum((mean @ x) ** 2)
    choice_of_rows = (np.sum(e**2) / n - truth) / s
    drawn = over_q(second_moment * sizes, q) - truth - choice_of_rows
    return not_negative(choice_of_rows + drawn / t)


def _rest(e: FloatArray, s: int, t: int) -> float:
    """R of Prop. 2, the part that no choice of q changes."""
    s, t = count_of(s, "s"), count_of(t, "t")
    second_moment = np.sum(e**2) / len(e)
    return float((1 - 1 / t) / s * second_moment - np.sum(e.mean(axis=0) ** 2) / s)
