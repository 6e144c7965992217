"""`ShareSampler`: the layer-wise sampler of a rank that has some rows of Â."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fastgcn.config import OWN_POWERS, TrainConfig
from fastgcn.distributed.block import SharedBlock
from fastgcn.distributed.laws import Csr, FixedLaw, Law, Numbers, Picked, RowLaw, Sampled
from fastgcn.distributed.matrix import OwnRows, column_squares, without_diagonal
from fastgcn.distributed.world import World
from fastgcn.samplers.block import Block
from fastgcn.samplers.draws import POINTS, Rng
from fastgcn.types import FloatArray, IntArray


class ShareSampler:
    """Draws as `LayerSampler` does, the same vertices from the same generator.

    A batch names nodes of all ranks; blocks hold own rows. Vertices are drawn by points in
    [0, 1), of which each rank finds those that fall on its own vertices.
    """

    def __init__(self, matrix: OwnRows, config: TrainConfig, world: World) -> None:
        self.world = world
        self.samples = config.layer_samples
        self.points = POINTS[config.draws]
        self.own_rows = config.needs_own_rows or config.self_term == "exact"
        diagonal: FloatArray | None = None
        if config.self_term == "exact":
            matrix, diagonal = without_diagonal(matrix, world.rank)
        place = np.full(matrix.n, -1, np.int32)
        self.numbers = Numbers(matrix.bounds, world.rank, place)
        self.diagonal = diagonal
        law = _law(matrix, diagonal, self.numbers, config, world)
        self.laws: Sequence[Law] = [law] * len(self.samples)

    def own(self, batch: Tensor) -> Tensor:
        """Own nodes of a batch, numbered from the first own one."""
        return torch.from_numpy(self.numbers.own(batch.numpy()))

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        """Own rows of the blocks of `batch`, from the input layer up."""
        blocks: list[Block] = []
        above = batch.numpy()
        for law, t in zip(reversed(self.laws), reversed(self.samples), strict=True):
            picked = law.pick(above, self.points(1, t, rng)[0])
            below = picked.drawn
            if self.own_rows:
                below = np.concatenate([above, below[~np.isin(below, above)]])
            blocks.append(self._block(above, below, picked))
            above = below
        return blocks[::-1]

    def _block(self, above: IntArray, below: IntArray, picked: Picked) -> SharedBlock:
        dst, src = (torch.from_numpy(self.numbers.own(numbers)) for numbers in (above, below))
        local = Block.of_csr(dst, torch.from_numpy(picked.drawn), picked.csr)
        diagonal, travel = self.diagonal, None
        if self.own_rows:
            own = self.numbers.own(picked.drawn)
            travel = torch.from_numpy(self._places(src.numpy(), own))
        return SharedBlock(
            dst,
            src,
            local.adj,
            local,
            travel,
            self.numbers.counts(picked.drawn),
            None if diagonal is None else torch.from_numpy(diagonal[dst.numpy()])[:, None],
            (len(above), len(below), picked.entries),
            picked.empty,
            self.world.rows,
        )

    def _places(self, nodes: IntArray, some: IntArray) -> IntArray:
        """Where `some` of own nodes are among `nodes`."""
        place = self.numbers.place
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        found = place[some].astype(np.int64)
        place[nodes] = -1
        return found


def _law(
    matrix: OwnRows,
    diagonal: FloatArray | None,
    numbers: Numbers,
    config: TrainConfig,
    world: World,
) -> Law:
    channel, kind = world.host, config.distribution
    power = OWN_POWERS.get(kind, 2.0) if config.power is None else config.power
    squares = None if kind == "ladies" else column_squares(matrix, channel)
    rows = Sampled(_renumbered(matrix, numbers), diagonal)
    if squares is None:
        return RowLaw.of(numbers, rows, power, channel)
    exponent = {"uniform": 0.0, "importance": 2.0}.get(kind, power)
    return FixedLaw.of(numbers, rows, np.sqrt(squares) ** exponent, channel)


def _renumbered(matrix: OwnRows, numbers: Numbers) -> Csr:
    """The rows with nodes numbered as this rank does. In place: nothing else needs them after."""
    indptr, columns, values = matrix.rows
    columns -= numbers.first
    columns[columns < 0] += numbers.n
    return indptr, columns, values
