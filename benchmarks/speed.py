"""What a user waits for, on the CPU and on a GPU: figures with the bounds asked of them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import full_batch, plain_authors
from benchmarks.cases import train
from benchmarks.floors import floor_seconds, rates, work
from benchmarks.pages import (
    Claim,
    Experiment,
    claims_table,
    from_records,
    mean_sd,
    short,
    standard_error,
)
from benchmarks.processes import fresh
from benchmarks.results import CPU_CODE, GPU_CODE, NO_RACE, ON_CPU, Measurement, Record
from benchmarks.settings import paper_settings
from benchmarks.timing import medians, on_threads, repeated, seconds_in_turns, wall_clock
from fastgcn.backends.data import training_graph
from fastgcn.config import TrainConfig
from fastgcn.data.load import load
from fastgcn.infer.predict import predict
from fastgcn.report.page import Content, Table
from fastgcn.train.loop import fit
from fastgcn.train.presets import best_preset

Records = dict[str, Record]
Shown = tuple[list[Claim], Table]
STAND_INS = "On small stand-ins (`--quick`): these are no figures of speed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """On what and how thoroughly is measured.

    Attributes:
        large: the data set of Reddit's size.
        huge: one of millions of nodes, for a GPU.
        small: data sets of the paper that networks are trained on to the end.
        spread: the data set that the default is trained on with some `threads`.
        repeats: trainings that a time is the median of.
        processes: fresh processes that a start is the median of.
        epochs: of whole trainings, at most so many; None: the preset's.
        stand_ins: whether the data are so small that times mean nothing.
    """

    large: str = "reddit-sim"
    huge: str = "products-sim"
    small: tuple[str, ...] = ("cora", "pubmed")
    spread: str = "wordnet"
    threads: tuple[list[int], ...] = ([1, 2], [1, 2, 4, 8])  # on a small and on a large machine
    repeats: int = 3
    processes: int = 5
    epochs: int | None = None
    stand_ins: bool = False


FULL = Effort()  # about a quarter of an hour on two cores
QUICK = Effort(
    large="digits", huge="digits", small=("digits",), spread="digits", threads=([1, 2],), repeats=1,
    processes=1, epochs=2,
    stand_ins=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A figure: for each part a function and its settings, and how their records are shown."""

    title: str
    parts: Mapping[str, tuple[Callable[..., Record], dict[str, Any]]]
    show: Callable[[Records], Shown]
    code: tuple[str, ...]
    optional: tuple[str, ...] = ()  # parts left out where their data cannot be downloaded
    some: bool = False  # whether a part is shown while others are missing


def cpu_experiments(effort: Effort) -> list[Experiment]:
    """All figures of speed on the CPU."""
    trained = {"rounds": effort.repeats, "epochs": effort.epochs}
    # The large graph is level after a few epochs; all of them would take the CPU an hour.
    epochs = dict.fromkeys(effort.small, effort.epochs) | {effort.large: effort.epochs or 5}
    processes = {"processes": effort.processes}
    first = dict.fromkeys(("digits", effort.small[0]))
    questions = {
        "costs": Question(
            "Training and predicting",
            cost_parts(epochs, "cpu", 1),
            show_costs,
            (*CPU_CODE, *NO_RACE, "fastgcn.infer.predict", "benchmarks.floors"),
            some=True,
        ),
        "trainings": Question(
            "Whole trainings",
            {d: (measure_training, {"data": d, **trained}) for d in effort.small},
            show_trainings,
            ("fastgcn.train.loop", "benchmarks.plain_authors", *ON_CPU, *NO_RACE),
            some=True,
        ),
        "threads": Question(
            "The default on several threads",
            {
                str(counts[-1]): (
                    measure_threads,
                    {"data": effort.spread, "threads": counts, "epochs": effort.epochs or 24},
                )
                for counts in effort.threads
            },
            show_threads,
            CPU_CODE,
            some=True,
        ),
        "startup": Question(
            "Starting",
            {"starts": (measure_starts, processes)}
            | {d: (measure_first_start, {"data": d, **processes}) for d in first},
            show_startup,
            ("fastgcn.cli.train", *ON_CPU),
            optional=effort.small[:1],
        ),
    }
    return [_experiment(*each, effort.stand_ins) for each in questions.items()]


def gpu_experiments(effort: Effort) -> list[Experiment]:
    """All figures of speed on a CUDA device."""
    small = effort.stand_ins
    costs = {effort.small[-1]: effort.epochs, effort.large: effort.epochs, effort.huge: 5}
    epochs = {effort.large: 5} if small else {"pubmed": effort.epochs, effort.large: 5}
    scored = {"seeds": 2 if small else 5}
    questions = {
        "costs": Question(
            "Training and predicting",
            cost_parts(costs, "cuda", effort.repeats),
            show_costs,
            (*GPU_CODE, *NO_RACE, "fastgcn.infer.predict", "benchmarks.floors"),
            some=True,
        ),
        "accuracy": Question(
            "The same scores",
            {d: (measure_accuracy, {"data": d, **scored, "epochs": n}) for d, n in epochs.items()},
            show_accuracy,
            (*GPU_CODE, *NO_RACE),
            some=True,
        ),
    }
    graphs = (effort.large, effort.huge)
    return [
        full_batch.experiment((*(() if small else ("wordnet",)), *graphs)),
        full_batch.steps_experiment(dict.fromkeys(graphs)),
        *(_experiment(*each, small) for each in questions.items()),
    ]


def _experiment(name: str, question: Question, stand_ins: bool) -> Experiment:
    measurements = {}
    for part, (measure, settings) in question.parts.items():
        key = {"experiment": "speed", "figure": name, "part": part, **settings}
        how, optional = partial(measure, **settings), part in question.optional
        label = f"{question.title}: {part}"
        cores = max(settings.get("threads", [1]))
        measurements[part] = Measurement(
            label, key, how, question.code, optional=optional, cores=cores
        )

    def show(records: Records) -> list[Content | None]:
        claims, table = question.show(records)
        bounds = claims_table(claims, question.title) if claims else None
        return [STAND_INS if stand_ins else None, bounds, table]

    return from_records(name, question.title, measurements, show, some=question.some)


# What training and predicting cost, with the paper's settings and with the default ones.

_NEAR = 0.005  # a validation score so far from the best counts as there
_TIMES = ("precompute", "epoch", "to_near", "to_best", "whole", "predict")


def cost_parts(epochs: Mapping[str, int | None], device: str, repeats: int) -> Any:
    """A part for each data set and preset, trained for so many epochs."""
    return {
        f"{data}, {preset}": (
            measure_costs,
            {"data": data, "preset": preset, "device": device, "epochs": n, "repeats": repeats},
        )
        for data, n in epochs.items()
        for preset in ("paper", "default")
    }


def measure_costs(**settings: Any) -> Record:
    """What `costs` measures, in a process of its own, whose peak of memory is then known.

    The floor of a step is measured right after it, in another.
    """
    if settings["device"] == "cuda":
        full_batch.check_cuda()
    found = fresh(partial(costs, **settings))
    floor = fresh(step_floor, *(settings[name] for name in ("data", "preset", "device")))
    return found | {name: floor[name] for name in ("work", "rates")}


def preset_for(data: str, preset: str) -> TrainConfig:
    return paper_settings(data) if preset == "paper" else best_preset(load(data))


def step_floor(data: str, preset: str, device: str) -> Record:
    """What a step needs, and what the machine gives a second (`benchmarks.floors`)."""
    graph = load(data)
    needed = work(graph, preset_for(data, preset))
    return {"work": needed, "rates": rates(graph, needed, device)}


def costs(*, data: str, preset: str, device: str, epochs: int | None, repeats: int) -> Record:
    """Seconds from a loaded graph, with ÂX and validation; medians over seeds 0, 1, ....

    `step` and `epoch` are those of one; `to_near` and `to_best` last until the validation score is
    within 0.5 points of the best, and the best; `whole` until the test score; `predict` is that of
    all nodes by the full network. A training of one epoch before compiles kernels. `needed` are
    the bytes of ÂX and of the training graph's Â in CSR form.
    """
    graph, config = load(data), preset_for(data, preset)
    config = config.replace(device=device, **({} if epochs is None else {"epochs": epochs}))
    train(graph, config.replace(epochs=1))
    runs = []
    for seed in range(repeats):
        ends, begin = [], time.perf_counter()
        run = train(
            graph,
            config.replace(seed=seed),
            callbacks=[lambda _: ends.append(time.perf_counter() - begin)],  # noqa: B023
        )
        whole = time.perf_counter() - begin
        scores = [epoch.get("val_micro_f1", 0.0) for epoch in run.history]  # not all validate
        best = run.metrics["best_epoch"] - 1
        near = next(i for i, score in enumerate(scores) if score >= scores[best] - _NEAR)
        # The history has the mean over all steps up to an epoch.
        totals = [n * epoch["seconds_per_batch"] for n, epoch in enumerate(run.history, 1)]
        predicted = wall_clock(repeated([partial(predict, run, graph)]), 1)
        seconds = {
            "step": float(np.median(np.diff(totals, prepend=0.0))),
            "precompute": run.metrics["precompute_seconds"],
            "epoch": float(np.median([epoch["seconds"] for epoch in run.history])),
            "to_near": ends[near], "to_best": ends[best], "whole": whole, "predict": predicted,
        }  # fmt: skip
        runs.append(seconds | {"test_micro_f1": run.metrics["test_micro_f1"]})
    middle = {name: float(np.median([each[name] for each in runs])) for name in runs[0]}
    return middle | {"needed": needed_bytes(data)} | _device_memory(device)


def _device_memory(device: str) -> Record:
    if device == "cpu":
        return {}
    import torch

    return {"device_bytes": torch.cuda.max_memory_allocated()}


def needed_bytes(data: str) -> int:
    """The bytes of ÂX, and of the training graph's Â: offsets, columns, values."""
    graph = load(data)
    adjacency = training_graph(graph, paper_settings(data)).adjacency
    csr = sum(part.nbytes for part in (adjacency.indptr, adjacency.indices, adjacency.values))
    return int(4 * adjacency.n * graph.n_features + csr)


def show_costs(records: Records) -> Shown:
    claims, rows = [], []
    for part, found in records.items():
        device = found.get("device_bytes")
        if part.startswith("reddit-sim, paper"):
            claims += _asked(part, found)
        floor = floor_seconds(found["work"], found["rates"])
        times = [short(1e3 * found["step"]), short(1e3 * floor), short(found["step"] / floor)]
        times += [short(found[name]) for name in _TIMES]
        memory = short((found["peak"] if device is None else device) / 1e6, 4)
        rows.append((part, *times, memory, f"{found['test_micro_f1']:.4f}"))
    head = (
        "data, settings", "step, ms", "floor, ms", "step / floor", "ÂX, s", "epoch, s",
        "to within 0.5 points, s", "to the best, s", "to the test score, s", "predict, s",
        "peak, MB", "test micro-F1",
    )  # fmt: skip
    return claims, Table(head, rows, "From a loaded graph; an epoch has its validation")


def _asked(part: str, found: Record) -> list[Claim]:
    """The bounds that hold for the paper's settings on the graph of Reddit's size."""
    if "device_bytes" not in found:
        what = f"{part}: peak of memory / (ÂX + training CSR)"
        return [Claim(what=what, value=found["peak"] / found["needed"], at_most=1.3)]
    return [
        Claim(what=f"{part}: a step", value=1e6 * found["step"], at_most=50, unit=" µs"),
        Claim(what=f"{part}: to the best score", value=found["to_best"], at_most=1.5, unit=" s"),
        Claim(what=f"{part}: within 0.5 points", value=found["to_near"], at_most=0.7, unit=" s"),
    ]


# Whole trainings against a plain scipy and PyTorch program of the same algorithm.

_TRIAL = 2  # epochs that compile kernels, and that show on how many threads the plain one is fast


def measure_training(*, data: str, rounds: int, epochs: int | None) -> Record:
    """Seconds from a loaded graph to the test scores, ours and the plain program's, in turns.

    Ours is what `fastgcn train` does with the paper's preset: ÂX, all epochs with their
    evaluation, the run's folder, the test. The plain program trains for as many epochs as
    ours took, with the same sizes and rate, and an evaluation after each; on one thread or on
    all, whichever is faster.
    """
    graph, config = load(data), paper_settings(data)
    if epochs is not None:
        config = config.replace(epochs=epochs)
    found: Records = {}

    def ours(_: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found["ours"] = train(graph, config, run_dir=Path(folder) / "run").metrics

    def plain(_: int, *, epochs: int | None = None) -> None:
        count = epochs or found["ours"]["epochs"]
        found["plain"] = plain_authors.train(graph, config, epochs=count)

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


def show_trainings(records: Records) -> Shown:
    claims, rows = [], []
    for data, found in records.items():
        ours, plain = found["ours"], found["plain"]
        value = ours["seconds"] / plain["seconds"]
        what = f"{data}, the paper's settings: seconds of ours / of a plain program"
        claims.append(Claim(what=what, value=value, at_most=0.1))
        threads = "one thread" if found["plain_threads"] == 1 else "all threads"
        rows += [
            (f"{data}: {name}", str(run["epochs"]), short(run["seconds"]),
             f"{1000 * run['seconds'] / run['epochs']:,.1f}", f"{run['test_micro_f1']:.3f}")
            for name, run in (("fastgcn", ours), (f"plain, {threads}", plain))
        ]  # fmt: skip
    head = ("", "epochs", "s in all", "ms an epoch", "test micro-F1")
    return claims, Table(head, rows, "Trainings to the end, evaluation included")


# What more threads of a CPU save.


def measure_threads(*, data: str, threads: Sequence[int], epochs: int) -> Record:
    """`fit` with nothing chosen but the threads, its race included, with each number of them."""
    return {str(count): fresh(_spread, data, count, epochs) for count in threads}


def _spread(data: str, threads: int, epochs: int) -> Record:
    graph = full_batch.load(data)
    fit(graph, device="cpu", threads=threads, epochs=3)  # compiles
    start = time.perf_counter()
    run = fit(graph, device="cpu", threads=threads, epochs=epochs)
    return {"fit": time.perf_counter() - start, "val_micro_f1": run.metrics["val_micro_f1"]}


def show_threads(records: Records) -> Shown:
    """The run with the most threads; all numbers of a run are of one machine."""
    runs = records[max(records, key=int)]
    alone = runs["1"]["fit"]
    rows = [
        (threads, short(found["fit"]), short(alone / found["fit"]), f"{found['val_micro_f1']:.4f}")
        for threads, found in runs.items()
    ]
    claims = []
    if "8" in runs:
        gain = alone / runs["8"]["fit"]
        claims.append(Claim(what="one thread / eight threads", value=gain, at_least=3))
    head = ("threads", "seconds", "times as fast as one", "validation micro-F1")
    return claims, Table(head, rows, "Seconds of `fit`, its race included")


# How long it takes to start: the help, the import, and the first training on a fresh machine.

_COMMANDS = {
    "interpreter": ["-c", "pass"],
    "import": ["-c", "import fastgcn"],
    "help": ["-m", "fastgcn", "--help"],
}


def _python(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    variables = os.environ | (environment or {})
    subprocess.run([sys.executable, *arguments], env=variables, capture_output=True, check=True)


def measure_starts(*, processes: int) -> Record:
    """Seconds from the start of a fresh process to its end, medians, in turns.

    Python itself, `import fastgcn`, and `fastgcn --help`; files are in the system's cache.
    """
    sides = {name: repeated([partial(_python, args)]) for name, args in _COMMANDS.items()}
    found = seconds_in_turns(sides, rounds=processes, chunk_seconds=0, what="Starting processes")
    return dict(medians(found))


def measure_first_start(*, data: str, processes: int) -> Record:
    """Seconds of `fastgcn train DATA --epochs 1` in a fresh process, kernels not compiled yet.

    `cold`: with an empty folder for compiled kernels, as on a fresh machine; `warm`: the next
    start. Loading, ÂX, an epoch's steps, evaluation and the test are included, so that the
    first step is done before. Medians of so many.
    """
    load(data)  # downloaded once, and not counted
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as folder:
            for number, each in enumerate(seconds.values()):
                command = ["-m", "fastgcn", "train", data, "--epochs", "1", "--json"]
                command += ["--run-dir", f"{folder}/run-{number}"]
                run = partial(_python, command, {"NUMBA_CACHE_DIR": f"{folder}/kernels"})
                each.append(wall_clock(repeated([run]), 1))
    return dict(medians(seconds))


def show_startup(records: Records) -> Shown:
    starts = records["starts"]
    firsts = {data: found for data, found in records.items() if data != "starts"}
    claims = [
        Claim(what="`fastgcn --help`", value=starts["help"], at_most=0.3, unit=" s"),
        Claim(what="`import fastgcn`", value=starts["import"], at_most=0.5, unit=" s"),
    ]
    for data, found in firsts.items():
        what = f"first training on {data}, cold kernels"
        claims.append(Claim(what=what, value=found["cold"], at_most=10.0, unit=" s"))
    rows = [("Python itself", short(starts["interpreter"]))]
    rows += [(f"next start, one epoch on {d}", short(found["warm"])) for d, found in firsts.items()]
    return claims, Table(("", "s"), rows, "Beside these")


# The same network on the device and on the CPU.

_VARIANTS: dict[str, dict[str, Any]] = {
    "cuda": {"device": "cuda"},
    "cuda, float32 products": {"device": "cuda", "products": "float32"},
    "cuda, ÂX in bfloat16": {"device": "cuda", "inputs_dtype": "bfloat16"},
    "cpu": {"device": "cpu"},
}


def measure_accuracy(*, data: str, seeds: int, epochs: int | None) -> Record:
    """Test micro-F1 with the paper's preset over seeds, on the device and on the CPU."""
    full_batch.check_cuda()
    graph, config = load(data), paper_settings(data)
    if epochs is not None:
        config = config.replace(epochs=epochs)

    def score(changes: dict[str, Any], seed: int) -> float:
        metrics = train(graph, config.replace(seed=seed, **changes)).metrics
        return float(metrics["test_micro_f1"])

    every = range(seeds)
    return {"scores": {name: [score(c, s) for s in every] for name, c in _VARIANTS.items()}}


def show_accuracy(records: Records) -> Shown:
    claims, rows = [], []
    for data, found in records.items():
        here, there = (found["scores"][name] for name in ("cpu", "cuda"))
        error = np.hypot(standard_error(here), standard_error(there))
        apart = float(abs(np.mean(here) - np.mean(there)) / max(error, 1e-12))
        what = f"{data}: CUDA less CPU, in standard errors"
        claims.append(Claim(what=what, value=apart, at_most=1))
        rows += [(data, name, mean_sd(v, 4), str(len(v))) for name, v in found["scores"].items()]
    head = ("data", "", "test micro-F1", "seeds")
    return claims, Table(head, rows, "The same network on the device and on the CPU")
