"""E[block] = Â exactly: every outcome of every draw, run and weighed by its probability.

Entries of a block are float32, so "exactly" means to about six digits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastgcn import Block, LayerSampler
from fastgcn.types import FloatArray
from tests.proofs.enumeration import (
    DISTRIBUTIONS,
    candidates_of,
    dense,
    draws_without_replacement,
    expectation,
    reference_q,
    scattered,
    tiny_graphs,
)

GRAPHS = tiny_graphs()
BATCH = [2, 0, 2]  # a row may be asked for twice
ROW_NORMS = np.array([0.3, 2.0, 0.0, 1.0])  # |x(u)| of `optimal`; one of them is zero


def make(graph: str, samples: list[int], **options: Any) -> tuple[LayerSampler, FloatArray]:
    """A sampler and the q that it must draw from, worked out densely."""
    sampler = LayerSampler(GRAPHS[graph], samples, **options)
    if options["distribution"] == "optimal":
        sampler.set_row_norms([ROW_NORMS] * len(samples))
    return sampler, reference_q(dense(GRAPHS[graph]), options["distribution"], ROW_NORMS)


def matrix_of(blocks: list[Block]) -> FloatArray:
    return scattered(blocks[0], 4)


def assert_same(mean: FloatArray, expected: FloatArray) -> None:
    """Equal but for the rounding of entries to float32."""
    np.testing.assert_allclose(mean, expected, rtol=2e-6, atol=2e-6)


def row_errors(truth: FloatArray, x: FloatArray) -> Callable[[list[Block]], FloatArray]:
    """Squared error of each row of the estimate of Âx."""
    return lambda blocks: (matrix_of(blocks) @ x - truth @ x) ** 2


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("neighbors_only", [True, False])
def test_one_layer_is_unbiased(
    graph: str, distribution: str, replacement: bool, neighbors_only: bool
) -> None:
    """Alg. 1, Alg. 2 and every switch with correct weights: E[block] = the rows of Â."""
    sampler, q = make(
        graph,
        [3],
        distribution=distribution,
        replacement=replacement,
        neighbors_only=neighbors_only,
    )
    np.testing.assert_allclose(sampler.probabilities(), q, rtol=1e-6)
    mean = expectation(sampler, q, BATCH, matrix_of)
    assert_same(mean, dense(GRAPHS[graph])[BATCH])


@pytest.mark.parametrize(
    ("graph", "neighbors_only"),
    [("undirected", True), ("weighted", True), ("weighted", False), ("no loops", False)],
)
@pytest.mark.parametrize("distribution", ["uniform", "importance"])
@pytest.mark.parametrize("replacement", [True, False])
def test_two_linear_layers_are_unbiased(
    graph: str, distribution: str, replacement: bool, neighbors_only: bool
) -> None:
    """One draw a layer, without a nonlinearity between them: E[B₁B₀x] = ÂÂx."""
    sampler, q = make(
        graph,
        [1, 3],
        distribution=distribution,
        replacement=replacement,
        neighbors_only=neighbors_only,
    )
    x = np.array([1.0, -2.0, 0.5, 3.0])

    def product(blocks: list[Block]) -> FloatArray:
        assert blocks[1].src.tolist() == blocks[0].dst.tolist()
        below = scattered(blocks[0], 4) @ x
        return np.asarray(blocks[1].adj.to_dense().numpy() @ below)

    matrix = dense(GRAPHS[graph])
    mean = expectation(sampler, q, BATCH, product)
    np.testing.assert_allclose(mean, (matrix @ matrix @ x)[BATCH], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_drawing_without_replacement_is_never_worse(graph: str, distribution: str) -> None:
    """Des Raj's weights give every row at most the variance of as many draws with replacement."""
    truth, x = dense(GRAPHS[graph])[BATCH], np.array([1.0, -2.0, 0.5, 3.0])
    variances = []
    for replacement in (False, True):
        sampler, q = make(graph, [2], distribution=distribution, replacement=replacement)
        variances.append(expectation(sampler, q, BATCH, row_errors(truth, x)))
    assert (variances[0] <= variances[1] + 1e-6).all()
    assert variances[0].sum() < variances[1].sum()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_authors_factor_among_neighbours_scales_up(graph: str, distribution: str) -> None:
    """`correct_weights=False`, with replacement: the mean is Â / Σ_{u candidate} q(u).

    The candidates are drawn from q renormalised over them, but weighed with q itself.
    """
    sampler, q = make(
        graph, [3], distribution=distribution, neighbors_only=True, correct_weights=False
    )
    truth = dense(GRAPHS[graph])[BATCH]
    share = q[candidates_of(dense(GRAPHS[graph]), BATCH, neighbors_only=True)].sum()
    mean = expectation(sampler, q, BATCH, matrix_of)
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
    sampler, q = make(
        "undirected",
        [t],
        distribution=distribution,
        replacement=False,
        neighbors_only=neighbors_only,
        correct_weights=False,
    )
    candidates = candidates_of(matrix, BATCH, neighbors_only=neighbors_only)
    included = np.zeros(4)
    for draw in draws_without_replacement(q[candidates] / q[candidates].sum(), t):
        included[candidates[draw.drawn]] += draw.probability
    np.testing.assert_allclose(included.sum(), t)
    mean = expectation(sampler, q, BATCH, matrix_of)
    assert_same(mean, matrix[BATCH] * included / (t * q))
    if distribution != "uniform" or neighbors_only:
        assert np.abs(mean - matrix[BATCH]).max() > 0.01
