"""What a training run sees: the training graph's Â and inputs, and the nodes it is judged on."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastgcn.adjacency import Adjacency, Rows, RowSource, induced_csr, normalize
from fastgcn.config import TrainConfig
from fastgcn.csr import CSR
from fastgcn.errors import InputError
from fastgcn.features import FeatureRows, Statistics, column_statistics
from fastgcn.graph import Graph
from fastgcn.inference import feature_rows
from fastgcn.layerwise import MixedRows, full_forward, needed_nodes
from fastgcn.mapped import forget
from fastgcn.metrics import Metrics, measure
from fastgcn.models import GCN
from fastgcn.propagation import fits_in_memory, propagate
from fastgcn.rows import GraphRows
from fastgcn.samplers import Block, FullSampler
from fastgcn.types import AnyArray, BoolArray, FloatArray, IntArray

# Bytes of ÂX up to which a `Judge` keeps its rows in memory.
_KEPT_BYTES = 1 << 27


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The graph that is trained on, renumbered 0..n-1 if it is a part of the whole.

    Attributes:
        adjacency: Â of the training graph.
        edges: those of the training graph, where neighbours are drawn from them.
        inputs: rows of ÂX (n, F) where precomputed, else rows of X on demand.
        beside: rows of X that go to the right of those of ÂX, for a first layer that wants both.
        batch_nodes: (k,) ids of the nodes that batches are made of.
        labels: (n,) int64 or (n, C) float32.
        statistics: of the training nodes' features, where they are standardised.
    """

    adjacency: Adjacency
    edges: CSR | None
    inputs: "FloatArray | FeatureRows"
    beside: FeatureRows | None
    batch_nodes: Tensor
    labels: Tensor
    statistics: Statistics | None

    def rows(self, ids: Tensor) -> Tensor:
        """(len(ids), F), or (len(ids), 2F): the network's input rows."""
        if isinstance(self.inputs, FeatureRows):
            return torch.from_numpy(self.inputs(ids.numpy()))
        if isinstance(self.inputs, np.memmap):
            rows = torch.from_numpy(self.inputs[ids.numpy()])
        else:
            rows = torch.from_numpy(self.inputs)[ids]
        if self.beside is None:
            return rows
        return torch.cat([rows, torch.from_numpy(self.beside(ids.numpy()))], dim=1)

    def mixed_rows(self, block: Block, *, beside: bool) -> Tensor:
        """(s, F): adj @ X of a block of the input layer, X not gathered.

        With `beside`, (s, 2F): the rows of `dst` themselves to the right of that.
        """
        assert isinstance(self.inputs, FeatureRows)
        assert block.csr is not None
        indptr, columns, values = block.csr
        rows = Rows(indptr, block.src.numpy()[columns], values)
        own = block.dst.numpy() if beside else None
        return torch.from_numpy(self.inputs.convolve(rows, own))


class TrainingGraph(NamedTuple):
    """The nodes trained on (None: all), their edges, and Â of these, renumbered."""

    nodes: IntArray | None
    csr: CSR
    adjacency: Adjacency

    def batch_nodes(self, graph: Graph) -> Tensor:
        """(k,) int64: the nodes that batches are made of."""
        ids = np.arange(self.adjacency.n) if self.nodes is not None else graph.split.train
        return torch.from_numpy(np.array(ids, dtype=np.int64))


def training_graph(graph: Graph, config: TrainConfig) -> TrainingGraph:
    """Induced on the training nodes if inductive, else all of the graph."""
    nodes = graph.split.train if config.inductive else None
    csr = graph.csr if nodes is None else induced_csr(graph.csr, nodes)
    forget(graph.indices)
    return TrainingGraph(nodes, csr, normalize(csr, config.normalization))


def prepare(graph: Graph, config: TrainConfig, folder: Path | None) -> TrainingData:
    """The training graph of `graph`, and its inputs.

    Inductive training reads no feature, label or edge of a node outside the training part.
    """
    check_trainable(graph, config)
    trained = training_graph(graph, config)
    batch_nodes = trained.batch_nodes(graph)
    nodes, csr, adjacency = trained
    edges = csr if config.neighbor_sampling else None
    del trained, csr  # as large as Â, which is all that others need of them
    statistics = None
    if config.feature_scaling == "standard":
        statistics = column_statistics(graph.features, graph.split.train)
    features = FeatureRows(graph.features, config.feature_scaling, nodes, statistics)
    inputs: FloatArray | FeatureRows = features
    if config.precompute:
        n_bytes = 4 * adjacency.n * features.width
        if fits_in_memory(n_bytes):
            inputs = propagate(adjacency, features)
        else:
            # Without a name, so that its space is freed however the run ends.
            with tempfile.TemporaryFile(dir=folder or Path.cwd()) as file:
                inputs = propagate(adjacency, features, out=file)
    assert graph.labels is not None
    return TrainingData(
        adjacency,
        edges,
        inputs,
        features if config.precompute and config.input_skip else None,
        batch_nodes,
        label_tensor(graph.labels if nodes is None else graph.labels[nodes]),
        statistics,
    )


def label_tensor(labels: AnyArray) -> Tensor:
    """Class ids as int64, label sets as float32: what the losses take."""
    return torch.from_numpy(labels.astype(np.int64 if labels.ndim == 1 else np.float32))


def check_trainable(graph: Graph, config: TrainConfig) -> None:
    """Refuse, in one sentence, what cannot be trained."""
    if graph.labels is None:
        raise InputError(f"{graph.name} has no labels, and training needs them")
    if not graph.split.train.size:
        raise InputError(
            f"{graph.name} has no training nodes; give it a split "
            "(a split column, or --split random)"
        )
    if graph.n_features == 0:
        raise InputError(f"the nodes of {graph.name} have no features, and training needs them")
    n = len(graph.split.train) if config.inductive else graph.n_nodes
    for t in config.layer_samples:
        if t > n:
            raise InputError(
                f"samples must be at most the {n:,} nodes of the training graph, got {t:,}"
            )


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
        self._inputs: Tensor | None = None
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
        device, layers = next(model.parameters()).device, len(model.layers)
        beside = model.convolutions[0].own_weight is not None
        self._needed = needed_nodes(self._rows, np.unique(self._part), layers)
        n_bytes = 4 * len(self._needed[1]) * features.width * (2 if beside else 1)
        if device.type == "cpu" and n_bytes > _KEPT_BYTES:
            self._mixed = self._kept_in_a_file(features, self._needed[1])
            self._rows = _Remembered(self._rows, self._needed[-1])
        elif fits_in_memory(n_bytes):
            part = torch.tensor(self._part)  # a copy: a store's arrays cannot be written
            blocks = FullSampler(self._rows, layers - 1).sample(part)
            self._blocks = [block.to(device) for block in blocks]
            needed = (blocks[0].src if blocks else part).numpy()
            inputs = features.convolve(self._rows.rows(needed), needed if beside else None)
            self._inputs = torch.from_numpy(inputs).to(device)

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
