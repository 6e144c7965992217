"""Messages between the processes of a run: who sends what to whom, counted in bytes."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fastgcn.errors import PeerError

Combine = Callable[[Tensor, Tensor], Tensor]


class Channel:
    """One line between all ranks; calls must come in the same order on all of them.

    Everything is made of messages between two ranks, for then uneven parts need no padding, sums
    are taken in the order of the ranks (the same to the last bit everywhere), the bytes sent are
    known, and it is known whom a rank waits for in vain.

    Attributes:
        sent: bytes that this rank has sent so far.
    """

    def __init__(self, group: Any, rank: int, size: int, timeout: float) -> None:
        self.group, self.rank, self.size, self.timeout = group, rank, size, timeout
        self.sent = 0

    def post(self, outgoing: dict[int, Tensor], incoming: dict[int, Tensor]) -> list[Any]:
        """Begin to send and to receive contiguous tensors, by rank; those without entries are
        passed over, here as there. What is returned is handed to `finish`."""
        operations = [
            dist.P2POp(way, tensor, peer, self.group)
            for way, tensors in ((dist.isend, outgoing), (dist.irecv, incoming))
            for peer, tensor in tensors.items()
            if tensor.numel()
        ]
        self.sent += sum(t.numel() * t.element_size() for t in outgoing.values())
        if not operations:
            return []
        peers = [operation.peer for operation in operations]
        try:
            return list(zip(peers, dist.batch_isend_irecv(operations), strict=True))
        except RuntimeError as error:
            raise self._lost(peers[0], "the next rows", 0.0, error) from None

    def finish(self, posted: list[Any], what: str) -> None:
        """Wait until all has been sent and received."""
        start, limit = time.monotonic(), timedelta(seconds=self.timeout)
        for peer, request in posted:
            try:
                request.wait(limit)
            except RuntimeError as error:
                raise self._lost(peer, what, time.monotonic() - start, error) from None

    def _lost(self, peer: int, what: str, waited: float, error: RuntimeError) -> PeerError:
        if "imed out" in str(error) or waited >= self.timeout:
            return PeerError(
                f"rank {self.rank} waited {self.timeout:g} s for rank {peer} to exchange {what}: "
                "that process hangs, or needs longer; look at it, or raise --timeout"
            )
        return PeerError(
            f"rank {self.rank} lost rank {peer} while they exchanged {what}: that process has "
            "ended, and its own message says why"
        )

    def exchange(self, outgoing: dict[int, Tensor], incoming: dict[int, Tensor], what: str) -> None:
        self.finish(self.post(outgoing, incoming), what)

    @property
    def others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def gather(self, part: Tensor, counts: Sequence[int], what: str) -> Tensor:
        """(Σ counts, ...): the parts of all ranks, one behind the other; counts[r] rows of r."""
        whole = part.new_empty((sum(counts), *part.shape[1:]))
        places = list(torch.split(whole, list(counts)))
        places[self.rank].copy_(part)
        mine = part.contiguous()
        self.exchange(
            dict.fromkeys(self.others, mine), {rank: places[rank] for rank in self.others}, what
        )
        return whole

    def reduce_parts(
        self, whole: Tensor, counts: Sequence[int], what: str, combine: Combine = torch.add
    ) -> Tensor:
        """(counts[rank], ...): own part of the sum over ranks of `whole` (Σ counts, ...)."""
        parts = list(torch.split(whole.contiguous(), list(counts)))
        received = {rank: torch.empty_like(parts[self.rank]) for rank in self.others}
        self.exchange({rank: parts[rank] for rank in self.others}, received, what)
        received[self.rank] = parts[self.rank]
        total = received[0].clone()
        for rank in range(1, self.size):
            total = combine(total, received[rank])
        return total

    def reduce(self, whole: Tensor, what: str, combine: Combine = torch.add) -> Tensor:
        """The sum over ranks of a tensor, on all of them: parts are added where they are gathered
        from, so that a rank sends 2(K-1)/K of the bytes."""
        flat = whole.reshape(-1)
        base, more = divmod(flat.numel(), self.size)
        counts = [base + (rank < more) for rank in range(self.size)]
        part = self.reduce_parts(flat, counts, what, combine)
        return self.gather(part, counts, what).view_as(whole)

    def counts(self, count: int, what: str) -> list[int]:
        """What each rank says."""
        found: list[int] = self.gather(torch.tensor([count]), [1] * self.size, what).tolist()
        return found

    def texts(self, text: str, what: str) -> list[str]:
        """What each rank says, in words."""
        said = torch.frombuffer(bytearray(text.encode() or b"\0"), dtype=torch.uint8)
        counts = self.counts(len(said), what)
        parts = torch.split(self.gather(said, counts, what), counts)
        return [bytes(part.tolist()).decode().rstrip("\0") for part in parts]
