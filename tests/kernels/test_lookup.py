"""The lookup kernels against Python's dict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.kernels import edges as lookup

integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)


def packed(texts: list[bytes]) -> tuple[AnyArray, IntArray]:
    offsets = np.concatenate(([0], np.cumsum([len(text) for text in texts], dtype=np.int64)))
    return np.frombuffer(b"".join(texts), np.uint8), offsets.astype(np.int64)


@settings(deadline=None)  # kernels compile on first use
@given(ids=st.lists(integers, unique=True, min_size=1), others=st.lists(integers))
def test_integers(ids: list[int], others: list[int]) -> None:
    table = lookup.hash_table(len(ids))
    assert lookup.insert_integers(np.array(ids), table) == (0, -1)
    queries = ids[::-1] + others
    found = np.empty(len(queries), np.int32)
    lookup.find_integers(np.array(queries), table, found)
    position = {own: i for i, own in enumerate(ids)}
    assert found.tolist() == [position.get(query, -1) for query in queries]


@settings(deadline=None)
@given(ids=st.lists(st.integers(-9, 9), unique=True, min_size=1), others=st.lists(integers))
def test_integers_in_range(ids: list[int], others: list[int]) -> None:
    low = min(ids)
    positions = np.full(max(ids) - low + 1, -1, np.int32)
    positions[np.array(ids) - low] = np.arange(len(ids))
    queries = ids + others
    found = np.empty(len(queries), np.int32)
    lookup.find_in_range(np.array(queries), low, positions, found)
    position = {own: i for i, own in enumerate(ids)}
    assert found.tolist() == [position.get(query, -1) for query in queries]


@settings(deadline=None)
@given(ids=st.lists(st.binary(max_size=9), unique=True, min_size=1), others=st.lists(st.binary()))
def test_text(ids: list[bytes], others: list[bytes]) -> None:
    table = lookup.hash_table(len(ids))
    text, offsets = packed(ids)
    assert lookup.insert_text(text, offsets, table) == (0, -1)
    # More than are looked up together.
    queries = (ids[::-1] + others) * (300 // len(ids))
    found = np.empty(len(queries), np.int64)
    lookup.find_text(*packed(queries), text, offsets, table, found)
    position = {own: i for i, own in enumerate(ids)}
    assert found.tolist() == [position.get(query, -1) for query in queries]


def test_texts_with_the_same_hash() -> None:
    # The hash of the first is zero, and a zero byte keeps a hash of zero.
    first = bytes.fromhex("d56bb95342870836")
    ids = [first, first + b"\0", b"other", first + b"\0\0"]
    table = lookup.hash_table(len(ids))
    text, offsets = packed(ids)
    assert lookup.insert_text(text, offsets, table) == (0, -1)
    assert np.count_nonzero((table[:, 0] == 0) & (table[:, 1] >= 0)) == 3
    queries = [*ids, first + b"\0\0\0"]
    found = np.empty(len(queries), np.int64)
    lookup.find_text(*packed(queries), text, offsets, table, found)
    assert found.tolist() == [0, 1, 2, 3, -1]


@pytest.mark.parametrize("ids", [[4, 8, 4, 8, 4, 1], [1, 2, 1]])
def test_repeated_ids(ids: list[int]) -> None:
    repeated = [i for i in range(len(ids)) if ids[i] in ids[:i]]
    expected = (len(repeated), repeated[0])
    assert lookup.insert_integers(np.array(ids), lookup.hash_table(len(ids))) == expected
    text, offsets = packed([b"%d" % own for own in ids])
    assert lookup.insert_text(text, offsets, lookup.hash_table(len(ids))) == expected
