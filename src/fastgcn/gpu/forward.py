"""The full network on the device, over whole graphs."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fastgcn.features import FeatureRows
from fastgcn.gpu.block import WholeBlock
from fastgcn.gpu.matrix import DeviceEdges
from fastgcn.gpu.upload import empty_rows, row_stride, upload_rows
from fastgcn.graph import Graph
from fastgcn.models import GCN
from fastgcn.samplers.block import Block
from fastgcn.types import IntArray

# Of the device's free memory, what a network's rows may take.
_SHARE = 0.7


class HostRows:
    """Rows of X that stay on the host, all of the graph's or those of `nodes`."""

    def __init__(self, features: Any, nodes: Tensor | None) -> None:
        self.features, self.nodes = features, nodes

    def times(self, model: GCN, device: torch.device) -> Tensor:
        """X W of the first layer, and X R beside it where it has R; X in chunks."""
        ids = None if self.nodes is None else self.nodes.cpu().numpy()
        rows = FeatureRows(self.features, model.feature_scaling, ids, model.feature_statistics)
        layer = model.convolutions[0]
        own = [] if layer.own_weight is None else [layer.own_weight]
        weight = torch.cat([layer.weight, *own], 1).detach()
        out = torch.empty((rows.n, weight.shape[1]), device=device)
        step = max(1, (1 << 28) // (4 * rows.width))
        for first in range(0, rows.n, step):
            stop = min(first + step, rows.n)
            some = rows.nodes[first:stop] if rows.nodes is not None else np.arange(first, stop)
            part = FeatureRows(self.features, rows.scaling, some, rows.statistics)
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
    rows = FeatureRows(graph.features, model.feature_scaling, None, model.feature_statistics)
    x = empty_rows(rows.n, rows.width, torch.float32, device)
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
