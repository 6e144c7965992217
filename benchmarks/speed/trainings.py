"""Whole trainings against a plain scipy and PyTorch program of the same algorithm."""

import importlib.util
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

import fastgcn
from benchmarks.results import Record
from benchmarks.speed.shown import Claim, Shown, short
from fastgcn.config import TrainConfig
from fastgcn.data.load import load
from fastgcn.errors import MissingFileError
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.progress import progress
from fastgcn.report.page import Table
from fastgcn.train.loop import fit
from fastgcn.train.presets import paper_preset

_TRIAL = 2  # epochs that compile kernels, and that tell on how many threads the plain one is fast


class PlainTraining(Protocol):
    """`train` of benchmarks/plain_fastgcn.py."""

    def __call__(
        self, graph: Graph, config: TrainConfig, *, epochs: int, stop_early: bool
    ) -> Record: ...


def plain_training() -> PlainTraining:
    """The plain program's training, which lies beside the package in the repository."""
    path = Path(fastgcn.__file__).parents[2] / "benchmarks" / "plain_fastgcn.py"
    if not path.exists():
        raise MissingFileError(
            f"whole trainings are compared with the program {path}, which is not there; run "
            "`fastgcn bench speed` from a clone of the repository installed with `pip install -e`, "
            "or leave this figure out with --only"
        )
    spec = importlib.util.spec_from_file_location("plain_fastgcn", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(PlainTraining, module.train)


def measure_training(*, data: str, rounds: int, epochs: int | None) -> Record:
    """Seconds from a loaded graph to the test scores, ours and the plain program's, in turns.

    Ours is what `fastgcn train` does with the paper's preset: ÂX, all epochs with their
    evaluation, the run's folder, the test. The plain program then trains for as many epochs as
    ours took, with the same sizes and rate, and an evaluation after each; on one thread or on
    all, whichever is faster.
    """
    graph, config, plain = load(data), paper_preset(data), plain_training()
    if epochs is not None:
        config = config.replace(epochs=epochs)
    _ours(graph, config.replace(epochs=_TRIAL))
    trials = {
        threads: _plain(plain, graph, config, _TRIAL, threads)["seconds"] for threads in (1, 0)
    }
    threads = min(trials, key=lambda each: trials[each])
    found: dict[str, list[Record]] = {"ours": [], "plain": []}
    with progress(f"Training, {data}", 2 * rounds, "trainings") as advance:
        for _ in range(rounds):
            found["ours"].append(_ours(graph, config))
            advance(1)
            count = found["ours"][-1]["epochs"]
            found["plain"].append(_plain(plain, graph, config, count, threads))
            advance(1)
    return {"plain_threads": threads} | {name: _summary(runs) for name, runs in found.items()}


def _ours(graph: Graph, config: TrainConfig) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        return _timed(lambda: fit(graph, config, run_dir=Path(folder) / "run").metrics)


def _plain(
    plain: PlainTraining, graph: Graph, config: TrainConfig, epochs: int, threads: int
) -> Record:
    with thread_count(threads):
        return _timed(partial(plain, graph, config, epochs=epochs, stop_early=False))


def _timed(training: Any) -> Record:
    start = time.perf_counter()
    metrics = training()
    seconds = time.perf_counter() - start
    return {name: metrics[name] for name in ("epochs", "test_micro_f1")} | {"seconds": seconds}


def _summary(runs: list[Record]) -> Record:
    seconds = [run["seconds"] for run in runs]
    return runs[-1] | {"seconds": float(np.median(seconds)), "runs": seconds}


def show_trainings(records: dict[str, Record]) -> Shown:
    claims, rows = [], []
    for data, found in records.items():
        ours, plain = found["ours"], found["plain"]
        ratio = ours["seconds"] / plain["seconds"]
        claims.append(Claim(what=f"{data}: ours / plain", value=ratio, at_most=0.1))
        threads = "one thread" if found["plain_threads"] == 1 else "all threads"
        rows += [
            (f"{data}: {name}", str(run["epochs"]), short(run["seconds"]),
             f"{1000 * run['seconds'] / run['epochs']:,.1f}", f"{run['test_micro_f1']:.3f}")
            for name, run in (("fastgcn", ours), (f"plain, {threads}", plain))
        ]  # fmt: skip
    head = ("", "epochs", "s in all", "ms an epoch", "test micro-F1")
    return Shown(claims, [Table(head, rows, "Trainings to the end, evaluation included")])
