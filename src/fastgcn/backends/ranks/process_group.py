"""How ranks meet: with keys that no process of an earlier life has left behind.

Where torchrun starts the processes again, they find the store that they had before, with the
addresses of processes that are gone; a rank that reads these before they are written anew would
wait for the dead.
"""

import json
import os
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from fastgcn.backends.ranks import DEFAULT_TIMEOUT, has_agent
from fastgcn.backends.ranks.collectives import Communicator
from fastgcn.errors import ElsewhereError, FastGCNError, InputError, PeerError

_BETWEEN_LOOKS = 0.01  # seconds


def common_store(rank: int, size: int, seconds: float) -> Store:
    """The store that the environment names."""
    limit = timedelta(seconds=seconds)
    store: Store
    store, _, _ = next(iter(rendezvous("env://", rank, size, timeout=limit)))
    store.set_timeout(limit)
    return store


def fresh_store(store: Store, rank: int, size: int, seconds: float) -> Store:
    """The store under a prefix that only these processes know."""
    return PrefixStore(agreed_prefix(store, rank, size, seconds), store)


def agreed_prefix(store: Store, rank: int, size: int, seconds: float) -> str:
    """A word that all ranks have, and that was in no store before.

    Every other rank says a new word. The first answers each, also those of earlier lives, with the
    prefix, until it has heard from all that they have it.
    """
    if rank == 0:
        life = uuid.uuid4().hex
        _welcome(store, life, set(range(1, size)), time.monotonic() + seconds)
        return life
    word = uuid.uuid4().hex
    store.set(f"hello/{rank}", word)
    found: str = store.get(f"welcome/{rank}/{word}").decode()
    store.set(f"here/{rank}/{found}", "")
    return found


def _welcome(store: Store, life: str, missing: set[int], deadline: float) -> None:
    while missing:
        for rank in sorted(missing):
            if store.check([f"hello/{rank}"]):
                word = store.get(f"hello/{rank}").decode()
                store.set(f"welcome/{rank}/{word}", life)
            if store.check([f"here/{rank}/{life}"]):
                missing.discard(rank)
        if time.monotonic() > deadline:
            raise RuntimeError(f"rank {min(missing)} has not come")
        time.sleep(_BETWEEN_LOOKS)


T = TypeVar("T")

# Seconds to wait for all ranks to come, whatever they may take to answer later: they start, and
# start again, at their own pace.
_JOINING = 300.0


class ProcessGroup:
    """All ranks of a run.

    Attributes:
        rank, size: which process this is, of how many.
        device: where this one computes, once `use` has said so.
        host: the comm for arrays in memory, and for the thread that samples.
        rows: the comm for what a step sends, on `device`.
    """

    def __init__(self, rank: int, size: int, timeout: float, store: Store | None = None) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store = store
        self.device = torch.device("cpu")
        # Two, for batches are drawn by one thread while another takes steps.
        self.host_comm, self.step_comm = self._communicator("gloo"), self._communicator("gloo")

    @classmethod
    def join(cls, timeout: float = DEFAULT_TIMEOUT) -> "ProcessGroup":
        """The group that torchrun's environment describes; waits until all have come."""
        if not timeout > 0:
            raise InputError(f"timeout must be above 0 seconds, got {timeout:g}")
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        try:
            store, seconds = None, max(timeout, _JOINING)
            if size > 1 or has_agent():
                store = common_store(rank, size, seconds)
            if size > 1:
                assert store is not None
                dist.init_process_group(
                    "gloo",
                    store=fresh_store(store, rank, size, seconds),
                    rank=rank,
                    world_size=size,
                    timeout=timedelta(seconds=seconds),
                )
            return cls(rank, size, timeout, store if has_agent() else None)
        except RuntimeError as error:
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

    def _communicator(self, backend: str) -> Communicator:
        group = None
        if self.size > 1:
            limit = timedelta(seconds=max(self.timeout, _JOINING))
            group = dist.new_group(backend=backend, timeout=limit)
        return Communicator(group, self.rank, self.size, self.timeout)

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.rank == 0

    def remember(self, key: str, value: str) -> None:
        """Let torchrun keep a word for processes that it may start in the place of these."""
        if self._store is not None:
            self._store.set(f"fastgcn/{key}", value)

    def recall(self, key: str) -> str | None:
        """What these processes, or ones that they are in the place of, have had remembered."""
        name = f"fastgcn/{key}"
        if self._store is None or not self._store.check([name]):
            return None
        found: str = self._store.get(name).decode()
        return found

    def close(self) -> None:
        """Close the lines, once all ranks are done."""
        if self.size > 1:
            dist.destroy_process_group()

    def on_all(self, what: str, do: Callable[[], T]) -> T:
        """`do()` on every rank; where one fails, all do, and the first says why."""
        found: T | None = None
        failure = ""
        try:
            found = do()
        except FastGCNError as error:
            failure = str(error)
        if self.size == 1 and failure:
            raise InputError(failure)
        failures = self.host_comm.gather_texts(failure, what)
        for rank, text in enumerate(failures):
            if text:
                alike = all(other == text for other in failures)
                message = text if alike or rank == 0 else f"rank {rank}: {text}"
                raise InputError(message) if self.is_main else ElsewhereError(message)
        return found  # type: ignore[return-value]

    def broadcast(self, what: str, do: Callable[[], T]) -> T:
        """What `do()` gives on the first rank, as JSON can carry it, on all of them."""
        text = self.on_all(what, lambda: json.dumps(do()) if self.is_main else "")
        found: T = json.loads(self.host_comm.gather_texts(text, what)[0])
        return found

    def check_equal(self, what: str, value: object) -> None:
        """Refuse to go on where ranks have different values; one sentence says who has which."""
        values = [json.loads(text) for text in self.host_comm.gather_texts(json.dumps(value), what)]
        for rank, other in enumerate(values):
            if other != values[0]:
                message = (
                    f"all ranks must have the same {what}: {_difference(values[0], other, rank)}"
                )
                raise InputError(message) if self.is_main else ElsewhereError(message)


def _device(name: str, local_rank: int) -> torch.device:
    """The device of a process: on a machine with several GPUs, each takes its own."""
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
    """Of settings, the first one that differs."""
    if isinstance(first, dict):
        name = next(key for key in first | other if first.get(key) != other.get(key))
        return f"rank 0 has {name} = {first.get(name)!r}, rank {rank} {other.get(name)!r}"
    return f"rank 0 has {first!r}, rank {rank} {other!r}"
