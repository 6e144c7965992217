"""PyG's plain two-layer networks, and the settings among which validation chooses.

The layers are PyG's own (`GCNConv`, `SAGEConv`) and torch's `Linear`, with dropout before each, as
in PyG's examples. Nothing here depends on fastgcn.
"""

from dataclasses import asdict, dataclass
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


class Network(nn.Module):
    """Two layers of a kind: (n, F) features and the kind's `edges` give (n, C) logits."""

    def __init__(self, setting: Setting, n_features: int, n_classes: int) -> None:
        from torch_geometric.nn import GCNConv, SAGEConv

        super().__init__()
        sizes = ((n_features, setting.hidden), (setting.hidden, n_classes))
        made: list[nn.Module] = []
        for inputs, outputs in sizes:
            if setting.kind == "GCN":
                made.append(GCNConv(inputs, outputs, normalize=False))  # `edges` are normalised
            elif setting.kind == "GraphSAGE":
                made.append(SAGEConv(inputs, outputs))
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

    `fast` takes the form that PyG multiplies by fastest on the device; without it, it is the (2, m)
    ends, which work everywhere.
    """
    from torch_geometric import EdgeIndex
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import to_torch_csr_tensor

    if kind == "MLP":
        return ()
    if kind == "GCN":
        ends, weights = gcn_norm(ends, None, n)
        if fast and ends.device.type == "cpu":
            return (to_torch_csr_tensor(ends, weights, size=(n, n)),)
        return ends, weights
    if not fast:
        return (ends,)
    order = torch.argsort(ends[1], stable=True)
    sorted_ends = EdgeIndex(
        ends[:, order], sparse_size=(n, n), sort_order="col", is_undirected=True
    )
    return (sorted_ends.fill_cache_(),)
