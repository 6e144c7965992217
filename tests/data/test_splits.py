"""Random splits: the laws they keep, and the fractions they refuse."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgcn.arrays import IntArray
from fastgcn.data.splits import stratified_split
from fastgcn.errors import InputError
from fastgcn.graph.checks import Split

label_lists = st.lists(st.integers(-1, 4), max_size=60).map(lambda x: np.array(x, dtype=np.int64))
share_triples = (
    st.tuples(*[st.integers(0, 10)] * 3)
    .filter(lambda parts: sum(parts) > 0)
    .flatmap(lambda parts: st.integers(sum(parts), 40).map(lambda whole: (parts, whole)))
    .map(lambda drawn: tuple(part / drawn[1] for part in drawn[0]))
)


def parts_of(split: Split) -> list[IntArray]:
    return [part for _, part in split.items()]


@given(label_lists, share_triples, st.integers(0, 99))
def test_parts_are_disjoint_labelled_and_repeatable(
    labels: IntArray, shares: tuple[float, float, float], seed: int
) -> None:
    train, val, test = shares
    split = stratified_split(labels, train=train, val=val, test=test, seed=seed)
    together = np.concatenate(parts_of(split))
    assert len(np.unique(together)) == len(together)
    assert (labels[together] >= 0).all()
    if math.isclose(sum(shares), 1):
        assert len(together) == np.count_nonzero(labels >= 0)
    again = stratified_split(labels, train=train, val=val, test=test, seed=seed)
    for one, other in zip(parts_of(split), parts_of(again), strict=True):
        np.testing.assert_array_equal(one, other)


@given(label_lists, share_triples, st.integers(0, 99))
def test_every_class_has_its_share(
    labels: IntArray, shares: tuple[float, float, float], seed: int
) -> None:
    train, val, test = shares
    split = stratified_split(labels, train=train, val=val, test=test, seed=seed)
    for label in np.unique(labels[labels >= 0]):
        size = np.count_nonzero(labels == label)
        counts = [np.count_nonzero(labels[part] == label) for part in parts_of(split)]
        quotas = [share * size for share in shares]
        for count, share in zip(counts, shares, strict=True):
            if size >= 3 and share > 0:
                assert count >= 1
            if share == 0:
                assert count == 0
        if all(quota >= 1 for quota in quotas):
            # No part had to be helped to its first node: plain rounding.
            assert all(
                math.floor(q - 1e-9) <= c <= math.ceil(q + 1e-9)
                for c, q in zip(counts, quotas, strict=True)
            )


def test_rounding_goes_to_the_largest_remainder() -> None:
    split = stratified_split(np.zeros(7, int), train=0.5, val=0.27, test=0.23)
    # 3.5, 1.89, 1.61: the two nodes left over after 3, 1, 1 go to val and test.
    assert [len(part) for part in parts_of(split)] == [3, 2, 2]


def test_a_first_node_is_given_by_those_in_no_part() -> None:
    split = stratified_split(np.zeros(3, int), train=0.3, val=0.3, test=0.1)
    assert [len(part) for part in parts_of(split)] == [1, 1, 1]


def test_seeds_differ() -> None:
    labels = np.arange(100) % 4
    first, second = (stratified_split(labels, seed=seed).train for seed in (0, 1))
    assert first.tolist() != second.tolist()


def test_several_labels_a_node_are_split_plainly() -> None:
    split = stratified_split(np.eye(10, 4, dtype=bool), train=0.5, val=0.3, test=0.1)
    assert [len(part) for part in parts_of(split)] == [5, 3, 1]


def test_nothing_labelled_gives_an_empty_split() -> None:
    assert [len(part) for part in parts_of(stratified_split(np.full(4, -1)))] == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": 0.7}, r"at most 1, got 0.7 \+ 0.2 \+ 0.2 = 1.1"),
        ({"train": 0, "val": 0, "test": 0}, "add up to more than 0"),
        ({"val": -0.1}, "val must be a share between 0 and 1, got -0.1"),
        ({"test": float("nan")}, "test must be a share between 0 and 1, got nan"),
        ({"train": "60%"}, "train must be a share between 0 and 1, got '60%'"),
        ({"train": True, "val": 0, "test": 0}, "got True"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": 1.5}, "got 1.5"),
        ({"seed": None}, "got None"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        stratified_split(np.arange(10), **options)


@pytest.mark.parametrize("labels", [0, ["a", "b"], [[0, 3]], [-2], [[[1]]]])
def test_labels_that_are_none(labels: Any) -> None:
    with pytest.raises(InputError, match="label"):
        stratified_split(np.array(labels))
