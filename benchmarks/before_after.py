"""Two source trees of this project, measured in turns: what got slower or larger.

A turn runs one piece of work in a fresh process of each tree (before, after, after, before, ...),
so that noise meets both. A training is warmed up by one epoch that does not count. A turn gives a
ratio after/before; the table has their median, their spread (the median distance from that
median) and the ratio of the least values. Marked is a median more than 5 % above 1 and by more
than its spread; the program then ends with status 1. Where the machine has other work, trust
`cpu`, seconds of processor time, more than `wall`. The table goes to stderr, a JSON line a figure
to stdout.

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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

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

Figures = dict[str, Any]


def timed(work: Callable[[], Any]) -> tuple[Any, Figures]:
    """What some work returns, and what it takes; of processes it starts and ends, too."""
    start, used = time.perf_counter(), cpu_seconds()
    result = work()
    return result, {"wall": time.perf_counter() - start, "cpu": cpu_seconds() - used}


def cpu_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


# In the process of a tree.


def settings_of(data: str, preset: str) -> Figures:
    """Every field of a preset's settings; asked of the tree before."""
    import fastgcn

    if preset == "default":
        return dict(fastgcn.best_preset(fastgcn.load(data)).to_dict())
    paper = fastgcn.paper_pubmed if data == "pubmed" else fastgcn.paper_reddit
    return dict(paper().to_dict())


def train_and_predict(data: str, settings: dict[str, Any]) -> Figures:
    """Seconds of training and of predictions, and the peaks of memory of this process."""
    import fastgcn

    graph, config = fastgcn.load(data), fastgcn.TrainConfig(**settings)
    fastgcn.fit(graph, config.replace(epochs=1))
    run, spent = timed(lambda: fastgcn.fit(graph, config))
    fastgcn.predict(run, graph)
    times = 5 if data == "pubmed" else 1
    _, predicting = timed(lambda: [fastgcn.predict(run, graph) for _ in range(times)])
    found = {f"train {name}": value for name, value in spent.items()}
    found |= {f"predict {name}": value for name, value in predicting.items()}
    found |= {"batch": run.metrics["seconds_per_batch"], "val_loss": run.metrics["val_loss"]}
    if data != "pubmed":  # where these are too little to compare
        found["ÂX"] = run.metrics["precompute_seconds"]
        found["resident"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if config.device == "cuda":
        import torch

        found["gpu"] = torch.cuda.max_memory_allocated()
    return found


def answer(source: str, request: str) -> None:
    """Do one piece of work with the package from folder `source`, and print what it found."""
    import fastgcn

    assert Path(fastgcn.__file__).is_relative_to(source), fastgcn.__file__
    do, given = json.loads(request)
    print(json.dumps(globals()[do](**given)))


# In the process that compares them.


class Tree:
    """A source tree and its caches."""

    def __init__(self, root: Path, caches: Path) -> None:
        self.source, self.caches = root.resolve() / "src", caches

    def run(self, *arguments: str, kernels: Path | None = None) -> str:
        """What a fresh Python prints; kernels are kept in a folder of the tree's, or in this."""
        kernels = kernels or self.caches / "kernels"
        env = os.environ | {
            "PYTHONPATH": str(self.source),
            "PYTHONPYCACHEPREFIX": str(self.caches / "bytecode"),
            "NUMBA_CACHE_DIR": str(kernels / "numba"),
            "TRITON_CACHE_DIR": str(kernels / "triton"),
        }
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr.strip().splitlines()[-1])
        return done.stdout

    def ask(self, do: str, **given: Any) -> Figures:
        """What a function of this module returns in a process of the tree."""
        request = json.dumps([do, given])
        printed = self.run(str(Path(__file__).resolve()), "--worker", str(self.source), request)
        return dict(json.loads(printed.splitlines()[-1]))


Work = Callable[[Tree], Figures]


def measures(before: Tree, device: str, scratch: Path) -> Iterator[tuple[str, Work, int]]:
    """Names, what is done in a tree, and the most turns; fewer of what takes long."""

    def started(*arguments: str) -> Work:
        return lambda tree: timed(lambda: tree.run(*arguments))[1]

    def first_training(tree: Tree, *, cold: bool) -> Figures:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            command = ["-m", "fastgcn", "train", "digits", "--preset", "best", "--epochs", "3"]
            command += ["--device", device, "--run-dir", f"{folder}/run"]
            kernels = Path(folder) if cold else None
            return timed(lambda: tree.run(*command, kernels=kernels))[1]

    def trained(tree: Tree, *, data: str, preset: str) -> Figures:
        settings = before.ask("settings_of", data=data, preset=preset)
        epochs = EPOCHS[data, preset][device == "cuda"]
        settings |= {"device": device, "early_stopping": "none"}
        settings |= {"epochs": epochs, "validate_every": epochs}
        return tree.ask("train_and_predict", data=data, settings=settings)

    yield "start import", started("-c", "import fastgcn"), 99
    yield "start help", started("-m", "fastgcn", "--help"), 99
    yield "start train", partial(first_training, cold=False), 3
    yield "start train cold", partial(first_training, cold=True), 2
    for data, preset in EPOCHS:
        most = 2 if (data, preset) == ("reddit-sim", "default") else 99
        work = partial(trained, data=data, preset=preset)
        yield f"train predict memory {data} {preset}", work, most


def in_turns(work: Work, trees: dict[str, Tree], turns: int) -> dict[str, list[Figures]]:
    for tree in trees.values():
        work(tree)  # compiles
    found: dict[str, list[Figures]] = {side: [] for side in SIDES}
    for turn in range(turns):
        for side in SIDES[:: -1 if turn % 2 else 1]:
            time.sleep(PAUSE)
            found[side].append(work(trees[side]))
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
        for measure, work, most in measures(trees["before"], options.device, scratch):
            if options.only and not any(part in measure for part in options.only):
                continue
            try:
                turns = in_turns(work, trees, min(most, options.turns))
                found = list(compared(measure, turns))
            except OSError as error:
                found = [{"measure": measure, "error": str(error), "marked": True}]
            for record in found:
                print(json.dumps({"device": options.device, **record}), flush=True)
            records += found
    print(f"{'':44}{'before':>11}{'after':>11}      after/before   of least", file=sys.stderr)
    for record in records:
        print(row(record), file=sys.stderr)
    raise SystemExit(any(record["marked"] for record in records))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        answer(*sys.argv[2:])
    else:
        main()
