"""Figure 1: test micro-F1 of our default beside that of PyG's plain networks, searched.

Every (data, split, seed) is one measurement of ours, `fit(graph)` with nothing chosen by hand, and
one for each of PyG's three kinds of network, whose settings validation chooses. Peers train on
`device`, all settings of a kind side by side; ours train on CPU cores, one thread each.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.cases import graph
from benchmarks.peers import sparse
from benchmarks.peers.networks import KINDS, grid
from benchmarks.peers.search import (
    EPOCHS,
    PATIENCE,
    Task,
    Trainer,
    make_trainers,
    select,
    train,
)
from benchmarks.results import CPU_CODE, Measurement, Record, Results
from fastgcn.arrays import IntArray
from fastgcn.data.splits import stratified_split
from fastgcn.graph.graph import Graph
from fastgcn.progress import note

OURS = "fastgcn"

# Cheap ones first: the time of a run may end before the last. The large ones take most of it.
LARGE = ("blogcatalog", "coauthor_cs", "wordnet")
DATA = ("cora", "cora_ml", "citeseer", "acm", "pubmed", "amazon_photo", *LARGE)
OFFICIAL = ("cora", "citeseer", "pubmed")  # which have the splits `public` and `full`
SPLITS, SEEDS = 5, 5

# The share of the time that the first seed of the large ones leaves to further seeds of the others.
_RESERVE = 0.15

PEER_CODE = ("benchmarks.peers.search", "benchmarks.peers.networks")
SPARSE_CODE = (*PEER_CODE, "benchmarks.peers.sparse")
OUR_CODE = (*CPU_CODE, "fastgcn.train.race")


class Cell(NamedTuple):
    """A data set under a split, and the seed of a training; `split_seed` is of random splits."""

    data: str
    split: str
    split_seed: int | None
    seed: int

    def load(self) -> Graph:
        """The graph under the split; the files of a data set are read once for all random ones."""
        if self.split_seed is None:
            return graph(self.data, self.split)
        on = graph(self.data, "random", 0)
        assert on.labels is not None
        return on.with_split(stratified_split(on.labels, seed=self.split_seed))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared: every data set under five random splits and its official ones."""

    data: Sequence[str] = DATA
    splits: int = SPLITS
    seeds: int = SEEDS

    def splits_of(self, data: str) -> list[tuple[str, int | None]]:
        random: list[tuple[str, int | None]] = [("random", s) for s in range(self.splits)]
        return random + ([("public", None), ("full", None)] if data in OFFICIAL else [])

    def cells(self, data: str, seeds: Iterable[int]) -> Iterator[Cell]:
        for split, split_seed in self.splits_of(data):
            for seed in seeds:
                yield Cell(data, split, split_seed, seed)

    def stages(self) -> list[tuple[list[str], range]]:
        """Data and seeds in the order of their importance: the first seed of all comes first."""
        small = [data for data in self.data if data not in LARGE]
        large = [data for data in self.data if data in LARGE]
        first, rest = range(min(1, self.seeds)), range(1, self.seeds)
        return [(small, first), (large, first), (small, rest), (large, rest)]


def key(who: str, cell: Cell) -> Record:
    found = {"experiment": "peers-accuracy", "who": who, **cell._asdict()}
    if who != OURS:
        found |= {"epochs": EPOCHS, "patience": PATIENCE, "settings": len(grid(who))}
    return found


def our_measurement(cell: Cell) -> Measurement:
    return Measurement(f"{OURS} {cell}", key(OURS, cell), partial(fit_ours, cell), OUR_CODE)


def fit_ours(cell: Cell) -> Record:
    """The default on one CPU thread: its scores, what it chose and its seconds."""
    from fastgcn.train.loop import fit_choice
    from fastgcn.train.race import choose

    on = cell.load()
    start = time.perf_counter()
    choice = choose(on, settings={"seed": cell.seed, "device": "cpu", "threads": 1})
    run = fit_choice(on, choice)
    return {
        "val_micro_f1": run.metrics["val_micro_f1"],
        "test_micro_f1": run.metrics["test_micro_f1"],
        "chosen": next((each.name for each in choice.tried if each.kept), choice.why),
        "tried": [(each.name, each.epochs, each.val_micro_f1) for each in choice.tried],
        "epochs": len(run.history),
        "seconds": round(time.perf_counter() - start, 3),
    }


def task_of(on: Graph, device: str) -> Task:
    """The graph for the peers: all features, and both directions of every edge without loops."""
    rows = np.repeat(np.arange(on.n_nodes), np.diff(on.indptr))
    apart = rows != on.indices
    ends = np.stack([rows[apart], on.indices[apart]])
    return Task(on.features, ends, on.n_classes, device)


def use_split(task: Task, on: Graph) -> None:
    """Give the task the labels of training and validation nodes; those of test stay here."""
    assert on.labels is not None
    train_nodes, val_nodes = on.split.train, on.split.val
    task.use((train_nodes, on.labels[train_nodes]), (val_nodes, on.labels[val_nodes]))


def test_score(on: Graph, classes: IntArray) -> float:
    """Micro-F1 of (n,) predicted classes on the labelled test nodes."""
    assert on.labels is not None
    nodes = on.split.test[on.labels[on.split.test] >= 0]
    return float(np.mean(classes[nodes] == on.labels[nodes]))


def skips_zeros(data: str, device: str) -> bool:
    """Whether sparse features are multiplied as they are: on a CPU, and where they are wide."""
    return device == "cpu" or data in LARGE


class Peers:
    """PyG's side on one device; the trainers of a graph serve all its splits and seeds."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._tasks: dict[str, Task] = {}
        self._trainers: dict[tuple[str, str], tuple[list[Trainer], str]] = {}

    def search(self, kind: str, cell: Cell) -> Record:
        """Train all settings, select one by validation, and only then score its predictions."""
        on = cell.load()
        if cell.data not in self._tasks:
            self._tasks[cell.data] = task_of(on, self.device)
        task, start = self._tasks[cell.data], time.perf_counter()
        use_split(task, on)
        if (cell.data, kind) not in self._trainers:
            self._trainers[cell.data, kind] = self._make(cell.data, on, kind)
        trainers, form = self._trainers[cell.data, kind]
        tried = train(trainers, cell.seed)
        predictions = [trainer.predictions() for trainer in trainers]
        seconds = time.perf_counter() - start
        at = select(tried)
        return {
            "val_micro_f1": tried[at].val_micro_f1,
            "chosen": tried[at].setting.to_dict(),
            "tried": [
                (round(t.val_micro_f1, 5), round(t.val_loss, 4), t.best_epoch, t.epochs)
                for t in tried
            ],
            "form": form,
            "seconds": round(seconds, 3),
            "test_micro_f1": test_score(on, predictions[at]),
        }

    def _make(self, data: str, on: Graph, kind: str) -> tuple[list[Trainer], str]:
        """Trainers of all settings of a kind, and what form they are."""
        task, settings = self._tasks[data], grid(kind)
        if skips_zeros(data, self.device) and not isinstance(on.features, np.ndarray):
            return sparse.make_trainers(task, on.features, settings)
        return make_trainers(task, settings)


def measure_peers(path: Path, plan: Plan, device: str, until: float) -> int:
    """Measure PyG's side until a time (of `time.time`); how many that were."""
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    peers, results, done = Peers(device), Results(path), 0
    reserve = _RESERVE * max(0.0, until - time.time())
    for number, (names, seeds) in enumerate(plan.stages()):
        end = until - (reserve if number < 2 else 0.0)
        for data, kind in product(names, KINDS):
            for cell in plan.cells(data, seeds):
                how = partial(peers.search, kind, cell)
                code = SPARSE_CODE if skips_zeros(data, device) else PEER_CODE
                found = Measurement(f"{kind} {cell}", key(kind, cell), how, code)
                if time.time() < end and results.lacks(found):
                    results.measure(found)
                    done += 1
            torch.cuda.empty_cache()  # nothing where there is no GPU
            note(f"PyG's {kind} on {data}, seeds {[*seeds]}: {until - time.time():.0f} s are left")
    return done


def our_cells(plan: Plan) -> list[Cell]:
    """Ours in the order of their importance; in a stage the longest first."""
    first, rest = range(min(1, plan.seeds)), range(1, plan.seeds)
    longest_first = [*reversed(plan.data)]
    cells = [cell for data in longest_first for cell in plan.cells(data, first)]
    return cells + [
        cell for seed in rest for data in longest_first for cell in plan.cells(data, [seed])
    ]


def measure_ours(path: Path, cells: Sequence[Cell], until: float, turn: Any = None) -> None:
    """Measure ours for the cells until a time; processes that share `turn` share the cells."""
    results = Results(path)
    for number in count() if turn is None else iter(partial(_next, turn), None):
        if number >= len(cells) or time.time() > until:
            return
        results.measure(our_measurement(cells[number]))


def _next(turn: Any) -> int:
    with turn.get_lock():
        turn.value += 1
        return int(turn.value) - 1


def measure_all(path: Path, plan: Plan, *, device: str, jobs: int, budget: float) -> None:
    """Both sides at once, ours in `jobs` processes, for at most about `budget` seconds.

    With no jobs, ours come after the peers, in this process. The device `none` leaves PyG out.
    """
    until, cells = time.time() + budget, our_cells(plan)
    context = get_context("spawn")
    turn = context.Value("i", 0)
    workers = [
        context.Process(target=_work, args=(path, cells, until, turn), daemon=True)
        for _ in range(jobs)
    ]
    for worker in workers:
        worker.start()
    if device != "none":
        measure_peers(path, plan, device, until)
    if not workers:
        measure_ours(path, cells, until)
    for worker in workers:
        worker.join(max(0.0, until - time.time()))
        worker.terminate()  # what it has not finished is measured the next time


def _work(path: Path, cells: Sequence[Cell], until: float, turn: Any) -> None:
    """A process of ours: one thread, and no GPU."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    measure_ours(path, cells, until, turn)
