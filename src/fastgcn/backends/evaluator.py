"""Scores of a network on a part of the split, by the exact network, again and again or once."""

from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import BoolArray, IntArray
from fastgcn.backends.exact import (
    ROW_ARRAYS,
    feature_rows,
    full_forward,
    needed_nodes,
    with_all_of_most,
)
from fastgcn.config import TrainConfig
from fastgcn.features.disk import first_layer_rows
from fastgcn.features.plan import Budget
from fastgcn.features.propagate import sparse_inputs
from fastgcn.features.sparse import InputRows
from fastgcn.features.store import FeatureStore, NodeFeatures
from fastgcn.graph.adjacency import AdjacencyRows, NormalizedRows, Rows
from fastgcn.graph.edges import GraphEdges, induced_csr
from fastgcn.graph.graph import Graph
from fastgcn.machine import one_thread
from fastgcn.metrics import Metrics, measure
from fastgcn.model import GCN
from fastgcn.sampling import Block, FullSampler
from fastgcn.scratch import Room

# Multiplications of the first product below which a network is judged on one thread: the other one
# would take as long to come and to go, and keep a core from drawing the next batches.
_SMALL_PRODUCT = 1 << 28


# Bytes of ÂX up to which a an `Evaluator` keeps its rows in memory.
_KEPT_BYTES = 1 << 27


_ENTRY_BYTES = 8  # of a row of Â: an int32 and a float32


class Scorer(Protocol):
    """Scores a network on some nodes; its length is the number of labelled ones."""

    def __len__(self) -> int: ...

    def __call__(self, model: GCN) -> Metrics: ...


class Evaluator:
    """Scores a network on a part of the split by the full GCN (eq. 1).

    What does not depend on the weights, the needed rows of Â and of ÂX, is computed once: in
    memory where it is little, and else, for it may be more than all that training holds, in a
    file (`disk_inputs`), from which an evaluation reads it in chunks. Where the network is to be
    judged `once`, Â(XW) takes less than ÂX, and nothing is kept unless XW has no room in memory.
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
        self._rows: AdjacencyRows = NormalizedRows(GraphEdges(csr), config.normalization)
        self._graph, self._config, self._nodes = graph, config, nodes
        self._once, self._folder = once, folder
        self._budget = Budget.of(config.memory)
        self._features: NodeFeatures | None = None
        self._blocks: list[Block] = []
        self._inputs: InputRows | None = None
        self._needed: list[IntArray] | None = None
        self._mixed: FeatureStore | None = None

    def __len__(self) -> int:
        return len(self._part)

    def __call__(self, model: GCN) -> Metrics:
        """Scores of the network as it is."""
        if self._features is None:
            # Here and not before: standardised features are scaled by figures of the network.
            self._features = feature_rows(model, self._graph.features, self._nodes)
            self._plan(self._features, model)
        if self._inputs is None:
            found = model.probabilities(self._logits_chunk_by_chunk(model))
        else:
            found = _probabilities(model, self._blocks, self._inputs)
        return measure(found.cpu().numpy(), self.labels)

    def _logits_chunk_by_chunk(self, model: GCN) -> Tensor:
        """What is not kept is read or computed on the way."""
        assert self._features is not None
        return full_forward(
            model,
            self._rows,
            self._features,
            self._part,
            needed=self._needed,
            mixed=self._mixed,
            room=Room(self._left() // ROW_ARRAYS, self._folder or Path.cwd()),
        )

    def _left(self) -> int:
        return max(self._budget.left(), 0)

    def _plan(self, features: NodeFeatures, model: GCN) -> None:
        """Keep what every evaluation needs."""
        on_cpu, layers = next(model.parameters()).device.type == "cpu", len(model.layers)
        if self._once:
            width = min(model.sizes[:2])
            if not on_cpu or 4 * self._rows.n * width <= self._left() // ROW_ARRAYS:
                return
        widths = 1 if model.convolutions[0].own_weight is None else 2
        self._needed = needed_nodes(self._rows, np.unique(self._part), layers)
        n_bytes = 4 * len(self._needed[1]) * features.width * widths
        large = on_cpu and n_bytes > min(_KEPT_BYTES, self._left())
        if not large or features.sparse:
            self._keep_in_memory(features, model, dense=not large)
        if large and self._inputs is None:
            if n_bytes > self._left():
                self._needed = with_all_of_most(self._needed, self._rows.n)
            self._keep_in_a_file(features, self._needed)

    def _keep_in_memory(self, features: NodeFeatures, model: GCN, *, dense: bool) -> None:
        """The rows of ÂX, on the CPU sparse where they are few entries, else if `dense` dense."""
        device = next(model.parameters()).device
        part = torch.tensor(self._part)  # a copy: a store's arrays cannot be written
        blocks = FullSampler(self._rows, len(model.layers) - 1).sample(part)
        needed = (blocks[0].src if blocks else part).numpy()
        rows = self._rows.rows(needed)
        own = None if model.convolutions[0].own_weight is None else needed
        if device.type == "cpu":
            self._inputs = sparse_inputs(rows, features, own, lambda size: size <= _KEPT_BYTES)
        if self._inputs is None and dense:
            self._inputs = features.convolve(rows, own).to(device)
        self._blocks = [block.to(device) for block in blocks]

    def _keep_in_a_file(self, features: NodeFeatures, needed: list[IntArray]) -> None:
        """The rows of ÂX that the first layer wants; nothing where the disk has no room."""
        try:
            kept = first_layer_rows(
                self._graph,
                self._rows,
                features,
                needed[1],
                normalization=self._config.normalization,
                dtype=self._config.inputs_dtype,
                folder=self._folder,
                room=self._left(),
            )
        except OSError:
            return
        self._mixed = kept
        entries = _ENTRY_BYTES * len(self._graph.indices) * len(needed[-1]) // max(self._rows.n, 1)
        if not self._once and entries <= self._left() // ROW_ARRAYS:
            self._rows = _Remembered(self._rows, needed[-1])


def _probabilities(model: GCN, blocks: list[Block], inputs: InputRows) -> Tensor:
    small = inputs.numel() * model.sizes[1] < _SMALL_PRODUCT
    model.eval()
    with torch.no_grad(), one_thread(small):
        found = model.probabilities(model(blocks, inputs))
    model.train()
    return found


class _Remembered:
    """Rows of Â, of which those of `nodes`, ascending, are made once.

    Reading them again each time would map most of a store's edges, which lie scattered.
    """

    def __init__(self, source: AdjacencyRows, nodes: IntArray) -> None:
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
