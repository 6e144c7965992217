"""Prop. 2, Thm 3 and Prop. 4 against their definitions: every outcome listed, no randomness."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

from fastgcn import Graph, normalize
from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.sampling import variance
from fastgcn.sampling.check import tiny_graphs
from tests.proofs.enumeration import dense

Layer = tuple[FloatArray, FloatArray, FloatArray]
CLOSE = 1e-9  # of float64 sums in another order


@st.composite
def layers(draw: st.DrawFn, zeros: bool = True) -> Layer:
    """Â (3, 3), x (3, 1 or 2) and a positive q; entries of both signs, and zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix, x = rng.normal(size=(3, 3)), rng.normal(size=(3, draw(st.integers(1, 2))))
    if zeros:
        matrix *= rng.random((3, 3)) < 0.6
        x *= rng.random((3, 1)) < 0.8
    return matrix, x, rng.dirichlet(np.ones(3))


def outcomes(layer: Layer, t: int) -> tuple[FloatArray, FloatArray]:
    """y(v) for each v and each of the n^t draws, (n, n^t, d), and the draws' probabilities."""
    matrix, x, q = layer
    drawn = np.array(list(product(range(len(q)), repeat=t)))
    terms = matrix[:, drawn, None] * (x / q[:, None])[drawn]
    return terms.mean(axis=2), np.prod(q[drawn], axis=1)


def spread(values: FloatArray, probability: FloatArray) -> float:
    """E‖G − E G‖² of outcomes (k, d) with these probabilities (k,)."""
    mean = probability @ values
    return float(probability @ ((values - mean) ** 2).sum(axis=1))


def close(value: float, expected: float) -> bool:
    return value == pytest.approx(expected, rel=CLOSE, abs=CLOSE)


@settings(deadline=None, max_examples=40)
@given(layers(), st.integers(1, 3))
def test_independent_draws(layer: Layer, t: int) -> None:
    """s = 2 rows, each with its own draw: all 9·3^(2t) outcomes."""
    y, p = outcomes(layer, t)
    single, weight = y.reshape(-1, y.shape[-1]), np.tile(p / 3, 3)
    pairs = (single[:, None] + single[None]).reshape(-1, y.shape[-1]) / 2
    exact = spread(pairs, np.outer(weight, weight).ravel())
    assert close(variance.independent_variance(*layer, s=2, t=t), exact)


@settings(deadline=None, max_examples=40)
@given(layers(), st.integers(1, 3), st.integers(1, 3))
def test_shared_draw_of_random_rows(layer: Layer, s: int, t: int) -> None:
    """One draw for all of s rows, which are themselves drawn: all 3^(s+t) outcomes."""
    y, p = outcomes(layer, t)
    rows = list(product(range(3), repeat=s))
    values = np.concatenate([y[list(chosen)].mean(axis=0) for chosen in rows])
    exact = spread(values, np.tile(p, len(rows)) / len(rows))
    assert close(variance.shared_variance(*layer, s, t), exact)


@settings(deadline=None, max_examples=40)
@given(layers(), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(1, 3))
def test_shared_draw_of_given_rows(layer: Layer, rows: list[int], t: int) -> None:
    y, p = outcomes(layer, t)
    assert close(
        variance.shared_variance(*layer, rows, t),
        spread(y[rows].mean(axis=0), p),
    )


@settings(deadline=None, max_examples=40)
@given(layers(), st.none() | st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_row_variance_is_the_sum_over_rows(layer: Layer, rows: list[int] | None) -> None:
    y, p = outcomes(layer, 2)
    exact = sum(spread(y[v], p) for v in (range(3) if rows is None else rows))
    assert close(variance.row_variance(*layer, 2, rows), exact)


@settings(deadline=None)
@given(layers(zeros=False), st.integers(1, 5), st.integers(1, 5))
def test_the_formulas_as_printed(layer: Layer, s: int, t: int) -> None:
    """Eq. 6, 8 and 9 word for word: integrals are means over vertices, the kernel is nÂ."""
    matrix, x, _ = layer
    x = x[:, 0]
    kernel = len(x) * matrix
    e = np.mean(kernel * x, axis=1)
    b = np.sqrt(np.mean(kernel**2, axis=0))
    rest = (1 / s) * (1 - 1 / t) * np.mean(e**2) - (1 / s) * np.mean(e) ** 2
    eq6 = rest + np.mean(kernel**2 * x**2) / (s * t)
    eq8 = rest + np.mean(b * abs(x)) ** 2 / (s * t)
    eq9 = rest + np.mean(b**2) * np.mean(x**2) / (s * t)
    assert close(variance.uniform_variance(matrix, x, s, t), eq6)
    assert close(variance.optimal_variance(matrix, x, s, t), eq8)
    assert close(variance.importance_variance(matrix, x, s, t), eq9)


@settings(deadline=None)
@given(layers(), st.integers(1, 5), st.integers(1, 5))
def test_the_named_variances_are_cases_of_the_general_one(layer: Layer, s: int, t: int) -> None:
    matrix, x, _ = layer
    cases: list[tuple[Callable[..., float], FloatArray]] = [
        (variance.uniform_variance, variance.uniform_q(3)),
        (variance.optimal_variance, variance.optimal_q(matrix, x)),
        (variance.importance_variance, variance.importance_q(matrix)),
    ]
    for named, q in cases:
        general = variance.independent_variance(matrix, x, q, s, t)
        assert close(named(matrix, x, s, t), general)


@settings(deadline=None)
@given(layers(), st.integers(1, 5), st.integers(1, 5))
def test_no_q_beats_theorem_3(layer: Layer, s: int, t: int) -> None:
    matrix, x, q = layer
    least = variance.optimal_variance(matrix, x, s, t) - CLOSE
    assert least <= variance.uniform_variance(matrix, x, s, t)
    assert least <= variance.importance_variance(matrix, x, s, t)
    assert least <= variance.independent_variance(matrix, x, q, s, t)


@settings(deadline=None)
@given(layers(), st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_no_q_beats_theorem_3_row_by_row(layer: Layer, rows: list[int]) -> None:
    """The same q, from the columns of the rows in question, is best for the rows' error."""
    matrix, x, q = layer
    best = variance.optimal_q(matrix, x, rows)
    least = variance.row_variance(matrix, x, best, 3, rows)
    assert least <= variance.row_variance(matrix, x, q, 3, rows) + CLOSE


@settings(deadline=None)
@given(layers(zeros=False))
def test_importance_wins_exactly_where_large_columns_meet_large_x(layer: Layer) -> None:
    """Prop. 4 is below Prop. 2 if and only if c² and |x|² are positively correlated."""
    matrix, x, _ = layer
    columns, sizes = (matrix**2).sum(axis=0), (x**2).sum(axis=1)
    gain = variance.uniform_variance(matrix, x, 1, 1) - variance.importance_variance(
        matrix, x, 1, 1
    )
    covariance = np.mean(columns * sizes) - columns.mean() * sizes.mean()
    assert close(gain, 3 * covariance)


def star(leaves: int) -> Any:
    """Vertex 0 joined to all others, each row of Â a mean."""
    graph = Graph.from_edges(
        [0] * leaves, list(range(1, leaves + 1)), features=np.zeros((leaves + 1, 1))
    )
    return normalize(graph, "row")


def test_importance_can_lose_to_uniform() -> None:
    """The paper's caveat: x lives on a leaf of a star, and importance sampling looks at the hub."""
    adj, x = star(9), np.eye(10)[4]
    uniform = variance.uniform_variance(adj, x, s=5, t=5)
    importance = variance.importance_variance(adj, x, s=5, t=5)
    assert importance > 1.5 * uniform
    assert variance.optimal_variance(adj, x, s=5, t=5) < uniform / 2


def test_a_shared_draw_is_not_averaged_away() -> None:
    """The gap between the propositions and the algorithms: rows that share a draw err together."""
    adj, x, q, t = star(9), np.ones(10), variance.uniform_q(10), 5
    assert variance.independent_variance(adj, x, q, 10**6, t) < 1e-5
    everyone = variance.shared_variance(adj, x, q, range(10), t)
    assert everyone > 0.05
    assert variance.shared_variance(adj, x, q, 10**6, t) == pytest.approx(everyone, rel=1e-4)


@settings(deadline=None)
@given(layers(), st.integers(1, 5))
def test_one_row_has_nothing_to_share(layer: Layer, t: int) -> None:
    shared = variance.shared_variance(*layer, 1, t)
    assert close(shared, variance.independent_variance(*layer, 1, t))


def test_theorem_3_is_not_about_a_shared_draw() -> None:
    """For the average of all rows, q ∝ |Σ_v Â(v,u)|·|x(u)| makes every term alike: variance 0."""
    adj, x, everyone = star(9), np.ones(10), range(10)
    sums = dense(adj).sum(axis=0)
    assert variance.shared_variance(adj, x, sums / sums.sum(), everyone, 1) < 1e-6
    best_per_row = variance.optimal_q(adj, x)
    assert variance.shared_variance(adj, x, best_per_row, everyone, 1) > 0.1


@pytest.mark.parametrize("graph", tiny_graphs())
def test_every_kind_of_matrix_is_understood(graph: str) -> None:
    adj = tiny_graphs()[graph]
    x, q = np.arange(8.0).reshape(4, 2), np.array([0.4, 0.3, 0.2, 0.1])
    rows, columns = np.nonzero(dense(adj))
    halves = dense(adj)[rows, columns] / 2  # every entry listed twice
    doubled = coo_array((np.tile(halves, 2), (np.tile(rows, 2), np.tile(columns, 2))), shape=(4, 4))
    values = [
        (
            variance.independent_variance(m, x, q, 2, 3),
            variance.shared_variance(m, x, q, [0, 2], 3),
            variance.row_variance(m, x, q, 3),
        )
        for m in (dense(adj), adj, csr_array(dense(adj)), doubled)
    ]
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], rtol=1e-9)
    np.testing.assert_allclose(
        variance.importance_q(adj), adj.column_norms() ** 2 / np.sum(adj.column_norms() ** 2)
    )


def test_vertices_that_nobody_needs_do_not_count() -> None:
    """Column 0 is zero: its x is never used, whatever it is, and its q may be zero."""
    adj = tiny_graphs()["no loops"]
    x = np.array([1.0, 2.0, 3.0, 4.0])
    other = np.array([1e6, 2.0, 3.0, 4.0])
    assert variance.importance_q(adj)[0] == 0
    for named in (variance.importance_variance, variance.optimal_variance):
        assert named(adj, other, 2, 2) == named(adj, x, 2, 2)


def test_where_nothing_is_needed_all_is_uniform_and_certain() -> None:
    np.testing.assert_array_equal(variance.optimal_q(np.eye(2), [0, 0]), [0.5, 0.5])
    np.testing.assert_array_equal(variance.importance_q(np.zeros((2, 2))), [0.5, 0.5])
    assert variance.optimal_variance(np.eye(2), [0, 0], 1, 1) == 0


IDS: IntArray = np.array([0, 9])
GOOD: dict[str, Any] = {"adj": np.eye(2), "x": [1.0, 2.0], "q": [0.5, 0.5], "t": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adj": np.ones((2, 3))}, "square matrix .* got shape \\(2, 3\\)"),
        ({"adj": [["a", "b"], ["c", "d"]]}, "Â must be numbers"),
        ({"adj": np.full((2, 2), np.nan)}, "Â must be finite"),
        ({"adj": csr_array(np.full((2, 2), np.inf))}, "Â must be finite"),
        ({"x": [1.0, 2.0, 3.0]}, "x must have shape \\(2,\\) or \\(2, d\\), got \\(3,\\)"),
        ({"x": [[1.0], [1.0, 2.0]]}, "x must be an array of numbers"),
        ({"x": [1.0, np.inf]}, "x must be finite"),
        ({"q": [1.0]}, "q must have shape \\(2,\\)"),
        ({"q": [2.0, 2.0]}, "the sum 4; divide it by its sum"),
        ({"q": [-0.5, 1.5]}, "the minimum -0.5"),
        ({"q": [0.0, 1.0]}, "vertex 0 would never be drawn"),
        ({"t": 0}, "t must be a whole number of at least 1, got 0"),
        ({"t": 1.5}, "t must be a whole number of at least 1, got 1.5"),
        ({"rows": IDS}, "rows must lie in 0..1"),
        ({"rows": []}, "rows must name at least one vertex"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        variance.row_variance(**(GOOD | change))


@pytest.mark.parametrize("s", [0, 2.5])
def test_bad_numbers_of_rows_are_refused(s: Any) -> None:
    for refused in (
        lambda: variance.uniform_variance(np.eye(2), [1, 1], s, 1),
        lambda: variance.shared_variance(np.eye(2), [1, 1], [0.5, 0.5], s, 1),
        lambda: variance.uniform_q(s),
    ):
        with pytest.raises(InputError):
            refused()
