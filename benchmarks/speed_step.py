"""One training step against its floor, and where its time goes.

The floor is the step's matrix products, row gather and Adam update, and no more, for the network
with two layers and a precomputed first one, whose step is

    H = ReLU(XW0),  Z = Â(HW1) or (ÂH)W1,  G = ∂loss/∂Z,  and back through the same.

Each part is done for the same real batches by every routine at hand, and the fastest counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch

from benchmarks.pages import Claim
from benchmarks.results import Record
from benchmarks.timing import Side, medians, on_threads, repeated, seconds_in_turns
from fastgcn.arrays import FloatArray
from fastgcn.backends.batches import Minibatch
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.data.load import load
from fastgcn.kernels.step import adam_update, cross_entropy
from fastgcn.machine import thread_count
from fastgcn.report.page import Content, Table
from fastgcn.sampling import Block, LayerSampler
from fastgcn.train.presets import paper_preset

FORWARD = ("XW0", "HW1", "Â·")
BACKWARD = ("Âᵀ·", "HᵀG", "GW1ᵀ", "XᵀG")
PARTS = ("gather", *FORWARD, *BACKWARD, "Adam")
MET, ALL = "rows met", "all rows drawn"

_DENSE: dict[str, Callable[..., object]] = {"numpy": np.dot, "torch": torch.mm}
# What our step is made of: BLAS for dense products, our kernels for the rest.
OURS = ("numpy, 1 thread", "ours, 1 thread")

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Operands:
    """The matrices of one batch's step: X (k, F), H (k, d), G (s, C), and what multiplies W1.

    `factor` (k, d) or (s, d) is that: H, or ÂH where mixing first is cheaper; `mixed` is what
    Â is multiplied by, and `unmixed` what its transpose is.
    """

    block: Block
    x: FloatArray
    factor: FloatArray
    gradient: FloatArray
    hidden_gradient: FloatArray
    mixed: FloatArray
    unmixed: FloatArray

    @classmethod
    def of(cls, block: Block, x: FloatArray, trainer: CpuBackend) -> "Operands":
        first, second = trainer.model.convolutions
        w0, w1 = (layer.weight.detach().numpy() for layer in (first, second))
        h = np.maximum(x @ w0, 0)
        if second.mix_first(block):
            factor, mixed = block.mixed(h), h
            gradient = factor @ w1
            back = gradient @ w1.T
            return cls(block, x, factor, gradient, block.unmixed(back), mixed, back)
        mixed = h @ w1
        out = block.mixed(mixed)
        gradient = block.unmixed(out)
        return cls(block, x, h, gradient, gradient @ w1.T, mixed, out)


class Floor:
    """The parts of the steps of some batches, every part by every routine."""

    def __init__(self, trainer: CpuBackend, prepared: Sequence[Minibatch]) -> None:
        self.weights = [each.weight.detach().numpy() for each in trainer.model.convolutions]
        self.inputs = trainer.data.rows(torch.arange(trainer.data.adjacency.n)).numpy()
        blocks = [part.blocks[0] for part in prepared]
        self.operands = [
            Operands.of(block, self.inputs[block.src.numpy()], trainer) for block in blocks
        ]
        self.rows = float(np.mean([len(block.src) for block in blocks]))

    def sides(self, prefix: str) -> dict[str, Side]:
        """A unit is the part of one batch's step; names are "PREFIX: PART: ROUTINE"."""
        w0, w1 = self.weights
        dense = {
            "XW0": [(each.x, w0) for each in self.operands],
            "HW1": [(each.factor, w1) for each in self.operands],
            "HᵀG": [(each.factor.T, each.gradient) for each in self.operands],
            "GW1ᵀ": [(each.gradient, w1.T) for each in self.operands],
            "XᵀG": [(each.x.T, each.hidden_gradient) for each in self.operands],
        }
        calls = {
            f"{part}: {routine}": _products(pairs, routine)
            for routine in _DENSE
            for part, pairs in dense.items()
        }
        calls["Â·: ours"] = [partial(each.block.mixed, each.mixed) for each in self.operands]
        calls["Âᵀ·: ours"] = [partial(each.block.unmixed, each.unmixed) for each in self.operands]
        calls["gather: numpy"], calls["gather: torch"] = self._gathers()
        calls["Adam: ours"], calls["Adam: torch"] = [self._compiled_adam()], [self._torch_adam()]
        # Threads outside: those of a library that has been called up wait together.
        return {
            f"{prefix}: {name}, {words}": on_threads(threads, repeated(work))
            for threads, words in ((1, "1 thread"), (0, "all threads"))
            for name, work in calls.items()
        }

    def _gathers(self) -> tuple[list[Call], list[Call]]:
        tensor = torch.from_numpy(self.inputs)
        ids = [each.block.src for each in self.operands]
        out = np.empty((max(map(len, ids)), self.inputs.shape[1]), np.float32)
        by_numpy: list[Call] = [
            # "clip" leaves out a check that would copy.
            partial(np.take, self.inputs, each.numpy(), 0, out[: len(each)], "clip")
            for each in ids
        ]
        by_torch: list[Call] = [
            partial(torch.index_select, tensor, 0, each, out=torch.from_numpy(out[: len(each)]))
            for each in ids
        ]
        return by_numpy, by_torch

    def _compiled_adam(self) -> Call:
        state = [[np.full(w.size, 1e-3, np.float32) for _ in range(4)] for w in self.weights]

        def update() -> None:
            for weight, gradient, mean, square in state:
                adam_update(weight, gradient, mean, square, 10, 1e-3, 0.0)

        return update

    def _torch_adam(self) -> Call:
        parameters = [torch.nn.Parameter(torch.ones(w.shape)) for w in self.weights]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 1e-3)
        return torch.optim.Adam(parameters, fused=True).step


def _products(pairs: Sequence[tuple[FloatArray, FloatArray]], routine: str) -> list[Call]:
    """Calls of a product for all pairs, into the same place."""
    place = np.empty(max(a.shape[0] * b.shape[1] for a, b in pairs), np.float32)
    calls: list[Call] = []
    for a, b in pairs:
        shape = a.shape[0], b.shape[1]
        arrays: list[Any] = [a, b, place[: shape[0] * shape[1]].reshape(shape)]
        if routine == "torch":
            arrays = [torch.from_numpy(array) for array in arrays]
        calls.append(partial(_DENSE[routine], arrays[0], arrays[1], out=arrays[2]))
    return calls


def with_all_drawn(prepared: Minibatch, q: FloatArray, t: int, seed: int) -> Minibatch:
    """The same batch with t vertices in `src`, those that no row meets drawn anew from q."""
    (block,) = prepared.blocks
    rng = np.random.default_rng(seed)
    others = np.setdiff1d(rng.choice(len(q), 2 * t, p=q), block.src.numpy())
    rng.shuffle(others)
    src = torch.cat([block.src, torch.from_numpy(others[: max(0, t - len(block.src))])])
    assert block.csr is not None
    return prepared._replace(blocks=[Block.of_csr(block.dst, src, block.csr)])


def fastest(found: dict[str, float], prefix: str) -> dict[str, tuple[str, float]]:
    """For each part, the routine that took least, and its seconds a step."""
    names = [name for name in found if name.startswith(f"{prefix}: ")]
    best = {}
    for part in PARTS:
        name = min((n for n in names if n.split(": ")[1] == part), key=lambda n: found[n])
        best[part] = name.split(": ")[2], found[name]
    return best


def measure_step(*, data: str, batches: int, rounds: int, chunk_seconds: float) -> Record:
    """A step with the paper's preset, its parts, and its floor, over the same batches in turns.

    The step: `CpuBackend.train_on`, all that an epoch does but evaluation; blocks are drawn anew
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
        step = _Steps(trainer, nodes)
        sides: dict[str, Side] = {"step": step} | _own_parts(trainer, nodes, prepared)
        for name, floor in floors.items():
            sides |= floor.sides(name)
        found = seconds_in_turns(
            sides, rounds=rounds, chunk_seconds=chunk_seconds, what="Timing a step's parts"
        )
    seconds = medians(found)
    ours = {name: seconds[name] for name in ("prepare", "gather", "call", "loss")}
    for part in (*FORWARD, *BACKWARD, "Adam"):
        names = (f"{MET}: {part}: {routine}" for routine in OURS)
        ours[part] = next(seconds[name] for name in names if name in seconds)
    return {
        "seconds": seconds["step"],
        "turns": found["step"],
        "threads": torch.get_num_threads(),
        "t": t,
        "rows": {name: floor.rows for name, floor in floors.items()},
        "floor": {name: fastest(seconds, name) for name in floors},
        "ours": ours,
        **step.inside(rounds),
    }


class _Steps:
    """A side whose units are training steps, and what the trainer's clock says of them."""

    def __init__(self, trainer: CpuBackend, nodes: list[torch.Tensor]) -> None:
        self.trainer, self.nodes = trainer, nodes
        self.calls: list[dict[str, float]] = []

    def __call__(self, count: int) -> None:
        spent = {"compute": 0.0, "sampling": 0.0}
        self.trainer.train_on(islice(cycle(self.nodes), count), spent)
        self.calls.append({name: each / max(count, 1) for name, each in spent.items()})

    def inside(self, rounds: int) -> Record:
        """Medians over the timed turns: the step's call, and waiting for a batch."""
        timed = self.calls[-2 * rounds :][1::2]  # the others are run-ins
        names = {"beside": "compute", "waiting": "sampling"}
        return {ours: float(np.median([c[name] for c in timed])) for ours, name in names.items()}


def _own_parts(
    trainer: CpuBackend, nodes: list[torch.Tensor], prepared: list[Minibatch]
) -> dict[str, Side]:
    """Parts of our own step by themselves, on one thread."""
    with torch.no_grad():
        logits = [trainer.model(each.blocks, each.x).numpy() for each in prepared]
    scratch = np.empty_like(max(logits, key=len))
    none = np.empty(0, np.float32)

    def prepare(count: int) -> None:
        for _ in trainer.minibatches.singly(islice(cycle(nodes), count)):
            pass

    groups = list(trainer.minibatches.groups(nodes))

    def call(count: int) -> None:
        for group in cycle(groups):
            if count < len(group):
                for each in islice(group.each(), count):
                    trainer.step(*each)
                return
            count -= len(group.steps(trainer.step))

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


def floor_seconds(found: Record, rows: str) -> float:
    return float(sum(seconds for _, seconds in found["floor"][rows].values()))


def show_step(records: dict[str, Record]) -> tuple[list[Claim], list[Content]]:
    """The ratio to the floor, the floor's parts, and the parts of the step."""
    (found,) = records.values()
    met, drawn = (found["seconds"] / floor_seconds(found, rows) for rows in (MET, ALL))
    every = f"a step / the floor with all {found['t']} drawn rows multiplied"
    claims = [
        Claim(what="a step / its floor", value=met, at_most=1.3),
        Claim(what=every, value=drawn),
    ]
    return claims, [_parts_table(found), _floor_table(found)]


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f}"


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
    cells = [(what, thread, _microseconds(seconds)) for what, thread, seconds in rows]
    return Table(("part", "thread", "µs a step"), cells, "Where the time of a step goes")


def _floor_table(found: Record) -> Table:
    rows = []
    for part in PARTS:
        best = [found["floor"][name][part] for name in (MET, ALL)]
        cells = [(_microseconds(seconds), routine) for routine, seconds in best]
        rows.append((part, *cells[0], *cells[1]))
    sums = [_microseconds(floor_seconds(found, name)) for name in (MET, ALL)]
    rows.append(("sum", sums[0], "", sums[1], ""))
    counts = [f"{found['rows'][name]:,.0f}" for name in (MET, ALL)]
    head = ("part", f"µs, {counts[0]} {MET}", "by", f"µs, {counts[1]} rows drawn", "by")
    return Table(head, rows, "The floor of a step")
