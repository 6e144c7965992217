"""PyG's plain two-layer networks, and the settings among which validation chooses.

The layers are PyG's own (`GCNConv`, `SAGEConv`) and torch's `Linear`, with dropout before each, as
in PyG's examples. They multiply by PyG's `EdgeIndex`, which makes no message for each edge; PyG has
this for `GraphConv`, and here the two layers have it too. Nothing here depends on fastgcn.
"""

from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

KINDS = ("GCN", "GraphSAGE", "MLP")


@dataclass(frozen=True, slots=True)
class Setting:
    """A network and its regularisation; `weight_decay` is Adam's L2 on all weights and biases."""

    kind: str
    hidden: int
    dropout: float
    weight_decay: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def grid(kind: str) -> list[Setting]:
    """The settings that are tried of a kind.

    >>> len([setting for kind in KINDS for setting in grid(kind)])
    36
    """
    return [Setting(kind, *each) for each in product((128, 256), (0.3, 0.5), (0.0, 5e-5, 5e-4))]


@cache
def fused_layers() -> tuple[Any, Any]:
    """PyG's two layers with its fused product."""
    from torch_geometric import EdgeIndex
    from torch_geometric.nn import GCNConv, SAGEConv

    class FusedGCN(GCNConv):  # type: ignore[misc]
        SUPPORTS_FUSED_EDGE_INDEX = True

        def message_and_aggregate(
            self, edge_index: EdgeIndex, x: Tensor, edge_weight: Tensor
        ) -> Tensor:
            found: Tensor = edge_index.matmul(x, input_value=edge_weight, transpose=True)
            return found

    class FusedSAGE(SAGEConv):  # type: ignore[misc]
        SUPPORTS_FUSED_EDGE_INDEX = True

        def message_and_aggregate(self, edge_index: EdgeIndex, x: tuple[Tensor, Tensor]) -> Tensor:
            found: Tensor = edge_index.matmul(x[0], reduce="mean", transpose=True)
            return found

    return FusedGCN, FusedSAGE


class Network(nn.Module):
    """Two layers of a kind: (n, F) features and the kind's `edges` give (n, C) logits."""

    def __init__(self, setting: Setting, n_features: int, n_classes: int) -> None:
        super().__init__()
        gcn, sage = fused_layers()
        sizes = ((n_features, setting.hidden), (setting.hidden, n_classes))
        made: list[nn.Module] = []
        for inputs, outputs in sizes:
            if setting.kind == "GCN":
                made.append(gcn(inputs, outputs, normalize=False))  # `edges` are normalised
            elif setting.kind == "GraphSAGE":
                made.append(sage(inputs, outputs))
            else:
                made.append(nn.Linear(inputs, outputs))
        self.layers = nn.ModuleList(made)
        self.dropout = setting.dropout

    def forward(self, x: Tensor, edges: tuple[Any, ...]) -> Tensor:
        first, second = self.layers
        x = functional.dropout(x, self.dropout, self.training)
        x = first(x, *edges).relu()
        x = functional.dropout(x, self.dropout, self.training)
        found: Tensor = second(x, *edges)
        return found

    def reset(self) -> None:
        """Draw new weights in place."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]


def edges_for(kind: str, ends: Tensor, n: int, *, fast: bool = True) -> tuple[Any, ...]:
    """What the layers of a kind take beside features, from (2, m) ends, both directions of each.

    Without `fast`, it is the plain (2, m) ends, with a message for each edge.
    """
    from torch_geometric import EdgeIndex
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    if kind == "MLP":
        return ()
    weights: tuple[Tensor, ...] = ()
    if kind == "GCN":
        ends, *weights = gcn_norm(ends, None, n)
    if not fast:
        return (ends, *weights)
    order = torch.argsort(ends[1] * n + ends[0])
    fused = EdgeIndex(ends[:, order], sparse_size=(n, n), sort_order="col", is_undirected=True)
    return (fused.fill_cache_(), *(each[order] for each in weights))
