"""How ranks meet: with keys that no process of an earlier life has left behind.

Where torchrun starts the processes again, they find the store that they had before, with the
addresses of processes that are gone; a rank that reads these before they are written anew would
wait for the dead.
"""

import time
import uuid
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

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
