"""Times on the device, by its own clock."""

from collections.abc import Callable

import numpy as np
import torch

from fastgcn.backends.gpu import why_no_kernels
from fastgcn.errors import InputError


def cuda() -> torch.device:
    if not torch.cuda.is_available():
        raise InputError("--device cuda measures on a CUDA device, and there is none here")
    if (reason := why_no_kernels()) is not None:
        raise InputError(f"--device cuda measures kernels in Triton, and {reason}")
    return torch.device("cuda")


def device_seconds(work: Callable[[], object], rounds: int) -> float:
    """The median of so many rounds, between two events on the device, after two to warm up."""
    found = []
    for number in range(rounds + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        if number >= 2:
            found.append(begin.elapsed_time(end) / 1000)
    return float(np.median(found))


def bandwidth(rounds: int) -> float:
    """Bytes a second, read and written, of a large copy: the device's own ceiling."""
    size = 1 << 31
    source, target = (torch.empty(size, dtype=torch.int8, device="cuda") for _ in range(2))
    return 2 * size / device_seconds(lambda: target.copy_(source), rounds)
