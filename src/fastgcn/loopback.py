"""Ranks of one machine that nothing outside of it can reach: they listen on loopback only.

torchrun's own stores listen on all interfaces, whatever its options. With `--rdzv-backend loopback`
it uses the one here instead; torchrun finds it as an entry point of this package.
"""

import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters

ADDRESS = "127.0.0.1"
SECRET = "FASTGCN_SECRET"  # the variable with what only processes of a job know


def is_local(variables: Mapping[str, str]) -> bool:
    """True if all ranks are on this machine, as torchrun's variables, or others like them, say.

    >>> is_local({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.7"})
    False
    >>> is_local({"WORLD_SIZE": "4", "MASTER_ADDR": "localhost"})
    True
    """
    if "LOCAL_WORLD_SIZE" in variables:
        return variables["LOCAL_WORLD_SIZE"] == variables["WORLD_SIZE"]
    try:
        return ipaddress.ip_address(variables["MASTER_ADDR"]).is_loopback
    except ValueError:
        return variables["MASTER_ADDR"] == "localhost"


def talk_locally() -> None:
    """Let gloo and nccl listen on loopback only, unless the user has named an interface."""
    name = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def serve(port: int, timeout: timedelta) -> TCPStore:
    """A store that listens on loopback only; port 0 is any that is free."""
    listener = socket.create_server((ADDRESS, port), backlog=1024)
    port = listener.getsockname()[1]
    return TCPStore(
        ADDRESS,
        port,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def connect(port: int, timeout: timedelta) -> TCPStore:
    """The store that another process of this machine serves."""
    return TCPStore(ADDRESS, port, is_master=False, timeout=timeout, wait_for_workers=False)


class LoopbackRendezvous:
    """torchrun's meeting place for one machine: a store on loopback, which outlives restarts.

    It has the methods of torch's `RendezvousHandler`, and is no subclass: to import that, torch
    loads all entry points, and this module would be imported before it is complete.
    """

    def __init__(self, run_id: str, timeout: timedelta) -> None:
        self._run_id, self._timeout = run_id, timeout
        self._store: TCPStore | None = None

    def get_backend(self) -> str:
        return "loopback"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> "RendezvousInfo":
        from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo

        if self._store is None:
            self._store = serve(0, self._timeout)
            # Processes that torchrun starts inherit it; others of this machine do not know it.
            os.environ.setdefault(SECRET, secrets.token_hex())
        meeting = RendezvousStoreInfo(ADDRESS, self._store.port)
        return RendezvousInfo(PrefixStore(self._run_id, self._store), 0, 1, meeting)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def handler() -> "Callable[[RendezvousParameters], LoopbackRendezvous]":
    """The entry point: torchrun calls what this returns with its options."""
    return _rendezvous


def _rendezvous(parameters: "RendezvousParameters") -> LoopbackRendezvous:
    if parameters.max_nodes != 1:
        raise ValueError(
            "--rdzv-backend loopback is for one machine, and --nnodes asks for more; use c10d"
        )
    return LoopbackRendezvous(parameters.run_id, timedelta(seconds=600))
