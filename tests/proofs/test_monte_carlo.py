"""The three variances against `LayerSampler` at work, on a graph too large to enumerate.

Each comparison takes the mean over 1,000 independent repetitions of a squared error, whose
expectation is the closed form, and asks that they agree within Z = 6 of the mean's standard
errors. A right sampler fails one with probability 2e-9 by the normal law; squared errors have a
skewness of up to 4.5 here, which thickens the lower tail by about exp(4.5·Z³/(3·√1000)), to
6e-5. All 16 together: below 1e-3. The seeds are fixed.
"""

from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Graph, LayerSampler, normalize
from fastgcn.arrays import FloatArray
from fastgcn.sampling import variance
from fastgcn.sampling.check import check_sampler
from tests.proofs.enumeration import DRAWS, Member, dense, reference_q, scattered

Z = 6.0
N, T = 12, 40
REPETITIONS = 1_000
DISTRIBUTIONS = ("uniform", "importance", "optimal")
SPREAD = ("stratified", "systematic")  # along an order of the vertices


def directed_graph() -> Graph:
    """Twelve vertices, weighted and directed, of very unequal columns."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, N, size=(2, 50))
    weights = rng.uniform(0.2, 3, size=50)
    return Graph.from_edges(
        ends[0], ends[1], weights=weights, directed=True, features=np.zeros((N, 1))
    )


ADJ = normalize(directed_graph(), "row")
TRUTH = dense(ADJ)
X = np.random.default_rng(4).uniform(0.5, 1.5, size=(N, 2))
SIZES = np.linalg.norm(X, axis=1)


def sampler(distribution: Any) -> LayerSampler:
    made = LayerSampler(ADJ, [T], distribution=distribution)
    made.set_row_norms([SIZES])
    return made


def estimates(sampler: LayerSampler, batch: Any, rng: torch.Generator) -> FloatArray:
    """(s, d): y(v) of the batch from one draw."""
    (block,) = sampler.sample(torch.as_tensor(batch), rng)
    return scattered(block, N) @ X


def assert_mean(squared_errors: list[float], expected: float) -> None:
    values = np.array(squared_errors)
    standard_error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) < Z * standard_error
    assert standard_error < 0.1 * expected, "too few repetitions to tell anything"


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_shared_draw_and_its_rows(distribution: str) -> None:
    """Alg. 1 and 2 over given rows: the error of their average, and that of each row."""
    rows = [0, 5, 5, 7, 11]
    q = reference_q(TRUTH, distribution, SIZES)
    truth, rng = (TRUTH @ X)[rows], torch.Generator().manual_seed(10)
    made, averages, per_row = sampler(distribution), [], []
    for _ in range(REPETITIONS):
        error = estimates(made, rows, rng) - truth
        averages.append(float((error.mean(axis=0) ** 2).sum()))
        per_row.append(float((error**2).sum()))
    assert_mean(averages, variance.shared_variance(ADJ, X, q, rows, T))
    assert_mean(per_row, variance.row_variance(ADJ, X, q, T, rows))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("shared", [True, False])
def test_random_rows(distribution: str, shared: bool) -> None:
    """Three rows drawn at random; one draw for all of them, or one for each (the paper's)."""
    s, q = 3, reference_q(TRUTH, distribution, SIZES)
    rng, choose = torch.Generator().manual_seed(11), np.random.default_rng(12)
    made, mean, errors = sampler(distribution), (TRUTH @ X).mean(axis=0), []
    for _ in range(REPETITIONS):
        rows = choose.integers(0, N, size=s)
        batches = [rows] if shared else np.split(rows, s)
        average = np.concatenate([estimates(made, batch, rng) for batch in batches]).mean(axis=0)
        errors.append(float(((average - mean) ** 2).sum()))
    closed_form = variance.shared_variance if shared else variance.independent_variance
    assert_mean(errors, closed_form(ADJ, X, q, s, T))
    if not shared:
        named = getattr(variance, f"{distribution}_variance")
        assert_mean(errors, named(ADJ, X, s, T))


def test_sharing_does_not_change_the_error_of_the_rows() -> None:
    """Two rows with a draw of their own each: the same sum of variances as with a shared one."""
    rows, q = [2, 9], reference_q(TRUTH, "importance", SIZES)
    made, rng, errors = sampler("importance"), torch.Generator().manual_seed(13), []
    for _ in range(REPETITIONS):
        own = np.concatenate([estimates(made, [v], rng) for v in rows])
        errors.append(float(((own - (TRUTH @ X)[rows]) ** 2).sum()))
    assert_mean(errors, variance.row_variance(ADJ, X, q, T, rows))


@pytest.mark.parametrize("draws", DRAWS)
def test_the_family_at_work(draws: str) -> None:
    """Exact self terms, the rest from q of the rows at hand, six of about ten vertices drawn.

    The contract's false alarms: 1e-6 each, as far as its means are normal.
    """
    rows, t = [0, 5, 7, 11], 6
    chosen = Member({"distribution": "ladies", "draws": draws, "self_term": "exact"})
    sampled = variance.off_diagonal(ADJ)
    along = {"along": variance.along_entries(sampled, rows)} if draws in SPREAD else {}
    more = {"repetitions": 1000} if draws == "successive" else {}
    formula = variance.ROW_VARIANCE[draws]  # type: ignore[index]
    q = variance.ladies_q(sampled, rows)
    check_sampler(
        lambda adjacency: chosen.make(adjacency, [t]),
        ADJ,
        batch=rows,
        h=X,
        row_error=formula(sampled, X, q, t, rows, **along, **more),
        own_rows=True,
        repetitions=REPETITIONS,
    )
