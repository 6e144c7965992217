"""Scores of a network on the nodes that it is judged on, after every epoch or once."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fastgcn.adjacency import Rows, RowSource, induced_csr
from fastgcn.config import TrainConfig
from fastgcn.features import FeatureRows
from fastgcn.graph import Graph
from fastgcn.inference import feature_rows
from fastgcn.layerwise import MixedRows, full_forward, needed_nodes
from fastgcn.mapped import forget
from fastgcn.metrics import Metrics, measure
from fastgcn.models import GCN
from fastgcn.propagation import fits_in_memory, propagate
from fastgcn.rows import GraphRows
from fastgcn.samplers import Block, FullSampler
from fastgcn.sparse_inputs import sparse_inputs
from fastgcn.sparse_rows import InputRows
from fastgcn.types import BoolArray, FloatArray, IntArray

# Bytes of ÂX up to which a `Judge` keeps its rows in memory.
_KEPT_BYTES = 1 << 27


class Judge:
    """Scores a network on a part of the split by the full GCN (eq. 1).

    What does not depend on the weights, the needed rows of Â and of ÂX, is computed once: in
    memory where it is little, and else, for it may be more than all that training holds, in a
    file in `folder`, from which an evaluation reads it in chunks. Nothing is kept where the
    network is to be judged `once`: Â(XW) takes less than ÂX.
    """

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        part: IntArray,
        *,
        once: bool = False,
        folder: Path | None = None,
    ) -> None:
        nodes: IntArray | None = None
        if config.evaluation_graph == "joined" and config.inductive:
            nodes = np.union1d(graph.split.train, part)
        csr = graph.csr if nodes is None else induced_csr(graph.csr, nodes)
        assert graph.labels is not None
        if graph.labels.ndim == 1:
            part = part[graph.labels[part] >= 0]
        self.labels: IntArray | BoolArray = graph.labels[part]
        self._part = part if nodes is None else np.searchsorted(nodes, part)
        self._rows: RowSource = GraphRows(csr, config.normalization)
        self._nodes, self._all_features = nodes, graph.features
        self._once, self._folder = once, folder or Path.cwd()
        self._features: FeatureRows | None = None
        self._blocks: list[Block] = []
        self._inputs: InputRows | None = None
        self._needed: list[IntArray] | None = None
        self._mixed: MixedRows | None = None

    def __len__(self) -> int:
        return len(self._part)

    def __call__(self, model: GCN) -> Metrics:
        """Scores of the network as it is."""
        if self._features is None:
            # Here and not before: standardised features are scaled by figures of the network.
            self._features = feature_rows(model, self._all_features, self._nodes)
            if not self._once:
                self._plan(self._features, model)
        if self._inputs is None:
            logits = full_forward(
                model,
                self._rows,
                self._features,
                self._part,
                needed=self._needed,
                mixed=self._mixed,
            )
        else:
            model.eval()
            with torch.no_grad():
                logits = model(self._blocks, self._inputs)
            model.train()
        return measure(model.probabilities(logits).cpu().numpy(), self.labels)

    def _plan(self, features: FeatureRows, model: GCN) -> None:
        """Keep what every evaluation needs."""
        on_cpu, layers = next(model.parameters()).device.type == "cpu", len(model.layers)
        widths = 1 if model.convolutions[0].own_weight is None else 2
        self._needed = needed_nodes(self._rows, np.unique(self._part), layers)
        n_bytes = 4 * len(self._needed[1]) * features.width * widths
        large = on_cpu and n_bytes > _KEPT_BYTES
        if not large or features.sparse:
            self._keep_in_memory(features, model, dense=not large and fits_in_memory(n_bytes))
        if large and self._inputs is None:
            self._mixed = self._kept_in_a_file(features, self._needed[1])
            self._rows = _Remembered(self._rows, self._needed[-1])

    def _keep_in_memory(self, features: FeatureRows, model: GCN, *, dense: bool) -> None:
        """The rows of ÂX, on the CPU sparse where they are few entries, else if `dense` dense."""
        device = next(model.parameters()).device
        part = torch.tensor(self._part)  # a copy: a store's arrays cannot be written
        blocks = FullSampler(self._rows, len(model.layers) - 1).sample(part)
        needed = (blocks[0].src if blocks else part).numpy()
        rows = self._rows.rows(needed)
        own = None if model.convolutions[0].own_weight is None else needed
        if device.type == "cpu":
            sparse = sparse_inputs(rows, features, own, lambda size: size <= _KEPT_BYTES)
            # Taken, for the product to be one that is compiled for batches already.
            self._inputs = None if sparse is None else sparse.take(np.arange(len(sparse)))
        if self._inputs is None and dense:
            self._inputs = torch.from_numpy(features.convolve(rows, own)).to(device)
        self._blocks = [block.to(device) for block in blocks]

    def _kept_in_a_file(self, features: FeatureRows, nodes: IntArray) -> MixedRows | None:
        """The rows of ÂX of `nodes`, on disk; None where there is no room."""
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                kept = propagate(_Selected(self._rows, nodes), features, out=file)
        except OSError:
            return None

        def rows(start: int, stop: int) -> FloatArray:
            some = np.array(kept[start:stop])
            forget(kept)
            return some

        return rows


class _Remembered:
    """Rows of Â, of which those of `nodes`, ascending, are made once.

    Reading them again each time would map most of a store's edges, which lie scattered.
    """

    def __init__(self, source: RowSource, nodes: IntArray) -> None:
        self.source, self.nodes = source, nodes
        self.kept = source.rows(nodes)

    @property
    def n(self) -> int:
        return self.source.n

    def rows(self, ids: IntArray) -> Rows:
        start = int(np.searchsorted(self.nodes, ids[0])) if len(ids) else 0
        if not np.array_equal(self.nodes[start : start + len(ids)], ids):
            return self.source.rows(ids)
        indptr, indices, values = self.kept
        first, last = indptr[start], indptr[start + len(ids)]
        some = indptr[start : start + len(ids) + 1] - first
        return Rows(some, indices[first:last], values[first:last])


@dataclass(frozen=True, slots=True)
class _Selected:
    """Some rows of Â under new row numbers, columns as they were."""

    source: RowSource
    nodes: IntArray

    @property
    def n(self) -> int:
        return len(self.nodes)

    def rows(self, ids: IntArray) -> Rows:
        return self.source.rows(self.nodes[ids])
