"""The parts that draw edges: wanted degrees, edges a row, and the kernel."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fastgcn.arrays import AnyArray
from fastgcn.data.generate import DrawOrder, GenerateConfig, _row_counts, wanted_degrees
from fastgcn.kernels.generate import draw_rows

SMALL = GenerateConfig(nodes=3000, edges=20_000, features=24, classes=5, class_skew=0.5)


@settings(deadline=None)
@given(st.integers(1, 50))
def test_batches_cut_the_rows_without_gap(edges: int) -> None:
    counts = np.array([0, 3, 0, 50, 1, 1, 7, 0, 0, 2, 0])
    empty: AnyArray = np.empty(0)
    rows = DrawOrder(empty, empty, counts, empty, empty, False, np.uint64(0))
    batches = list(rows.batches(edges))
    covered = [row for first, last in batches for row in range(first, last)]
    assert covered == list(range(len(covered)))
    assert counts[covered].sum() == counts.sum()
    for first, last in batches:
        assert last == first + 1 or counts[first:last].sum() <= edges


@pytest.mark.parametrize("exponent", [1.2, 1.9, 2.0, 2.1, 3.0, 8.0])
def test_wanted_degrees_have_the_asked_mean_and_ends(exponent: float) -> None:
    config = replace(SMALL, nodes=100_000, edges=1_000_000, degree_exponent=exponent)
    degrees = wanted_degrees(config)
    assert degrees.mean() == pytest.approx(20, rel=1e-3)
    assert 0 < degrees[0] < degrees[-1] <= config.top_degree


def test_a_row_draws_by_weight_without_replacement() -> None:
    weights = np.array([5.0, 1.0, 2.0, 3.0, 4.0])  # row 0 has weight 5 and draws from the rest
    cumulative = np.concatenate(([0.0], np.cumsum(weights)))
    order, group = np.arange(5), np.zeros(5, np.int64)
    seen: dict[tuple[int, int], int] = dict.fromkeys(itertools.permutations(range(1, 5), 2), 0)
    source, target = np.empty(2, np.int32), np.empty(2, np.int32)
    counts, ends = np.array([2, 0, 0, 0, 0]), np.full(5, 5)
    draws = 20_000
    for seed in range(draws):
        draw_rows(
            0,
            1,
            counts,
            ends,
            cumulative,
            group,
            False,
            order,
            np.uint64(seed),
            source,
            target,
        )
        assert source.tolist() == [0, 0]
        seen[int(target[0]), int(target[1])] += 1
    chances = [weights[a] / 10 * weights[b] / (10 - weights[a]) for a, b in seen]
    # The seeds are fixed: a right sampler fails one choice of them in ten thousand.
    assert chisquare(list(seen.values()), draws * np.array(chances)).pvalue > 1e-4


def test_rows_between_groups_skip_their_own() -> None:
    group = np.array([0, 0, 1, 0, 1, 2])
    source, target = np.empty(3, np.int32), np.empty(3, np.int32)
    counts, ends = np.array([3, 0, 0, 0, 0, 0]), np.full(6, 6)
    cumulative, order = np.arange(7.0), np.arange(6)[::-1].copy()
    draw_rows(0, 1, counts, ends, cumulative, group, True, order, np.uint64(1), source, target)
    assert source.tolist() == [5, 5, 5]
    assert sorted(target.tolist()) == [0, 1, 3]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e6), st.integers(0, 50)), min_size=1, max_size=60),
    st.floats(0, 1),
)
def test_row_counts_sum_up_and_keep_to_the_room(
    rows: list[tuple[float, int]], filling: float
) -> None:
    share, room = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    total = int(filling * room.sum())
    counts = _row_counts(share, room, total)
    assert counts.sum() == total
    assert np.all((counts >= 0) & (counts <= room))


def test_row_counts_are_proportional_where_there_is_room() -> None:
    counts = _row_counts(np.array([1.0, 2.0, 3.0, 94.0]), np.array([100, 100, 100, 40]), 100)
    assert counts.tolist() == [10, 20, 30, 40]
