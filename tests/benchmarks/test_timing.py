"""Times: every side takes its turn, does what it says, and is counted a unit."""

import os
import time

import pytest
import torch
from benchmarks.timing import Side, medians, on_threads, repeated, seconds_in_turns, spread

from benchmarks import timing


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_PAUSE", 0.0)


def test_sides_take_turns() -> None:
    turns: list[str] = []

    def side(name: str) -> Side:
        return lambda count: turns.append(name) if count else None

    found = seconds_in_turns({"a": side("a"), "b": side("b")}, rounds=3, chunk_seconds=0)
    assert turns == ["a", "b"] + ["a", "b"] * 3
    assert [len(each) for each in found.values()] == [3, 3]


def test_a_turn_takes_about_its_time_and_times_are_of_a_unit() -> None:
    def side(count: int) -> None:
        time.sleep(0.002 * count)

    (found,) = medians(seconds_in_turns({"a": side}, rounds=3, chunk_seconds=0.02)).values()
    assert found == pytest.approx(0.002, rel=0.5)


def test_what_takes_long_is_done_once_a_turn() -> None:
    done: list[int] = []
    seconds_in_turns({"it": done.append}, rounds=2, chunk_seconds=0)
    assert done == [1, 0, 1, 0, 1]


def test_repeated_begins_again_where_it_ended() -> None:
    done: list[int] = []
    side = repeated([lambda: done.append(1), lambda: done.append(2)])
    side(3)
    side(2)
    assert done == [1, 2, 1, 2, 1]


def test_threads_are_those_asked_for() -> None:
    seen: list[int] = []
    on_threads(1, lambda _: seen.append(torch.get_num_threads()))(1)
    on_threads(0, lambda _: seen.append(torch.get_num_threads()))(1)
    assert seen == [1, len(os.sched_getaffinity(0))]


def test_spread_is_a_part_of_the_median() -> None:
    assert spread([2.0, 2.0, 2.0]) == 0
    assert spread([1.0, 2.0, 3.0]) == 0.5
