"""The data of a training run: the training graph's Â, inputs and labels."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.config import NUMBER_METRICS, TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.disk import InputBlocks, inputs_key, kept_inputs, scratch_inputs
from fastgcn.features.plan import Budget, MemoryPlan, plan_memory, training_demand
from fastgcn.features.propagate import propagate, sparse_inputs
from fastgcn.features.sparse import InputRows, dense
from fastgcn.features.store import (
    DenseStore,
    FeatureStore,
    NodeFeatures,
    SideBySide,
    Statistics,
    column_statistics,
)
from fastgcn.graph.adjacency import Adjacency, NormalizedRows, gather
from fastgcn.graph.csr import CSR
from fastgcn.graph.edges import Rows, edges_of, induced_csr
from fastgcn.graph.graph import Graph
from fastgcn.machine import choose_device
from fastgcn.metrics import Target
from fastgcn.progress import note
from fastgcn.sampling.block import Block

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The training graph; its nodes are renumbered 0..n-1 if it is a part of the whole.

    Attributes:
        adjacency: Â of the training graph.
        edges: those of the training graph, if neighbours are drawn from them.
        features: rows of X (n, F).
        inputs: the network's input: rows of ÂX (n, F) if precomputed, or of [ÂX | X] (n, 2F) for
            a first layer that takes both; else `features` itself.
        batch_nodes: (k,) ids of the nodes that batches are made of.
        labels: (n,) int64; (n, C) float32; or (n, 1) float32, standardised numbers.
        statistics: of the training nodes' features, where they are standardised.
        target: what numbers are standardised by; None for classes.
    """

    adjacency: Adjacency
    edges: CSR | None
    features: NodeFeatures
    inputs: FeatureStore
    batch_nodes: Tensor
    labels: Tensor
    statistics: Statistics | None
    target: Target | None = None

    @property
    def precomputed(self) -> bool:
        """True if `inputs` hold ÂX, so that the first layer needs no block."""
        return self.inputs is not self.features

    def rows(self, ids: Tensor) -> Tensor:
        """(len(ids), F), or (len(ids), 2F): the network's input rows, dense."""
        return dense(self.input_rows(ids))

    def input_rows(self, ids: Tensor) -> InputRows:
        """The same, sparse if stored sparse. Unmaps the pages of Â: the batch is drawn by now."""
        rows = self.inputs.take(ids.numpy())
        self.adjacency.forget()
        return rows

    def mixed_rows(self, block: Block, *, beside: bool) -> Tensor:
        """(s, F): adj @ X for a block of the input layer, without gathering rows of X.

        With `beside`, (s, 2F): the rows of `dst` themselves stand to the right.
        """
        assert block.csr is not None
        indptr, columns, values = block.csr
        rows = Rows(indptr, block.src.numpy()[columns], values)
        mixed = self.features.convolve(rows, block.dst.numpy() if beside else None)
        self.adjacency.forget()
        return mixed


class TrainingGraph(NamedTuple):
    """The training nodes (None: all), their Â, renumbered, and their edges if neighbours are
    drawn from them.

    Attributes:
        squares: (n,) squared norms of the columns of Â.
    """

    nodes: IntArray | None
    csr: CSR | None
    adjacency: Adjacency
    squares: FloatArray
    plan: MemoryPlan

    def batch_nodes(self, graph: Graph) -> Tensor:
        """(k,) int64: the nodes that batches are made of."""
        ids = np.arange(self.adjacency.n) if self.nodes is not None else graph.split.train
        return torch.from_numpy(np.array(ids, dtype=np.int64))


def training_graph(graph: Graph, config: TrainConfig, folder: Path | None = None) -> TrainingGraph:
    """Induced on the training nodes if inductive, else all of the graph.

    If Â does not fit in `memory`, it lies in a file in `folder`, or in the working directory.
    """
    nodes = graph.split.train if config.inductive else None
    source = NormalizedRows(edges_of(graph.csr, nodes), config.normalization)
    demand = training_demand(graph, config, source.n, int(source.counts().sum()))
    plan = plan_memory(demand, Budget.of(config.memory), graph.name)
    if plan.worth_saying:
        note(str(plan))
    gathered = gather(source, None if plan.matrix_in_memory else folder or Path.cwd())
    csr = None
    if config.neighbor_sampling:
        csr = graph.csr if nodes is None else induced_csr(graph.csr, nodes)
    return TrainingGraph(nodes, csr, gathered.adjacency, gathered.squares, plan)


def prepare(graph: Graph, config: TrainConfig, folder: Path | None) -> TrainingData:
    """The training graph of `graph`, and its inputs.

    Inductive training reads no feature, label or edge of a node outside the training part.
    """
    check_trainable(graph, config)
    trained = training_graph(graph, config, folder)
    nodes, statistics = trained.nodes, None
    if config.feature_scaling == "standard":
        statistics = column_statistics(graph.features, graph.split.train)
    features = NodeFeatures(
        graph.features,
        config.feature_scaling,
        nodes,
        statistics,
        keep_pages=trained.plan.features_in_memory,
    )
    inputs: FeatureStore = features
    if config.precompute:
        inputs = _precomputed(graph, trained, features, config, folder)
    assert graph.labels is not None
    target = target_of(graph.labels[graph.split.train], config) if graph.regression else None
    return TrainingData(
        trained.adjacency,
        trained.csr,
        features,
        inputs,
        trained.batch_nodes(graph),
        label_tensor(graph.labels if nodes is None else graph.labels[nodes], target),
        statistics,
        target,
    )


def _precomputed(
    graph: Graph,
    trained: TrainingGraph,
    features: NodeFeatures,
    config: TrainConfig,
    folder: Path | None,
) -> FeatureStore:
    """ÂX: sparse if that is faster and the CPU trains, else dense in memory, else in a file."""
    adjacency, plan = trained.adjacency, trained.plan
    if choose_device(config.device).type == "cpu":
        rows = Rows(adjacency.indptr, adjacency.indices, adjacency.values)
        own = np.arange(adjacency.n) if config.input_skip else None
        sparse = sparse_inputs(rows, features, own, lambda size: 2 * size <= plan.chunk_bytes)
        if sparse is not None:
            return sparse
    if plan.inputs_in_memory and config.inputs_dtype == "float32":
        mixed_rows = DenseStore(propagate(adjacency, features))
        return SideBySide(mixed_rows, features) if config.input_skip else mixed_rows
    mixed = InputBlocks(adjacency, features, config.inputs_dtype, beside=config.input_skip)
    if plan.inputs_in_memory:
        return scratch_inputs(mixed, None, (plan.chunk_bytes - plan.demand.inputs) // 2)
    key = inputs_key(graph, config.normalization, features)
    kept = kept_inputs(graph, key, mixed, folder, plan.chunk_bytes)
    kept.keep_hot(np.argsort(-trained.squares), plan.hot_bytes)
    return kept


class SharedData:
    """What trainings on one graph have in common: equal parts are made once.

    >>> shared = SharedData()
    >>> shared.get("a", lambda: [1]) is shared.get("a", lambda: [2])
    True
    """

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}
        self._lock = threading.RLock()  # candidates of a race ask from threads of their own

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` returned when it was first called with this key."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            return cast(T, self._kept[key])

    def clear(self) -> None:
        """Keep nothing any longer; trainings keep the parts that they use."""
        self._kept.clear()


def target_of(
    values: AnyArray,
    config: TrainConfig,
    summed: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> Target:
    """Mean and standard deviation of the training nodes' numbers (k,); of several processes that
    have some each, `summed` adds up the sums."""
    count, total = summed(torch.tensor([len(values), values.sum()]).double()).tolist()
    mean = total / max(count, 1)
    squares = float(summed(torch.tensor([np.square(values - mean).sum()]).double()))
    return Target(mean, math.sqrt(squares / max(count, 1)), config.loss)


def label_tensor(labels: AnyArray, target: Target | None = None) -> Tensor:
    """The labels as the losses take them: class ids as int64, label sets as float32, and numbers
    standardised as float32 (n, 1), zero where there is none."""
    if target is not None:
        numbers = np.nan_to_num(target.standardized(labels), nan=0.0)
        return torch.from_numpy(numbers.astype(np.float32))[:, None]
    return torch.from_numpy(labels.astype(np.int64 if labels.ndim == 1 else np.float32))


def check_trainable(graph: Graph, config: TrainConfig | None = None) -> None:
    """Raise an `InputError` if this graph cannot be trained on, or not with these settings."""
    if graph.labels is None:
        raise InputError(f"{graph.name} has no labels, and training needs them")
    if not graph.split.train.size:
        raise InputError(
            f"{graph.name} has no training nodes; give it a split "
            "(a split column, or --split random; fastgcn.random_split(graph) in Python)"
        )
    if graph.n_features == 0:
        raise InputError(
            f"the nodes of {graph.name} have no features, and training needs them; "
            "fastgcn.structural_features(graph) makes some of the edges"
        )
    if config is None:
        return
    check_settings_of_task(graph, config)
    n = len(graph.split.train) if config.inductive else graph.n_nodes
    for t in config.layer_samples:
        if t > n:
            raise InputError(
                f"samples must be at most the {n:,} nodes of the training graph, got {t:,}; lower "
                "samples (--samples), or have it chosen for the graph (--preset auto)"
            )


def check_settings_of_task(graph: Graph, config: TrainConfig) -> None:
    """Raise an `InputError` if a setting is for classes and the labels are numbers, or the other
    way round."""
    of_numbers = config.metric in NUMBER_METRICS
    if not graph.regression:
        if of_numbers or config.loss != "auto":
            asked = ("metric", config.metric) if of_numbers else ("loss", config.loss)
            raise InputError(
                f"{asked[0]} = {asked[1]!r} is for regression, and {graph.name} has classes; "
                "import it with --task regression (task='regression' in Python) if they are numbers"
            )
        return
    if config.class_weight != "none":
        raise InputError(
            f"class_weight = {config.class_weight!r} is for classes, and {graph.name} has a number "
            "to predict; leave it out"
        )
    if not of_numbers and config.metric not in ("auto", "loss"):
        raise InputError(
            f"metric = {config.metric!r} is for classes, and {graph.name} has a number to predict; "
            f"choose {', '.join(NUMBER_METRICS)} or loss"
        )


def make_loss(data: TrainingData, graph: Graph, config: TrainConfig) -> nn.Module:
    """Cross entropy over classes, or for each label; `balanced` weighs classes by 1/frequency. For
    numbers, the squared error or Huber's loss."""
    return loss_for(data.labels[data.batch_nodes], graph, config)


def loss_for(
    labels: Tensor,
    graph: Graph,
    config: TrainConfig,
    summed: Callable[[Tensor], Tensor] = lambda counts: counts,
) -> nn.Module:
    """The same from the labels of the training nodes, or from those of one process; `summed` then
    adds up the counts of all processes."""
    if graph.regression:
        return nn.HuberLoss() if config.loss == "huber" else nn.MSELoss()
    if graph.multilabel:
        if config.class_weight == "none":
            return nn.BCEWithLogitsLoss()
        positive = summed(labels.sum(dim=0))
        negative = summed((1 - labels).sum(dim=0))
        # Clamped, so that a label that all nodes have, or none has, keeps a weight above zero.
        return nn.BCEWithLogitsLoss(pos_weight=negative.clamp(min=1) / positive.clamp(min=1))
    if config.class_weight == "none":
        return nn.CrossEntropyLoss()
    counts = summed(torch.bincount(labels, minlength=graph.n_classes))
    weight = counts.sum() / (graph.n_classes * counts.clamp(min=1).float())
    return nn.CrossEntropyLoss(weight=weight)


def row_losses(loss: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
    """(s,): the loss of each row, without weights of classes; their mean is `loss`, then."""
    if isinstance(loss, nn.CrossEntropyLoss):
        return nn.functional.cross_entropy(logits, labels, reduction="none")
    if isinstance(loss, nn.BCEWithLogitsLoss):
        each = nn.functional.binary_cross_entropy_with_logits(
            logits, labels, pos_weight=loss.pos_weight, reduction="none"
        )
    elif isinstance(loss, nn.HuberLoss):
        each = nn.functional.huber_loss(logits, labels, reduction="none")
    else:
        assert isinstance(loss, nn.MSELoss)
        each = nn.functional.mse_loss(logits, labels, reduction="none")
    return each.mean(1)
