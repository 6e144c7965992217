"""The queue before a thread that computes: gathering, bounds, and one bad question among good."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from fastgcn.serve.lanes import Lane
from fastgcn.serve.limits import RequestError


def test_questions_that_wait_are_answered_together_and_the_queue_is_bounded() -> None:
    going, batches = threading.Event(), []

    def double(items: Sequence[int]) -> list[int]:
        going.wait()
        batches.append(list(items))
        return [2 * item for item in items]

    async def ask() -> list[object]:
        lane = Lane("test", longest=5, together=3)
        first = asyncio.create_task(lane.ask_together(double, 0, "double"))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(lane.ask_together(double, i, "double")) for i in (1, 2, 3, 4)]
        alone = asyncio.create_task(lane.ask(lambda: 7))
        refused = asyncio.create_task(lane.ask_together(double, 9, "double"))
        await asyncio.sleep(0.01)
        others[1].cancel()  # the client is gone
        going.set()
        found = await asyncio.gather(first, *others, alone, refused, return_exceptions=True)
        lane.close()
        return list(found)

    found = asyncio.run(ask())
    assert batches == [[0], [1, 3, 4]]
    assert found[:2] == [0, 2]
    assert found[3:6] == [6, 8, 7]
    assert isinstance(found[6], RequestError)
    assert (found[6].status, found[6].retry) == (429, 1)


def test_one_bad_question_does_not_spoil_the_others() -> None:
    def inverse(items: Sequence[float]) -> list[float]:
        return [1 / item for item in items]

    async def ask() -> list[object]:
        lane = Lane("test", longest=8, together=8)
        slow = asyncio.create_task(lane.ask(lambda: threading.Event().wait(0.05)))
        asked = [lane.ask_together(inverse, item, "inverse") for item in (1.0, 0.0, 2.0)]
        found = await asyncio.gather(slow, *asked, return_exceptions=True)
        lane.close()
        return list(found)

    found = asyncio.run(ask())
    assert found[1] == 1.0
    assert isinstance(found[2], ZeroDivisionError)
    assert found[3] == pytest.approx(0.5)
