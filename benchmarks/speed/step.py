"""One training step against its floor, and where its time goes."""

from functools import partial
from itertools import cycle, islice

import numpy as np
import torch

from benchmarks.results import Record
from benchmarks.speed.floor import (
    BACKWARD,
    FORWARD,
    OURS,
    PARTS,
    Floor,
    fastest,
    with_all_drawn,
)
from benchmarks.speed.shown import Claim, Shown, microseconds
from benchmarks.speed.turns import Side, medians, on_threads, repeated, seconds_in_turns
from fastgcn.backends.batches import Minibatch
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.data.load import load
from fastgcn.kernels.step import cross_entropy
from fastgcn.machine import thread_count
from fastgcn.report.page import Table
from fastgcn.sampling import LayerSampler
from fastgcn.train.presets import paper_preset

MET, ALL = "rows met", "all rows drawn"


def measure_step(*, data: str, batches: int, rounds: int, chunk_seconds: float) -> Record:
    """A step with the paper's preset, its parts, and its floor, over the same batches in turns.

    The step: `Trainer.train_on`, all that an epoch does but evaluation; blocks are drawn anew
    each time. Its floor: the sum over the parts of a step (gather, each matrix product, Adam) of
    the median time of the part alone, by its fastest routine; calling a routine from Python,
    about 1 µs, counts. Twice: with the rows that blocks have, which are those that some row of
    the batch meets, and with all t rows that were drawn.
    """
    with thread_count(0):
        trainer = ready(load(data), paper_preset(data))
        nodes = list(islice(trainer.minibatches.shuffled(), batches))
        prepared = list(trainer.minibatches.singly(nodes))
        assert isinstance(trainer.sampler, LayerSampler)
        q, (t,) = trainer.sampler.probabilities(), trainer.sampler.samples
        padded = [with_all_drawn(each, q, t, i) for i, each in enumerate(prepared)]
        floors = {MET: Floor(trainer, prepared), ALL: Floor(trainer, padded)}
        steps = _Steps(trainer, nodes)
        sides: dict[str, Side] = {"step": steps}
        sides |= _own_parts(trainer, nodes, prepared)
        for name, floor in floors.items():
            sides |= floor.sides(name)
        found = seconds_in_turns(
            sides, rounds=rounds, chunk_seconds=chunk_seconds, what="Timing a step's parts"
        )
    seconds = medians(found)
    return {
        "seconds": seconds["step"],
        "turns": found["step"],
        "threads": torch.get_num_threads(),
        "t": t,
        "rows": {name: floor.rows for name, floor in floors.items()},
        "floor": {name: fastest(seconds, name) for name in floors},
        "ours": _by_our_routines(seconds)
        | {name: seconds[name] for name in ("prepare", "gather", "call", "loss")},
        **steps.inside(rounds),
    }


class _Steps:
    """A side whose units are training steps, and what the trainer's clock says of them."""

    def __init__(self, trainer: CpuBackend, nodes: list[torch.Tensor]) -> None:
        self.trainer, self.nodes = trainer, nodes
        self.calls: list[dict[str, float]] = []

    def __call__(self, count: int) -> None:
        spent = {"compute": 0.0, "sampling": 0.0}
        self.trainer.train_on(islice(cycle(self.nodes), count), spent)
        self.calls.append({name: spent[name] / max(count, 1) for name in ("compute", "sampling")})

    def inside(self, rounds: int) -> Record:
        """Medians over the timed turns: the step's call, and waiting for a batch."""
        timed = self.calls[-2 * rounds :][1::2]  # the others are run-ins
        compute, waiting = (
            float(np.median([call[name] for call in timed])) for name in ("compute", "sampling")
        )
        return {"beside": compute, "waiting": waiting}


def _own_parts(
    trainer: CpuBackend, nodes: list[torch.Tensor], prepared: list[Minibatch]
) -> dict[str, Side]:
    """Parts of our own step by themselves, on one thread."""
    logits = []
    with torch.no_grad():
        for each in prepared:
            logits.append(trainer.model(each.blocks, each.x).numpy())
    scratch = np.empty_like(max(logits, key=len))
    none = np.empty(0, np.float32)

    def prepare(count: int) -> None:
        for _ in trainer.minibatches.singly(islice(cycle(nodes), count)):
            pass

    parcels = list(trainer.minibatches.groups(nodes))

    def call(count: int) -> None:
        for parcel in cycle(parcels):
            if count < len(parcel):
                for each in islice(parcel.each(), count):
                    trainer.step(*each)
                return
            count -= len(parcel.steps(trainer.step))

    def loss(number: int) -> None:
        mine = scratch[: len(logits[number])]
        mine[:] = logits[number]
        cross_entropy(mine.reshape(-1), prepared[number].labels.numpy(), none)

    sides: dict[str, Side] = {
        "prepare": prepare,
        "gather": repeated([partial(trainer.data.rows, each.blocks[0].src) for each in prepared]),
        "call": call,
        "loss": repeated([partial(loss, number) for number in range(len(prepared))]),
    }
    return {name: on_threads(1, side) for name, side in sides.items()}


def _by_our_routines(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds of the step's products and of Adam, by the routines that our step uses."""
    return {
        part: seconds[name]
        for part in (*FORWARD, *BACKWARD, "Adam")
        for routine in OURS
        if (name := f"{MET}: {part}: {routine}") in seconds
    }


def floor_seconds(found: Record, rows: str) -> float:
    return float(sum(seconds for _, seconds in found["floor"][rows].values()))


def show_step(records: dict[str, Record]) -> Shown:
    """The ratio to the floor, the floor's parts, and the parts of the step."""
    (found,) = records.values()
    claims = [
        Claim(
            what="a step / its floor",
            value=found["seconds"] / floor_seconds(found, MET),
            at_most=1.3,
        ),
        Claim(
            what=f"a step / the floor with all {found['t']} drawn rows multiplied",
            value=found["seconds"] / floor_seconds(found, ALL),
        ),
    ]
    return Shown(claims, [_parts_table(found), _floor_table(found)])


def _parts_table(found: Record) -> Table:
    ours = found["ours"]
    forward, backward = (sum(ours[part] for part in parts) for parts in (FORWARD, BACKWARD))
    known = forward + ours["loss"] + backward + ours["Adam"]
    second = "second" if found["threads"] > 1 else "the same"
    waiting, beside = found["waiting"], found["beside"]
    rows = [
        ("draw and cut the blocks, labels", second, ours["prepare"] - ours["gather"]),
        ("gather the rows of ÂX", second, ours["gather"]),
        ("forward products", "first", forward),
        ("loss", "first", ours["loss"]),
        ("backward products", "first", backward),
        ("Adam", "first", ours["Adam"]),
        ("ReLU, allocation, Python of the call", "first", ours["call"] - known),
        ("the step's call by itself: the five above", "first", ours["call"]),
        ("the step's call in training", "first", beside),
        ("waiting for a batch", "first", waiting),
        ("the loop around", "first", found["seconds"] - beside - waiting),
        ("a step: the three above", "", found["seconds"]),
    ]
    cells = [(what, thread, microseconds(seconds)) for what, thread, seconds in rows]
    return Table(("part", "thread", "µs a step"), cells, "Where the time of a step goes")


def _floor_table(found: Record) -> Table:
    rows = []
    for part in PARTS:
        best = [found["floor"][name][part] for name in (MET, ALL)]
        cells = [(microseconds(seconds), routine) for routine, seconds in best]
        rows.append((part, *cells[0], *cells[1]))
    sums = [microseconds(floor_seconds(found, name)) for name in (MET, ALL)]
    rows.append(("sum", sums[0], "", sums[1], ""))
    counts = [f"{found['rows'][name]:,.0f}" for name in (MET, ALL)]
    head = ("part", f"µs, {counts[0]} {MET}", "by", f"µs, {counts[1]} rows drawn", "by")
    return Table(head, rows, "The floor of a step")
