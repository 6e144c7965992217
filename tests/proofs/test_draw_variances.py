"""The rows' error for each way to draw and each law: closed forms, and who is never worse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.sampling import variance
from tests.proofs.enumeration import ALL_DRAWS, Draw, Member, inclusion

CLOSE = 1e-9  # of float64 sums in another order

Layer = tuple[FloatArray, FloatArray, FloatArray]


@st.composite
def layers(draw: st.DrawFn, n: int = 4) -> Layer:
    """Â (n, n), x (n, 2) and a positive q; entries of both signs, and zeros in Â."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.7)
    return matrix, rng.normal(size=(n, 2)), rng.dirichlet(np.ones(n))


def weights_of(kind: str, draw: Draw, q: FloatArray, t: int) -> FloatArray:
    """(n,): the weight of each vertex in a draw; zero if it is not in it."""
    counts = np.bincount(draw.drawn, minlength=len(q))
    return np.asarray(counts / inclusion(q, t) if kind == "poisson" else counts / (t * q))


def enumerated(kind: str, layer: Layer, t: int, order: IntArray) -> float:
    """Σ_v E‖y(v) − e(v)‖² over all draws from q, the vertices lying in this order."""
    matrix, x, q = layer
    error = 0.0
    for draw in ALL_DRAWS[kind](q[order], t):
        weights = np.empty(len(q))
        weights[order] = weights_of(kind, draw, q[order], t)
        error += draw.probability * float(np.sum((matrix @ (weights[:, None] * x - x)) ** 2))
    return error


@pytest.mark.parametrize("kind", ["independent", "poisson", "stratified", "systematic"])
@settings(deadline=None, max_examples=30)
@given(layers(), st.integers(1, 3), st.permutations(range(4)))
def test_closed_forms_are_means_over_all_draws(
    kind: Any, layer: Layer, t: int, order: list[int]
) -> None:
    along: dict[str, Any] = {}
    if kind in ("stratified", "systematic"):
        along = {"along": (np.array(order), layer[2][order])}
        assert variance.ROW_VARIANCE[kind](*layer, t) == pytest.approx(
            enumerated(kind, layer, t, np.arange(4)), rel=CLOSE, abs=CLOSE
        )
    closed = variance.ROW_VARIANCE[kind](*layer, t, **along)
    assert closed == pytest.approx(
        enumerated(kind, layer, t, np.array(order)), rel=CLOSE, abs=CLOSE
    )


@pytest.mark.parametrize("t", [2, 3])
def test_successive_variance_is_des_rajs(t: int) -> None:
    """Simulated against all 12 or 24 orders; within six standard errors, false alarms 2e-9."""
    rng = np.random.default_rng(8)
    matrix, x, q = rng.normal(size=(4, 4)), rng.normal(size=(4, 2)), np.array([0.1, 0.2, 0.3, 0.4])
    exact = 0.0
    for draw in ALL_DRAWS["successive"](q, t):
        p = q[draw.drawn]
        left, after = 1 - np.cumsum(p) + p, np.arange(t - 1, -1, -1)
        y = (matrix[:, draw.drawn] * (left / p + after) / t) @ x[draw.drawn]
        exact += draw.probability * float(np.sum((y - matrix @ x) ** 2))
    simulated = np.array(
        [
            variance.successive_variance(matrix, x, q, t, repetitions=1, seed=seed)
            for seed in range(400)
        ]
    )
    error = simulated.std(ddof=1) / 20
    assert abs(simulated.mean() - exact) < 6 * error
    assert error < 0.05 * exact, "too few repetitions to tell anything"


@settings(deadline=None)
@given(layers(), st.integers(1, 6), st.permutations(range(4)))
def test_strata_are_never_worse(layer: Layer, t: int, order: list[int]) -> None:
    along = (np.array(order), layer[2][order])
    stratified = variance.stratified_variance(*layer, t, along=along)
    assert stratified <= variance.row_variance(*layer, t) + CLOSE


def test_a_systematic_draw_can_lose() -> None:
    """Steps that fall in with a pattern of the vertices: 0 and 2, or 1 and 3, never mixed."""
    matrix, q = np.ones((1, 4)) * np.eye(4)[:, :1], np.full(4, 0.25)
    with_the_pattern = np.array([1.0, -1.0, 1.0, -1.0])
    plain = variance.row_variance(matrix, with_the_pattern, q, 2)
    assert variance.systematic_variance(matrix, with_the_pattern, q, 2) == pytest.approx(2 * plain)
    assert variance.stratified_variance(matrix, with_the_pattern, q, 2) == pytest.approx(plain)
    by_sign = (np.array([0, 2, 1, 3]), q)
    assert variance.systematic_variance(matrix, with_the_pattern, q, 2, along=by_sign) == 0


@settings(deadline=None)
@given(layers(), st.integers(1, 4))
def test_poisson_wins_exactly_where_rows_are_small_in_the_mean(layer: Layer, t: int) -> None:
    """Without certain vertices: t·(independent − Poisson) = t·Σ c²|x|² − Σ|e|².

    A row of k entries has |e|² ≤ k·Σ_u |Â(v,u)x(u)|², so that Poisson draws win where t is at
    least the number of entries of the longest row, certain vertices or not.
    """
    matrix, x, q = layer
    gain = variance.row_variance(*layer, t) - variance.poisson_variance(*layer, t)
    terms = np.sum((matrix**2).sum(axis=0) * (x**2).sum(axis=1))
    if t * q.max() < 1:
        expected = t * terms - np.sum((matrix @ x) ** 2)
        assert t * gain == pytest.approx(expected, rel=1e-6, abs=1e-6)
    if t >= (matrix != 0).sum(axis=1).max():
        assert gain >= -1e-6


@settings(deadline=None)
@given(layers(), st.integers(1, 4), st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_drawing_among_neighbours_is_never_worse(layer: Layer, t: int, rows: list[int]) -> None:
    """Renormalised over what the rows reach, q is larger there, and nothing else is needed."""
    matrix, x, q = layer
    among = variance.neighbors_q(matrix, q, rows)
    restricted = variance.row_variance(matrix, x, among, t, rows)
    assert restricted <= variance.row_variance(matrix, x, q, t, rows) + 1e-6
    assert ((among > 0) == (matrix[rows] != 0).any(axis=0)).all() or not matrix[rows].any()


@settings(deadline=None)
@given(layers(), st.integers(1, 4))
def test_an_exact_self_term_gains_what_the_diagonal_costs(layer: Layer, t: int) -> None:
    """With the same q, a = Â(v,v) and r the rest of the row's sum, t times the gain is

    Σ_v a²|x(v)|²·(1/q(v) − 1) − 2 Σ_v a·x(v)·r(v),

    so that it wins where no r(v) is long against a·x(v)/q(v).
    """
    matrix, x, q = layer
    off = variance.off_diagonal(matrix)
    a, rest = np.diag(matrix), off @ x
    own = a**2 * (x**2).sum(axis=1) * (1 / q - 1)
    gain = variance.row_variance(*layer, t) - variance.row_variance(off, x, q, t)
    expected = own.sum() - 2 * np.sum(a * (x * rest).sum(axis=1))
    assert t * gain == pytest.approx(expected, rel=1e-6, abs=1e-6)
    if (np.linalg.norm(rest, axis=1) <= abs(a) * np.linalg.norm(x, axis=1) * (1 / q - 1) / 2).all():
        assert gain >= -1e-6


def test_an_exact_self_term_can_lose() -> None:
    """q in proportion to the terms leaves no variance at all; part of them leaves some."""
    row = np.array([[0.5, 0.2, 0.3]] + [[0.0] * 3] * 2)
    q, x = np.array([0.5, 0.2, 0.3]), np.ones(3)
    assert variance.row_variance(row, x, q, 1) == pytest.approx(0, abs=1e-12)
    assert variance.row_variance(variance.off_diagonal(row), x, q, 1) > 0.1


ROWS = [0, 2]


@settings(deadline=None)
@given(layers(), st.integers(1, 4))
def test_ladies_against_importance(layer: Layer, t: int) -> None:
    """Where all |x(u)| are alike, ladies has C_R·m for the sum that importance has C·Σ r for.

    C = Σ c², C_R = Σ c_R² over the m columns that the rows reach, r(u) = c_R(u)²/c(u)² the
    rows' share of a column. Ladies wins exactly where C_R·m ≤ C·Σ r, and so wherever r and c²
    do not rise together over these columns: where the rows have less of the larger columns.
    """
    matrix, x, _ = layer
    if not matrix[ROWS].any():
        return
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    squares, of_rows = (matrix**2).sum(axis=0), (matrix[ROWS] ** 2).sum(axis=0)
    reached = of_rows > 0
    share = of_rows[reached] / squares[reached]
    ladies = variance.row_variance(matrix, x, variance.ladies_q(matrix, ROWS), t, ROWS)
    importance = variance.row_variance(matrix, x, variance.importance_q(matrix), t, ROWS)
    gain = squares.sum() * share.sum() - of_rows.sum() * reached.sum()
    assert t * (importance - ladies) == pytest.approx(gain, rel=1e-6, abs=1e-6)
    if np.mean(share * squares[reached]) <= share.mean() * squares[reached].mean():
        assert gain >= -1e-6


@settings(deadline=None)
@given(layers(), st.integers(1, 4))
def test_ladies_with_equal_rows_is_uniform_among_neighbours(layer: Layer, t: int) -> None:
    """|x(u)| all alike: q ∝ c² and q = 1/m have the same error, and q ∝ c the least of all."""
    matrix, x, _ = layer
    if not matrix[ROWS].any():
        return
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    among = variance.neighbors_q(matrix, variance.uniform_q(4), ROWS)
    laws = (variance.ladies_q(matrix, ROWS), among, variance.optimal_q(matrix, x, ROWS))
    ladies, uniform, best = (variance.row_variance(matrix, x, q, t, ROWS) for q in laws)
    assert ladies == pytest.approx(uniform, rel=1e-6, abs=1e-6)
    assert best <= ladies + 1e-6
    np.testing.assert_allclose(laws[2], np.sqrt(laws[0]) / np.sqrt(laws[0]).sum())


@settings(deadline=None)
@given(layers(), st.integers(1, 4))
def test_ladies_by_sizes_against_squares(layer: Layer, t: int) -> None:
    """|x(u)| all alike: q ∝ s = Σ_v |Â(v,u)| has Σ s·Σ c²/s where LADIES has m·Σ c².

    It wins exactly where that is less, as wherever s and c²/s, the mean size of a column's entries
    weighed by themselves, rise together; where no two rows share a column both are the
    entry's size, and q is the best there is.
    """
    matrix, x, _ = layer
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    for rows in (ROWS, ROWS[:1]):
        part = np.abs(matrix[rows])
        reached = part.any(axis=0)
        if not reached.any():
            continue
        sizes, squares = part.sum(axis=0)[reached], (part**2).sum(axis=0)[reached]
        laws = [variance.ladies_q(matrix, rows, power) for power in (1, 2)]
        by_sizes, ladies = (variance.row_variance(matrix, x, q, t, rows) for q in laws)
        gain = reached.sum() * squares.sum() - sizes.sum() * (squares / sizes).sum()
        assert t * (ladies - by_sizes) == pytest.approx(gain, rel=1e-6, abs=1e-6)
        if len(rows) == 1:
            np.testing.assert_allclose(laws[0], variance.optimal_q(matrix, x, rows))


@settings(deadline=None)
@given(layers(), st.sampled_from(["ladies", "importance"]))
def test_what_lies_along_the_points(layer: Layer, distribution: str) -> None:
    """Row after row, its columns by number: entries for ladies, columns once for the others."""
    matrix, rows = layer[0], np.array([2, 0])
    if not matrix[rows].any():
        return
    chosen = Member({"distribution": distribution, "neighbors_only": True, "draws": "stratified"})
    vertices, lengths = (
        variance.along_entries(matrix, rows)
        if distribution == "ladies"
        else variance.along_columns(matrix, variance.importance_q(matrix), rows)
    )
    expected, law = chosen.law(matrix, rows)
    assert vertices.tolist() == expected.tolist()
    np.testing.assert_allclose(lengths, law, rtol=1e-9)


def test_powers_of_the_norms() -> None:
    matrix = np.array([[3.0, 1.0], [4.0, 0.0]])
    np.testing.assert_allclose(variance.flat_q(matrix), [5 / 6, 1 / 6])
    np.testing.assert_allclose(variance.flat_q(matrix, 2), variance.importance_q(matrix))
    np.testing.assert_allclose(variance.flat_q(matrix, 0), variance.uniform_q(2))
    np.testing.assert_allclose(variance.ladies_q(matrix, [0, 1], 1), [7 / 8, 1 / 8])
    np.testing.assert_allclose(variance.ladies_q(matrix, [0, 1]), variance.importance_q(matrix))
    np.testing.assert_allclose(variance.ladies_q(matrix, [0, 1], 0), [2 / 3, 1 / 3])
    with pytest.raises(InputError, match="power must be at least 0"):
        variance.flat_q(matrix, -1)
    with pytest.raises(InputError, match="power must be at least 0"):
        variance.ladies_q(matrix, [0], -1)


def test_drawing_everyone_leaves_nothing_to_chance() -> None:
    matrix, x, q = np.ones((3, 3)), np.arange(3.0), np.array([0.2, 0.3, 0.5])
    assert variance.successive_variance(matrix, x, q, 3) == 0
    assert variance.poisson_variance(matrix, x, q, 3) == 0


@pytest.mark.parametrize("kind", ["poisson", "stratified", "systematic", "successive"])
def test_a_q_that_would_lose_a_vertex_is_refused(kind: Any) -> None:
    with pytest.raises(InputError, match="vertex 0 would never be drawn"):
        variance.ROW_VARIANCE[kind](np.eye(2), [1.0, 1.0], [0.0, 1.0], 1)
