"""A step of FastGCN against one of GraphSAGE-GCN with S = 25, 10 at equal sizes."""

from collections.abc import Iterator
from functools import partial
from itertools import islice

from torch import Tensor

from benchmarks.results import Record
from benchmarks.speed.shown import Claim, Shown, milliseconds, short
from benchmarks.speed.turns import Side, medians, seconds_in_turns
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.data.load import load
from fastgcn.machine import thread_count
from fastgcn.report.page import Table
from fastgcn.train.presets import graphsage, paper_preset

ASKED = {"reddit-sim": 100.0, "pubmed": 20.0}
OURS, THEIRS = "FastGCN", "GraphSAGE-GCN"


def measure_rivals(*, data: str, rounds: int, chunk_seconds: float) -> Record:
    """Seconds a step of both, with the batch and hidden size of the paper's preset.

    Sampling, the step and all between them count, evaluation does not. Both are timed in turns,
    so that noise meets both, and each by itself: in turns a side begins beside what the other
    left in the caches.
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


def steps(trainer: CpuBackend) -> Side:
    """A side whose units are training steps, epoch after epoch."""

    def endless() -> Iterator[Tensor]:
        while True:
            yield from trainer.minibatches.shuffled()

    batches = endless()
    return lambda count: trainer.train_on(islice(batches, count))


def show_rivals(records: dict[str, Record]) -> Shown:
    claims, rows = [], []
    for data, found in records.items():
        for how, words in (("alone", "each by itself"), ("in_turns", "in turns")):
            ours, theirs = found[how][OURS], found[how][THEIRS]
            what = f"{data}: {THEIRS} / {OURS}, {words}"
            claims.append(Claim(what=what, value=theirs / ours, at_least=ASKED.get(data)))
            rows.append(
                (f"{data}, {words}", milliseconds(ours), milliseconds(theirs), short(theirs / ours))
            )
    head = ("", f"{OURS}, ms a step", f"{THEIRS}, ms a step", "times")
    return Shown(claims, [Table(head, rows, "Steps at equal batch and hidden size")])
