"""What a training run sees: the training graph's Â, inputs and labels."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastgcn.adjacency import Adjacency, Rows, induced_csr, normalize
from fastgcn.config import TrainConfig
from fastgcn.csr import CSR
from fastgcn.errors import InputError
from fastgcn.features import FeatureRows, Statistics, column_statistics
from fastgcn.graph import Graph
from fastgcn.machine import choose_device
from fastgcn.mapped import forget
from fastgcn.propagation import fits_in_memory, propagate
from fastgcn.samplers import Block
from fastgcn.sparse_inputs import sparse_inputs
from fastgcn.sparse_rows import InputRows, SparseRows
from fastgcn.types import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The graph that is trained on, renumbered 0..n-1 if it is a part of the whole.

    Attributes:
        adjacency: Â of the training graph.
        edges: those of the training graph, where neighbours are drawn from them.
        inputs: rows of ÂX (n, F) where precomputed, else rows of X on demand. Where ÂX is sparse,
            with the rows of X to the right of it for a first layer that wants both.
        beside: rows of X that go to the right of those of a dense ÂX, for such a layer.
        batch_nodes: (k,) ids of the nodes that batches are made of.
        labels: (n,) int64 or (n, C) float32.
        statistics: of the training nodes' features, where they are standardised.
    """

    adjacency: Adjacency
    edges: CSR | None
    inputs: FloatArray | SparseRows | FeatureRows
    beside: FeatureRows | None
    batch_nodes: Tensor
    labels: Tensor
    statistics: Statistics | None

    def rows(self, ids: Tensor) -> Tensor:
        """(len(ids), F), or (len(ids), 2F): the network's input rows."""
        rows = self.input_rows(ids)
        return rows.dense() if isinstance(rows, SparseRows) else rows

    def input_rows(self, ids: Tensor) -> InputRows:
        """The same, sparse where they are kept so."""
        if isinstance(self.inputs, SparseRows):
            return self.inputs.take(ids.numpy())
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
    inputs: FloatArray | SparseRows | FeatureRows = features
    if config.precompute:
        inputs = _precomputed(adjacency, features, config, folder)
    assert graph.labels is not None
    return TrainingData(
        adjacency,
        edges,
        inputs,
        features if isinstance(inputs, np.ndarray) and config.input_skip else None,
        batch_nodes,
        label_tensor(graph.labels if nodes is None else graph.labels[nodes]),
        statistics,
    )


def _precomputed(
    adjacency: Adjacency, features: FeatureRows, config: TrainConfig, folder: Path | None
) -> FloatArray | SparseRows:
    """ÂX: sparse where it pays and the CPU trains, else dense in memory, else in a file."""
    if choose_device(config.device).type == "cpu":
        rows = Rows(adjacency.indptr, adjacency.indices, adjacency.values)
        own = np.arange(adjacency.n) if config.input_skip else None
        sparse = sparse_inputs(rows, features, own, fits_in_memory)
        if sparse is not None:
            return sparse
    if fits_in_memory(4 * adjacency.n * features.width):
        return propagate(adjacency, features)
    # Without a name, so that its space is freed however the run ends.
    with tempfile.TemporaryFile(dir=folder or Path.cwd()) as file:
        return propagate(adjacency, features, out=file)


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
