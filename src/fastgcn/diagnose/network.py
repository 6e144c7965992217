"""The rows that a network's sampled layers mix, computed exactly, for the nodes asked for alone."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.features import FeatureRows
from fastgcn.kernels.products import sparse_times_dense
from fastgcn.models import GCN
from fastgcn.samplers import FullSampler
from fastgcn.training_data import TrainingData
from fastgcn.types import FloatArray, IntArray

# Nodes whose inputs are read together; bounds the temporaries.
_NODES_AT_ONCE = 16_384

# Multiplications of gathered rows that the exact rows of one batch may take, or a few of its rows
# must stand for it: about a tenth of a second on two cores.
_WORK = 1 << 28
_FEWEST_ROWS = 4
# How much less time a multiplication takes in a product of dense matrices.
_DENSE_GAIN = 16


@dataclass(frozen=True)
class ExactNetwork:
    """A network over its training graph; nothing is sampled, and dropout is off.

    `config` says which layers are sampled: layer l of these is layer l + `precompute` of the
    network. `data` may hold ÂX, or features from which the rows of ÂX needed are computed.
    """

    model: GCN
    data: TrainingData
    config: TrainConfig

    @property
    def layers(self) -> int:
        """How many layers are sampled."""
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
        """(n,): |x(u)| of all vertices, as `optimal` draws by."""
        chunks = [self.rows(layer, ids) for ids in _chunks(np.arange(self.data.adjacency.n))]
        return np.concatenate([np.linalg.norm(x, axis=1) for x in chunks])

    def affordable_rows(self, layer: int, rows: int) -> int:
        """Of so many rows of a layer, how many can be computed exactly in a moment."""
        matrix, (features, hidden) = self.data.adjacency, self.model.sizes[:2]
        # Each layer below widens the nodes needed by their neighbours; with ÂX at hand, one less.
        at_hand = not isinstance(self.data.inputs, FeatureRows)
        widenings = 1 + layer + self.config.precompute - at_hand
        entries = len(matrix.values)
        width = hidden if self._weights_first(_WORK // max(hidden, 1)) else features
        if widenings * entries * width <= _WORK:
            return rows
        # Who is met along an edge has more neighbours than who is met at random: Σd² / Σd.
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
        inputs, first = self.data.inputs, self.model.convolutions[0]
        if not isinstance(inputs, FeatureRows):
            mixed = first(self.data.rows(torch.from_numpy(ids)), None)
            return self.model.activate(0, mixed)
        rows = self.data.adjacency.rows(ids)
        if self._weights_first(len(rows.indices)):
            own = None if first.own_weight is None else torch.from_numpy(inputs(ids))
            mixed = first.finish(torch.from_numpy(sparse_times_dense(*rows, self._weighed)), own)
        else:
            beside = None if first.own_weight is None else ids
            mixed = first(torch.from_numpy(inputs.convolve(rows, beside)), None)
        return self.model.activate(0, mixed)

    def _weights_first(self, entries: int) -> bool:
        """Whether so many entries of Â take less time with XW, of all nodes, than with X."""
        known = "_weighed" in self.__dict__
        features, hidden = self.model.sizes[:2]
        dense = 0.0 if known else self.data.adjacency.n * features * hidden / _DENSE_GAIN
        possible = isinstance(self.data.inputs, FeatureRows)
        return possible and dense + entries * hidden < entries * features

    @cached_property
    def _weighed(self) -> FloatArray:
        """(n, d): XW of the first layer."""
        inputs = self.data.inputs
        assert isinstance(inputs, FeatureRows)
        weight: Tensor = self.model.convolutions[0].weight
        shift = torch.zeros(weight.shape[1])
        if inputs.statistics is not None:
            # ((X - mean)·scale)W as X(scale·W) less a row: X is not written anew, only read.
            mean, scale = map(torch.from_numpy, inputs.statistics)
            weight = scale[:, None] * weight
            shift = mean @ weight
            inputs = FeatureRows(inputs.features, "none", inputs.nodes)
        every = _chunks(np.arange(self.data.adjacency.n))
        parts = [torch.from_numpy(inputs(ids)) @ weight - shift for ids in every]
        weighed: FloatArray = torch.cat(parts).numpy()
        return weighed


def _chunks(ids: IntArray) -> list[IntArray]:
    return [ids[start : start + _NODES_AT_ONCE] for start in range(0, len(ids), _NODES_AT_ONCE)]
