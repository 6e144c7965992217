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
from fastgcn.kernels.gpu.step import AdamParameter, FusedStep
from fastgcn.train.divergence import NotFiniteError
from tests.backends.gpu.on_device import SETTINGS, training
from tests.communities import communities

NETWORKS: list[dict[str, Any]] = [
    {"draws": "stratified", "products": "tf32"},
    {"distribution": "ladies", "power": 1.5, "self_term": "exact", "dropout": 0.1},
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


def steps(dtype: torch.dtype, sources: int, *, precision: str, frugal: bool) -> None:
    """One of the paper's network at the sizes of its figures."""
    size, width, d, classes = 256, 602, 128, 41
    shapes = [(width, d), (d,), (d, classes), (classes,)]
    w1, b1, w2, b2 = (
        AdamParameter(weight=torch.zeros(s), mean=torch.zeros(s), square=torch.zeros(s), decay=0.1)
        for s in shapes
    )
    x = torch.zeros((10, 608), dtype=dtype)[:, :width]
    step = FusedStep(x, (w1, b1, w2, b2), size, sources, 0.01, precision=precision, frugal=frugal)
    blocks = BlockBuffers.empty(1, size, sources, 0, 1, 1, x.device)
    ids, whole = torch.zeros((1, size), dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    losses = torch.zeros((1, step.tiles))
    step(0, blocks, ids, ids.float(), ids[:, 0], whole, losses)


def main(capability: int) -> dict[str, dict[str, int]]:
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
    for dtype in (torch.float32, torch.bfloat16):
        steps(dtype, 400, precision="tf32", frugal=False)
    steps(torch.float16, 400, precision="ieee", frugal=False)
    steps(torch.float32, 2_048, precision="tf32", frugal=False)
    as_measured = dict(taken)
    taken.clear()
    steps(torch.float32, 2_048, precision="tf32", frugal=True)
    return {"measured": as_measured, "frugal": taken}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
