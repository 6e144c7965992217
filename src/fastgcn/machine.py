"""What a run may use of the machine: a device, and CPU threads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fastgcn.errors import InputError


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"device {name} was asked for, but there is no CUDA device here; use cpu")
    return torch.device(name)


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Run torch on so many threads; 0 means all that this process may use."""
    before = torch.get_num_threads()
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(threads or allowed or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
