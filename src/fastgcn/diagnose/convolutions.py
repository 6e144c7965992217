"""Exact convolutions of some rows, which estimates are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray, is_finite
from fastgcn.backends.data import TrainingData
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.extremes import extreme
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.edges import Rows
from fastgcn.kernels.products import sparse_times_dense
from fastgcn.model import GCN
from fastgcn.sampling import layer_sampler
from fastgcn.sampling.block import Block
from fastgcn.sampling.layer import LayerSampler
from fastgcn.sampling.neighborhood import FullSampler

# Nodes whose inputs are read together; bounds the temporaries.
_NODES_AT_ONCE = 16_384
# The most multiplications of gathered rows for the exact rows of one batch, about a tenth of a
# second on two cores. If all rows take more, only some rows are computed, but at least these.
_WORK, _FEWEST_ROWS = 1 << 28, 4
# How many times faster a multiplication is in a product of dense matrices.
_DENSE_GAIN = 16


@dataclass(frozen=True)
class ExactNetwork:
    """A network over its training graph, without sampling and dropout.

    `config` says which layers training samples: sampled layer l is layer l + `precompute` of the
    network. `data` holds ÂX, or features from which the needed rows of ÂX are computed.
    """

    model: GCN
    data: TrainingData
    config: TrainConfig

    @property
    def layers(self) -> int:
        """The number of sampled layers."""
        return self.config.sampled_layers

    @torch.no_grad()
    def rows(self, layer: int, ids: IntArray) -> FloatArray:
        """(len(ids), d) float64: the x(u) = H(u)W that a sampled layer mixes."""
        number = layer + self.config.precompute
        self.model.eval()
        h = self._hidden(number, torch.from_numpy(ids))
        x: FloatArray = (h @ self.model.convolutions[number].weight).double().numpy()
        return x

    def row_norms(self, layer: int) -> FloatArray:
        """(n,): |x(u)| of all vertices, which the distribution `optimal` needs."""
        chunks = [self.rows(layer, ids) for ids in _chunks(np.arange(self.data.adjacency.n))]
        return np.concatenate([np.linalg.norm(x, axis=1) for x in chunks])

    def sampler(
        self, member: TrainConfig, layers: Sequence[int], samples: Sequence[int], *, own_rows: bool
    ) -> LayerSampler:
        """The sampler of `member`, for these sampled layers."""
        sampler = layer_sampler(member, self.data.adjacency, samples, own_rows=own_rows)
        if member.distribution == "optimal":
            sampler.set_row_norms([self.row_norms(layer) for layer in layers])
        return sampler

    def affordable_rows(self, layer: int, rows: int) -> int:
        """How many of a layer's `rows` can be computed exactly in about a tenth of a second."""
        matrix, (features, hidden) = self.data.adjacency, self.model.sizes[:2]
        # Each layer below adds the neighbours of the nodes needed; one layer fewer if ÂX is stored.
        at_hand = self.data.precomputed
        widenings = 1 + layer + self.config.precompute - at_hand
        entries = len(matrix.values)
        width = hidden if self._weights_first(_WORK // max(hidden, 1)) else features
        if widenings * entries * width <= _WORK:
            return rows
        # A node reached along an edge has on average Σd² / Σd neighbours, more than a random one.
        degrees = np.diff(matrix.indptr).astype(np.float64)
        met = max(float(np.square(degrees).sum()) / max(entries, 1), 1.0)
        each = max(entries / matrix.n, 1.0) * met ** (widenings - 1) * width
        return int(min(max(_WORK // each, _FEWEST_ROWS), rows))

    def _hidden(self, number: int, ids: Tensor) -> Tensor:
        """H^(number) of the nodes."""
        if number == 0:
            return self.data.rows(ids)
        blocks = FullSampler(self.data.adjacency, number - 1).sample(ids)
        needed = (blocks[0].src if blocks else ids).numpy()
        h = torch.cat([self._first(part) for part in _chunks(needed)])
        for above, block in enumerate(blocks, start=1):
            h = self.model.activate(above, self.model.convolutions[above](h, block))
        return h

    def _first(self, ids: IntArray) -> Tensor:
        """H^(1) of the nodes, from their rows of ÂX."""
        features, first = self.data.features, self.model.convolutions[0]
        if self.data.precomputed:
            mixed = first(self.data.rows(torch.from_numpy(ids)), None)
            return self.model.activate(0, mixed)
        rows = self.data.adjacency.rows(ids)
        if self._weights_first(len(rows.indices)):
            own = None if first.own_weight is None else features.take(ids)
            mixed = first.finish(torch.from_numpy(sparse_times_dense(*rows, self._weighed)), own)
        else:
            beside = None if first.own_weight is None else ids
            mixed = first(features.convolve(rows, beside), None)
        return self.model.activate(0, mixed)

    def _weights_first(self, entries: int) -> bool:
        """True if a product of Â(XW) for this many entries is faster than one of (ÂX)W."""
        known = "_weighed" in self.__dict__
        features, hidden = self.model.sizes[:2]
        dense = 0.0 if known else self.data.adjacency.n * features * hidden / _DENSE_GAIN
        return not self.data.precomputed and dense + entries * hidden < entries * features

    @cached_property
    def _weighed(self) -> FloatArray:
        """(n, d): XW of the first layer."""
        features = self.data.features
        weight: Tensor = self.model.convolutions[0].weight
        shift = torch.zeros(weight.shape[1])
        if features.statistics is not None:
            # ((X - mean)·scale)W = X(scale·W) - mean·(scale·W), so that X need not be copied.
            mean, scale = map(torch.from_numpy, features.statistics)
            weight = scale[:, None] * weight
            shift = mean @ weight
            features = NodeFeatures(features.features, "none", features.nodes)
        every = _chunks(np.arange(self.data.adjacency.n))
        parts = [features.take(ids) @ weight - shift for ids in every]
        weighed: FloatArray = torch.cat(parts).numpy()
        return weighed


def _chunks(ids: IntArray) -> list[IntArray]:
    return [ids[start : start + _NODES_AT_ONCE] for start in range(0, len(ids), _NODES_AT_ONCE)]


@dataclass(frozen=True)
class Convolution:
    """Rows v of one layer, and e(v) = Σ_u Â(v,u)x(u) for all of them or some.

    Attributes:
        rows: (s,) node ids, those of a block.
        chosen: (k,) positions in `rows` of the rows that are computed, ascending.
        columns: (m,) ids of the nodes in these rows of Â, ascending.
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
    """The convolution of each batch of rows; of random rows of it if all would take too long."""
    picked = []
    for rows in batches:
        count = network.affordable_rows(layer, len(rows))
        some = count < len(rows)
        chosen = rng.choice(len(rows), count, replace=False) if some else np.arange(len(rows))
        picked.append(np.sort(chosen))
    parts = [
        network.data.adjacency.rows(rows[chosen])
        for rows, chosen in zip(batches, picked, strict=True)
    ]
    # Batches share hubs, so the rows x(u) of all batches are computed together.
    reached = np.unique(np.concatenate([part.indices for part in parts])).astype(np.int64)
    x = network.rows(layer, reached)
    check_finite(x, network.data)
    return [
        _convolution(rows, chosen, part, reached, x)
        for rows, chosen, part in zip(batches, picked, parts, strict=True)
    ]


def check_finite(values: FloatArray, data: TrainingData) -> None:
    """Refuse to measure errors of a network whose numbers, or their squares, overflow."""
    with np.errstate(over="ignore"):
        squares = np.square(values)
    if not is_finite(squares):
        shown = extreme(data.features.features).shown(None, None)
        raise InputError(
            f"the network's numbers are not finite on this graph, so its errors cannot be "
            f"measured; {shown}; scale the features, feature_scaling = standard"
        )


def _convolution(
    rows: IntArray, chosen: IntArray, part: Rows, reached: IntArray, x: FloatArray
) -> Convolution:
    columns, places = np.unique(part.indices, return_inverse=True)
    shape = (len(chosen), len(columns))
    matrix = csr_array((part.values.astype(np.float64), places, part.indptr), shape=shape)
    of_columns = x[np.searchsorted(reached, columns)]
    return Convolution(rows, chosen, columns.astype(np.int64), matrix, of_columns)


def draw_batches(data: TrainingData, size: int, count: int, seed: int) -> list[Tensor]:
    """Up to `count` batches of different training nodes."""
    rng = torch.Generator().manual_seed(seed)
    nodes = data.batch_nodes[torch.randperm(len(data.batch_nodes), generator=rng)]
    return [nodes[start : start + size] for start in range(0, len(nodes), size)][:count]


def rows_below(
    member: TrainConfig, network: ExactNetwork, layer: int, t: int, rows: Sequence[IntArray]
) -> list[IntArray]:
    """The rows that the layer below must compute if `member` draws t vertices for `rows`."""
    own_rows = network.config.needs_own_rows
    sampler = network.sampler(member, [layer], [t], own_rows=own_rows)
    rng = torch.Generator().manual_seed(network.config.seed)
    return [sampler.sample(torch.from_numpy(ids), rng)[0].src.numpy() for ids in rows]
