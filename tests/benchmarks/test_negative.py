"""What contradicts the paper is said from the results, and the reasons are measured."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from benchmarks.paper_negative import second_moments, short_cases
from benchmarks.paper_samples import difference, is_clear
from benchmarks.paper_scale import full
from benchmarks.results import Results

import fastgcn
from benchmarks import accuracy, paper
from fastgcn import normalize
from fastgcn.sampling.distributions import importance_q, optimal_q, uniform_q
from fastgcn.sampling.variance import row_variance


def test_second_moments_are_those_of_the_rows_variance() -> None:
    """One draw's variance, plus the squared sums that no q changes, in units of uniform's."""
    adj, rng = normalize(fastgcn.load("digits")), np.random.default_rng(0)
    x = rng.lognormal(size=(adj.n, 3))
    exact = float(np.sum((adj.to_scipy() @ x) ** 2))
    norms = np.linalg.norm(x, axis=1)
    found = second_moments(adj.column_norms(), norms)
    uniform = row_variance(adj, x, uniform_q(adj.n), 1) + exact
    for law, q in (("importance", importance_q(adj)), ("optimal", optimal_q(adj, x))):
        assert found[law] == pytest.approx((row_variance(adj, x, q, 1) + exact) / uniform, rel=1e-5)
    assert found["optimal"] < min(found["flat"], found["importance"], 1)


def test_equal_rows_make_importance_sampling_uniforms_equal() -> None:
    columns = np.random.default_rng(0).lognormal(size=50)
    assert second_moments(columns, np.full(50, 3.0))["importance"] == pytest.approx(1)


def test_the_papers_batches_are_its_seconds_over_its_seconds_a_batch() -> None:
    cases = short_cases(full())
    epochs = {name: {case.config.epochs for case in each.values()} for name, each in cases.items()}
    assert epochs == {"Cora": {93}, "Pubmed": {110}}  # 107.95 / 1.163 and 39.34 / 0.3579
    assert [*cases["Cora"]] == [0.01, 0.001, 0.0001]


def test_what_other_processes_measure_can_be_sent_there(tmp_path: Path) -> None:
    """Experiments of the paper and of accuracy; a first plan has most of what they measure."""
    nothing = Results(tmp_path / "results.jsonl")
    found = [
        measurement
        for each in (*paper.experiments(full()), *accuracy.experiments())
        for measurement in each.plan(nothing)
        if not measurement.alone
    ]
    assert len(found) > 400
    for measurement in found:
        pickle.dumps(measurement)


def test_differences_are_clear_beyond_two_errors() -> None:
    a, b = [0.80, 0.82, 0.84], [0.76, 0.78, 0.80]
    assert difference(a, b) == pytest.approx((0.04, (2 * 0.02**2 / 3) ** 0.5))
    assert is_clear(a, b)
    assert not is_clear(a, [0.77, 0.80, 0.83])
    assert not is_clear([0.9], [0.1])
