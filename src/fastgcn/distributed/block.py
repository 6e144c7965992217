"""A block of which each rank has some rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastgcn.distributed.channel import Channel
from fastgcn.distributed.travel import all_gather_rows
from fastgcn.kernels.products import mixing_first_pays
from fastgcn.samplers.block import Block


@dataclass(frozen=True, slots=True)
class SharedBlock(Block):
    """Own rows of H_dst ≈ adj @ H_drawn + diagonal · H_dst.

    `dst` and `src` are own nodes: rows of the layer above, and those that this rank computes for
    it, `dst` first where the network or the diagonal wants them. `adj` is (s, D), over the drawn
    vertices of all ranks, rank after rank.

    Attributes:
        local: the product with `adj`.
        travel: (counts[rank],) where in `src` the own drawn vertices are; None: `src` are these.
        counts: drawn vertices of each rank; they sum to D.
        diagonal: (s, 1) float32 Â(v,v), where that term is exact.
        whole: rows, columns and entries of the block of all ranks together.
        empty: rows of all ranks that met no vertex.
    """

    local: Block
    travel: Tensor | None
    counts: Sequence[int]
    diagonal: Tensor | None
    whole: tuple[int, int, int]
    empty: int
    channel: Channel

    def mix(self, h: Tensor) -> Tensor:
        """(s, d), for own rows h (k, d) of `src`; the drawn ones travel to all ranks."""
        # Not by indexing, whose derivative takes several times as long.
        drawn = h if self.travel is None else h.index_select(0, self.travel)
        mixed = self.local.mix(all_gather_rows(self.channel, drawn, self.counts))
        return mixed if self.diagonal is None else mixed + self.diagonal * self.own_rows(h)

    def to(self, device: torch.device | str) -> "SharedBlock":
        if torch.device(device).type == "cpu":
            return self
        there = self.local.to(device)
        return SharedBlock(
            there.dst,
            self.src.to(device),
            there.adj,
            there,
            None if self.travel is None else self.travel.to(device),
            self.counts,
            None if self.diagonal is None else self.diagonal.to(device),
            self.whole,
            self.empty,
            self.channel,
        )

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        """Rows travel where they are narrower: a number sent costs more than one multiplied.

        Ranks must decide alike, and so by figures of all of them.
        """
        if n_in != n_out:
            return n_in < n_out
        rows, sources, entries = self.whole
        return bool(mixing_first_pays(entries, rows, sources, n_in, n_out))

    @property
    def empty_rows(self) -> int:
        return self.empty
