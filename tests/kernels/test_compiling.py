"""The time of compiling is booked apart from that of the work that needs a kernel."""

import threading
import time

import numba
import pytest
from numba.core import event

import fastgcn
from fastgcn import progress
from fastgcn.kernels import compiling
from tests.communities import communities, quick


def test_the_clock_stands_still_while_a_kernel_is_compiled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling._watch, "_said", False)
    monkeypatch.setattr(progress, "_plain", True)
    compiling.take_seconds()
    before, wall = compiling.clock(), time.perf_counter()
    assert numba.njit(lambda x: x + 1)(1) == 2
    spent, wall = compiling.clock() - before, time.perf_counter() - wall
    compiled = compiling.take_seconds()
    assert compiled > 0.01
    assert spent == pytest.approx(wall - compiled, abs=0.01)
    assert compiling.take_seconds() == 0.0
    assert numba.njit(lambda x: x + 2)(1) == 3
    said = capsys.readouterr().err
    assert said.count("Compiling kernels, once: later starts load them from disk") == 1


def test_a_thread_that_waits_sees_the_clock_stand_still() -> None:
    compiling.take_seconds()
    began, done = threading.Event(), threading.Event()

    def compile_slowly() -> None:
        with event.trigger_event("numba:compile", data={}):
            began.set()
            done.wait(10)

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    began.wait(10)
    before = compiling.clock()
    time.sleep(0.2)
    assert compiling.clock() - before < 0.01
    done.set()
    thread.join()
    assert compiling.take_seconds() > 0.15


def test_a_run_books_what_was_compiled_before_it_ended() -> None:
    with event.trigger_event("numba:compile", data={}):
        time.sleep(0.3)
    metrics = fastgcn.fit(communities(), quick()).metrics
    assert metrics["compiling_seconds"] >= 0.3
    again = fastgcn.fit(communities(), quick()).metrics
    assert again["compiling_seconds"] < 0.3
