"""Compiles what training launches, for a GPU that need not be there, and runs none of it.

A script, for Triton either interprets kernels in a process or compiles them. Its argument is a
compute capability, such as 90; it prints the bytes of shared memory that each kernel takes.
"""

import contextlib
import json
import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from fastgcn.kernels.gpu.blocks import BlockBuffers
from fastgcn.kernels.gpu.step import Known, NetworkStep, NetworkWeights
from fastgcn.train.divergence import NotFiniteError
from tests.backends.gpu.on_device import SETTINGS, training
from tests.communities import communities

NETWORKS: list[dict[str, Any]] = [
    {"draws": "stratified", "products": "tf32"},
    {"distribution": "ladies", "power": 1.5, "self_term": "exact", "dropout": 0.1},
    {"precompute": False, "skip": True, "input_skip": True, "dropout": 0.1},
    {"method": "gcn", "pair": True, "skip": True, "input_skip": True, "dropout": 0.1},
]


class Absent:
    """What Triton asks of a device before it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


def steps(dtype: torch.dtype, *, precision: str, pair: bool) -> None:
    """One of the default network, or of a pair, at the sizes of its figures."""
    size, drawn, width, classes = 1024, 2000, 602, 41
    d, rows = (256, 2 * width) if pair else (128, 2 * width)
    first, second, bias, out_bias = (
        Known(torch.zeros(shape), torch.zeros(shape))
        for shape in [(rows, d), (2 * d, classes), (d,), (classes,)]
    )
    norm = None if pair else bias
    weights = NetworkWeights(first, second, bias, norm, norm, out_bias, own=True, members=1 + pair)
    x = torch.zeros((10, 608), dtype=dtype)[:, :width]
    step = NetworkStep(x, x, weights, size, size + drawn, rates=(0.2, 0.5), precision=precision)
    blocks = BlockBuffers.empty(1, size, drawn, size, 1, 1, x.device)
    ids, whole = torch.zeros((1, size), dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    losses = torch.zeros((1, 1 + pair, size))
    step.gather(0, blocks, whole)
    step(0, blocks, ids, ids.float(), whole, losses)


def main(capability: int) -> dict[str, int]:
    driver.set_active(Absent(capability))
    taken: dict[str, int] = {}
    run = JITFunction.run

    def compiled(self: Any, *given: Any, grid: Any, warmup: bool, **options: Any) -> None:
        del warmup
        kernel = run(self, *given, grid=grid, warmup=True, **options)
        name = self.fn.__name__
        taken[name] = max(taken.get(name, 0), kernel.metadata.shared)

    JITFunction.run = compiled
    for changes in NETWORKS:
        with contextlib.suppress(NotFiniteError):  # nothing was computed: any number may come out
            training(communities(), SETTINGS.replace(**changes)).epoch()
    steps(torch.float32, precision="tf32", pair=False)
    steps(torch.bfloat16, precision="ieee", pair=False)
    steps(torch.float32, precision="tf32", pair=True)
    return taken


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
