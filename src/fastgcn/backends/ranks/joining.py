"""How ranks meet: the store they find each other by, and how each shows that it is of the job."""

import hashlib
import hmac
import json
import os
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta

from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from fastgcn import loopback
from fastgcn.errors import PeerError
from fastgcn.progress import note

_REFUSED = "refused"


def has_agent() -> bool:
    """True if torchrun's agent keeps a store that outlives restarts of the processes."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def open_store(rank: int, size: int, limit: timedelta) -> Store:
    """The store of the job: that of torchrun's agent, or one that the first rank serves.

    If all ranks are on this machine, what they listen on is not reached from outside of it.
    """
    store: Store
    local = loopback.is_local(os.environ)
    if local:
        loopback.talk_locally()
    if local and not has_agent():
        port = int(os.environ["MASTER_PORT"])
        store = loopback.serve(port, limit) if rank == 0 else loopback.connect(port, limit)
    else:
        store, _, _ = next(iter(rendezvous("env://", rank, size, timeout=limit)))
    store.set_timeout(limit)
    return store


def agreed_prefix(store: Store, rank: int, size: int, seconds: float) -> str:
    """A new text that all ranks agree on, to prefix their keys in the store.

    After a restart, torchrun's store still has the addresses of processes that have ended; a rank
    that read them would wait for these processes forever. So every other rank writes a new word.
    The first rank answers each word, also words from before the restart, with the prefix, until
    all ranks have confirmed it.

    Words and answers are signed: a process of another job, or one without the job's secret, is
    refused by the first rank, and refuses the first rank's answer.
    """
    if rank > 0:
        word = uuid.uuid4().hex
        hello = f"{word} {_signed('hello', size, rank, word)}\n"
        store.append(f"hello/{rank}", hello)  # type: ignore[attr-defined]
        found, _, signature = store.get(f"welcome/{rank}/{word}").decode().partition(" ")
        if not _same(signature, _signed("welcome", size, rank, word, found)):
            reason = "refused it" if found == _REFUSED else "is of another job"
            raise PeerError(
                f"rank {rank} could not join: rank 0 at {os.environ.get('MASTER_ADDR')}:"
                f"{os.environ.get('MASTER_PORT')} {reason}; give all processes of a job the same "
                f"--rdzv-id and {loopback.SECRET}, and jobs at the same address different ones"
            )
        store.set(f"here/{rank}/{found}", "")
        return found
    prefix, missing = uuid.uuid4().hex, set(range(1, size))
    answered: set[str] = set()
    deadline = time.monotonic() + seconds
    while missing:
        for other in sorted(missing):
            for word, signature in _words(store, other):
                if word in answered:
                    continue
                answered.add(word)
                if _same(signature, _signed("hello", size, other, word)):
                    proof = _signed("welcome", size, other, word, prefix)
                    store.set(f"welcome/{other}/{word}", f"{prefix} {proof}")
                else:
                    note(f"Note: a process that is not of this job was refused as rank {other}.")
                    store.set(f"welcome/{other}/{word}", _REFUSED)
            if store.check([f"here/{other}/{prefix}"]):
                missing.discard(other)
        if time.monotonic() > deadline:
            raise RuntimeError(f"rank {min(missing)} has not joined")
        time.sleep(0.01)
    return prefix


def _words(store: Store, rank: int) -> Iterator[tuple[str, str]]:
    """The words that processes have written as this rank, each with its signature."""
    if store.check([f"hello/{rank}"]):
        for line in store.get(f"hello/{rank}").decode(errors="replace").splitlines():
            word, _, signature = line.partition(" ")
            yield word, signature


def _signed(*message: object) -> str:
    """What only processes with this job's id and secret can compute of a message."""
    job = os.environ.get("TORCHELASTIC_RUN_ID", "")
    text = json.dumps([job, *message])
    secret = os.environ.get(loopback.SECRET, "")
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _same(ours: str, theirs: str) -> bool:
    return hmac.compare_digest(ours.encode(), theirs.encode())
