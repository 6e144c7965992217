"""Two layers of each operator that the loader's page names, and the matrix each of them needs."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from fastgcn import EdgeBlock, Graph, convolve

MEAN = {"normalization": "neighbors"}
SUM = {"normalization": "none"}
ATTENTION = {"normalization": "none", "self_loops": True}

# Loader options by operator.
OPERATORS: dict[str, dict[str, Any]] = {
    "GCNConv": {"normalization": "symmetric"},
    "SAGEConv": MEAN,
    "GraphConv": SUM,
    "GINConv": SUM,
    "GMMConv": MEAN,
    "GATConv": ATTENTION,
    "GATv2Conv": ATTENTION,
    "torch": {"normalization": "symmetric"},
}


class PlainConv(nn.Module):
    """M h W + h R, in plain torch."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.neighbors, self.own = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, h: Tensor, block: EdgeBlock) -> Tensor:
        found: Tensor = self.neighbors(block.mix(h)) + self.own(block.own(h))
        return found


def operator(name: str, inputs: int, outputs: int) -> nn.Module:
    if name == "torch":
        return PlainConv(inputs, outputs)
    if name == "GCNConv":
        return pyg_operator(name, inputs, outputs, normalize=False)
    if name == "GINConv":
        return pyg.GINConv(nn.Linear(inputs, outputs))  # type: ignore[no-any-return]
    if name == "GMMConv":
        return pyg_operator(name, inputs, outputs, dim=2, kernel_size=3)
    if name in ("GATConv", "GATv2Conv"):
        return pyg_operator(name, inputs, outputs, heads=2, concat=False, add_self_loops=False)
    return pyg_operator(name, inputs, outputs)


def pyg_operator(name: str, *sizes: int, **options: Any) -> nn.Module:
    made: nn.Module = getattr(pyg, name)(*sizes, **options)
    return made


class Net(nn.Module):
    """Two layers; `layer` is what exact inference calls."""

    def __init__(self, name: str, graph: Graph, hidden: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = (graph.n_features, hidden, graph.n_classes)
        self.convs = nn.ModuleList(operator(name, a, b) for a, b in pairwise(sizes))
        degrees = torch.from_numpy(graph.indptr).diff().clamp(min=1)
        self.register_buffer("scale", degrees.float().rsqrt())
        self.dropout = nn.Dropout(0.3)

    def further(self, conv: nn.Module, src: Tensor, dst: Tensor, ends: Tensor) -> dict[str, Any]:
        """MoNet's pseudo-coordinates, the inverse roots of both ends' degrees."""
        if not isinstance(conv, pyg.GMMConv):
            return {}
        scale: Tensor = self.scale  # type: ignore[assignment]
        return {"edge_attr": torch.stack([scale[src][ends[0]], scale[dst][ends[1]]], 1)}

    def layer(self, number: int, h: Tensor, block: EdgeBlock) -> Tensor:
        conv = self.convs[number]
        h = self.dropout(h)
        if isinstance(conv, PlainConv):
            made: Tensor = conv(h, block)
        else:
            further = self.further(conv, block.src, block.dst, block.edge_index)
            made = convolve(conv, h, block, **further)
        return made.relu() if number + 1 < len(self.convs) else made

    def forward(self, h: Tensor, blocks: Any) -> Tensor:
        for number, block in enumerate(blocks):
            h = self.layer(number, h, block)
        return h
