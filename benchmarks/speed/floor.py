"""The floor of a training step: its matrix products, row gather and Adam update, and no more.

Of the network with two layers and a precomputed first one, whose step is

    H = ReLU(XW0),  Z = Â(HW1) or (ÂH)W1,  G = ∂loss/∂Z,  and back through the same.

Each part is done for the same real batches by every routine at hand, and the fastest counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.speed.turns import Side, on_threads, repeated
from fastgcn.arrays import FloatArray
from fastgcn.backends.batches import Minibatch
from fastgcn.backends.cpu import CpuBackend
from fastgcn.kernels.step import adam_update
from fastgcn.sampling import Block

FORWARD = ("XW0", "HW1", "Â·")
BACKWARD = ("Âᵀ·", "HᵀG", "GW1ᵀ", "XᵀG")
PARTS = ("gather", *FORWARD, *BACKWARD, "Adam")

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
    best: dict[str, tuple[str, float]] = {}
    for name, seconds in found.items():
        if not name.startswith(f"{prefix}: "):
            continue
        _, part, routine = name.split(": ")
        if part not in best or seconds < best[part][1]:
            best[part] = routine, seconds
    return {part: best[part] for part in PARTS}
