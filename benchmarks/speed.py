"""How fast everything is that a user waits for: figures with the bounds asked of them."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import plain_fastgcn
from benchmarks.network import steps
from benchmarks.pages import Claim, Experiment, claims_table, line_figure, short
from benchmarks.results import CPU_CODE, GPU_CODE, Measurement, Record, Results
from benchmarks.speed_costs import (
    Records,
    measure_first_start,
    measure_inference,
    measure_memory,
    measure_propagation,
    measure_starts,
    show_inference,
    show_memory,
    show_propagation,
    show_startup,
)
from benchmarks.speed_step import measure_step, show_step
from benchmarks.timing import (
    medians,
    on_threads,
    seconds_in_turns,
    wall_clock,
)
from fastgcn.backends.cpu import ready
from fastgcn.config import TrainConfig
from fastgcn.data.generate import GenerateConfig, generate
from fastgcn.data.load import load
from fastgcn.data.store import open_store
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.report.page import Content, Figure, Table
from fastgcn.report.plots import Series
from fastgcn.train.loop import fit
from fastgcn.train.presets import graphsage, paper_preset, paper_reddit

Show = Callable[[Records], tuple[list[Claim], list[Content]]]
STAND_INS = "On small stand-ins (`--quick`): these are no figures of speed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """On what and how thoroughly is measured.

    Attributes:
        large: the data set of Reddit's size.
        rivals: data sets on which steps are compared with GraphSAGE's.
        trainings: data sets that networks are trained on to the end.
        first_starts: data sets that a fresh machine trains on.
        rounds, chunk_seconds: turns that a short time is the median of, and their length.
        long_rounds: the same for what takes seconds.
        batches: batches whose steps are compared with their floor.
        epochs: of whole trainings, at most so many; None: the preset's.
        nodes, degrees, samples: sizes that the time of a step is drawn over.
        processes: fresh processes that a start is the median of.
        stand_ins: whether the data are so small that times mean nothing.
    """

    large: str = "reddit-sim"
    rivals: tuple[str, ...] = ("reddit-sim", "pubmed")
    trainings: tuple[str, ...] = ("cora", "pubmed")
    first_starts: tuple[str, ...] = ("digits", "cora")
    rounds: int = 9
    chunk_seconds: float = 0.3
    long_rounds: int = 3
    batches: int = 256
    epochs: int | None = None
    nodes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    degrees: tuple[int, ...] = (5, 10, 20, 50, 100)
    samples: tuple[int, ...] = (50, 100, 200, 400, 800, 1600, 3200, 6400)
    processes: int = 5
    stand_ins: bool = False


FULL = Effort()  # about half an hour on two cores, and 8 GB of memory
QUICK = Effort(
    large="digits", rivals=("digits",), trainings=("digits",), first_starts=("digits",),
    rounds=2, chunk_seconds=0.002, long_rounds=1, batches=3, epochs=2,
    nodes=(600, 1200), degrees=(4, 8), samples=(50, 100), processes=1, stand_ins=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One result of a figure: a function and the settings that it is called with."""

    name: str
    measure: Callable[..., Record]
    settings: dict[str, Any]
    optional: bool = False  # left out where its data set cannot be downloaded


def figure(
    name: str, title: str, parts: Sequence[Part], show: Show, effort: Effort, *, gpu: bool = False
) -> Experiment:
    """A question about speed: its parts, and how their records are shown."""

    def plan(_: Results) -> Iterator[Measurement]:
        for part in parts:
            key = {"experiment": "speed", "figure": name, "part": part.name, **part.settings}
            how = partial(part.measure, **part.settings)
            code = GPU_CODE if gpu else CPU_CODE
            yield Measurement(f"{title}: {part.name}", key, how, code, optional=part.optional)

    def shown(results: Results) -> list[Content]:
        records = {}
        for part, measurement in zip(parts, plan(results), strict=True):
            if (found := results.get(measurement.key)) is not None:
                records[part.name] = found
            elif not part.optional:
                return []
        claims, content = show(records)
        note = [STAND_INS] if effort.stand_ins else []
        return [*note, claims_table(claims, title), *content]

    return Experiment(name=name, title=title, plan=plan, show=shown)


def experiments(effort: Effort) -> list[Experiment]:
    """All figures of speed on the CPU."""
    large, turns = {"data": effort.large}, _turns(effort)
    long = large | {"rounds": effort.long_rounds}
    # The point that all three curves share.
    base = {"nodes": effort.nodes[1], "degree": effort.degrees[1]}
    base["samples"] = min(400, max(effort.samples))
    curves = dict(zip(LABELS, (effort.nodes, effort.degrees, effort.samples), strict=True))
    trained = {"rounds": effort.long_rounds, "epochs": effort.epochs}
    processes = {"processes": effort.processes}
    starts = [
        Part(d, measure_first_start, {"data": d, **processes}, optional=d != "digits")
        for d in effort.first_starts
    ]
    step = Part(effort.large, measure_step, large | {"batches": effort.batches, **turns})
    parts: dict[str, tuple[str, list[Part], Show]] = {
        "step": ("A training step against its floor", [step], show_step),
        "graphsage": (
            "A step against GraphSAGE",
            [Part(d, measure_rivals, {"data": d, **turns}) for d in effort.rivals],
            show_rivals,
        ),
        "trainings": (
            "Whole trainings",
            [Part(d, measure_training, {"data": d, **trained}) for d in effort.trainings],
            show_trainings,
        ),
        "scaling": (
            "Cost against nodes, degree and t",
            [
                Part(c, measure_curve, {"curve": c, "values": list(v), **base, **turns})
                for c, v in curves.items()
            ],
            show_scaling,
        ),
        "propagation": ("ÂX", [Part(effort.large, measure_propagation, long)], show_propagation),
        "inference": (
            "Full inference", [Part(effort.large, measure_inference, long)], show_inference
        ),
        "memory": ("Peak memory", [Part(effort.large, measure_memory, large)], show_memory),
        "startup": ("Starting", [Part("starts", measure_starts, processes), *starts], show_startup),
    }  # fmt: skip
    return [figure(name, *each, effort) for name, each in parts.items()]


def _turns(effort: Effort) -> dict[str, Any]:
    return {"rounds": effort.rounds, "chunk_seconds": effort.chunk_seconds}


# A step of FastGCN against one of GraphSAGE-GCN with S = 25, 10 at equal sizes.

ASKED = {"reddit-sim": 100.0, "pubmed": 20.0}
OURS, THEIRS = "FastGCN", "GraphSAGE-GCN"


def measure_rivals(*, data: str, rounds: int, chunk_seconds: float) -> Record:
    """Seconds a step of both, with the batch and hidden size of the paper's preset.

    Both are timed in turns, so that noise meets both, and each by itself: in turns a side begins
    with what the other left in the caches.
    """
    config = paper_preset(data)
    configs = {OURS: config, THEIRS: graphsage("gcn", config).replace(hidden=config.hidden)}
    graph = load(data)
    with thread_count(0):
        sides = {name: steps(ready(graph, each)) for name, each in configs.items()}
        timed = partial(seconds_in_turns, rounds=rounds, chunk_seconds=chunk_seconds)
        together = timed(sides, what=f"Steps in turns, {data}")
        alone = {
            name: timed({name: side}, what=f"{name} alone, {data}")[name]
            for name, side in sides.items()
        }
    return {"in_turns": medians(together), "alone": medians(alone), "turns": together}


def show_rivals(records: Records) -> tuple[list[Claim], list[Content]]:
    claims, rows = [], []
    for data, found in records.items():
        for how, words in (("alone", "each by itself"), ("in_turns", "in turns")):
            ours, theirs = found[how][OURS], found[how][THEIRS]
            what = f"{data}: {THEIRS} / {OURS}, {words}"
            claims.append(Claim(what=what, value=theirs / ours, at_least=ASKED.get(data)))
            rows.append(
                (f"{data}, {words}", short(1e3 * ours), short(1e3 * theirs), short(theirs / ours))
            )
    head = ("", f"{OURS}, ms a step", f"{THEIRS}, ms a step", "times")
    return claims, [Table(head, rows, "Steps at equal batch and hidden size")]


# Whole trainings against a plain scipy and PyTorch program of the same algorithm.

_TRIAL = 2  # epochs that compile kernels, and that show on how many threads the plain one is fast


def measure_training(*, data: str, rounds: int, epochs: int | None) -> Record:
    """Seconds from a loaded graph to the test scores, ours and the plain program's, in turns.

    Ours is what `fastgcn train` does with the paper's preset: ÂX, all epochs with their
    evaluation, the run's folder, the test. The plain program trains for as many epochs as
    ours took, with the same sizes and rate, and an evaluation after each; on one thread or on
    all, whichever is faster.
    """
    graph, config = load(data), paper_preset(data)
    if epochs is not None:
        config = config.replace(epochs=epochs)
    found: Records = {}

    def ours(_: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found["ours"] = fit(graph, config, run_dir=Path(folder) / "run").metrics

    def plain(_: int, *, epochs: int | None = None) -> None:
        count = epochs or found["ours"]["epochs"]
        found["plain"] = plain_fastgcn.train(graph, config, epochs=count)

    trial = partial(plain, epochs=_TRIAL)
    trials = {threads: wall_clock(on_threads(threads, trial), 1) for threads in (1, 0)}
    threads = min(trials, key=lambda each: trials[each])
    sides = {"ours": ours, "plain": on_threads(threads, plain)}
    seconds = seconds_in_turns(sides, rounds=rounds, chunk_seconds=0, what=f"Training, {data}")
    return {"plain_threads": threads} | {
        name: {"epochs": found[name]["epochs"], "test_micro_f1": found[name]["test_micro_f1"],
               "seconds": median, "runs": seconds[name]}
        for name, median in medians(seconds).items()
    }  # fmt: skip


def show_trainings(records: Records) -> tuple[list[Claim], list[Content]]:
    claims, rows = [], []
    for data, found in records.items():
        ours, plain = found["ours"], found["plain"]
        value = ours["seconds"] / plain["seconds"]
        claims.append(Claim(what=f"{data}: ours / plain", value=value, at_most=0.1))
        threads = "one thread" if found["plain_threads"] == 1 else "all threads"
        rows += [
            (f"{data}: {name}", str(run["epochs"]), short(run["seconds"]),
             f"{1000 * run['seconds'] / run['epochs']:,.1f}", f"{run['test_micro_f1']:.3f}")
            for name, run in (("fastgcn", ours), (f"plain, {threads}", plain))
        ]  # fmt: skip
    head = ("", "epochs", "s in all", "ms an epoch", "test micro-F1")
    return claims, [Table(head, rows, "Trainings to the end, evaluation included")]


# The time of a step against the number of nodes, the mean degree, and the sample size t.

LABELS = {"nodes": "nodes n", "degree": "mean degree", "samples": "vertices drawn t"}
_TOP_DEGREE = 1_000  # for every n: the shape of the graph must not change with its size
_VARIANTS = {"ÂX precomputed": True, "both layers sampled": False}
_GROWTH = {"nodes": ("10 times more nodes", 1.2), "samples": ("twice the t", 2.0)}


def measure_curve(
    *,
    curve: str,
    values: Sequence[int],
    nodes: int,
    degree: int,
    samples: int,
    rounds: int,
    chunk_seconds: float,
) -> Record:
    """Seconds a step on generated graphs while one of `nodes`, `degree`, `samples` varies.

    The graphs have 32 features, 10 classes, degrees up to 1,000 by a power law, and train with all
    nodes; batch 256 and hidden 128 are the paper's for Reddit. With ÂX precomputed one layer
    is sampled, without it two. All values of the curve take turns.
    """
    points = [{"nodes": nodes, "degree": degree, "samples": samples, curve: v} for v in values]
    found = {}
    with tempfile.TemporaryDirectory() as folder, thread_count(0):
        # One variant after the other, for both at once would need the memory of both.
        for name, precompute in _VARIANTS.items():
            sides = {}
            for point in points:
                # Not inductive: all nodes train, and nothing needs to be cut out.
                config: TrainConfig = paper_reddit().replace(
                    samples=point["samples"], precompute=precompute, inductive=False
                )
                graph = _graph(Path(folder), point["nodes"], point["degree"])
                sides[str(point[curve])] = steps(ready(graph, config))
            found[name] = medians(
                seconds_in_turns(
                    sides,
                    rounds=rounds,
                    chunk_seconds=chunk_seconds,
                    what=f"Steps over {LABELS[curve]}, {name}",
                )
            )
    return found


def _graph(folder: Path, n: int, degree: int) -> Graph:
    store = folder / f"{n}-{degree}"
    if not store.exists():
        config = GenerateConfig(
            nodes=n, edges=n * degree // 2, features=32, classes=10, train=n, val=0, test=0,
            max_degree=min(_TOP_DEGREE, n // 10),
        )  # fmt: skip
        generate(config, store)
    return open_store(store)


def growth(seconds: Mapping[str, float]) -> float:
    """The largest ratio of the times at two values that follow each other.

    >>> growth({"10": 1.0, "100": 1.5, "1000": 1.2})
    1.5
    """
    return max(later / earlier for earlier, later in pairwise(seconds.values()))


def show_scaling(records: Records) -> tuple[list[Claim], list[Content]]:
    claims: list[Claim] = []
    tables: list[Content] = []
    pictures: list[Content] = []
    for curve, found in records.items():
        if curve in _GROWTH:
            words, bound = _GROWTH[curve]
            claims += [
                Claim(what=f"{words}, largest growth, {name}", value=growth(times), at_most=bound)
                for name, times in found.items()
            ]
        values = next(iter(found.values()))
        rows = [(f"{int(v):,}", *(short(1e3 * s[v]) for s in found.values())) for v in values]
        tables.append(Table((LABELS[curve], *found), rows, f"ms a step over {LABELS[curve]}"))
        pictures.append(_picture(curve, found))
    return claims, tables + pictures


def _picture(curve: str, found: Record) -> Figure:
    title = f"Time of a step over {LABELS[curve]}"
    series = [
        Series(name, [int(value) for value in seconds], [1000 * s for s in seconds.values()])
        for name, seconds in found.items()
    ]
    words = [
        f"{name}: {short(1e3 * min(s.values()))} to {short(1e3 * max(s.values()))} ms"
        for name, s in found.items()
    ]
    return line_figure(series, title, "; ".join(words), LABELS[curve], "ms a step")
