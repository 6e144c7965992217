"""A short run over all targets, the kept cases, and the harness itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fastgcn.errors import InputError
from tests.fuzz import harness
from tests.fuzz.case import Placed
from tests.fuzz.corpus import BUILDERS, corpus
from tests.fuzz.harness import Mutants, Result
from tests.fuzz.targets import TARGETS, Target
from tests.thorough import THOROUGH

ROOT = Path(__file__).parents[2]


def test_a_short_run_finds_nothing() -> None:
    found = _fuzz("all", "--cases", "100" if THOROUGH else "15", "--seed", "0")
    assert found.returncode == 0, found.stdout + found.stderr[-2000:]
    assert found.stdout.count(" 0 findings") == len(TARGETS) + 1


def _fuzz(*args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.fuzz", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


def test_every_target_has_inputs_and_every_input_is_valid(tmp_path: Path) -> None:
    assert TARGETS.keys() == BUILDERS.keys()
    for name in ("npz", "csv", "settings"):
        bench = Mutants(name, tmp_path / name, corpus(name))
        first = next(iter(bench.target.actions))
        for placed in bench.inputs:
            cases = (harness.Case(bench.target, placed, {}, first, Random(i)) for i in range(5))
            assert any(case.run(bench.out) for case in cases)


def test_a_case_is_known_by_its_number(tmp_path: Path) -> None:
    one, two = (Mutants("graphsaint", tmp_path / n, corpus("graphsaint")) for n in "ab")
    for seed in range(50):
        assert one.case(seed).changes == two.case(seed).changes
        assert one.case(seed).action is two.case(seed).action


def _misbehave(path: Path, _: Random, out: Path) -> object:
    """What the input says."""
    match (path / "order.txt").read_bytes():
        case b"signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"hang":
            time.sleep(60)
        case b"work":
            while True:
                pass
        case b"memory":
            return bytearray(3 << 30)
        case b"raise":
            raise KeyError("order")
        case b"refuse":
            raise InputError("the order is wrong")
        case b"leave":
            (out / "half").mkdir()
            raise InputError("the order is wrong")
    return None


ORDERS = ("answer", "signal", "refuse", "hang", "raise", "work", "memory", "leave", "refuse")


class _Orders:
    """Cases that do one thing each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.out.mkdir(parents=True)

    def case(self, seed: int) -> harness.Case:
        placed = Placed.at(self.folder / "input", {"order.txt": ORDERS[seed].encode()})
        return harness.Case(Target({}), placed, {}, _misbehave, Random(seed))


@pytest.mark.parametrize("jobs", [1, 2])
def test_whatever_goes_wrong_is_noticed(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CPU_SECONDS", 0.5)
    monkeypatch.setattr(harness, "WAIT_SECONDS", 1.0)
    result: Result = harness.watch("orders", _Orders, len(ORDERS), jobs=jobs)
    found: dict[int, Any] = {each.seed: each.what for each in result.findings}
    assert {ORDERS[seed]: what for seed, what in found.items()} == {
        "signal": "SIGSEGV",
        "hang": "waits for ever",
        "work": "more than 0.5 s",
        "memory": "MemoryError",
        "raise": "KeyError",
        "leave": "AssertionError",
    }
    assert result.cases == len(ORDERS)
    assert result.answers == 1
