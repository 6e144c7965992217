"""The error of sampled gradients: the same batch, whole neighbourhoods against many draws."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.diagnose.estimates import Estimate, relative_error
from fastgcn.diagnose.network import ExactNetwork
from fastgcn.samplers import Block, FullSampler, LayerSampler
from fastgcn.steps import flat_gradient

# Numbers in the input rows of a whole neighbourhood beyond which its gradient is not computed.
_LARGEST_INPUT = 1 << 28
# Draws of each batch.
_REPEATS = 4


class GradientGauge:
    """Gradients of a network's loss on some batches, dropout off; exact ones are computed once."""

    def __init__(self, network: ExactNetwork, loss: nn.Module, batches: Sequence[Tensor]) -> None:
        self.network, self.loss, self.batches = network, loss, batches
        full = FullSampler(network.data.adjacency, network.layers)
        self.exact = [self.gradient(full.sample(batch), batch) for batch in batches]

    @staticmethod
    def affordable(network: ExactNetwork, batch_size: int) -> bool:
        """Whether the whole neighbourhood of a batch is no more than can be held."""
        matrix = network.data.adjacency
        reached = batch_size * max(len(matrix.values) / matrix.n, 1.0) ** network.layers
        return bool(min(reached, matrix.n) * max(network.model.sizes) <= _LARGEST_INPUT)

    def gradient(self, blocks: Sequence[Block], batch: Tensor) -> Tensor:
        """(P,): the derivatives of the batch's loss by all weights."""
        data, model = self.network.data, self.network.model.eval()
        x = data.rows(blocks[0].src)
        return flat_gradient(model, self.loss, blocks, x, data.labels[batch])

    def error(self, sampler: LayerSampler, *, seed: int = 0) -> Estimate:
        """√(E‖sampled − exact‖² / ‖exact‖²): the batch is fixed, so that only draws make noise."""
        rng = torch.Generator().manual_seed(seed)
        squares = [
            [
                float((self.gradient(sampler.sample(batch, rng), batch) - exact).square().sum())
                for _ in range(_REPEATS)
            ]
            for batch, exact in zip(self.batches, self.exact, strict=True)
        ]
        totals = np.array([float(exact.square().sum()) for exact in self.exact])
        looked_at = sum(map(len, self.batches)) / len(self.network.data.batch_nodes)
        return relative_error(np.array(squares), totals, looked_at)
