"""Special cases of the family over all outcomes: repeated rows, no replacement, biased factors.

Entries of a block are float32, so "exactly" means to about six digits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastgcn import Block
from fastgcn.arrays import FloatArray
from fastgcn.sampling.check import tiny_graphs
from tests.proofs.enumeration import (
    DISTRIBUTIONS,
    DRAWS,
    Member,
    dense,
    expectation,
    reference_q,
    scattered,
    successive,
)

GRAPHS = tiny_graphs()
BATCH = [2, 0, 2]  # a row may be asked for twice
ROW_NORMS = np.array([0.3, 2.0, 0.0, 1.0])  # |x(u)| of `optimal`; one of them is zero
X = np.array([1.0, -2.0, 0.5, 3.0])


def member(**options: Any) -> Member:
    return Member(options, ROW_NORMS if options.get("distribution") == "optimal" else None)


def matrix_of(blocks: list[Block]) -> FloatArray:
    return scattered(blocks[0], 4)


def assert_same(mean: FloatArray, expected: FloatArray) -> None:
    """Equal but for the rounding of entries to float32."""
    np.testing.assert_allclose(mean, expected, rtol=2e-6, atol=2e-6)


def row_errors(graph: str) -> Callable[[list[Block]], FloatArray]:
    """Squared error of each row of the estimate of Âx."""
    truth = dense(GRAPHS[graph])[BATCH] @ X
    return lambda blocks: (matrix_of(blocks) @ X - truth) ** 2


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("distribution", [*DISTRIBUTIONS, "ladies"])
@pytest.mark.parametrize("neighbors_only", [True, False])
@pytest.mark.parametrize("self_term", ["sampled", "exact"])
def test_q_is_what_it_is_said_to_be(
    graph: str, distribution: str, neighbors_only: bool, self_term: str
) -> None:
    chosen = member(distribution=distribution, neighbors_only=neighbors_only, self_term=self_term)
    matrix, rows = dense(GRAPHS[graph]), np.array([2, 0])
    sampler = chosen.make(GRAPHS[graph], [3])
    q = chosen.q(matrix, rows)
    np.testing.assert_allclose(sampler.probabilities(0, rows), q, rtol=1e-6)
    if distribution != "ladies":
        whole = reference_q(chosen.sampled(matrix), distribution, ROW_NORMS)
        np.testing.assert_allclose(sampler.probabilities(), whole, rtol=1e-6)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("distribution", ["importance", "ladies"])
@pytest.mark.parametrize("draws", DRAWS)
def test_a_row_may_be_asked_for_twice(graph: str, distribution: str, draws: str) -> None:
    mean = expectation(
        member(distribution=distribution, draws=draws), GRAPHS[graph], [3], BATCH, matrix_of
    )
    assert_same(mean, dense(GRAPHS[graph])[BATCH])


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_drawing_without_replacement_is_never_worse(graph: str, distribution: str) -> None:
    """Des Raj's weights give every row at most the variance of as many draws with replacement."""
    with_repeats, without = (
        expectation(
            member(distribution=distribution, draws=draws),
            GRAPHS[graph],
            [2],
            BATCH,
            row_errors(graph),
        )
        for draws in ("independent", "successive")
    )
    assert (without <= with_repeats + 1e-6).all()
    assert without.sum() < with_repeats.sum()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_authors_factor_among_neighbours_scales_up(graph: str, distribution: str) -> None:
    """`correct_weights=False`, with replacement: the mean is Â / Σ_{u candidate} q(u).

    The candidates are drawn from q renormalised over them, but weighed with q itself.
    """
    chosen = member(distribution=distribution, neighbors_only=True, correct_weights=False)
    matrix = dense(GRAPHS[graph])
    q = reference_q(matrix, distribution, ROW_NORMS)
    truth, share = matrix[BATCH], q[(matrix[BATCH] != 0).any(axis=0)].sum()
    mean = expectation(chosen, GRAPHS[graph], [3], BATCH, matrix_of)
    assert_same(mean, truth / share)
    if graph == "undirected":  # its isolated vertex is no candidate
        assert mean.sum() > 1.01 * truth.sum()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("neighbors_only", [True, False])
def test_the_authors_factor_without_replacement_is_biased(
    distribution: str, neighbors_only: bool
) -> None:
    """`correct_weights=False`, without replacement: the mean of column u is Â(:,u)·π(u)/(t·q(u)).

    π(u) is the probability that u is among the t drawn, which is not t·q(u).
    """
    t, matrix = 2, dense(GRAPHS["undirected"])
    chosen = member(
        distribution=distribution,
        draws="successive",
        neighbors_only=neighbors_only,
        correct_weights=False,
    )
    q = reference_q(matrix, distribution, ROW_NORMS)
    candidates, law = chosen.law(matrix, np.array(BATCH))
    included = np.zeros(4)
    for draw in successive(law, t):
        included[candidates[draw.drawn]] += draw.probability
    np.testing.assert_allclose(included.sum(), t)
    mean = expectation(chosen, GRAPHS["undirected"], [t], BATCH, matrix_of)
    assert_same(mean, matrix[BATCH] * included / (t * q))
    if distribution != "uniform" or neighbors_only:
        assert np.abs(mean - matrix[BATCH]).max() > 0.01
