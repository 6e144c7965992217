"""Runs in real processes, killed at random and at the worst moments, end as if uninterrupted.

A helper process imports torch once and forks a worker for each session of a run, so that a
session costs milliseconds; the workers die by real signals.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fastgcn import Run, TrainConfig
from tests.communities import quick, weights_of, without_times

# Reads a task a line; answers `pid N`, `epoch` after each epoch, and `end STATUS`.
HELPER = '''
import json, os, signal, sys, traceback
from pathlib import Path

import fastgcn.train.run, fastgcn.train.loop
from fastgcn import TrainConfig, fit, resume
from tests.communities import communities, quick

GRAPH = communities()
fit(GRAPH, quick(epochs=1))  # what torch loads on first use is loaded before the first fork
fastgcn.train.loop._CHECKPOINT_EVERY = 0
os.fsync = lambda _: None  # a kill loses nothing that the system has


def die(): os.kill(os.getpid(), signal.SIGKILL)


def die_in_write(number):
    """Be killed half way through the number-th file that is written."""
    usual, calls = Path.write_bytes, [0]
    def write_bytes(path, data):
        calls[0] += 1
        if calls[0] < number:
            return usual(path, data)
        usual(path, data[: len(data) // 2])
        die()
    Path.write_bytes = write_bytes


def die_before_rename(number):
    """Be killed with the number-th file written but not yet in its place."""
    usual, calls = Path.replace, [0]
    def replace(path, target):
        calls[0] += 1
        return usual(path, target) if calls[0] < number else die()
    Path.replace = replace


def die_in_history(number):
    """Be killed half way through the line of an epoch."""
    usual = fastgcn.train.run.RunFolder.append_history
    def append_history(folder, record):
        if record["epoch"] < number:
            return usual(folder, record)
        with (folder.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record)[:30])
        die()
    fastgcn.train.run.RunFolder.append_history = append_history


def work(task):
    folder, accident = Path(task["folder"]), task["accident"]
    def on_epoch(record):
        os.write(1, b"epoch\\n")
        if accident and accident[0] == "interrupt" and record["epoch"] == accident[1]:
            os.kill(os.getpid(), signal.SIGINT)
    if accident and accident[0] != "interrupt":
        globals()[accident[0]](accident[1])
    if (folder / "config.json").exists():
        resume(folder, GRAPH, callbacks=[on_epoch])
    else:
        fit(GRAPH, TrainConfig.from_dict(task["config"]), run_dir=folder, callbacks=[on_epoch])


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        try:
            work(json.loads(line))
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.write(1, f"pid {pid}\\n".encode())
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(1, f"end {status}\\n".encode())
'''

FILES = {"config.json", "metrics.jsonl", "model.safetensors", "result.json", "state.safetensors"}


class Helper:
    """The process that forks workers."""

    def __init__(self) -> None:
        paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", HELPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )

    def session(
        self,
        folder: Path,
        config: TrainConfig,
        *,
        accident: tuple[str, int] | None = None,
        kill_after: tuple[int, float] | None = None,
    ) -> int:
        """Start or resume the run; its exit status, negative for a signal.

        `kill_after` (epochs, seconds) kills the worker so long after so many epochs.
        """
        task = {"folder": str(folder), "config": config.to_dict(), "accident": accident}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        kind, pid = self._answer()
        assert kind == "pid"
        epochs = 0
        while True:
            if kill_after is not None and epochs == kill_after[0]:
                time.sleep(kill_after[1])
                with contextlib.suppress(ProcessLookupError):  # it may have finished first
                    os.kill(pid, signal.SIGKILL)
                kill_after = None
            kind, value = self._answer()
            if kind == "end":
                return value
            epochs += 1

    def _answer(self) -> tuple[str, int]:
        assert self.process.stdout is not None
        kind, _, value = self.process.stdout.readline().strip().partition(" ")
        assert kind, "the helper has died"
        return kind, int(value or 0)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    helper = Helper()
    yield helper
    helper.close()


CONFIGS = [
    # The best epoch lies 20 before the end, so that late accidents happen after it.
    quick(epochs=500, patience=20, learning_rate=0.3, dropout=0.5),
    quick(epochs=60, hidden=(8, 8), precompute=False, dropout=0.3),
    quick(epochs=60, distribution="optimal", bias=True, weight_decay=1e-3, seed=5),
    quick(epochs=500, patience=30, learning_rate=0.1, inductive=False, drop_last=True),
]


@pytest.fixture(scope="module")
def references(helper: Helper, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The same runs uninterrupted."""
    root = tmp_path_factory.mktemp("uninterrupted")
    for number, config in enumerate(CONFIGS):
        assert helper.session(root / str(number), config) == 0
    return [Run.load(root / str(number)) for number in range(len(CONFIGS))]


def assert_same(folder: Path, reference: Run) -> None:
    """Weights to the last bit; history and metrics in all but times; no file too many."""
    run = Run.load(folder)
    assert weights_of(run.model) == weights_of(reference.model)
    assert [*map(without_times, run.history)] == [*map(without_times, reference.history)]
    assert without_times(run.metrics) == without_times(reference.metrics)
    assert run.config == reference.config
    assert {file.name for file in folder.iterdir()} == FILES


def test_twenty_random_kills(helper: Helper, references: list[Run], tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    kills = rounds = 0
    while kills < 20:
        number = rounds % len(CONFIGS)
        folder, config, reference = tmp_path / str(rounds), CONFIGS[number], references[number]
        seconds = float(np.mean([record["seconds"] for record in reference.history]))
        for _ in range(5):
            after = int(rng.integers(5)), float(rng.uniform(0, 4 * seconds))
            status = helper.session(folder, config, kill_after=after)
            assert status in (-signal.SIGKILL, 0)
            kills += status == -signal.SIGKILL
        assert helper.session(folder, config) == 0
        assert_same(folder, reference)
        rounds += 1
    assert rounds < 20, "hardly any kill met a living worker"


# One session writes config, empty history, a state an epoch, then state, model and result; an
# accident happens at one of these, or at an epoch, counted from the end where negative.
ACCIDENTS = [
    *(("die_in_write", number) for number in (1, 2, 3, 10, -5, -3, -2, -1)),
    *(("die_before_rename", number) for number in (1, 2, 3, 10, -5, -3, -2, -1)),
    *(("die_in_history", number) for number in (1, 2, -10, -1)),
]


@pytest.mark.parametrize(("kind", "number"), ACCIDENTS)
def test_kills_at_the_worst_moments(
    helper: Helper, references: list[Run], tmp_path: Path, kind: str, number: int
) -> None:
    folder, count = tmp_path / "run", len(references[0].history)
    if kind != "die_in_history":
        count += 5
    accident = kind, number if number > 0 else count + 1 + number
    status = helper.session(folder, CONFIGS[0], accident=accident)
    assert status == -signal.SIGKILL, "the accident must have happened"
    assert not (folder / "result.json").exists()
    assert helper.session(folder, CONFIGS[0]) == 0
    assert_same(folder, references[0])


def test_an_interrupt_leaves_a_run_to_resume(
    helper: Helper, references: list[Run], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    for epoch in (1, 7, CONFIGS[1].epochs):
        assert helper.session(folder, CONFIGS[1], accident=("interrupt", epoch)) == 130
        assert Run.load(folder).metrics["epochs"] == epoch
    assert helper.session(folder, CONFIGS[1]) == 0
    assert_same(folder, references[1])
