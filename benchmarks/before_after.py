"""Two source trees of this project, measured in turns: what got slower or larger.

Each tree has a worker process, which stays alive; the two get the same work by turns (before,
after, after, before, ...), so that noise meets both. Fresh processes (starts, peak memory) go by
turns as well. A turn gives a ratio after/before; the table has their median, their spread (the
median distance from that median) and the ratio of the least values. Marked is a median more
than 5 % above 1 and by more than its spread; the program then ends with status 1. Where the
machine has other work, trust `cpu`, seconds of processor time, more than `wall`. The table goes
to stderr, a JSON line a figure to stdout.

The work uses only what both trees have: the public names of `fastgcn` and its command. Settings
are those of the tree before, every field, given to both. Compiled code and bytecode are kept in
a temporary folder, so that neither tree is written to. Data sets are found as always; reddit-sim
is generated in the cache where it is nowhere yet.

    python benchmarks/before_after.py BEFORE AFTER --only predict --only start --turns 9
    python benchmarks/before_after.py BEFORE AFTER --device cuda
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

BOUND = 1.05  # a ratio above this is marked
PAUSE = 0.3  # seconds before each piece of work: threads of the one before go to sleep
SIDES = ("before", "after")

# Epochs of a training on the CPU and on a GPU: as many as take seconds.
EPOCHS = {
    ("pubmed", "paper"): (200, 400),
    ("pubmed", "default"): (1, 20),
    ("reddit-sim", "paper"): (5, 20),
    ("reddit-sim", "default"): (1, 10),
}

Figures = dict[str, float]


class Measure(NamedTuple):
    name: str
    work: Callable[[str], Figures]  # for the tree before or after
    warms: str  # done once without counting, unless a measure before has warmed the same
    turns: int = 99  # at most; fewer of what takes long


def timed(work: Callable[[], Any]) -> tuple[Any, Figures]:
    """What some work returns, and what it takes; of processes it starts and ends, too."""
    start, used = time.perf_counter(), cpu_seconds()
    result = work()
    return result, {"wall": time.perf_counter() - start, "cpu": cpu_seconds() - used}


def cpu_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


class Workload:
    """What the worker in a tree can do; it keeps graphs and trained networks."""

    def __init__(self) -> None:
        self.graphs: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}

    def graph(self, data: str) -> Any:
        import fastgcn

        if data not in self.graphs:
            self.graphs[data] = fastgcn.load(data)
        return self.graphs[data]

    def settings(self, data: str, preset: str) -> dict[str, Any]:
        """Every field of a preset's settings; asked of the tree before."""
        import fastgcn

        if preset == "default":
            return fastgcn.best_preset(self.graph(data)).to_dict()
        paper = fastgcn.paper_pubmed if data == "pubmed" else fastgcn.paper_reddit
        return paper().to_dict()

    def train(self, data: str, settings: dict[str, Any]) -> Figures:
        import fastgcn

        graph, config = self.graph(data), fastgcn.TrainConfig(**settings)
        run, spent = timed(lambda: fastgcn.fit(graph, config))
        self.runs[json.dumps([data, settings])] = run
        own = {"batch": "seconds_per_batch", "val_loss": "val_loss"}
        if data != "pubmed":  # where it takes too little time to compare
            own["ÂX"] = "precompute_seconds"
        return spent | {figure: run.metrics[name] for figure, name in own.items()}

    def predict(self, data: str, settings: dict[str, Any]) -> Figures:
        import fastgcn

        if (key := json.dumps([data, settings])) not in self.runs:
            self.train(data, settings)
        run, graph, times = self.runs[key], self.graph(data), 5 if data == "pubmed" else 1
        return timed(lambda: [fastgcn.predict(run, graph) for _ in range(times)])[1]

    def memory(self, data: str, settings: dict[str, Any]) -> Figures:
        """Peak resident bytes, and those allocated on a GPU, of this process after a training."""
        found = {"val_loss": self.train(data, settings)["val_loss"]}
        found["resident"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if settings["device"] == "cuda":
            import torch

            found["gpu"] = torch.cuda.max_memory_allocated()
        return found


def serve(source: str) -> None:
    """Answer requests until there are no more; the package must come from folder `source`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not meet the answers
    import fastgcn

    assert Path(fastgcn.__file__).is_relative_to(source), fastgcn.__file__
    workload = Workload()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"found": getattr(workload, request["do"])(**request["given"])}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


class WorkError(Exception):
    """A tree could not do a piece of work."""


class Tree:
    """A source tree, its caches and its worker."""

    def __init__(self, root: Path, caches: Path) -> None:
        self.source, self.caches = root.resolve() / "src", caches
        self.worker = self.start_worker()

    def environment(self, kernels: Path | None = None) -> dict[str, str]:
        """Compiled kernels are kept in `kernels`, or else in a folder of the tree's own."""
        kernels = kernels or self.caches / "kernels"
        return os.environ | {
            "PYTHONPATH": str(self.source),
            "PYTHONPYCACHEPREFIX": str(self.caches / "bytecode"),
            "NUMBA_CACHE_DIR": str(kernels / "numba"),
            "TRITON_CACHE_DIR": str(kernels / "triton"),
        }

    def start_worker(self) -> "subprocess.Popen[str]":
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(self.source)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, text=True, env=self.environment(), **pipes)

    def ask(self, do: str, *, fresh: bool = False, **given: Any) -> dict[str, Any]:
        """What the worker finds; with `fresh`, one that is started for this alone."""
        worker = self.start_worker() if fresh else self.worker
        assert worker.stdin is not None
        assert worker.stdout is not None
        print(json.dumps({"do": do, "given": given}), file=worker.stdin, flush=True)
        answer = json.loads(worker.stdout.readline() or '{"error": "the worker died"}')
        if fresh:
            worker.communicate()
        if "error" in answer:
            raise WorkError(answer["error"])
        return dict(answer["found"])

    def start(self, arguments: list[str], kernels: Path | None = None) -> Figures:
        """What a fresh Python process takes."""
        command, env = [sys.executable, *arguments], self.environment(kernels)
        options: dict[str, Any] = {"env": env, "capture_output": True, "text": True}
        done, spent = timed(lambda: subprocess.run(command, **options))
        if done.returncode:
            raise WorkError(done.stderr.strip().splitlines()[-1])
        return spent


def measures(trees: dict[str, Tree], device: str, scratch: Path) -> Iterator[Measure]:
    def asked(do: str, case: tuple[str, str], *, fresh: bool = False) -> Callable[[str], Figures]:
        def work(side: str) -> Figures:
            settings = trees["before"].ask("settings", data=case[0], preset=case[1])
            settings |= {"device": device, "early_stopping": "none"}
            settings |= dict.fromkeys(("epochs", "validate_every"), EPOCHS[case][device == "cuda"])
            return trees[side].ask(do, fresh=fresh, data=case[0], settings=settings)

        return work

    def trained(side: str, *, cold: bool = False) -> Figures:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            command = ["-m", "fastgcn", "train", "digits", "--preset", "best", "--epochs", "3"]
            command += ["--device", device, "--run-dir", f"{folder}/run"]
            return trees[side].start(command, Path(folder) if cold else None)

    def started(*arguments: str) -> Callable[[str], Figures]:
        return lambda side: trees[side].start([*arguments])

    yield Measure("start import", started("-c", "import fastgcn"), "import")
    yield Measure("start help", started("-m", "fastgcn", "--help"), "help")
    yield Measure("start train", trained, "start train", turns=3)
    yield Measure("start train cold", partial(trained, cold=True), "start train", turns=2)
    for case in EPOCHS:
        name = " ".join(case)
        yield Measure(f"train {name}", asked("train", case), name, 2 if "sim def" in name else 99)
        yield Measure(f"predict {name}", asked("predict", case), f"predict {name}")
        if case[0] != "pubmed":
            yield Measure(f"memory {name}", asked("memory", case, fresh=True), name, turns=2)


def in_turns(measure: Measure, turns: int, warm: set[str]) -> dict[str, list[Figures]]:
    if measure.warms not in warm:
        for side in SIDES:
            measure.work(side)
        warm.add(measure.warms)
    found: dict[str, list[Figures]] = {side: [] for side in SIDES}
    for turn in range(min(turns, measure.turns)):
        for side in SIDES[:: -1 if turn % 2 else 1]:
            time.sleep(PAUSE)
            found[side].append(measure.work(side))
    return found


def compared(name: str, found: dict[str, list[Figures]]) -> Iterator[dict[str, Any]]:
    """A record for each figure of a measure."""
    for figure in found["before"][0]:
        before, after = ([figures[figure] for figures in found[side]] for side in SIDES)
        record: dict[str, Any] = {"measure": name, "figure": figure}
        record |= {"before": statistics.median(before), "after": statistics.median(after)}
        if figure == "val_loss":  # no cost, but a sign of whether the work is the same
            yield record | {"marked": False}
            continue
        ratios = [b / a if a else 1.0 for a, b in zip(before, after, strict=True)]
        record |= {"ratios": ratios, "least": min(after) / (min(before) or 1)}
        ratio = statistics.median(ratios)
        spread = statistics.median(abs(one - ratio) for one in ratios)
        yield record | {"ratio": ratio, "spread": spread, "marked": ratio > max(BOUND, 1 + spread)}


def row(record: dict[str, Any]) -> str:
    what = f"{record['measure']}: {record.get('figure', '')}"
    if "error" in record:
        return f"{what:44}  FAILED  {record['error']}"
    scale, unit = (1e6, "MB") if record["before"] > 1e6 else (1.0, "s ")
    values = "".join(f"{record[side] / scale:11.4g}" for side in SIDES)
    if "ratio" not in record:
        same = "same" if record["before"] == record["after"] else "not the same"
        return f"{what:44}{values}     {same}"
    ratios = f"{record['ratio']:6.3f} ± {record['spread']:.3f}  {record['least']:6.3f}"
    return f"{what:44}{values} {unit}  {ratios}{'  <-- MORE' * record['marked']}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure two source trees in turns.")
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a folder that has src/fastgcn")
    parser.add_argument("after", type=Path, metavar="AFTER")
    parser.add_argument("--only", action="append", help="measures with this in their name")
    parser.add_argument("--turns", type=int, default=5, help="at most, a measure")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        trees = {side: Tree(getattr(options, side), scratch / side) for side in SIDES}
        warm: set[str] = set()
        for measure in measures(trees, options.device, scratch):
            if options.only and not any(part in measure.name for part in options.only):
                continue
            try:
                found = list(compared(measure.name, in_turns(measure, options.turns, warm)))
            except (WorkError, OSError) as error:
                found = [{"measure": measure.name, "error": str(error), "marked": True}]
            for record in found:
                print(json.dumps({"device": options.device, **record}), flush=True)
            records += found
        for tree in trees.values():
            tree.worker.communicate()
    print(f"{'':44}{'before':>11}{'after':>11}      after/before   of least", file=sys.stderr)
    for record in records:
        print(row(record), file=sys.stderr)
    raise SystemExit(any(record["marked"] for record in records))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        serve(sys.argv[2])
    else:
        main()
