"""Runs cases in worker processes that are watched from outside.

A worker that dies by a signal, takes too long or asks for too much memory is a finding, and so is
anything raised that is not an error of this package. A case is made from its target and number.
"""

import contextlib
import faulthandler
import gc
import json
import mmap
import os
import re
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import NoReturn, Protocol

import fastgcn
from fastgcn.errors import FastGCNError
from tests.fuzz.case import Changes, Placed, load_found, mutate_tree
from tests.fuzz.corpus import Corpus, corpus
from tests.fuzz.targets import TARGETS, Action, Target, prepare

# Seconds that a case may compute, and that it may wait for something else than a processor.
CPU_SECONDS = 5.0
WAIT_SECONDS = 10.0

# What a worker may allocate beside what it holds at its start.
MEMORY = 2 << 30

_OURS = str(Path(fastgcn.__file__).parent) + os.sep


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that ended in something else than an answer or one of our own errors."""

    target: str
    seed: int
    action: str
    what: str
    frame: str
    message: str


@dataclass(slots=True)
class Result:
    """The outcome of the cases of one target."""

    target: str
    first: int
    cases: int = 0
    answers: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def groups(self) -> dict[tuple[str, str], list[Finding]]:
        """Findings by exception and by the last place in our code."""
        found: dict[tuple[str, str], list[Finding]] = {}
        for each in self.findings:
            found.setdefault((each.what, each.frame), []).append(each)
        return dict(sorted(found.items(), key=lambda group: -len(group[1])))


@dataclass(frozen=True, slots=True)
class Case:
    """A valid input, what is changed in it, and what is done with it."""

    target: Target
    placed: Placed
    changes: Changes
    action: Action
    rng: Random

    def run(self, out: Path) -> bool:
        """True if there is an answer, False if the input is refused. Raises what is neither.

        `out` is an empty folder for the action to write into.
        """
        self.placed.apply(self.changes)
        refused = False
        try:
            self.action(self.placed.folder, self.rng, out)
        except FastGCNError as error:
            refused = bool(str(error).strip())
            if not refused:
                raise AssertionError("an error without a message") from error
        finally:
            left = os.listdir(out)  # noqa: PTH208
            for name in left:
                shutil.rmtree(out / name, ignore_errors=True)
            if self.target.writes:
                self.placed.restore_all()
            else:
                self.placed.restore(self.changes)
        assert not (refused and left), f"left behind: {', '.join(left)}"
        return not refused


class Bench(Protocol):
    """Where a process makes and runs cases; `out` is a folder to write into."""

    out: Path

    def case(self, seed: int) -> Case: ...


class Mutants:
    """Cases made from the valid inputs of a target, which lie in `folder`."""

    def __init__(self, target: str, folder: Path, inputs: Corpus) -> None:
        self.name, self.target = target, TARGETS[target]
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        self.inputs = [Placed.at(folder / name, tree) for name, tree in inputs.items()]

    def case(self, seed: int) -> Case:
        rng = Random(f"{self.name} {seed}")
        placed = rng.choice(self.inputs)
        actions = self.target.actions
        (action,) = rng.choices(list(actions), list(actions.values()))
        changes = mutate_tree(placed.tree, rng, self.target.repair)
        return Case(self.target, placed, changes, action, rng)

    def warm_up(self) -> None:
        """Do everything once with valid inputs, which loads libraries and compiled code."""
        for placed in self.inputs:
            for action, seed in product(self.target.actions, range(3)):
                with contextlib.suppress(FastGCNError):
                    Case(self.target, placed, {}, action, Random(seed)).run(self.out)


class Found:
    """The cases that were kept because they once went wrong."""

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self.folder, self.files = folder, files
        self.out = folder / "out"
        self.out.mkdir(parents=True)

    def case(self, seed: int) -> Case:
        about, files, odd = load_found(self.files[seed])
        target = TARGETS[str(about["target"])]
        (action,) = (each for each in target.actions if each.__name__ == about["action"])
        shutil.rmtree(self.folder / "input", ignore_errors=True)
        placed = Placed.at(self.folder / "input" / str(about["input"]), files)
        return Case(target, placed, odd, action, Random(str(about["rng"])))


def place_of(error: BaseException) -> str:
    """The last place in our code that an error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)] or frames[-1:]
    last = ours[-1]
    return f"{last.filename.removeprefix(_OURS)}:{last.lineno} {last.name}"


# The number of the case, its CPU and wall time at the start, cases done and answered.
_STATE = struct.Struct("qddqq")


MakeBench = Callable[[Path], Bench]


class Worker:
    """A forked process that runs every `step`-th case from `seed` on."""

    def __init__(self, name: str, make: MakeBench, seed: int, stop: int, step: int) -> None:
        self.name, self.make, self.stop, self.step = name, make, stop, step
        self.state = mmap.mmap(-1, _STATE.size)
        self.state[:] = _STATE.pack(seed, 0.0, time.monotonic(), 0, 0)
        self.folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
        self.log = self.folder / "log"
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            self._work(seed, writing)
        os.close(writing)
        self.pipe = os.fdopen(reading, "rb")

    def _work(self, seed: int, writing: int) -> NoReturn:
        status = 1
        try:
            log = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            for stream in (1, 2):
                os.dup2(log, stream)
            with os.fdopen(log, "w", closefd=False) as stream_of_log:
                faulthandler.enable(stream_of_log)
                faulthandler.register(signal.SIGUSR1, stream_of_log)
                _limit_memory()
                os.environ["TMPDIR"] = str(self.folder)
                tempfile.tempdir = str(self.folder)
                os.chdir(self.folder)
                self._loop(seed, writing)
                status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _loop(self, seed: int, writing: int) -> None:
        bench = self.make(self.folder / "bench")
        answers = 0
        for done, number in enumerate(range(seed, self.stop, self.step)):
            self.state[:] = _STATE.pack(
                number, time.process_time(), time.monotonic(), done, answers
            )
            try:
                with silence():
                    answers += bench.case(number).run(bench.out)
            except (Exception, SystemExit) as error:
                found = finding(self.name, bench, number, error)
                os.write(writing, json.dumps(asdict(found)).encode() + b"\n")
                del error
            if done % 1000 == 999:
                gc.collect()
        total = len(range(seed, self.stop, self.step))
        self.state[:] = _STATE.pack(self.stop, 0.0, time.monotonic(), total, answers)

    def read_state(self) -> tuple[int, float, float, int, int]:
        return _STATE.unpack(self.state[:])

    def findings(self) -> Iterator[Finding]:
        while select.select([self.pipe], [], [], 0)[0]:
            line = self.pipe.readline()
            if not line:
                return
            yield Finding(**json.loads(line))

    def too_long(self) -> str:
        """What the current case has used up; empty if nothing."""
        _, began, wall, _, _ = self.read_state()
        waited = time.monotonic() - wall
        if waited < CPU_SECONDS:
            return ""
        if _cpu_seconds(self.pid) - began > CPU_SECONDS:
            return f"more than {CPU_SECONDS:g} s"
        # On a busy machine a worker that could go on must wait as well.
        return "waits for ever" if waited > WAIT_SECONDS and not _runnable(self.pid) else ""

    def kill(self) -> None:
        """Have the worker write where it is, then end it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(0.3)
            os.kill(self.pid, signal.SIGKILL)

    def dead(self, what: str) -> Finding:
        """The finding of a case that ended its worker."""
        seed = self.read_state()[0]
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        trace = text[text.rfind("(most recent call first)") :] if "most recent call" in text else ""
        ours = re.search(rf'File "{re.escape(_OURS)}([^"]+)", line (\d+) in (\S+)', trace)
        frame = f"{ours[1]}:{ours[2]} {ours[3]}" if ours else "?"
        lines = [line for line in text.splitlines() if line.strip()]
        return Finding(self.name, seed, "", what, frame, lines[-1][:200] if lines else "")

    def following(self, seed: int) -> "Worker":
        return Worker(self.name, self.make, seed, self.stop, self.step)

    def close(self) -> None:
        self.pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def finding(name: str, bench: Bench, seed: int, error: BaseException) -> Finding:
    action = bench.case(seed).action.__name__
    message = " ".join(str(error).split())[:200]
    return Finding(name, seed, action, type(error).__name__, place_of(error), message)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _runnable(pid: int) -> bool:
    """True if a thread of a process computes, or could if it had a processor."""
    states = []
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has just ended
            states.append(task.read_text().rpartition(")")[2].split()[0])
    return any(state in "RD" for state in states)


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fuzz(target: str, cases: int, first: int = 0, jobs: int = 1) -> Result:
    """Run the cases first..first+cases-1 of a target."""
    prepare()
    inputs = corpus(target)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, silence():
        Mutants(target, Path(folder) / "bench", inputs).warm_up()
    return watch(target, lambda folder: Mutants(target, folder, inputs), cases, first, jobs)


def replay(files: Sequence[Path]) -> Result:
    """Run the cases that were kept in files."""
    prepare()
    return watch("found", lambda folder: Found(folder, files), len(files))


@contextlib.contextmanager
def silence() -> Iterator[None]:
    with open(os.devnull, "w") as null, warnings.catch_warnings():  # noqa: PTH123
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
            yield


def watch(name: str, make: MakeBench, cases: int, first: int = 0, jobs: int = 1) -> Result:
    """Run the cases first..first+cases-1 of a bench on `jobs` forked processes."""
    gc.collect()
    gc.freeze()  # what is there now is not copied into every worker
    result = Result(name, first)
    start = time.monotonic()
    stop = first + cases
    workers = [Worker(name, make, first + job, stop, jobs) for job in range(min(jobs, cases))]
    try:
        while workers:
            time.sleep(0.02)
            workers = [left for worker in workers if (left := _tend(worker, result))]
    finally:
        for worker in workers:
            worker.kill()
            os.waitpid(worker.pid, 0)
            worker.close()
    gc.unfreeze()
    result.seconds = time.monotonic() - start
    return result


def _tend(worker: Worker, result: Result) -> Worker | None:
    """Collect what a worker found; the worker to go on with, None at its end."""
    result.findings += worker.findings()
    ended, status = os.waitpid(worker.pid, os.WNOHANG)
    what = ""
    if not ended:
        what = worker.too_long()
        if not what:
            return worker
        worker.kill()
        os.waitpid(worker.pid, 0)
    result.findings += worker.findings()
    seed, _, _, done, answers = worker.read_state()
    result.cases, result.answers = result.cases + done, result.answers + answers
    following = None
    if what or status != 0:
        if not what and not os.WIFSIGNALED(status):
            raise RuntimeError(worker.log.read_text(errors="replace"))
        result.findings.append(worker.dead(what or signal.Signals(os.WTERMSIG(status)).name))
        result.cases += 1
        if seed + worker.step < worker.stop:
            following = worker.following(seed + worker.step)
    worker.close()
    return following
