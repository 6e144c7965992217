"""`Lane`: one thread that computes; requests wait for it in a bounded queue.

Requests that wait and ask for the same thing are computed together. There is no pause to gather
them: while one computation runs, the next requests meet in the queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastgcn.machine import begin_thread
from fastgcn.serve.limits import RequestError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Job:
    """A question that waits: `work` answers a list of them, and `key` says which go together."""

    work: Callable[[Sequence[Any]], Sequence[Any]]
    item: Any
    key: Hashable
    size: int
    answer: asyncio.Future[Any] = field(repr=False)


class Lane:
    """A thread and the queue before it. Its methods are called in the event loop.

    `longest` bounds the queue, `together` the sum of sizes in one computation; `on_batch` is told
    how many requests were computed together.
    """

    def __init__(
        self,
        name: str,
        longest: int,
        together: int,
        threads: int = 1,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.name, self.longest, self.together, self.on_batch = name, longest, together, on_batch
        self._waiting: deque[_Job] = deque()
        self._busy = False
        self._pool = ThreadPoolExecutor(
            1, thread_name_prefix=f"serve-{name}", initializer=begin_thread, initargs=(threads,)
        )

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, work: Callable[[], R]) -> R:
        """What `work` returns, computed alone."""
        return await self.ask_together(lambda items: [work() for _ in items], None, object())

    async def ask_together(
        self, work: Callable[[Sequence[T]], Sequence[R]], item: T, key: Hashable, size: int = 1
    ) -> R:
        """The answer to `item`; `work` gets all waiting items with an equal `key` in a list."""
        if len(self._waiting) >= self.longest:
            raise RequestError(
                429, f"{len(self._waiting)} requests wait already; ask again in a second", retry=1
            )
        job = _Job(work, item, key, size, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if not self._busy:
            self._next()
        answer: R = await job.answer
        return answer

    def _next(self) -> None:
        """Start the computation of the first job, and of those that can be joined to it."""
        jobs: list[_Job] = []
        later: deque[_Job] = deque()
        size = 0
        for job in self._waiting:
            if job.answer.done():  # given up: out of time, or the client is gone
                continue
            joins = not jobs or (job.key == jobs[0].key and size + job.size <= self.together)
            (jobs if joins else later).append(job)
            size += job.size * joins
        self._waiting = later
        self._busy = bool(jobs)
        if jobs:
            self.on_batch(len(jobs))
            task = asyncio.ensure_future(self._run(jobs))
            task.add_done_callback(lambda _: self._next())

    async def _run(self, jobs: list[_Job]) -> None:
        loop = asyncio.get_running_loop()
        work, items = jobs[0].work, [job.item for job in jobs]
        try:
            answers = await loop.run_in_executor(self._pool, work, items)
        except Exception as error:
            if len(jobs) == 1:
                _finish(jobs[0], error=error)
                return
            for job in jobs:  # one of them is at fault; the others get their answers
                await self._run([job])
            return
        for job, answer in zip(jobs, answers, strict=True):
            _finish(job, answer)

    def close(self) -> None:
        """Let the thread finish what it computes."""
        self._pool.shutdown()


def _finish(job: _Job, answer: Any = None, error: Exception | None = None) -> None:
    if job.answer.done():
        return
    if error is None:
        job.answer.set_result(answer)
    else:
        job.answer.set_exception(error)
