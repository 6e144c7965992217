"""Blocks whose rows are spread over the ranks, and the sampler that makes them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.ranks.collectives import Communicator, all_gather_rows
from fastgcn.backends.ranks.distributions import (
    Csr,
    DrawnLayer,
    FixedDistribution,
    LadiesDistribution,
    RankDistribution,
    RankNumbering,
    SampledMatrix,
)
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.backends.ranks.shard import ShardAdjacency, column_squares, split_diagonal
from fastgcn.config import OWN_POWERS, TrainConfig
from fastgcn.kernels.products import mixing_first_pays
from fastgcn.sampling.block import Block
from fastgcn.sampling.draws import POINTS, Rng


@dataclass(frozen=True, slots=True)
class ShardBlock(Block):
    """This rank's rows of H_dst ≈ adj @ H_drawn + diagonal · H_dst.

    `dst` and `src` are nodes of this rank: rows of the layer above, and rows that this rank
    computes for it. `src` begins with `dst` if the network or the diagonal needs them. `adj` is
    (s, D), over the drawn vertices of all ranks, rank after rank.

    Attributes:
        local: the product with `adj`.
        sent: (counts[rank],) positions in `src` of this rank's drawn vertices; None: all of `src`.
        counts: drawn vertices of each rank; they sum to D.
        diagonal: (s, 1) float32 Â(v,v), if that term is exact.
        whole: rows, columns and entries of the block of all ranks together.
        empty: rows of all ranks with no edge to any drawn vertex.
    """

    local: Block
    sent: Tensor | None
    counts: Sequence[int]
    diagonal: Tensor | None
    whole: tuple[int, int, int]
    empty: int
    comm: Communicator

    def mix(self, h: Tensor) -> Tensor:
        """(s, d), from this rank's rows h (k, d) of `src`; all ranks get the drawn ones."""
        # Indexing would do the same, but its derivative takes several times as long.
        drawn = h if self.sent is None else h.index_select(0, self.sent)
        mixed = self.local.mix(all_gather_rows(self.comm, drawn, self.counts))
        return mixed if self.diagonal is None else mixed + self.diagonal * self.own_rows(h)

    def to(self, device: torch.device | str) -> "ShardBlock":
        if torch.device(device).type == "cpu":
            return self
        local = self.local.to(device)
        return replace(
            self,
            dst=local.dst,
            src=self.src.to(device),
            adj=local.adj,
            local=local,
            sent=None if self.sent is None else self.sent.to(device),
            diagonal=None if self.diagonal is None else self.diagonal.to(device),
        )

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        """True if H is narrower than HW: to send a number costs more than to multiply it.

        All ranks must decide the same, so only numbers that all ranks share are used.
        """
        if n_in != n_out:
            return n_in < n_out
        rows, sources, entries = self.whole
        return bool(mixing_first_pays(entries, rows, sources, n_in, n_out))

    @property
    def empty_rows(self) -> int:
        return self.empty


class ShardSampler:
    """Draws as `LayerSampler` does, the same vertices from the same generator.

    A batch names nodes of all ranks; blocks hold this rank's rows. Vertices are drawn by points
    in [0, 1); each rank finds those that fall on its own vertices.
    """

    def __init__(self, matrix: ShardAdjacency, config: TrainConfig, group: ProcessGroup) -> None:
        self.samples = config.layer_samples
        self.points = POINTS[config.draws]
        self.own_rows = config.needs_own_rows or config.self_term == "exact"
        self.comm = group.step_comm
        self.diagonal: FloatArray | None = None
        if config.self_term == "exact":
            matrix, self.diagonal = split_diagonal(matrix, group.rank)
        place = np.full(matrix.n, -1, np.int32)
        self.numbers = RankNumbering(matrix.bounds, group.rank, place)
        self.distribution = self._distribution(matrix, config, group.host_comm)

    def _distribution(
        self, matrix: ShardAdjacency, config: TrainConfig, comm: Communicator
    ) -> RankDistribution:
        kind = config.distribution
        power = OWN_POWERS.get(kind, 2.0) if config.power is None else config.power
        squares = None if kind == "ladies" else column_squares(matrix, comm)
        rows = SampledMatrix(_renumbered(matrix, self.numbers), self.diagonal)
        if squares is None:
            return LadiesDistribution.of(self.numbers, rows, power, comm)
        exponent = {"uniform": 0.0, "importance": 2.0}.get(kind, power)
        return FixedDistribution.of(self.numbers, rows, np.sqrt(squares) ** exponent, comm)

    def own(self, batch: Tensor) -> Tensor:
        """This rank's nodes of a batch, numbered from its first node."""
        return torch.from_numpy(self.numbers.own(batch.numpy()))

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        """This rank's rows of the blocks of `batch`, from the input layer up."""
        blocks: list[Block] = []
        above = batch.numpy()
        for t in reversed(self.samples):
            layer = self.distribution.draw(above, self.points(1, t, rng)[0])
            below = layer.drawn
            if self.own_rows:
                below = np.concatenate([above, below[~np.isin(below, above)]])
            blocks.append(self._block(above, below, layer))
            above = below
        return blocks[::-1]

    def _block(self, above: IntArray, below: IntArray, layer: DrawnLayer) -> ShardBlock:
        dst, src = (torch.from_numpy(self.numbers.own(numbers)) for numbers in (above, below))
        local = Block.of_csr(dst, torch.from_numpy(layer.drawn), layer.csr)
        diagonal, sent = None, None
        if self.diagonal is not None:
            diagonal = torch.from_numpy(self.diagonal[dst.numpy()])[:, None]
        if self.own_rows:
            own = self.numbers.own(layer.drawn)
            sent = torch.from_numpy(self._places(src.numpy(), own))
        return ShardBlock(
            dst,
            src,
            local.adj,
            local=local,
            sent=sent,
            counts=self.numbers.counts(layer.drawn),
            diagonal=diagonal,
            whole=(len(above), len(below), layer.entries),
            empty=layer.empty,
            comm=self.comm,
        )

    def _places(self, nodes: IntArray, some: IntArray) -> IntArray:
        """The positions in `nodes` of `some` of this rank's nodes."""
        place = self.numbers.place
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        found = place[some].astype(np.int64)
        place[nodes] = -1
        return found


def _renumbered(matrix: ShardAdjacency, numbers: RankNumbering) -> Csr:
    """The rows by local numbers. In place: nothing else needs them afterwards."""
    indptr, columns, values = matrix.rows
    columns -= numbers.first
    columns[columns < 0] += numbers.n
    return indptr, columns, values
