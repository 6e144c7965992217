"""Scores against scikit-learn's."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    log_loss,
    precision_recall_fscore_support,
)

from fastgcn.metrics import Metrics, Tally, measure, tally

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


@st.composite
def single_label(draw: st.DrawFn) -> Arrays:
    """(k, C) rows that sum to one, and (k,) class ids."""
    k, classes = draw(st.integers(1, 12)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    probabilities = rng.dirichlet(np.full(classes, 0.5), size=k) * 0.99 + 0.01 / classes
    return probabilities, rng.integers(draw(st.integers(1, classes)), size=k)


@st.composite
def multi_label(draw: st.DrawFn) -> Arrays:
    """(k, C) probabilities and (k, C) label sets, some of them empty."""
    shape = draw(st.integers(1, 12)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.uniform(0.01, 0.99, shape), rng.random(shape) < draw(st.floats(0, 1))


@settings(max_examples=40, deadline=None)
@given(single_label())
def test_one_class_a_node(example: Arrays) -> None:
    probabilities, labels = example
    classes = np.arange(probabilities.shape[1])
    guess = probabilities.argmax(axis=1)
    m = measure(probabilities, labels)
    assert m.n_nodes == len(labels)
    assert m.accuracy == pytest.approx(accuracy_score(labels, guess))
    assert m.micro_f1 == pytest.approx(f1_score(labels, guess, average="micro"))
    assert m.macro_f1 == pytest.approx(f1_score(labels, guess, average="macro", zero_division=0))
    assert m.loss == pytest.approx(log_loss(labels, probabilities, labels=classes))
    expected = precision_recall_fscore_support(labels, guess, labels=classes, zero_division=0)
    for got, right in zip((m.precision, m.recall, m.f1, m.support), expected, strict=True):
        np.testing.assert_allclose(got, right)


@settings(max_examples=40, deadline=None)
@given(multi_label())
def test_several_labels_a_node(example: Arrays) -> None:
    probabilities, labels = example
    guess = probabilities > 0.5
    m = measure(probabilities, labels)
    assert m.accuracy == pytest.approx(accuracy_score(labels, guess))
    assert m.micro_f1 == pytest.approx(f1_score(labels, guess, average="micro", zero_division=0))
    met = np.flatnonzero((labels | guess).any(axis=0))  # the others are left out of the mean
    macro = f1_score(labels, guess, labels=met, average="macro", zero_division=0) if met.size else 0
    assert m.macro_f1 == pytest.approx(macro)
    flat = np.stack([1 - probabilities.ravel(), probabilities.ravel()], axis=1)
    assert m.loss == pytest.approx(log_loss(labels.ravel(), flat, labels=[False, True]))
    expected = precision_recall_fscore_support(labels, guess, average=None, zero_division=0)
    for got, right in zip((m.precision, m.recall, m.f1, m.support), expected, strict=True):
        np.testing.assert_allclose(got, right)


def test_a_sure_mistake_costs_much_but_not_infinity() -> None:
    m = measure(np.array([[1.0, 0.0]], dtype=np.float32), np.array([1]))
    assert m.loss == pytest.approx(-np.log(1e-12))
    assert m.scores() == {"micro_f1": 0.0, "macro_f1": 0.0, "accuracy": 0.0, "loss": m.loss}


@settings(max_examples=20, deadline=None)
@given(st.one_of(single_label(), multi_label()))
def test_tensors_are_counted_as_arrays_are_and_tallies_add_up(example: Arrays) -> None:
    probabilities, labels = example
    want = measure(probabilities, labels)
    tensors = torch.from_numpy(probabilities), torch.from_numpy(labels)
    assert tally(*tensors).metrics().scores() == pytest.approx(want.scores())
    halves = [tally(probabilities[part], labels[part]) for part in (slice(0, 1), slice(1, None))]
    together = Tally.of(halves[0].figures + halves[1].figures).metrics()
    assert together.scores() == pytest.approx(want.scores())
    assert together.support == want.support


def test_scores_are_equal_where_both_lack_the_same() -> None:
    first, second = (Metrics(loss=0.5, n_nodes=3, r2=float("nan")) for _ in range(2))
    assert first == second
    assert first != Metrics(loss=0.5, n_nodes=3, r2=0.1)
    assert first != (0.5, 3)
