"""That the draws have the probabilities which the enumerations weigh them by."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fastgcn import Graph, LayerSampler, normalize
from fastgcn.samplers import draws
from tests.proofs.enumeration import (
    ANY_RNG,
    draws_with_replacement,
    draws_without_replacement,
    points_of,
    scripted,
)

DRAWS = 5_000
Q = np.array([0.1, 0.45, 0.0, 0.15, 0.3])


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_each_vertex_owns_an_interval_as_long_as_its_probability(scale: float) -> None:
    """Points just inside both ends of u's share of [0, 1) draw u; q need not be normalised."""
    inside = 1e-9
    for u in np.flatnonzero(Q).tolist():
        middle = points_of(Q, [u])[0]
        ends = middle + (Q[u] / 2 - inside) * np.array([-1, 1])
        with scripted() as script:
            script.points = [ends]
            drawn, counts = draws.with_replacement(np.cumsum(scale * Q), 2, ANY_RNG)
        assert (drawn.tolist(), counts.tolist()) == ([u], [2])


def test_points_on_the_border_of_intervals() -> None:
    """0 may be drawn, and must not lead to a first vertex of q = 0; nor a total to none at all."""
    for q, point, vertex in (
        ([0.0, 0.5, 0.5], 0.0, 1),
        ([0.5, 0.0, 0.5], 0.5, 2),
        ([0.5, 0.5], 1.0, 1),  # as a product that rounds up to the total
    ):
        with scripted() as script:
            script.points = [np.array([point])]
            drawn, _ = draws.with_replacement(np.cumsum(q), 1, ANY_RNG)
        assert drawn.tolist() == [vertex]


def test_successive_draws_have_their_probabilities() -> None:
    """Clocks in the order they ring draw from q over those left.

    χ² of the 12 ordered pairs over 5,000 draws; false alarms: 1e-6.
    """
    generator = torch.Generator().manual_seed(1)
    expected = {tuple(d.drawn.tolist()): d.probability for d in draws_without_replacement(Q, 2)}
    assert set(expected) == set(permutations([0, 1, 3, 4], 2))
    seen = dict.fromkeys(expected, 0)
    for _ in range(DRAWS):
        seen[tuple(draws.without_replacement(Q, 2, generator).tolist())] += 1
    shares = DRAWS * np.array(list(expected.values()))
    assert chisquare(list(seen.values()), shares).pvalue > 1e-6


def test_draws_with_replacement_have_their_probabilities() -> None:
    """χ² of the pairs of vertices over 5,000 draws of two; false alarms: 1e-6."""
    generator = torch.Generator().manual_seed(2)
    expected: dict[tuple[int, ...], float] = {}
    for draw in draws_with_replacement(Q, 2):
        pair = tuple(sorted(draw.drawn.tolist()))
        expected[pair] = expected.get(pair, 0) + draw.probability
    seen = dict.fromkeys(expected, 0)
    for _ in range(DRAWS):
        drawn, counts = draws.with_replacement(np.cumsum(Q), 2, generator)
        seen[tuple(np.repeat(drawn, counts).tolist())] += 1
    shares = DRAWS * np.array(list(expected.values()))
    assert chisquare(list(seen.values()), shares).pvalue > 1e-6


def test_des_raj_weights_by_hand() -> None:
    """Probabilities 1/2 then 1/4: weights (2 + 1)/2 and (1/2 / 1/4 + 0)/2."""
    np.testing.assert_allclose(draws.raj_weights(np.array([0.5, 0.25])), [1.5, 1.0])


@pytest.mark.parametrize("neighbors_only", [False, True])
@pytest.mark.parametrize("replacement", [False, True])
def test_nothing_to_draw_is_a_zero_block(neighbors_only: bool, replacement: bool) -> None:
    """Rows that reach no column have the convolution zero, whatever was to be drawn."""
    graph = Graph.from_edges([], [], features=np.zeros((3, 1)))
    sampler = LayerSampler(
        normalize(graph, self_loops=False),
        [2, 2],
        neighbors_only=neighbors_only,
        replacement=replacement,
    )
    blocks = sampler.sample(torch.tensor([0, 2]), torch.Generator().manual_seed(0))
    assert blocks[-1].dst.tolist() == [0, 2]
    assert (blocks[-1].adj @ torch.ones(len(blocks[-1].src), 1)).tolist() == [[0], [0]]


def test_a_point_at_the_very_end_draws_a_vertex_with_a_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draws, "uniforms", lambda count, _: np.ones(count))
    drawn, counts = draws.with_replacement(np.array([0.25, 1.0, 1.0]), 3, torch.Generator())
    assert (drawn.tolist(), counts.tolist()) == ([1], [3])
