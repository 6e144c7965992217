"""The compiled kernels of the family against plain dense references, over odd shapes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.blocks import has_repeats, pick_by_sums, pick_entries, pick_reached, reach
from fastgcn.kernels.draws import (
    append_new,
    draw_entries,
    draw_folded,
    draw_folded_reference,
    running_sums,
    sums_of_powers,
)

seeds = st.integers(0, 2**32 - 1)
index_types = st.sampled_from([np.int32, np.int64])
powers = st.sampled_from([2.0, 1.0, 0.0, 0.7])

Parts = tuple[IntArray, IntArray, FloatArray]


def random_matrix(n: int, rng: np.random.Generator, index_type: type) -> tuple[FloatArray, Parts]:
    """(n, n) float32 with empty rows and columns, dense and as CSR with a stored zero in it."""
    dense = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.4)
    dense = dense.astype(np.float32)
    matrix = csr_array(dense)
    if len(matrix.data):
        gone = int(rng.integers(len(matrix.data)))
        row = int(np.searchsorted(matrix.indptr, gone, side="right")) - 1
        dense[row, matrix.indices[gone]] = matrix.data[gone] = 0
    return dense, (matrix.indptr.astype(np.int64), matrix.indices.astype(index_type), matrix.data)


def chosen(n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray, FloatArray]:
    """Some rows, some columns and a weight for each of these."""
    rows = rng.permutation(n)[: rng.integers(1, n + 1)]
    columns = rng.permutation(n)[: rng.integers(0, n + 1)]
    return rows, columns, rng.random(len(columns)) + 0.5


def picked_by_hand(
    dense: FloatArray, rows: IntArray, columns: IntArray, weights: FloatArray, exact_self: bool
) -> FloatArray:
    """(s, n): the rows, columns not chosen zero and chosen ones times their weights."""
    factor = np.zeros(len(dense))
    factor[columns] = weights
    full = np.eye(len(dense), dtype=bool) & exact_self
    return np.asarray(np.where(full, dense, dense * factor)[rows])


def sizes(matrix: FloatArray, power: float) -> FloatArray:
    """|entry|^power, float64, and zero where there is no entry."""
    return np.asarray(np.where(matrix == 0, 0.0, np.abs(matrix, dtype=np.float64) ** power))


def scattered(picked: Parts, n: int) -> FloatArray:
    indptr, columns, values = picked
    return np.asarray(csr_array((values, columns, indptr), (len(indptr) - 1, n)).toarray())


@settings(deadline=None)
@given(seeds, st.integers(1, 40), st.integers(1, 60), st.integers(1, 50))
def test_draws_invert_the_running_sums(seed: int, n: int, t: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    q = rng.random(n) * (rng.random(n) < 0.7)  # some cannot be drawn, perhaps the first or last
    q[rng.integers(n)] += 0.5
    points, place = rng.random(t), np.full(n, -1, np.int32)
    points[: t // 5] = rng.choice([0.0, np.nextafter(1, 0)], t // 5)
    cumulative, guide = running_sums(q, slots)
    assert_allclose(cumulative, np.cumsum(q))
    assert len(guide) == slots
    drawn, counts = draw_folded(cumulative, guide, points, place)
    assert dict(zip(drawn.tolist(), counts.tolist(), strict=True)) == draw_folded_reference(
        cumulative, points
    )
    assert (q[drawn] > 0).all()
    assert (place == -1).all()


@settings(deadline=None)
@given(seeds, st.integers(1, 25), index_types, powers, st.booleans())
def test_what_rows_reach(
    seed: int, n: int, index_type: type, power: float, off_diagonal: bool
) -> None:
    rng = np.random.default_rng(seed)
    dense, parts = random_matrix(n, rng, index_type)
    rows, place = rng.integers(0, n, rng.integers(1, 2 * n + 1)), np.full(n, -1, np.int32)
    found, sums, at = reach(*parts, rows, power, off_diagonal, place)
    wanted = dense * (1 - np.eye(n)) if off_diagonal else dense
    expected = sizes(wanted[rows], power).sum(axis=0)
    assert sorted(found.tolist()) == np.flatnonzero(expected).tolist()
    assert_allclose(sums, expected[found], rtol=1e-12)
    columns = csr_array((parts[2], parts[1], parts[0]), (n, n))[rows].indices
    assert found[at[at >= 0]].tolist() == columns[at >= 0].tolist()
    assert (at >= 0).sum() == np.count_nonzero(wanted[rows])
    assert (place == -1).all()


@settings(deadline=None)
@given(seeds, st.integers(1, 25), index_types, st.booleans())
def test_entries_are_picked(seed: int, n: int, index_type: type, exact_self: bool) -> None:
    rng = np.random.default_rng(seed)
    dense, parts = random_matrix(n, rng, index_type)
    rows, columns, weights = chosen(n, rng)
    place = np.full(n, -1, np.int32)
    expected = picked_by_hand(dense, rows, columns, weights, exact_self)
    picked = pick_entries(*parts, rows, columns, weights, exact_self, place)
    assert_allclose(scattered(picked, n), expected, rtol=1e-6)
    found, _, at = reach(*parts, rows, 2.0, exact_self, place)
    among = np.isin(found, columns)
    weight_of = dict(zip(columns.tolist(), weights.tolist(), strict=True))
    drawn = np.flatnonzero(among)
    again = pick_reached(
        parts[0],
        parts[2],
        rows,
        (found, at),
        drawn,
        np.array([weight_of[u] for u in found[drawn].tolist()]),
        exact_self,
    )
    assert_allclose(scattered(again, n), expected, rtol=1e-6)
    assert (place == -1).all()


@settings(deadline=None)
@given(seeds, st.integers(1, 25), index_types, powers, st.booleans())
def test_entries_are_drawn_by_their_sizes(
    seed: int, n: int, index_type: type, power: float, off_diagonal: bool
) -> None:
    """Points in the middle of entries' stretches draw their columns, weighed by the column."""
    rng = np.random.default_rng(seed)
    dense, parts = random_matrix(n, rng, index_type)
    rows, place = rng.permutation(n)[: rng.integers(1, n + 1)], np.full(n, -1, np.int32)
    wanted = sizes(dense * (1 - np.eye(n)) if off_diagonal else dense, power)
    lengths, of_columns = sums_of_powers(*parts, power, off_diagonal)
    assert_allclose(lengths, wanted.sum(axis=1), rtol=1e-12)
    assert_allclose(of_columns, wanted.sum(axis=0), rtol=1e-12)
    entries = [(v, u) for v in rows.tolist() for u in np.flatnonzero(wanted[v]).tolist()]
    stretch = np.array([wanted[entry] for entry in entries])
    hit = np.sort(rng.integers(0, max(len(entries), 1), 5 if entries else 0))
    points = (np.cumsum(stretch) - stretch / 2)[hit] / stretch.sum() if entries else np.ones(5) / 2
    drawn, counts = draw_entries(*parts, rows, lengths[rows], power, points, off_diagonal, place)
    expected = Counter(entries[i][1] for i in hit)
    assert dict(zip(drawn.tolist(), counts.tolist(), strict=True)) == expected
    picked = pick_by_sums(*parts, rows, drawn, counts, 0.7, power, off_diagonal, place)
    weights = counts * 0.7 / wanted[rows][:, drawn].sum(axis=0)
    by_hand = picked_by_hand(dense, rows, drawn, weights, off_diagonal)
    assert_allclose(scattered(picked, n), by_hand, rtol=1e-5)
    assert (place == -1).all()


@pytest.mark.parametrize("values", [[3.0, 1.0], [0.1] * 10, [1.0, 0.0]])
def test_points_at_the_end_fall_on_the_last_entry(values: list[float]) -> None:
    """Whatever the running sum of the squares is rounded to."""
    dense = np.zeros((len(values),) * 2, np.float32)
    dense[0] = values
    matrix = csr_array(dense)
    lengths = np.array([1.0001 * np.sum(np.square(values))])  # as if sums were rounded down
    drawn, counts = draw_entries(
        matrix.indptr,
        matrix.indices,
        matrix.data,
        np.array([0]),
        lengths,
        2.0,
        np.full(3, np.nextafter(1, 0)),
        False,
        np.full(len(values), -1, np.int32),
    )
    assert (drawn.tolist(), counts.tolist()) == ([np.flatnonzero(values)[-1]], [3])


def test_repeated_nodes_are_found() -> None:
    place = np.full(5, -1, np.int32)
    assert not has_repeats(np.array([3, 0, 4]), place)
    assert has_repeats(np.array([3, 0, 4, 0]), place)
    assert (place == -1).all()


@given(st.permutations(range(9)), st.integers(0, 9), st.permutations(range(9)), st.integers(0, 9))
def test_only_new_positions_are_appended(
    known: list[int], count: int, more: list[int], others: int
) -> None:
    drawn, place = np.full(18, -7), np.full(9, -1, np.int32)
    drawn[:count] = known[:count]
    total = append_new(drawn, count, np.array(more[:others], np.int64), place)
    new = [u for u in more[:others] if u not in known[:count]]
    assert drawn[:total].tolist() == [*known[:count], *new]
    assert (drawn[total:] == -7).all()
    assert (place == -1).all()
