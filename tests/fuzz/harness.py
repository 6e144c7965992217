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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import NoReturn

import fastgcn
from fastgcn.errors import FastGCNError
from tests.fuzz.case import Changes, Placed, mutate_tree
from tests.fuzz.corpus import Corpus, corpus
from tests.fuzz.targets import TARGETS, Action, prepare

# Seconds of CPU time, and of waiting, that a case may take.
CPU_SECONDS = 5.0
WALL_SECONDS = 10.0

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


class Bench:
    """The valid inputs of a target on disk, and a place to write: where a process runs cases."""

    def __init__(self, target: str, folder: Path, inputs: Corpus | None = None) -> None:
        self.name, self.target = target, TARGETS[target]
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        self.inputs = [
            Placed.at(folder / name, tree)
            for name, tree in (corpus(target) if inputs is None else inputs).items()
        ]

    def case(self, seed: int) -> tuple[Placed, Changes, Action, Random]:
        rng = Random(f"{self.name} {seed}")
        placed = rng.choice(self.inputs)
        actions = self.target.actions
        (action,) = rng.choices(list(actions), list(actions.values()))
        return placed, mutate_tree(placed.tree, rng, self.target.repair), action, rng

    def run(self, seed: int) -> bool:
        """Run a case; True if it was answered, False if it was refused. Raises what is neither."""
        placed, changes, action, rng = self.case(seed)
        return self.run_changed(placed, changes, action, rng)

    def run_changed(self, placed: Placed, changes: Changes, action: Action, rng: Random) -> bool:
        placed.apply(changes)
        refused = False
        try:
            action(placed.folder, rng, self.out)
        except FastGCNError as error:
            refused = True
            assert str(error).strip(), "an error without a message"
        finally:
            left = os.listdir(self.out)  # noqa: PTH208
            for name in left:
                shutil.rmtree(self.out / name, ignore_errors=True)
            if self.target.writes:
                placed.restore_all()
            else:
                placed.restore(changes)
        unfinished = [name for name in left if refused and ".partial" in name]
        assert not unfinished, f"left behind: {', '.join(unfinished)}"
        return not refused

    def warm_up(self) -> None:
        """Do everything once with valid inputs, which loads libraries and compiled code."""
        for placed in self.inputs:
            for action in self.target.actions:
                with contextlib.suppress(FastGCNError):
                    self.run_changed(placed, {}, action, Random(0))


def place_of(error: BaseException) -> str:
    """The last place in our code that an error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)] or frames[-1:]
    last = ours[-1]
    return f"{last.filename.removeprefix(_OURS)}:{last.lineno} {last.name}"


# The number of the case, its CPU and wall time at the start, cases done and answered.
_STATE = struct.Struct("qddqq")


class Worker:
    """A forked process that runs every `step`-th case from `seed` on."""

    def __init__(self, target: str, inputs: Corpus, seed: int, stop: int, step: int) -> None:
        self.target, self.stop, self.step = target, stop, step
        self.state = mmap.mmap(-1, _STATE.size)
        self.state[:] = _STATE.pack(seed, 0.0, time.monotonic(), 0, 0)
        self.folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{target}-"))
        self.log = self.folder / "log"
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            self._work(inputs, seed, writing)
        os.close(writing)
        self.pipe = os.fdopen(reading, "rb")

    def _work(self, inputs: Corpus, seed: int, writing: int) -> NoReturn:
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
                self._loop(inputs, seed, writing)
                status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _loop(self, inputs: Corpus, seed: int, writing: int) -> None:
        warnings.simplefilter("ignore")
        bench = Bench(self.target, self.folder / "bench", inputs)
        answers = 0
        null = open(os.devnull, "w")  # noqa: SIM115, PTH123
        for done, number in enumerate(range(seed, self.stop, self.step)):
            self.state[:] = _STATE.pack(number, time.process_time(), time.monotonic(), done, answers)
            try:
                with contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
                    answers += bench.run(number)
            except (Exception, SystemExit) as error:
                found = finding(bench, number, error)
                os.write(writing, json.dumps(asdict(found)).encode() + b"\n")
                del error
            if done % 1000 == 999:
                gc.collect()
        total = len(range(seed, self.stop, self.step))
        self.state[:] = _STATE.pack(self.stop, 0.0, time.monotonic(), total, answers)

    def read_state(self) -> tuple[int, float, float, int, int]:
        return _STATE.unpack(self.state[:])  # type: ignore[return-value]

    def findings(self) -> Iterator[Finding]:
        while select.select([self.pipe], [], [], 0)[0]:
            line = self.pipe.readline()
            if not line:
                return
            yield Finding(**json.loads(line))

    def too_long(self) -> str:
        """What the current case has used up; empty if nothing."""
        _, cpu, wall, _, _ = self.read_state()
        if time.monotonic() - wall < CPU_SECONDS:
            return ""
        if _cpu_seconds(self.pid) - cpu > CPU_SECONDS:
            return f"more than {CPU_SECONDS:g} s"
        return "waits for ever" if time.monotonic() - wall > WALL_SECONDS else ""

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
        return Finding(self.target, seed, "", what, frame, lines[-1][:200] if lines else "")

    def close(self) -> None:
        self.pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def finding(bench: Bench, seed: int, error: BaseException) -> Finding:
    action = bench.case(seed)[2].__name__
    message = " ".join(str(error).split())[:200]
    return Finding(bench.name, seed, action, type(error).__name__, place_of(error), message)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fuzz(target: str, cases: int, first: int = 0, jobs: int = 1) -> Result:
    """Run the cases first..first+cases-1 of a target on several processes."""
    prepare()
    inputs = corpus(target)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        null = open(os.devnull, "w")  # noqa: SIM115, PTH123
        with contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
            Bench(target, Path(folder) / "bench", inputs).warm_up()
    gc.collect()
    gc.freeze()  # what is there now is not copied into every worker
    result = Result(target, first)
    start = time.monotonic()
    stop = first + cases
    workers = [Worker(target, inputs, first + job, stop, jobs) for job in range(min(jobs, cases))]
    try:
        while workers:
            time.sleep(0.02)
            workers = [left for worker in workers if (left := _tend(worker, inputs, result))]
    finally:
        for worker in workers:
            worker.kill()
            os.waitpid(worker.pid, 0)
            worker.close()
    result.seconds = time.monotonic() - start
    return result


def _tend(worker: Worker, inputs: Corpus, result: Result) -> Worker | None:
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
        signalled = os.WIFSIGNALED(status)
        what = what or (signal.Signals(os.WTERMSIG(status)).name if signalled else "the worker failed")
        result.findings.append(worker.dead(what))
        result.cases += 1
        if what == "the worker failed":
            raise RuntimeError(worker.log.read_text(errors="replace"))
        if seed + worker.step < worker.stop:
            following = Worker(worker.target, inputs, seed + worker.step, worker.stop, worker.step)
    worker.close()
    return following
