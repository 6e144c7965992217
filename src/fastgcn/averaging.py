"""The running mean of a network's weights over epochs, which is judged and kept in their place."""

import copy

import torch

from fastgcn.models import GCN

# The mean of the first epochs is over all of them, more or less: after k epochs, as if k / 2.
_WARM_UP = 2


class WeightAverage:
    """A network with W̄ = β·W̄ + (1 − β)·W after each epoch, W the weights that are trained.

    β = 0 after the first epoch and min(`share`, k / (k + 2)) after k, so that the random weights
    of the beginning are no part of it and those of the first epochs are soon forgotten. Running
    figures of batch norms are averaged alike. Training never sees W̄.
    """

    def __init__(self, model: GCN, share: float) -> None:
        self.model, self.share = copy.deepcopy(model), share

    @torch.no_grad()
    def add(self, model: GCN, epochs: int) -> GCN:
        """Take in the weights after so many epochs, 1 after the first; the network of the means."""
        kept = min(self.share, epochs / (epochs + _WARM_UP)) if epochs > 1 else 0.0
        for mean, now in zip(
            self.model.state_dict().values(), model.state_dict().values(), strict=True
        ):
            if mean.is_floating_point():
                mean.lerp_(now, 1 - kept)
            else:
                mean.copy_(now)
        return self.model
