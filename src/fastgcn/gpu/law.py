"""q over all vertices on the device, ready to draw from, and changed in place."""

import torch
from torch import Tensor

from fastgcn.config import Distribution


class DeviceLaw:
    """q (n,) float64, its running sums, and where the search for each slot of [0, 1) begins."""

    def __init__(self, q: Tensor) -> None:
        self.q = torch.empty_like(q)
        self.cumulative = torch.empty_like(q)
        self.guide = torch.empty(len(q) + 1, dtype=torch.int32, device=q.device)
        self.set(q)

    def set(self, q: Tensor) -> None:
        self.q.copy_(q)
        torch.cumsum(q, 0, out=self.cumulative)
        total = self.cumulative[-1:]
        slots = len(q)
        shares = torch.arange(slots + 1, dtype=torch.float64, device=q.device) / slots * total
        found = torch.searchsorted(self.cumulative, shares, right=True)
        # The last vertex that can be drawn; rounding must not lead beyond it.
        last = torch.searchsorted(self.cumulative, total)
        self.guide.copy_(torch.minimum(found, last))
        self.guide[-1:] = last


def vertex_law(
    distribution: Distribution, squares: Tensor, power: float, row_norms: Tensor | None
) -> Tensor:
    """(n,) float64: as `samplers.distributions.fixed_q`, from squared column norms."""
    norms = squares.sqrt()
    if distribution == "uniform":
        weight = torch.ones_like(squares)
    elif distribution == "importance":
        weight = squares
    elif distribution == "flat":
        weight = norms**power
    elif row_norms is None:
        weight = norms
    else:
        weight = norms * row_norms.double()
        weight = torch.maximum(weight, 1e-6 * weight.max() * (norms > 0))
        weight = torch.where(weight.any(), weight, norms)
    total = weight.sum()
    return torch.where(total > 0, weight / total, weight)
