"""Scores of the exact network on a part of the split, computed repeatedly or once."""

import math
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.backends.base import score
from fastgcn.backends.exact import (
    ROW_ARRAYS,
    feature_rows,
    full_forward,
    needed_nodes,
    own_bytes,
    with_all_of_most,
)
from fastgcn.config import TrainConfig
from fastgcn.features.disk import first_layer_rows
from fastgcn.features.plan import Budget
from fastgcn.features.propagate import sparse_inputs
from fastgcn.features.sparse import InputRows
from fastgcn.features.store import FeatureStore, NodeFeatures
from fastgcn.graph.adjacency import Adjacency, AdjacencyRows, NormalizedRows
from fastgcn.graph.csr import CSR
from fastgcn.graph.edges import GraphEdges, Rows, induced_csr
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import Labels, has_label
from fastgcn.machine import one_thread
from fastgcn.metrics import Metrics
from fastgcn.model import GCN
from fastgcn.network import Network
from fastgcn.sampling.block import Block
from fastgcn.sampling.neighborhood import FullSampler
from fastgcn.scratch import Room

# Below this many multiplications of the first product, a network is evaluated on one thread:
# starting a second one takes as long.
_SMALL_PRODUCT = 1 << 24

# An `Evaluator` keeps rows of ÂX in memory up to this many bytes.
_KEPT_BYTES = 1 << 27

_ENTRY_BYTES = 8  # of a row of Â: an int32 and a float32


class Evaluator:
    """Scores a network on a part of the split by the full network (eq. 1).

    The needed rows of Â and of ÂX do not depend on the weights and are computed once. Few of them
    are kept in memory. Many, which may take more memory than training does, are kept in a file
    (features/disk.py) and read in chunks. If the network is evaluated `once`, Â(XW) is less work
    than ÂX, and nothing is kept unless XW does not fit in memory.
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
        part = part[has_label(graph.labels[part])]
        self.labels: Labels = graph.labels[part]
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
        self._lock = threading.Lock()  # candidates of a race share an evaluator

    def __len__(self) -> int:
        return len(self._part)

    def __call__(self, model: Network, also: Sequence[str] = ()) -> Metrics:
        """Scores of the network with its current weights; `also` names more of them."""
        return score(model, self._logits(model), self.labels, also)

    def outputs(self, model: Network) -> tuple[FloatArray, AnyArray]:
        return self._logits(model).cpu().numpy(), self.labels

    def _logits(self, model: Network) -> Tensor:
        with self._lock:
            if self._features is None:
                # Not earlier: the network holds the mean and scale of standardised features.
                self._features = feature_rows(model, self._graph.features, self._nodes)
                self._plan(self._features, model)
            if self._inputs is None:
                return self._logits_chunk_by_chunk(model)
        return _logits_of(model, self._blocks, self._inputs)

    def _logits_chunk_by_chunk(self, model: Network) -> Tensor:
        """Read or compute in chunks whatever is not kept."""
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

    def _plan(self, features: NodeFeatures, model: Network) -> None:
        """Keep what every evaluation needs."""
        on_cpu, layers = next(model.parameters()).device.type == "cpu", model.depth
        if not isinstance(model, GCN):
            self._keep_own(features, model)
            return
        if self._once:
            width = min(model.sizes[:2])
            if not on_cpu or 4 * self._rows.n * width <= self._left() // ROW_ARRAYS:
                return
        if on_cpu and features.sparse and self._config.method == "gcn":
            self._keep_sparse_features(features, layers)
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

    def _keep_own(self, features: NodeFeatures, model: Network) -> None:
        """Keep rows of X and blocks for a network that reads no ÂX, if they are small."""
        if self._once or 4 * self._rows.n * features.width > min(_KEPT_BYTES, self._left()):
            return
        device = next(model.parameters()).device
        blocks = FullSampler(self._rows, model.depth).sample(torch.tensor(self._part))
        if own_bytes(blocks, model) <= _KEPT_BYTES:
            self._inputs = features.take(blocks[0].src.numpy()).to(device)
            self._blocks = [block.to(device) for block in blocks]

    def _keep_sparse_features(self, features: NodeFeatures, layers: int) -> None:
        """Keep rows of X, if full passes train the network: X has fewer entries than ÂX."""
        part = torch.tensor(self._part)  # a copy: a store's arrays cannot be written
        self._blocks = FullSampler(self._rows, layers).sample(part)
        self._inputs = features.as_stored(self._blocks[0].src.numpy())

    def _keep_in_memory(self, features: NodeFeatures, model: GCN, *, dense: bool) -> None:
        """Keep rows of ÂX: sparse on the CPU if they have few entries, else dense if `dense`."""
        device = next(model.parameters()).device
        part = torch.tensor(self._part)  # a copy: a store's arrays cannot be written
        blocks = FullSampler(self._rows, model.depth - 1).sample(part)
        needed = (blocks[0].src if blocks else part).numpy()
        rows = self._rows.rows(needed)
        own = None if model.convolutions[0].own_weight is None else needed
        if device.type == "cpu":
            self._inputs = sparse_inputs(rows, features, own, lambda size: size <= _KEPT_BYTES)
        if self._inputs is None and dense:
            self._inputs = features.convolve(rows, own).to(device)
        self._blocks = [block.to(device) for block in blocks]

    def _keep_in_a_file(self, features: NodeFeatures, needed: list[IntArray]) -> None:
        """Keep the rows of ÂX that the first layer reads, unless the disk has no room."""
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


def _logits_of(model: Network, blocks: list[Block], inputs: InputRows) -> Tensor:
    small = inputs.numel() * model.sizes[1] < _SMALL_PRODUCT
    model.eval()
    with torch.no_grad(), one_thread(small, pool=True):
        found: Tensor = model(blocks, inputs)
    model.train()
    return found


class _Remembered:
    """Rows of Â that are made only once for `nodes`, which are ascending.

    The edges lie scattered in a store, so reading them each time would map most of its pages.
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


# A step's cost beside its products (drawing, finding entries, Adam): about a tenth of a
# millisecond, counted in multiplications.
_OF_A_STEP = 1 << 21

# An epoch counts as at least this many multiplications: a hundredth of a second of validation.
_OF_AN_EPOCH = 1 << 28


class Sizes(NamedTuple):
    """The sizes that the work of training and validation depends on, beside the settings.

    Attributes:
        nodes, entries: of Â of the training graph.
        batch_nodes: nodes that batches are made of.
        all_nodes, all_entries: of Â of the whole graph, which validation sees.
        inputs: numbers stored in X.
        scored, scored_entries: validation nodes, and entries of their rows of Â.
    """

    nodes: int
    entries: int
    batch_nodes: int
    all_nodes: int
    all_entries: int
    inputs: int
    scored: int
    scored_entries: int

    @classmethod
    def of(
        cls,
        adjacency: Adjacency,
        batch_nodes: int,
        csr: CSR,
        features: FloatArray | csr_array,
        scored: IntArray,
    ) -> "Sizes":
        """`adjacency` is the training graph's Â; `csr`, without loops, is the whole graph's."""
        nodes, degrees = len(csr.indptr) - 1, csr.indptr[scored + 1] - csr.indptr[scored]
        return cls(
            adjacency.n,
            len(adjacency.indices),
            batch_nodes,
            nodes,
            len(csr.indices) + nodes,
            features.size,
            len(scored),
            int(degrees.sum()) + len(scored),
        )

    @property
    def row_of_features(self) -> float:
        """Numbers stored in a row of X."""
        return self.inputs / self.all_nodes

    @property
    def row_of_inputs(self) -> float:
        """Numbers in a row of ÂX, assuming that no two neighbours share a feature."""
        return self.row_of_features * self.all_entries / self.all_nodes


def validation_interval(sizes: Sizes, config: TrainConfig, widths: Sequence[int]) -> int:
    """The least number of training epochs that are as much work as one validation.

    `widths` are the network's, F, d_1, ..., C. An epoch of less than a hundredth of a second
    counts as a hundredth of a second.

    >>> n, k = 232_965, 152_410
    >>> reddit = Sizes(k, 10_000_000, k, n, 23_400_000, 602 * n, 23_699, 2_400_000)
    >>> validation_interval(reddit, TrainConfig(), (602, 128, 41))
    4
    """
    epoch = max(training_work(sizes, config, widths), _OF_AN_EPOCH)
    unmixed = config.method == "gcn" and not config.precompute
    return max(1, math.ceil(validation_work(sizes, widths, unmixed=unmixed) / epoch))


def validation_work(sizes: Sizes, widths: Sequence[int], *, unmixed: bool = False) -> float:
    """Multiplications of the full network on the validation nodes, if ÂX is kept, or X, `unmixed`.

    Each layer multiplies the rows that the layer above reads by W, and the result by Â's entries.
    It is assumed that each entry reads another row, up to all rows of the graph, and that nodes
    below the neighbours of the validation nodes have the mean degree.
    """
    rows, entries, work = float(sizes.scored), float(sizes.scored_entries), 0.0
    for n_in, n_out in list(pairwise(widths))[:0:-1]:
        read = min(entries, float(sizes.all_nodes))
        work += _product(rows, read, entries, n_in, n_out)
        rows, entries = read, read * sizes.all_entries / sizes.all_nodes
    if unmixed:
        read = min(entries, float(sizes.all_nodes))
        return work + (read * sizes.row_of_features + entries) * widths[1]
    return work + rows * min(widths[0], sizes.row_of_inputs) * widths[1]


def training_work(sizes: Sizes, config: TrainConfig, widths: Sequence[int]) -> float:
    """Multiplications of an epoch's steps, with a fixed cost for each step.

    A layer's gradient is twice the layer's work; the first layer's is once, as its input has none.
    A batch of s out of n nodes has an edge to a vertex of c entries with probability
    1 - (1 - s/n)^c, c being the mean; this share of the vertices drawn over the whole graph is
    computed. A full pass without ÂX multiplies the stored numbers of X by W, then by Â. Not
    counted: the passes of `history` and `optimal`, and the products of skips.
    """
    full_batch = config.method == "gcn"
    rows = float(sizes.batch_nodes if full_batch else min(config.batch_size, sizes.batch_nodes))
    steps = math.ceil(sizes.batch_nodes / max(rows, 1))  # no training nodes: refused later
    degree, layers, work = sizes.entries / sizes.nodes, list(pairwise(widths)), 0.0
    for number in range(len(layers) - 1, config.precompute - 1, -1):
        met = 1 - (1 - min(rows / sizes.nodes, 1.0)) ** degree
        reached = met * sizes.nodes
        read = _read(config, number, rows, met, reached)
        entries = rows * degree * min(read / reached, 1.0) if reached else 0.0
        if config.needs_own_rows or config.self_term == "exact":
            read = min(read + rows, float(sizes.nodes))
        if full_batch and number == 0:
            work += 2 * (read * sizes.row_of_features + entries) * widths[1]
        else:
            work += (3 if number else 2) * _product(rows, read, entries, *layers[number])
        rows = read
    if config.precompute:
        work += 2 * rows * min(widths[0], sizes.row_of_inputs) * widths[1]
    return steps * (work + _OF_A_STEP)


def _read(config: TrainConfig, number: int, rows: float, met: float, reached: float) -> float:
    """The vertices below a layer's rows that are computed, of those that the rows reach."""
    if config.neighbor_sampling:
        return min(reached, rows * config.fanouts[number])
    if config.method != "fastgcn":
        return reached
    drawn = config.layer_samples[number - config.precompute]
    from_rows = config.distribution == "ladies" or config.neighbors_only
    return min(reached, drawn if from_rows else drawn * met)


def _product(rows: float, read: float, entries: float, n_in: int, n_out: int) -> float:
    """ÂHW of `rows` from `read` rows of H, in the cheaper order."""
    return min(
        read * n_in * n_out + entries * n_out,
        entries * n_in + rows * n_in * n_out,
    )
