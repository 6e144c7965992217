"""Rows that travel: gathered from all ranks, with gradients that find their way back."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fastgcn.distributed.channel import Channel
from fastgcn.types import FloatArray, IntArray


def all_gather_rows(channel: Channel, rows: Tensor, counts: Sequence[int]) -> Tensor:
    """(Σ counts, d): rows (counts[rank], d) of every rank, one rank's behind the other's.

    Backward, each rank has derivatives by all rows, of its own part of the loss; these are added
    up over the ranks, each receiving those of its own rows.
    """
    if torch.is_grad_enabled() and rows.requires_grad:
        return cast(Tensor, _Gather.apply(rows, channel, counts))  # type: ignore[no-untyped-call]
    return channel.gather(rows, counts, "hidden rows")


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, channel: Channel, counts: Sequence[int]) -> Tensor:
        ctx.channel, ctx.counts = channel, counts
        return channel.gather(rows.detach(), counts, "hidden rows")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        own = ctx.channel.reduce_parts(gradients[0], ctx.counts, "gradients of hidden rows")
        return own, None, None


# Bytes of the rows that are on their way at once.
_PIECE_BYTES = 1 << 23


def ring(
    channel: Channel, bounds: IntArray, width: int, rows: Callable[[int, int], FloatArray]
) -> Iterator[tuple[int, FloatArray]]:
    """All rows of an (n, width) float32 matrix of which each rank has a part: the number of the
    first row of each piece, and its rows.

    Rank r has rows bounds[r]..bounds[r+1]-1; `rows(a, b)` gives some of its own, numbered from
    its first. Pieces are handed from rank to rank while the last one is worked on, so that none
    holds more than two.
    """
    step = max(1, _PIECE_BYTES // max(4 * width, 1))
    rank, size = channel.rank, channel.size
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
                posted = channel.post({after: piece.contiguous()}, {before: coming})
            if len(piece):
                yield int(bounds[owner]) + start, piece.numpy()
            channel.finish(posted, "rows round the ring")
            piece = coming


def ring_product(
    channel: Channel,
    matrix: tuple[IntArray, IntArray, FloatArray],
    bounds: IntArray,
    width: int,
    rows: Callable[[int, int], FloatArray],
) -> FloatArray:
    """(s, width) float32: own rows of a sparse matrix, given as CSR with ascending columns, times
    a matrix whose rows lie as `ring` says."""
    from fastgcn.kernels.products import add_part_product  # loads numba

    out: FloatArray = np.zeros((len(matrix[0]) - 1, width), np.float32)
    for first, piece in ring(channel, bounds, width, rows):
        add_part_product(*matrix, piece, first, out, sets=False)
    return out
