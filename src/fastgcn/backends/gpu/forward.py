"""The exact network on the device: all rows of a graph at once, their scores and their norms."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.backends.base import score
from fastgcn.backends.gpu.data import (
    FREE_SHARE,
    DeviceGraph,
    DeviceTrainingData,
    upload_edges,
    upload_rows,
)
from fastgcn.backends.gpu.matrix import DeviceSparse, WholeBlock
from fastgcn.backends.gpu.recording import Recording
from fastgcn.config import TrainConfig
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import has_label
from fastgcn.kernels.gpu.products import empty_rows, row_stride
from fastgcn.metrics import USUAL, Metrics, read_tally, tally_on_device
from fastgcn.model import GCN, as_gcn
from fastgcn.network import Network
from fastgcn.sampling.block import Block

# Bytes of input rows computed together, if they are not on the device already.
_CHUNK_BYTES = 1 << 28


@torch.no_grad()
def exact_forward(
    model: GCN,
    blocks: Sequence[WholeBlock],
    x: Tensor | DeviceSparse | NodeFeatures,
    layers: int | None = None,
    *,
    first: int = 0,
) -> Tensor:
    """H^(layers) of the last block's rows, logits by default; x is H^(first).

    With one block fewer than layers, x holds rows of ÂX. X on the host is read in chunks.
    """
    stop = len(model.layers) if layers is None else layers
    known = cast(Sequence[Block], blocks)  # the network uses only what both kinds of block have
    was_training = model.training
    model.eval()
    try:
        if not isinstance(x, NodeFeatures):
            return model.onward(x, known, first, stop)
        assert first == 0
        return model.onward(_first_layer(model, blocks[0], x), known[1:], 1, stop)
    finally:
        model.train(was_training)


def _first_layer(model: GCN, block: WholeBlock, x: NodeFeatures) -> Tensor:
    """H(1) as Â(XW)."""
    layer = model.convolutions[0]
    product = _first_products(model, x)
    d = layer.weight.shape[1]
    out = block.mix(product[:, :d])
    if layer.own_weight is not None:
        out = out + block.own_rows(product[:, d:])
    return model.activate(0, out if layer.bias is None else out + layer.bias)


def _first_products(model: GCN, x: NodeFeatures) -> Tensor:
    """(n, d) XW of the first layer, or (n, 2d) with XR to its right if the layer has R."""
    layer = model.convolutions[0]
    own = [] if layer.own_weight is None else [layer.own_weight]
    weight = torch.cat([layer.weight, *own], 1).detach()
    out = torch.empty((len(x), weight.shape[1]), device=weight.device)
    ids = np.arange(len(x)) if x.nodes is None else x.nodes
    step = max(1, _CHUNK_BYTES // (4 * x.width))
    for first in range(0, len(x), step):
        some = ids[first : first + step]
        part = NodeFeatures(x.features, x.scaling, some, x.statistics)
        chunk = upload_rows(part, empty_rows(len(part), x.width, torch.float32, weight.device))
        torch.matmul(chunk, weight, out=out[first : first + step])
    return out


def fits(graph: Graph, model: GCN, device: torch.device) -> bool:
    """True if all rows of a graph fit on the device at once."""
    widths = row_stride(graph.n_features, torch.float32) + 4 * max(model.sizes[1:])
    needed = 4 * graph.n_nodes * widths + 24 * len(graph.indices)
    return needed <= FREE_SHARE * torch.cuda.mem_get_info(device)[0]


def apply_to_graph(model: GCN, graph: Graph, nodes: IntArray, layers: int) -> Tensor:
    """(len(nodes), d): H^(layers) of `nodes` in a graph that is not on the device yet."""
    weight = next(model.parameters())
    # Kernels are launched on torch's current device.
    with torch.cuda.device_of(weight):  # type: ignore[no-untyped-call]
        rows = NodeFeatures(graph.features, model.feature_scaling, None, model.feature_statistics)
        x = upload_rows(rows, empty_rows(len(rows), rows.width, torch.float32, weight.device))
        edges = upload_edges(graph.csr, weight.device)
        return rows_of(model, DeviceGraph(edges, rows, x), nodes, layers)


def rows_of(model: GCN, graph: DeviceGraph, nodes: IntArray, layers: int) -> Tensor:
    """(len(nodes), d): H^(layers) of `nodes`; all rows of the graph go through the network."""
    ids = torch.from_numpy(np.array(nodes, np.int64)).to(graph.device)
    if layers == 0:
        x = graph.x(ids)
        assert not isinstance(x, DeviceSparse)
        return x if isinstance(x, Tensor) else x.between(0, len(x)).to(graph.device)
    matrix = graph.edges.normalized(cast(Any, model.normalization))
    whole = WholeBlock.of(matrix)
    # Do not copy all rows: they take several times the memory of the edges.
    all_of_them = np.array_equal(nodes, np.arange(matrix.n))
    last = whole if all_of_them else WholeBlock.of(matrix, ids)
    return exact_forward(model, [*[whole] * (layers - 1), last], graph.x(None), layers)


@dataclass(frozen=True)
class EvaluationData:
    """What scoring networks on some nodes needs, whatever their weights.

    If X is dense on the device, ÂX of the evaluation graph is computed once, unless a network is
    to be evaluated only `once`. If X is sparse or on the host, Â(XW) is computed each time.
    """

    blocks: Sequence[WholeBlock]
    inputs: Tensor | DeviceSparse | NodeFeatures
    labels: Tensor

    @classmethod
    def of(
        cls, graph: Graph, config: TrainConfig, there: DeviceGraph, part: IntArray, *, once: bool
    ) -> "EvaluationData":
        assert graph.labels is not None
        everyone = part
        part = part[has_label(graph.labels[part])]
        ids = torch.from_numpy(np.array(part, np.int64)).to(there.device)
        known = np.array(graph.labels[part], np.float64 if graph.regression else np.int64)
        labels = torch.from_numpy(known).to(there.device)
        nodes: Tensor | None = None
        edges = there.edges
        if config.evaluation_graph == "joined" and config.inductive:
            joined = np.union1d(graph.split.train, everyone)
            nodes = torch.from_numpy(joined).to(there.device)
            edges = edges.induced(nodes)
            ids = torch.searchsorted(nodes, ids)
        matrix = edges.normalized(config.normalization)
        whole, asked = WholeBlock.of(matrix), WholeBlock.of(matrix, ids)
        blocks = [*[whole] * (config.layers - 1), asked]
        inputs = there.x(nodes)
        if once or not isinstance(inputs, Tensor):
            return cls(blocks, inputs, labels)
        # In a network of one layer, this is the block of the scored rows.
        mixing, *blocks = blocks
        mixed, own = mixing.mix(inputs), mixing.own_rows(inputs)
        return cls(blocks, torch.cat([mixed, own], 1) if config.input_skip else mixed, labels)


class DeviceEvaluator:
    """Scores a network on some nodes by the exact GCN (eq. 1), on the device.

    With `record`, the work for a network is recorded when it is first scored, and replayed; with
    `tf32`, it then multiplies as training does.
    """

    def __init__(self, data: EvaluationData, *, record: bool, tf32: bool = False) -> None:
        self.data, self._tf32 = data, tf32
        self._record = record and not isinstance(data.inputs, NodeFeatures)
        self._recorded: tuple[Network, Recording] | None = None
        self._found = torch.empty(0)

    def __len__(self) -> int:
        return len(self.data.labels)

    def __call__(self, model: Network, also: Sequence[str] = ()) -> Metrics:
        decision = model.decision
        plain = decision.temperature == 1.0 and decision.threshold == 0.5
        plain = plain and model.task != "regression"  # classes are counted in the recording
        if not self._record or not plain or set(also) - USUAL:
            return score(model, self._logits(model), self.data.labels, also)
        if self._recorded is None or self._recorded[0] is not model:
            work, device = partial(self._work, model), self.data.labels.device
            self._recorded = model, Recording(work, device, tf32=self._tf32)
        self._recorded[1].play()
        return read_tally(self._found, len(self)).metrics()

    def outputs(self, model: Network) -> tuple[FloatArray, AnyArray]:
        return self._logits(model).cpu().numpy(), self.data.labels.cpu().numpy()

    def _logits(self, model: Network) -> Tensor:
        return exact_forward(as_gcn(model, "a GPU's own pass"), self.data.blocks, self.data.inputs)

    def _work(self, model: Network) -> None:
        self._found = tally_on_device(model.probabilities(self._logits(model)), self.data.labels)


@torch.no_grad()
def row_norms(
    model: GCN, config: TrainConfig, graph: DeviceGraph, data: DeviceTrainingData
) -> list[Tensor]:
    """(n,) |x(u)| = ‖H(u)W‖ of every sampled layer under the current weights (Thm 3)."""
    whole = WholeBlock.of(data.matrix)
    rows = data.dense_inputs if graph.features is not None else graph.x(data.nodes)
    assert not isinstance(rows, DeviceSparse)
    h: Tensor | NodeFeatures = rows
    if config.precompute:
        chunks = data.input_chunks(_CHUNK_BYTES)
        h = torch.cat([exact_forward(model, [], rows, 1) for rows in chunks])
    norms: list[Tensor] = []
    for number in range(config.precompute, config.layers):
        if norms:
            h = exact_forward(model, [whole], h, number, first=number - 1)
        weight = model.convolutions[number].weight
        product = h @ weight if isinstance(h, Tensor) else _first_products(model, h)
        norms.append(product[:, : weight.shape[1]].norm(dim=1))
    return norms
