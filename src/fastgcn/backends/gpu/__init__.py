"""Training and inference entirely on a CUDA device: graph, draws, blocks, steps and scores."""

import os
from importlib.util import find_spec
from shutil import which

from fastgcn.config import TrainConfig


def why_no_kernels() -> str | None:
    """Why the device's kernels cannot be compiled here, or None if they can."""
    if find_spec("triton") is None:
        return "there is no Triton here"
    # Triton builds its launcher with a C compiler; on Windows it brings one along.
    if os.name == "posix" and not (os.environ.get("CC") or which("gcc") or which("clang")):
        return "Triton finds no C compiler here (install gcc or clang, or set CC)"
    return None


def why_not(config: TrainConfig) -> str | None:
    """The first setting that `GpuBackend` does not support, or None if it supports all of them."""
    if (reason := why_no_kernels()) is not None:
        return reason
    known: list[tuple[str, object, tuple[object, ...]]] = [
        ("method", config.method, ("fastgcn", "gcn")),
        ("norm", config.norm, ("none", "layer")),
        ("aggregator", config.aggregator, ("convolution", "mean", "sum")),
    ]
    if config.method == "fastgcn":
        known += [
            ("draws", config.draws, ("independent", "stratified", "systematic")),
            ("history", config.history, (False,)),
            ("neighbors_only", config.neighbors_only, (False,)),
        ]
    for name, value, served in known:
        if value not in served:
            return f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
    return None
