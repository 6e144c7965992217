"""Batches made ahead are those made in step, and a thread never outlives its reader."""

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgcn.ahead import ahead


@given(st.lists(st.integers()))
def test_items_come_in_order(items: list[int]) -> None:
    assert list(ahead(items)) == items


def test_slow_items_come_in_order_too() -> None:
    def slow() -> Iterator[int]:
        for number in range(6):
            time.sleep(0.003)
            yield number

    assert list(ahead(slow())) == list(range(6))


def test_an_error_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("no third")

    seen = []
    with pytest.raises(ValueError, match="no third"):
        for item in ahead(failing()):
            seen.append(item)
    assert seen == [1, 2]


def test_closing_stops_the_thread_and_the_making() -> None:
    made = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            made.append(number)
            time.sleep(0.0005)
            yield number
            number += 1

    before = threading.active_count()
    reader = ahead(endless())
    assert [next(reader) for _ in range(3)] == [0, 1, 2]
    reader.close()
    assert threading.active_count() == before
    count = len(made)
    time.sleep(0.01)
    assert len(made) == count


def test_look_ahead_is_bounded() -> None:
    made = []

    def large() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            time.sleep(0.005)
            yield number

    reader = ahead(large())
    next(reader)
    time.sleep(0.15)
    assert len(made) <= 6
    reader.close()
