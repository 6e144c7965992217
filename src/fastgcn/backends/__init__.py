"""Where work is done: on the CPU, on a GPU, or in several processes."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from fastgcn.backends.base import Backend, Checkpoint, EpochResult
from fastgcn.backends.cpu import CpuBackend, MakeSampler, name_of
from fastgcn.backends.data import SharedData
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.machine import choose_device
from fastgcn.model import GCN
from fastgcn.progress import note

if TYPE_CHECKING:
    from fastgcn.backends.ranks.shard import Shard

__all__ = [
    "Backend",
    "Checkpoint",
    "CpuBackend",
    "EpochResult",
    "MakeSampler",
    "choose_backend",
    "name_of",
]


def choose_backend(
    graph: Graph,
    config: TrainConfig,
    folder: Path | None = None,
    *,
    shard: "Shard | None" = None,
    sampler: MakeSampler | None = None,
    model: nn.Module | None = None,
    shared: SharedData | None = None,
) -> Backend:
    """The backend for these settings: a GPU does everything if there is one that supports them.

    With a `shard` of the graph, this process is one of several that train together. `shared`
    holds what several trainings have in common.
    """
    if shard is not None:
        if sampler is not None or model is not None:
            raise InputError("your own sampler or model trains in one process; leave out torchrun")
        if not config.is_linear:
            raise InputError(
                f"aggregator = {config.aggregator!r} trains in one process; leave out torchrun"
            )
        from fastgcn.backends.ranks.backend import RanksBackend

        return RanksBackend(shard, config)
    device = choose_device(config.device)
    if device.type == "cuda" and sampler is None and (model is None or isinstance(model, GCN)):
        from fastgcn.backends.gpu import why_not

        reason = why_not(config)
        if reason is None:
            from fastgcn.backends.gpu.backend import GpuBackend  # needs Triton

            return GpuBackend(graph, config, device, model, shared)
        note(f"sampling on the CPU, because the device cannot: {reason}")
    return CpuBackend(graph, config, folder, sampler=sampler, model=model, shared=shared)
