"""The variance of a sampled convolution: Prop. 2, Thm 3 and Prop. 4 as plain functions.

One layer, before its nonlinearity. Â is (n, n); x (n,) or (n, d) holds the rows x(u) = H(u)W
that Â mixes; vertices are drawn from q (n,); e = Âx is the exact value. With u_1..u_t ~ q,

    y(v) = 1/t Σ_j Â(v,u_j) x(u_j) / q(u_j),      E y(v) = e(v)              (eq. 5 and 10)

and G = 1/s Σ_i y(v_i) is the average over s rows. There are three different variances:

* *independent* draws (`uniform_variance`, `optimal_variance`, `importance_variance`, all cases
  of `independent_variance`): those of Prop. 2 to 4. The v_i are uniform over the vertices,
  and every v_i has its own u_1..u_t.
* a *shared* draw (`shared_variance`): that of Alg. 1 and 2. One u_1..u_t serves every v_i, so
  the y(v_i) are correlated, and more rows do not average the error away.
* *per row* (`row_variance`): Σ_i Var y(v_i), the expected squared error of the rows that enter
  the next layer. It is the same for shared and independent draws. The other ways to draw have
  their own formulas: `stratified_variance`, `systematic_variance`, `poisson_variance`,
  `successive_variance`; `ROW_VARIANCE` has them all by name.

The other estimators are cases of these. For an exact self term, pass `off_diagonal(adj)` as Â. If
q comes from the rows, pass `ladies_q(adj, rows)` or `neighbors_q(adj, q, rows)` as q, and
`along_entries` or `along_columns` as the order along [0, 1). For a history, pass h − h̄ as x.

Scale. The paper writes convolutions as integrals, ∫ Â(v,u) x(u) dP(u), which for P uniform on
the graph's vertices are *means* over u, where eq. 1, 5 and 10 have *sums*. Everything here is
on the scale of the sums: kernel nÂ in the integrals, hence n² times what eq. 6, 8 and 9 print.
With c(u) = ‖Â(:,u)‖ = √n·b(u), this turns n²·∫b² dP into Σ c², and so on.

For x of d columns a variance is the sum of those of the d components, E‖y − E y‖², and |x(u)|
is the Euclidean norm of a row.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csc_array, csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.config import Draws
from fastgcn.kernels.draws import inclusion_probabilities
from fastgcn.sampling.distributions import (
    Matrix,
    RowIds,
    along_columns,
    along_entries,
    as_matrix,
    as_q,
    as_rows,
    column_squares,
    column_sums,
    convolution,
    count_of,
    flat_q,
    importance_q,
    ladies_q,
    neighbors_q,
    not_negative,
    off_diagonal,
    optimal_q,
    over_q,
    row_ids,
    squared_rows,
    uniform_q,
)

__all__ = [
    "ROW_VARIANCE",
    "along_columns",
    "along_entries",
    "flat_q",
    "importance_q",
    "importance_variance",
    "independent_variance",
    "ladies_q",
    "neighbors_q",
    "off_diagonal",
    "optimal_q",
    "optimal_variance",
    "poisson_variance",
    "row_variance",
    "shared_variance",
    "stratified_variance",
    "successive_variance",
    "systematic_variance",
    "uniform_q",
    "uniform_variance",
]


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

    It is below Prop. 2's exactly if c² and |x|² correlate positively over the vertices.
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
    """Var G if one draw u_1..u_t ~ q serves all rows, as in Alg. 1 and 2.

    Given rows v_1..v_s (node ids, repeats count), over the draw of u alone: with
    a(u) = 1/s Σ_i Â(v_i,u),

        1/t (Σ_u a(u)²|x(u)|² / q(u) − |Σ_u a(u)x(u)|²)

    If `rows` is a number s instead, the v_i are drawn too, uniformly with replacement: the mean
    of the above plus the variance of the rows' choice, 1/s (mean_v|e(v)|² − |mean_v e(v)|²).
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


# Vertices (m,), each once or several times, and the lengths (m,) of their parts of [0, 1).
Along: TypeAlias = tuple[IntArray, FloatArray]


def row_variance(adj: Matrix, x: Any, q: Any, t: int, rows: RowIds | None = None) -> float:
    """Σ_i Var y(v_i) over given rows (all n by default), over the draw of u_1..u_t ~ q.

        1/t (Σ_u ‖Â(rows,u)‖²|x(u)|² / q(u) − Σ_i |e(v_i)|²)

    This is E Σ_i ‖y(v_i) − e(v_i)‖², for shared and for independent draws; the q that minimises
    it is `optimal_q(adj, x, rows)`.

    >>> row_variance(np.eye(2), [1.0, 1.0], [0.5, 0.5], t=1)
    2.0
    """
    matrix, x = _chosen(adj, x, rows)
    drawn = over_q(column_squares(matrix) * squared_rows(x), q)
    return not_negative((drawn - np.sum((matrix @ x) ** 2)) / count_of(t, "t"))


def poisson_variance(adj: Matrix, x: Any, q: Any, t: int, rows: RowIds | None = None) -> float:
    """Σ_i Var y(v_i) if each u is drawn independently with probability p(u) = min(1, c·q(u)):

        Σ_u (1/p(u) − 1)·‖Â(rows,u)‖²|x(u)|²,     Σ_u p(u) = t

    >>> poisson_variance(np.eye(2), [1.0, 1.0], [0.5, 0.5], t=1)
    2.0
    """
    matrix, x = _chosen(adj, x, rows)
    sizes = column_squares(matrix) * squared_rows(x)
    p = inclusion_probabilities(as_q(q, sizes), count_of(t, "t"))
    over = np.divide(sizes, p, out=np.zeros_like(sizes), where=sizes > 0)
    return not_negative(over.sum() - sizes.sum())


def stratified_variance(
    adj: Matrix,
    x: Any,
    q: Any,
    t: int,
    rows: RowIds | None = None,
    *,
    along: Along | None = None,
) -> float:
    """Σ_i Var y(v_i) if one point falls into each of t equal strata of [0, 1).

    The vertices lie `along` [0, 1), in the order of their numbers by default; u has the length
    q(u). With e_j(v) the mean of Â(v,u)x(u)/q(u) over stratum j, e(v) is the mean of e_j(v), and

        1/t (Σ_u ‖Â(rows,u)‖²|x(u)|² / q(u) − Σ_i 1/t Σ_j |e_j(v_i)|²)

    At most `row_variance`, which has |e(v_i)|² there; less, the more the strata differ.

    >>> stratified_variance(np.eye(2), [1.0, 1.0], [0.5, 0.5], t=2)
    0.0
    """
    matrix, x = _chosen(adj, x, rows)
    sizes = column_squares(matrix) * squared_rows(x)
    q, t = as_q(q, sizes), count_of(t, "t")
    bounds = np.arange(1, t) / t
    strata = _means(matrix, x, q, _lengths(q, bounds, along) * t)
    return not_negative((over_q(sizes, q) - strata.sum() / t) / t)


def systematic_variance(
    adj: Matrix,
    x: Any,
    q: Any,
    t: int,
    rows: RowIds | None = None,
    *,
    along: Along | None = None,
) -> float:
    """Σ_i Var y(v_i) if t points of distance 1/t follow one uniform start.

    There are at most n different outcomes, or as many as there are parts `along` [0, 1), each of
    t vertices. All of them are computed, so the work grows as n·t. The result can be below
    `stratified_variance`, and above `row_variance`.

    >>> systematic_variance(np.eye(2), [1.0, 1.0], [0.5, 0.5], t=2)
    0.0
    """
    matrix, x = _chosen(adj, x, rows)
    q, t = as_q(q, column_squares(matrix) * squared_rows(x)), count_of(t, "t")
    vertices, lengths = (np.arange(len(q)), q) if along is None else along
    ends = np.cumsum(lengths) * t
    cuts = np.unique(np.concatenate([[0.0], ends[:-1] % 1.0, [1.0]]))
    starts = (cuts[1:] + cuts[:-1]) / 2
    points = (starts[:, None] + np.arange(t)) / t
    at = np.minimum(np.searchsorted(ends / t, points.ravel(), side="right"), len(ends) - 1)
    outcome = np.repeat(np.arange(len(starts)), t)
    shares = csc_array(
        (np.full(len(at), 1 / t), (vertices[at], outcome)), shape=(len(q), len(starts))
    )
    second_moment = _means(matrix, x, q, shares) @ np.diff(cuts)
    return not_negative(second_moment - np.sum((matrix @ x) ** 2))


def successive_variance(
    adj: Matrix,
    x: Any,
    q: Any,
    t: int,
    rows: RowIds | None = None,
    *,
    repetitions: int = 50,
    seed: int = 0,
) -> float:
    """Σ_i Var y(v_i) of t distinct vertices, drawn one after the other, with Des Raj's weights.

    The t terms are uncorrelated. With R the q left before the j-th draw, and sums over the
    vertices left, the variance of the j-th term given the draws before it is known, and

        Var = 1/t² Σ_j E[R Σ_left ‖Â(rows,u)‖²|x(u)|² / q(u) − Σ_i |Σ_left Â(v_i,u)x(u)|²]

    The mean E over the draws before is taken over `repetitions` simulated ones. Each of the t
    terms is at most the one at j = 1, so Var is at most `row_variance`; it is zero if all
    vertices are drawn.
    """
    matrix, x = _chosen(adj, x, rows)
    sizes = column_squares(matrix) * squared_rows(x)
    q, t = as_q(q, sizes), count_of(t, "t")
    if t >= np.count_nonzero(q):
        return 0.0
    rng, terms = np.random.default_rng(seed), 0.0
    over = np.divide(sizes, q, out=np.zeros_like(sizes), where=sizes > 0)
    for _ in range(count_of(repetitions, "repetitions")):
        rings = np.divide(rng.exponential(size=len(q)), q, out=np.full(len(q), np.inf), where=q > 0)
        first = np.argpartition(rings, t - 1)[:t]
        drawn = first[np.argsort(rings[first])][:-1]
        left = 1 - np.concatenate([[0.0], np.cumsum(q[drawn])])
        sums = over.sum() - np.concatenate([[0.0], np.cumsum(over[drawn])])
        terms += np.sum(left * sums) - np.sum(_rest_squares(matrix, x, drawn))
    return not_negative(terms / repetitions / t**2)


ROW_VARIANCE: dict[Draws, Callable[..., float]] = {
    "independent": row_variance,
    "successive": successive_variance,
    "poisson": poisson_variance,
    "systematic": systematic_variance,
    "stratified": stratified_variance,
}


def _chosen(adj: Matrix, x: Any, rows: RowIds | None) -> tuple[csr_array, FloatArray]:
    """Â(rows,:) and x as (n, d)."""
    matrix = as_matrix(adj)
    x = as_rows(x, matrix)
    return matrix if rows is None else matrix[row_ids(rows, matrix)], x


def _lengths(q: FloatArray, bounds: FloatArray, along: Along | None) -> csc_array:
    """(n, k+1): how much of each vertex's share of [0, 1) lies between neighbouring bounds."""
    vertices, lengths = (np.arange(len(q)), q) if along is None else along
    ends = np.cumsum(lengths)
    ends[-1] = 1.0
    cuts = np.unique(np.concatenate([[0.0], ends, bounds]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    piece = vertices[np.searchsorted(ends, middle, side="right")]
    between = np.searchsorted(bounds, middle, side="right")
    return csc_array((np.diff(cuts), (piece, between)), shape=(len(q), len(bounds) + 1))


def _means(matrix: csr_array, x: FloatArray, q: FloatArray, shares: csc_array) -> FloatArray:
    """(k,): Σ_i |Σ_u shares(u,j)·Â(v_i,u)x(u)/q(u)|² for each column j of shares (n, k)."""
    total = np.zeros(shares.shape[1])
    for column in x.T:
        scaled = np.divide(column, q, out=np.zeros_like(q), where=q > 0)
        means = csc_array((matrix * scaled) @ shares)
        total += np.asarray(means.multiply(means).sum(axis=0)).ravel()
    return total


def _rest_squares(matrix: csr_array, x: FloatArray, drawn: IntArray) -> FloatArray:
    """(k+1,): Σ_i |e(v_i)|² without the first 0, 1, .., k vertices of `drawn` (k,)."""
    columns, rest = csc_array(matrix[:, drawn]), matrix @ x
    squares = [float(np.sum(rest**2))]
    for j, u in enumerate(drawn):
        entries = slice(columns.indptr[j], columns.indptr[j + 1])
        at, taken = columns.indices[entries], np.outer(columns.data[entries], x[u])
        before = np.sum(rest[at] ** 2)
        rest[at] -= taken
        squares.append(squares[-1] + float(np.sum(rest[at] ** 2) - before))
    return np.array(squares)
