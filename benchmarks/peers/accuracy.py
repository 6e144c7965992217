"""Figure 1: test micro-F1 of our default beside that of PyG's plain networks, searched.

Every (data, split, seed) is one measurement of ours, `fit(graph)` with nothing chosen by hand, and
one for each of PyG's three kinds of network, whose settings validation chooses. Peers train on
`device`, all settings of a kind side by side; ours train on CPU cores, one thread each.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.cases import graph
from benchmarks.peers.networks import KINDS, grid
from benchmarks.peers.search import EPOCHS, PATIENCE, Task, Trainer, make_trainers, select, train
from benchmarks.results import CPU_CODE, Measurement, Record, Results
from fastgcn.arrays import IntArray
from fastgcn.graph.graph import Graph
from fastgcn.progress import note

OURS = "fastgcn"

# Cheap ones first: the time of a run may end before the last.
DATA = (
    "cora", "cora_ml", "citeseer", "acm", "pubmed", "amazon_photo", "blogcatalog", "coauthor_cs",
    "wordnet",
)  # fmt: skip
OFFICIAL = ("cora", "citeseer", "pubmed")  # which have the splits `public` and `full`
SPLITS, SEEDS = 5, 5

# Trainers of graphs with more entries of dense features than this are not kept for later seeds.
_LARGE = 30_000_000

PEER_CODE = ("benchmarks.peers.search",)
OUR_CODE = (*CPU_CODE, "fastgcn.train.race")


class Cell(NamedTuple):
    """A data set under a split, and the seed of a training; `split_seed` is of random splits."""

    data: str
    split: str
    split_seed: int | None
    seed: int

    def load(self) -> Graph:
        return graph(self.data, self.split, self.split_seed)


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

    def rounds(self) -> list[range]:
        """The seeds in the order of their importance: the first of every split, then the rest."""
        return [range(min(1, self.seeds)), range(1, self.seeds)]


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


def search_peer(trainers: Sequence[Trainer], form: str, cell: Cell) -> Record:
    """Train all settings, select one by validation, and only then score its predictions."""
    on, start = cell.load(), time.perf_counter()
    use_split(trainers[0].task, on)
    tried = train(trainers, cell.seed)
    seconds = time.perf_counter() - start
    at = select(tried)
    return {
        "val_micro_f1": tried[at].val_micro_f1,
        "chosen": tried[at].setting.to_dict(),
        "tried": [
            (round(t.val_micro_f1, 5), round(t.val_loss, 4), t.best_epoch, t.epochs) for t in tried
        ],
        "form": form,
        "seconds": round(seconds, 3),
        "test_micro_f1": test_score(on, trainers[at].predictions()),
    }


class Peers:
    """PyG's side on one device; trainers of a graph serve all its splits and seeds."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._tasks: dict[str, Task] = {}
        self._trainers: dict[tuple[str, str], tuple[list[Trainer], str]] = {}

    def search(self, kind: str, cell: Cell) -> Record:
        if cell.data not in self._tasks:
            self._tasks[cell.data] = task_of(cell.load(), self.device)
        if (cell.data, kind) not in self._trainers:
            self._trainers[cell.data, kind] = make_trainers(self._tasks[cell.data], grid(kind))
        trainers, form = self._trainers[cell.data, kind]
        return search_peer(trainers, form, cell)

    def forget_large(self, data: str, kind: str) -> None:
        """Free the memory of a large graph's trainers."""
        if data in self._tasks and self._tasks[data].x.numel() > _LARGE:
            self._trainers.pop((data, kind), None)
            if self.device == "cuda":
                import torch

                torch.cuda.empty_cache()


def measure_peers(path: Path, plan: Plan, device: str, until: float) -> int:
    """Measure PyG's side until a time (of `time.time`); how many that were."""
    import torch

    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    peers, results, done = Peers(device), Results(path), 0
    for seeds in plan.rounds():
        for data in plan.data:
            for kind in KINDS:
                for cell in plan.cells(data, seeds):
                    how = partial(peers.search, kind, cell)
                    found = Measurement(f"{kind} {cell}", key(kind, cell), how, PEER_CODE)
                    if time.time() > until:
                        return done
                    if results.lacks(found):
                        results.measure(found)
                        done += 1
                peers.forget_large(data, kind)
            note(f"PyG, {data}, seeds {list(seeds)}: {until - time.time():.0f} s left")
    return done


def measure_one_of_ours(path: Path, cell: Cell, until: float) -> int:
    """Measure ours for a cell, unless the time is over or it is on file."""
    results, found = Results(path), our_measurement(cell)
    if time.time() > until or not results.lacks(found):
        return 0
    results.measure(found)
    return 1


def our_cells(plan: Plan) -> list[Cell]:
    """Ours in the order of their importance; in a round the longest first."""
    return [
        cell
        for seeds in plan.rounds()
        for seed in seeds
        for data in reversed(plan.data)
        for cell in plan.cells(data, [seed])
    ]


def measure_all(path: Path, plan: Plan, *, device: str, jobs: int, budget: float) -> int:
    """Both sides at once, ours in `jobs` processes, for at most about `budget` seconds.

    With no jobs, ours come after the peers, in this process.
    """
    until = time.time() + budget
    if not jobs:
        done = measure_peers(path, plan, device, until)
        return done + sum(measure_one_of_ours(path, cell, until) for cell in our_cells(plan))
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_on_one_core) as pool:
        ours = [pool.submit(measure_one_of_ours, path, cell, until) for cell in our_cells(plan)]
        done = measure_peers(path, plan, device, until)
        note(f"PyG is done, {until - time.time():.0f} s are left")
        return done + sum(each.result() for each in ours)


def _on_one_core() -> None:
    """A process of ours has one thread, and no GPU."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
