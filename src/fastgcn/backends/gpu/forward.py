"""The full network on the device, over whole graphs."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import IntArray
from fastgcn.backends.gpu.data import DeviceData
from fastgcn.backends.gpu.matrix import DeviceEdges, WholeBlock, empty_rows, row_stride, upload_rows
from fastgcn.config import TrainConfig
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.graph import Graph
from fastgcn.metrics import Metrics, Tally
from fastgcn.model import GCN
from fastgcn.sampling.block import Block

# Of the device's free memory, what a network's rows may take.
_SHARE = 0.7


class HostRows:
    """Rows of X that stay on the host, all of the graph's or those of `nodes`."""

    def __init__(self, features: Any, nodes: Tensor | None) -> None:
        self.features, self.nodes = features, nodes

    def times(self, model: GCN, device: torch.device) -> Tensor:
        """X W of the first layer, and X R beside it where it has R; X in chunks."""
        ids = None if self.nodes is None else self.nodes.cpu().numpy()
        rows = NodeFeatures(self.features, model.feature_scaling, ids, model.feature_statistics)
        layer = model.convolutions[0]
        own = [] if layer.own_weight is None else [layer.own_weight]
        weight = torch.cat([layer.weight, *own], 1).detach()
        out = torch.empty((len(rows), weight.shape[1]), device=device)
        step = max(1, (1 << 28) // (4 * rows.width))
        for first in range(0, len(rows), step):
            stop = min(first + step, len(rows))
            some = rows.nodes[first:stop] if rows.nodes is not None else np.arange(first, stop)
            part = NodeFeatures(self.features, rows.scaling, some, rows.statistics)
            chunk = empty_rows(stop - first, rows.width, torch.float32, device)
            upload_rows(part, chunk)
            torch.matmul(chunk, weight, out=out[first:stop])
        return out


@torch.no_grad()
def forward(
    model: GCN,
    blocks: Sequence[WholeBlock],
    x: "Tensor | HostRows",
    layers: int | None = None,
    *,
    first: int = 0,
) -> Tensor:
    """H of so many layers, all of them by default, of the last block's rows; x is H(first)."""
    stop = len(model.layers) if layers is None else layers
    known = cast(Sequence[Block], blocks)  # the network asks no more of them
    was_training = model.training
    model.eval()
    try:
        if isinstance(x, Tensor):
            return model.onward(x, known, first, stop)
        assert first == 0
        return model.onward(_first_layer(model, blocks[0], x), known[1:], 1, stop)
    finally:
        model.train(was_training)


def _first_layer(model: GCN, block: WholeBlock, x: HostRows) -> Tensor:
    """H(1), from XW."""
    layer = model.convolutions[0]
    product = x.times(model, next(model.parameters()).device)
    d = layer.weight.shape[1]
    out = block.mix(product[:, :d])
    if layer.own_weight is not None:
        out = out + block.own_rows(product[:, d:])
    return model.activate(0, out if layer.bias is None else out + layer.bias)


def fits(graph: Graph, model: GCN, device: torch.device) -> bool:
    """Whether all of a graph's rows can be on the device at once."""
    widths = row_stride(graph.n_features, torch.float32) + 4 * max(model.sizes[1:])
    needed = 4 * graph.n_nodes * widths + 24 * len(graph.indices)
    return needed <= _SHARE * torch.cuda.mem_get_info(device)[0]


def apply_to_graph(model: GCN, graph: Graph, nodes: IntArray, layers: int) -> Tensor:
    """(len(nodes), d): H^(layers) of `nodes`, all rows of the graph going through the network."""
    weight = next(model.parameters())
    # Kernels are launched where torch has its current device.
    with torch.cuda.device_of(weight):  # type: ignore[no-untyped-call]
        return _rows_of(model, graph, nodes, layers, weight.device)


def _rows_of(
    model: GCN, graph: Graph, nodes: IntArray, layers: int, device: torch.device
) -> Tensor:
    rows = NodeFeatures(graph.features, model.feature_scaling, None, model.feature_statistics)
    x = empty_rows(len(rows), rows.width, torch.float32, device)
    upload_rows(rows, x)
    ids = torch.from_numpy(np.array(nodes, np.int64)).to(device)
    if layers == 0:
        return x[ids]
    matrix = DeviceEdges.of(graph.csr, device).normalized(cast(Any, model.normalization))
    whole = WholeBlock.of(matrix)
    # All rows are not copied: they would be several times the edges.
    all_of_them = np.array_equal(nodes, np.arange(graph.n_nodes))
    last = whole if all_of_them else WholeBlock.of(matrix, ids)
    return forward(model, [*[whole] * (layers - 1), last], x, layers)


class DeviceJudge:
    """As `judge.Judge`: ÂX of the graph that is judged on is computed once, where X is on the
    device; else Â(XW) anew each time, X going by in chunks."""

    def __init__(
        self, graph: Graph, config: TrainConfig, data: DeviceData, part: IntArray, *, once: bool
    ) -> None:
        device = data.edges.indptr.device
        assert graph.labels is not None
        joined = np.union1d(graph.split.train, part)
        if graph.labels.ndim == 1:
            part = part[graph.labels[part] >= 0]
        ids = torch.from_numpy(np.array(part, np.int64)).to(device)
        labels = np.array(graph.labels[part], np.int64)
        self.labels = torch.from_numpy(labels).to(device)
        nodes: Tensor | None = None
        edges = data.edges
        if config.evaluation_graph == "joined" and config.inductive:
            nodes = torch.from_numpy(joined).to(device)
            edges = edges.induced(nodes)
            ids = torch.searchsorted(nodes, ids)
        matrix = edges.normalized(config.normalization)
        layers = config.layers
        whole = WholeBlock.of(matrix)
        self.blocks = [*[whole] * (layers - 1), WholeBlock.of(matrix, ids)]
        self.inputs: Tensor | HostRows
        if data.features is None:
            self.inputs = HostRows(graph.features, nodes)
            return
        x = data.features if nodes is None else data.features[nodes]
        if once:
            self.inputs = x
            return
        mixing = self.blocks.pop(0)  # in a network of one layer that of the judged rows alone
        mixed = mixing.mix(x)
        own = mixing.own_rows(x)
        self.inputs = torch.cat([mixed, own], 1) if config.input_skip else mixed

    def __len__(self) -> int:
        return len(self.labels)

    def __call__(self, model: GCN) -> Metrics:
        return device_tally(forward(model, self.blocks, self.inputs), self.labels).metrics()


def device_tally(logits: Tensor, labels: Tensor) -> Tally:
    """As `metrics.tally`, counted on the device and read in one go."""
    n, classes = logits.shape
    if labels.ndim == 2:
        truth, chances = labels > 0, torch.sigmoid(logits)
        guess = chances > 0.5
        chances = torch.where(truth, chances, 1 - chances)
        right = (truth == guess).all(1)
        hits, guessed, true = ((part).sum(0) for part in (truth & guess, guess, truth))
    else:
        best = logits.argmax(1)
        right = best == labels
        chances = torch.softmax(logits, 1).gather(1, labels[:, None])
        hits, guessed, true = (
            torch.zeros(classes, dtype=torch.int64, device=logits.device).index_add_(0, ids, by)
            for ids, by in (
                (labels, right.long()),
                (best, torch.ones_like(best)),
                (labels, torch.ones_like(best)),
            )
        )
    surprise = -torch.log(chances.double().clamp(1e-12, 1.0)).sum()
    counts = torch.cat([right.sum()[None], hits, guessed, true]).double()
    loss, *figures = torch.cat([surprise[None], counts]).tolist()
    whole = np.array(figures[1:], np.int64).reshape(3, classes)
    return Tally(n, int(figures[0]), loss, chances.numel(), *whole)


# Bytes of input rows that are on the device together, where they are not there anyway.
_CHUNK_BYTES = 1 << 28


@torch.no_grad()
def row_norms(
    model: GCN, config: TrainConfig, data: DeviceData, features: HostRows
) -> list[Tensor]:
    """|x(u)| = ‖H(u)W‖ of every sampled layer under the current weights (Thm 3).

    `features` are the training graph's, for where nothing is precomputed and X is on the host.
    """
    device, whole = data.matrix.indices.device, WholeBlock.of(data.matrix)
    bare = int(config.precompute)
    below: Tensor | HostRows = features
    if bare:
        below = torch.cat([forward(model, [], rows, 1) for rows in _inputs(data, device)])
    elif data.features is not None:
        below = data.inputs
    norms = []
    for number in range(bare, config.layers):
        weight = model.convolutions[number].weight
        if number == 0 and isinstance(below, HostRows):
            mixed = below.times(model, device)[:, : weight.shape[1]]
        else:
            blocks = [whole] * (number - bare)
            mixed = forward(model, blocks, below, number, first=bare) @ weight
        norms.append(mixed.norm(dim=1))
    return norms


def _inputs(data: DeviceData, device: torch.device) -> Iterator[Tensor]:
    """Rows of ÂX, with those of X to their right where a layer wants both, in order."""
    parts = [data.inputs] if data.beside is None else [data.inputs, data.beside]
    step = max(1, _CHUNK_BYTES // (4 * len(parts) * data.inputs.shape[1]))
    for start in range(0, len(data.inputs), step):
        yield torch.cat([part[start : start + step].to(device).float() for part in parts], 1)
