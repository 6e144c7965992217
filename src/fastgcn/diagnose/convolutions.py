"""Convolutions of some rows, exactly: what estimates of them are judged by."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.adjacency import Rows
from fastgcn.config import TrainConfig
from fastgcn.diagnose.network import ExactNetwork
from fastgcn.samplers import Block
from fastgcn.samplers.choose import layer_sampler
from fastgcn.training_data import TrainingData
from fastgcn.types import FloatArray, IntArray


@dataclass(frozen=True)
class Convolution:
    """Rows v of one layer, and e(v) = Σ_u Â(v,u)x(u) for all of them or some.

    Attributes:
        rows: (s,) node ids, those of a block.
        chosen: (k,) positions in `rows` of the rows that are looked at, ascending.
        columns: (m,) node ids that these reach, ascending.
        matrix: (k, m) float64, their rows of Â over these columns.
        x: (m, d) float64.
    """

    rows: IntArray
    chosen: IntArray
    columns: IntArray
    matrix: csr_array
    x: FloatArray

    @cached_property
    def exact(self) -> FloatArray:
        """(k, d): e(v)."""
        return np.asarray(self.matrix @ self.x)

    @cached_property
    def total(self) -> float:
        """Σ_v |e(v)|²."""
        return float(np.square(self.exact).sum())

    @cached_property
    def squared_norms(self) -> FloatArray:
        """(m,): |x(u)|²."""
        squares: FloatArray = np.square(self.x).sum(axis=1)
        return squares

    @cached_property
    def off_diagonal(self) -> csr_array:
        """(k, m): `matrix` without the entries Â(v,v)."""
        matrix = self.matrix.copy()
        row = np.repeat(self.rows[self.chosen], np.diff(matrix.indptr))
        matrix.data[self.columns[matrix.indices] == row] = 0
        matrix.eliminate_zeros()
        return matrix

    def sizes(self, off_diagonal: bool) -> FloatArray:
        """(m,): Σ_v Â(v,u)²·|x(u)|², without Â(v,v) with `off_diagonal`."""
        return self._sizes_off_diagonal if off_diagonal else self._sizes

    @cached_property
    def _sizes(self) -> FloatArray:
        return _squares(self.matrix) * self.squared_norms

    @cached_property
    def _sizes_off_diagonal(self) -> FloatArray:
        return _squares(self.off_diagonal) * self.squared_norms

    def squared_error(self, block: Block) -> float:
        """Σ_v |y(v) − e(v)|² over the chosen rows, for a block of `rows`."""
        given = block.adj
        parts = given.values().double(), given.col_indices(), given.crow_indices()
        adj = csr_array(tuple(part.numpy() for part in parts), shape=given.shape)[self.chosen]
        places = np.searchsorted(self.columns, block.src.numpy()[adj.indices])
        placed = csr_array((adj.data, places, adj.indptr), shape=self.matrix.shape)
        return float(np.square(placed @ self.x - self.exact).sum())


def _squares(matrix: csr_array) -> FloatArray:
    """(m,): the sums of squares of the columns."""
    return np.bincount(matrix.indices, np.square(matrix.data), matrix.shape[1]).astype(np.float64)


def convolve(
    network: ExactNetwork, layer: int, batches: Sequence[IntArray], rng: np.random.Generator
) -> list[Convolution]:
    """The convolutions of some rows each; of a random part of the rows where all are dear."""
    picked = [
        _choose(network.affordable_rows(layer, len(rows)), len(rows), rng) for rows in batches
    ]
    parts = [
        network.data.adjacency.rows(rows[chosen])
        for rows, chosen in zip(batches, picked, strict=True)
    ]
    # Batches meet the same hubs, whose rows are computed once.
    reached = np.unique(np.concatenate([part.indices for part in parts])).astype(np.int64)
    x = network.rows(layer, reached)
    return [
        _convolution(rows, chosen, part, reached, x)
        for rows, chosen, part in zip(batches, picked, parts, strict=True)
    ]


def _choose(count: int, of: int, rng: np.random.Generator) -> IntArray:
    return np.arange(of) if count >= of else np.sort(rng.choice(of, count, replace=False))


def _convolution(
    rows: IntArray, chosen: IntArray, part: Rows, reached: IntArray, x: FloatArray
) -> Convolution:
    columns, places = np.unique(part.indices, return_inverse=True)
    shape = (len(chosen), len(columns))
    matrix = csr_array((part.values.astype(np.float64), places, part.indptr), shape=shape)
    of_columns = x[np.searchsorted(reached, columns)]
    return Convolution(rows, chosen, columns.astype(np.int64), matrix, of_columns)


def draw_batches(data: TrainingData, size: int, count: int, seed: int) -> list[Tensor]:
    """Up to `count` batches of different training nodes; all batches where these are no more."""
    rng = torch.Generator().manual_seed(seed)
    nodes = data.batch_nodes[torch.randperm(len(data.batch_nodes), generator=rng)]
    return [nodes[start : start + size] for start in range(0, len(nodes), size)][:count]


def rows_below(
    member: TrainConfig, network: ExactNetwork, layer: int, t: int, rows: Sequence[IntArray]
) -> list[IntArray]:
    """What the blocks of `rows` in a layer leave for the layer below it to compute."""
    config, adjacency = network.config, network.data.adjacency
    sampler = layer_sampler(member, adjacency, [t], own_rows=config.needs_own_rows)
    if member.distribution == "optimal":
        sampler.set_row_norms([network.row_norms(layer)])
    rng = torch.Generator().manual_seed(config.seed)
    return [sampler.sample(torch.from_numpy(ids), rng)[0].src.numpy() for ids in rows]
