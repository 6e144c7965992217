"""The processes of a run: how they join, report failures and agree on values."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from fastgcn.backends.ranks.collectives import Communicator
from fastgcn.backends.ranks.joining import agreed_prefix, has_agent, open_store
from fastgcn.errors import ElsewhereError, FastGCNError, InputError, PeerError

T = TypeVar("T")

DEFAULT_TIMEOUT = 300.0  # seconds that a process waits for another

# Seconds to wait for all ranks to join. It does not depend on `timeout`, because processes may
# take long to start or restart.
_JOINING = 300.0


class ProcessGroup:
    """All ranks of a run.

    Attributes:
        rank, size: the number of this process, and how many there are.
        device: where this process computes; the CPU until `use_device` is called.
        host_comm: for arrays in memory, and for the thread that samples.
        step_comm: for what a training step sends, on `device`.
    """

    def __init__(self, rank: int, size: int, timeout: float, store: Store | None = None) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store = store
        self.device = torch.device("cpu")
        # Two communicators, because one thread draws batches while another takes steps.
        self.host_comm, self.step_comm = self._communicator("gloo"), self._communicator("gloo")

    @classmethod
    def join(cls, timeout: float = DEFAULT_TIMEOUT) -> "ProcessGroup":
        """Join the processes that torchrun's environment describes; wait until all have joined."""
        if not timeout > 0:
            raise InputError(f"timeout must be above 0 seconds, got {timeout:g}")
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store, limit = None, timedelta(seconds=max(timeout, _JOINING))
        try:
            if size > 1 or has_agent():
                store = open_store(rank, size, limit)
            if size > 1:
                assert store is not None
                prefix = agreed_prefix(store, rank, size, limit.total_seconds())
                dist.init_process_group(
                    "gloo",
                    store=PrefixStore(prefix, store),
                    rank=rank,
                    world_size=size,
                    timeout=limit,
                )
            return cls(rank, size, timeout, store if has_agent() else None)
        except (RuntimeError, OSError) as error:
            if isinstance(error, FastGCNError):
                raise
            raise PeerError(
                f"rank {rank} could not join the {size} processes of the run at "
                f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {error}; check that all "
                "were started, and that these machines reach each other"
            ) from None

    def use_device(self, device: str) -> None:
        """Compute on a device: auto, cpu or cuda; each process takes a GPU of its own."""
        self.device = _device(device, int(os.environ.get("LOCAL_RANK", "0")))
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            self.step_comm = self._communicator("nccl")

    def _communicator(self, engine: str) -> Communicator:
        torch_group = None
        if self.size > 1:
            limit = timedelta(seconds=max(self.timeout, _JOINING))
            torch_group = dist.new_group(backend=engine, timeout=limit)
        return Communicator(torch_group, self.rank, self.size, self.timeout)

    @property
    def is_main(self) -> bool:
        """True on the rank that writes and prints."""
        return self.rank == 0

    def remember(self, key: str, value: str) -> None:
        """Store a text with torchrun's agent, for processes that it starts after these fail."""
        if self._store is not None:
            self._store.set(f"fastgcn/{key}", value)

    def recall(self, key: str) -> str | None:
        """The text that these processes, or those before a restart, passed to `remember`."""
        name = f"fastgcn/{key}"
        if self._store is None or not self._store.check([name]):
            return None
        found: str = self._store.get(name).decode()
        return found

    def close(self) -> None:
        """Leave the group, once all ranks are done."""
        if self.size > 1:
            dist.destroy_process_group()

    def on_all(self, what: str, do: Callable[[], T]) -> T:
        """`do()` on every rank. If it fails on one, it fails on all, and the first rank says why.

        Any other rank raises `ElsewhereError`, for which the command prints nothing.
        """
        if self.size == 1:
            return do()
        found: T | None = None
        failure = ""
        try:
            found = do()
        except FastGCNError as error:
            failure = str(error)
        failures = self.host_comm.gather_texts(failure, what)
        for rank, text in enumerate(failures):
            if text:
                alike = all(other == text for other in failures)
                raise self._refusal(text if alike or rank == 0 else f"rank {rank}: {text}")
        return found  # type: ignore[return-value]

    def broadcast(self, what: str, do: Callable[[], T]) -> T:
        """What `do()` returns on the first rank, as JSON can carry it, on all ranks."""
        text = self.on_all(what, lambda: json.dumps(do()) if self.is_main else "")
        found: T = json.loads(self.host_comm.broadcast(text.encode(), what))
        return found

    def check_equal(self, what: str, value: object) -> None:
        """Raise if ranks have different values; the message names two ranks and their values."""
        values = [json.loads(text) for text in self.host_comm.gather_texts(json.dumps(value), what)]
        for rank, other in enumerate(values):
            if other != values[0]:
                differs = _difference(values[0], other, rank)
                raise self._refusal(f"all ranks must have the same {what}: {differs}")

    def _refusal(self, message: str) -> FastGCNError:
        return InputError(message) if self.is_main else ElsewhereError(message)


def _device(name: str, local_rank: int) -> torch.device:
    """The device of a process: on a machine with several GPUs, each process has its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name != "cuda":
        raise InputError(
            f"device must be auto, cpu or cuda where several processes train, got {name!r}: each "
            "takes the GPU of its number"
        )
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if local_rank >= there:
        raise InputError(
            f"process {local_rank} of this machine needs a GPU of its own, and there are {there}; "
            "start as many processes as there are GPUs, or use --device cpu"
        )
    return torch.device("cuda", local_rank)


def _difference(first: Any, other: Any, rank: int) -> str:
    """The values that differ; for settings, the first setting that differs."""
    if isinstance(first, dict):
        name = next(key for key in first | other if first.get(key) != other.get(key))
        return f"rank 0 has {name} = {first.get(name)!r}, rank {rank} {other.get(name)!r}"
    return f"rank 0 has {first!r}, rank {rank} {other!r}"
