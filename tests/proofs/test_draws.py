"""That the draws have the probabilities which the enumerations weigh them by."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fastgcn import Graph, LayerSampler, normalize
from fastgcn.arrays import IntArray
from fastgcn.kernels.draws import inclusion_probabilities
from fastgcn.sampling import draws
from fastgcn.sampling.check import Points, Scripted
from fastgcn.sampling.draws import POINTS, Law, make_drawing
from tests.proofs.enumeration import (
    ALL_DRAWS,
    DRAWS,
    clock_points,
    inclusion,
    points_of,
    successive,
)

REPETITIONS = 5_000
Q = np.array([0.1, 0.45, 0.0, 0.15, 0.3])


def place(n: int = len(Q)) -> IntArray:
    return np.full(n, -1, np.int32)


def assert_frequencies(draw: Callable[[], tuple[int, ...]], expected: dict[Any, float]) -> None:
    """χ² of what is drawn over 5,000 draws; false alarms: 1e-6."""
    seen = Counter(draw() for _ in range(REPETITIONS))
    assert set(seen) <= set(expected)
    counts = [seen[outcome] for outcome in expected]
    assert chisquare(counts, REPETITIONS * np.array(list(expected.values()))).pvalue > 1e-6


def counted(drawn: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(drawn))


@pytest.mark.parametrize("kind", DRAWS)
def test_draws_have_their_probabilities(kind: Any) -> None:
    """Sets of two vertices, or what a way to draw makes of two: against the enumeration's."""
    expected: dict[tuple[int, ...], float] = {}
    for draw in ALL_DRAWS[kind](Q, 2):
        outcome = tuple(sorted(set(draw.drawn.tolist())))
        expected[outcome] = expected.get(outcome, 0) + draw.probability
    expected = {outcome: chance for outcome, chance in expected.items() if chance > 1e-9}
    rng, work = torch.Generator().manual_seed(2), place()
    if kind in POINTS:
        law = Law.of(Q)
        assert_frequencies(
            lambda: counted(law.at(POINTS[kind](1, 2, rng)[0], work)[0].tolist()), expected
        )
    else:
        drawing = make_drawing(kind, Q, 2)
        assert_frequencies(lambda: counted(drawing.draw(rng, work)[0].tolist()), expected)
    assert (work == -1).all()


@pytest.mark.parametrize("rounds", [0, 1, 16])
def test_successive_draws_have_their_probabilities(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 12 ordered pairs: repeats thrown away, clocks in the order they ring, or both."""
    monkeypatch.setattr(draws, "_ROUNDS", rounds)
    law, generator, work = Law.of(Q), torch.Generator().manual_seed(1), place()
    expected = {tuple(d.drawn.tolist()): d.probability for d in successive(Q, 2)}
    assert set(expected) == set(permutations([0, 1, 3, 4], 2))
    assert_frequencies(
        lambda: tuple(draws.draw_distinct(law, 2, generator, work).tolist()), expected
    )
    assert (work == -1).all()


def drawn_distinct(count: int, points: Sequence[Points]) -> list[int]:
    rng = Scripted(points)
    drawn = draws.draw_distinct(Law.of(Q), count, rng, place())
    assert not rng.left
    return [int(u) for u in drawn]


def test_repeats_are_thrown_away() -> None:
    """As many more points as are missing, until none is, or clocks for the last."""
    points = [points_of(Q, [4, 1, 4]), points_of(Q, [1]), points_of(Q, [3])]
    assert drawn_distinct(3, points) == [4, 1, 3]
    repeats = [points_of(Q, [4, 4, 4]), *([points_of(Q, [4, 4])] * (draws._ROUNDS - 1))]
    assert drawn_distinct(3, [*repeats, clock_points(Q, [4, 0, 1])]) == [4, 0, 1]


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_each_vertex_owns_an_interval_as_long_as_its_probability(scale: float) -> None:
    """Points just inside both ends of u's share of [0, 1) draw u; q need not be normalised."""
    inside = 1e-9
    for u in np.flatnonzero(Q).tolist():
        middle = points_of(Q, [u])[0]
        ends = middle + (Q[u] / 2 - inside) * np.array([-1, 1])
        drawn, counts = Law.of(scale * Q).at(ends, place())
        assert (drawn.tolist(), counts.tolist()) == ([u], [2])


def test_points_on_the_border_of_intervals() -> None:
    """0 may be drawn, and must not lead to a first vertex of q = 0; nor the end to a last one."""
    below_one = np.nextafter(1.0, 0.0)
    for q, point, vertex in (
        ([0.0, 0.5, 0.5], 0.0, 1),
        ([0.5, 0.0, 0.5], 0.5, 2),
        ([0.5, 0.5, 0.0], below_one, 1),
    ):
        drawn, _ = Law.of(np.array(q)).at(np.array([point]), place(3))
        assert drawn.tolist() == [vertex]


@pytest.mark.parametrize("points", [draws.systematic_points, draws.stratified_points])
@pytest.mark.parametrize("point", [0.0, 0.3, np.nextafter(1.0, 0.0)])
def test_spread_points_stay_in_their_strata(points: Any, point: float) -> None:
    """The j-th is in [j/t, (j+1)/t), and none at one, even where rounding would put it there."""
    for t in (1, 3, 400):
        spread = points(1, t, Scripted([lambda count: np.full(count, point)]))[0]
        assert (spread < 1).all()
        np.testing.assert_allclose(spread, (point + np.arange(t)) / t, rtol=1e-15)


@settings(deadline=None)
@given(st.lists(st.just(0.0) | st.floats(1e-12, 1), min_size=2, max_size=12), st.integers(1, 12))
def test_inclusion_probabilities_are_capped_and_sum_to_t(weights: list[float], t: int) -> None:
    q = np.array(weights)
    p = inclusion_probabilities(q, t)
    np.testing.assert_allclose(p, inclusion(q, t), rtol=1e-8, atol=1e-300)
    assert p.max() <= 1
    assert p.sum() == pytest.approx(min(t, np.count_nonzero(q)), rel=1e-8)


def test_inclusion_of_all_but_equal_vertices() -> None:
    """t·q(u) = 1 up to rounding, next to vertices that are next to nothing."""
    q = np.array([1.0, 1e-20, 1e-20])
    np.testing.assert_allclose(inclusion_probabilities(q, 1), q)
    np.testing.assert_allclose(inclusion_probabilities(q, 2), [1, 0.5, 0.5])


def test_a_poisson_process_goes_on_until_its_end() -> None:
    """Where the points asked for first do not reach the end, more are asked for."""
    short = [lambda count: np.full(count, 1 - np.exp(-1e-3)), lambda count: np.full(count, 0.9)]
    rng = Scripted(short)
    points = draws.process_points(2.0, rng)
    assert not rng.left
    assert (np.diff(points) > 0).all()
    assert points[-1] < 1
    np.testing.assert_allclose(points[:3] * 2.0, [0.001, 0.002, 0.003])


def test_des_raj_weights_by_hand() -> None:
    """Probabilities 1/2 then 1/4: weights (2 + 1)/2 and (1/2 / 1/4 + 0)/2."""
    np.testing.assert_allclose(draws.raj_weights(np.array([0.5, 0.25])), [1.5, 1.0])


@pytest.mark.parametrize("options", [{}, {"neighbors_only": True}, {"distribution": "ladies"}])
@pytest.mark.parametrize("kind", DRAWS)
def test_nothing_to_draw_is_a_zero_block(options: Any, kind: Any) -> None:
    """Rows that reach no column have the convolution zero, whatever was to be drawn."""
    graph = Graph.from_edges([], [], features=np.zeros((3, 1)))
    sampler = LayerSampler(normalize(graph, self_loops=False), [2, 2], draws=kind, **options)
    blocks = sampler.sample(torch.tensor([0, 2]), torch.Generator().manual_seed(0))
    assert blocks[-1].dst.tolist() == [0, 2]
    assert blocks[-1].mix(torch.ones(len(blocks[-1].src), 1)).tolist() == [[0], [0]]
