"""Messages among ranks: collectives, a ring for matrices that no rank holds, and their cost."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import PeerError

Combine = Callable[[Tensor, Tensor], Tensor]


class Communicator:
    """Point-to-point messages and collectives; all ranks make the same calls in the same order.

    Collectives are made of point-to-point messages, not taken from gloo or nccl. Parts of
    different lengths then need no padding, sums are added in the order of the ranks and so are
    equal to the last bit everywhere, the bytes sent are counted, and an error names the rank that
    did not answer.

    Attributes:
        sent: bytes that this rank has sent so far.
    """

    def __init__(self, torch_group: Any, rank: int, size: int, timeout: float) -> None:
        self.torch_group, self.rank, self.size, self.timeout = torch_group, rank, size, timeout
        self.sent = 0

    def post(self, outgoing: dict[int, Tensor], incoming: dict[int, Tensor]) -> list[Any]:
        """Start to send and receive contiguous tensors, by rank; pass the result to `wait`.

        Empty tensors are skipped on both sides.
        """
        operations = [
            dist.P2POp(way, tensor, peer, self.torch_group)
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

    def wait(self, posted: list[Any], what: str) -> None:
        """Wait until everything posted is sent and received."""
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
        self.wait(self.post(outgoing, incoming), what)

    @property
    def others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def all_gather(self, part: Tensor, counts: Sequence[int], what: str) -> Tensor:
        """(Σ counts, ...): the parts of all ranks, concatenated; rank r has counts[r] rows."""
        whole = part.new_empty((sum(counts), *part.shape[1:]))
        places = list(torch.split(whole, list(counts)))
        places[self.rank].copy_(part)
        mine = part.contiguous()
        self.exchange(
            dict.fromkeys(self.others, mine), {rank: places[rank] for rank in self.others}, what
        )
        return whole

    def reduce_scatter(
        self, whole: Tensor, counts: Sequence[int], what: str, combine: Combine = torch.add
    ) -> Tensor:
        """(counts[rank], ...): this rank's part of the ranks' sum of `whole` (Σ counts, ...)."""
        parts = list(torch.split(whole.contiguous(), list(counts)))
        received = {rank: torch.empty_like(parts[self.rank]) for rank in self.others}
        self.exchange({rank: parts[rank] for rank in self.others}, received, what)
        received[self.rank] = parts[self.rank]
        total = received[0].clone()
        for rank in range(1, self.size):
            total = combine(total, received[rank])
        return total

    def all_reduce(self, whole: Tensor, what: str, combine: Combine = torch.add) -> Tensor:
        """The sum over ranks of a tensor, on all ranks.

        Reduce-scatter, then all-gather: a rank sends 2(K-1)/K of the bytes.
        """
        flat = whole.reshape(-1)
        base, more = divmod(flat.numel(), self.size)
        counts = [base + (rank < more) for rank in range(self.size)]
        part = self.reduce_scatter(flat, counts, what, combine)
        return self.all_gather(part, counts, what).view_as(whole)

    def gather_counts(self, count: int, what: str) -> list[int]:
        """The number that each rank gives."""
        found: list[int] = self.all_gather(torch.tensor([count]), [1] * self.size, what).tolist()
        return found

    def gather_texts(self, text: str, what: str) -> list[str]:
        """The text that each rank gives."""
        said = torch.frombuffer(bytearray(text.encode() or b"\0"), dtype=torch.uint8)
        counts = self.gather_counts(len(said), what)
        parts = torch.split(self.all_gather(said, counts, what), counts)
        return [bytes(part.tolist()).decode().rstrip("\0") for part in parts]

    def broadcast(self, data: bytes, what: str) -> bytes:
        """The first rank's bytes, on all ranks."""
        size = self.gather_counts(len(data), what)[0]
        if self.rank == 0:
            mine = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)[:size]
            self.exchange(dict.fromkeys(self.others, mine), {}, what)
            return data
        received = torch.empty(size, dtype=torch.uint8)
        self.exchange({}, {0: received}, what)
        return received.numpy().tobytes()


def all_gather_rows(comm: Communicator, rows: Tensor, counts: Sequence[int]) -> Tensor:
    """(Σ counts, d): the rows (counts[rank], d) of all ranks, concatenated; differentiable.

    In the backward pass, each rank has the derivatives of its part of the loss by all rows. They
    are added up over the ranks, and each rank receives those of its own rows.
    """
    if torch.is_grad_enabled() and rows.requires_grad:
        gathered = _AllGather.apply(rows, comm, counts)  # type: ignore[no-untyped-call]
        return cast(Tensor, gathered)
    return comm.all_gather(rows, counts, "hidden rows")


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, comm: Communicator, counts: Sequence[int]) -> Tensor:
        ctx.comm, ctx.counts = comm, counts
        return comm.all_gather(rows.detach(), counts, "hidden rows")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        own = ctx.comm.reduce_scatter(gradients[0], ctx.counts, "gradients of hidden rows")
        return own, None, None


_PIECE_BYTES = 1 << 23  # of the rows in one message of the ring


def ring(
    comm: Communicator, bounds: IntArray, width: int, rows: Callable[[int, int], FloatArray]
) -> Iterator[tuple[int, FloatArray]]:
    """Yield all rows of an (n, width) float32 matrix that is spread over the ranks, in pieces: the
    number of a piece's first row, and its rows.

    Rank r has rows bounds[r]..bounds[r+1]-1; `rows(a, b)` returns some of them, numbered from
    its first. A rank works on one piece while it receives the next, so it holds two at most.
    """
    step = max(1, _PIECE_BYTES // max(4 * width, 1))
    rank, size = comm.rank, comm.size
    sizes = np.diff(bounds)
    before, after = (rank - 1) % size, (rank + 1) % size
    room = [torch.empty(min(step, int(sizes.max(initial=0))), width) for _ in range(size > 1 and 2)]
    for start in range(0, int(sizes.max(initial=0)), step):
        lengths = np.clip(sizes - start, 0, step)
        piece = torch.from_numpy(rows(start, start + int(lengths[rank])))
        for hop in range(size):
            owner = (rank - hop) % size
            posted, coming = [], piece
            if hop < size - 1:
                coming = room[hop % 2][: int(lengths[(owner - 1) % size])]
                posted = comm.post({after: piece.contiguous()}, {before: coming})
            if len(piece):
                yield int(bounds[owner]) + start, piece.numpy()
            comm.wait(posted, "rows round the ring")
            piece = coming


def ring_product(
    comm: Communicator,
    matrix: tuple[IntArray, IntArray, FloatArray],
    bounds: IntArray,
    width: int,
    rows: Callable[[int, int], FloatArray],
) -> FloatArray:
    """(s, width) float32: this rank's rows of a sparse matrix, as CSR with ascending columns, times
    a matrix that is spread over the ranks as in `ring`."""
    from fastgcn.kernels.products import add_part_product  # loads numba

    out: FloatArray = np.zeros((len(matrix[0]) - 1, width), np.float32)
    for first, piece in ring(comm, bounds, width, rows):
        add_part_product(*matrix, piece, first, out, sets=False)
    return out


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """The messages of one sampled convolution in a step.

    Attributes:
        t: vertices drawn, with repetitions.
        met: distinct drawn vertices that have an edge to some row of the layer above.
        width: length of a row that is sent: that of H, or of HW if that is cheaper.
        trained: True if the rows depend on weights, so that their gradients are sent back.
        above: rows of the layer above if q depends on them (`ladies`), else 0.
    """

    t: int
    met: int
    width: int
    trained: bool = True
    above: int = 0

    def sent(self, ranks: int) -> int:
        """Bytes: a row for each vertex of `met`, from its rank to all others, and its gradient.

        To draw them: an id and its q for each point; from each rank, two counts, and a bit per
        point that says if its vertex is met. `ladies`: a length for each row above, an id for each
        point, and the sum over ranks of a number for each vertex and two counts.
        """
        drawn = 16 * self.t + ranks * (16 + -(-self.t // 8))
        if self.above:
            drawn = 8 * self.above + 8 * self.t + 2 * 8 * (self.met + 2)
        rows = 4 * self.met * self.width * (2 if self.trained else 1)
        return (ranks - 1) * (drawn + rows)


def step_bytes(ranks: int, layers: Sequence[LayerTraffic], parameters: int) -> int:
    """Bytes that all ranks together send in one step.

    Beside the layers' messages, it has one all-reduce of the gradients, the loss and its weight.

    >>> step_bytes(1, [LayerTraffic(400, 300, 41)], 80_000)
    0
    >>> step_bytes(2, [LayerTraffic(400, 300, 41)], 80_000)
    744948
    """
    return sum(layer.sent(ranks) for layer in layers) + 2 * (ranks - 1) * 4 * (parameters + 2)
