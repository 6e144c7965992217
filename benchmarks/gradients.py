"""How far the gradients of a sampled network stray from those with whole neighbourhoods."""

from itertools import islice, repeat

import numpy as np
import torch
from torch import Tensor

from benchmarks.results import Record
from benchmarks.trained_network import TrainedNetwork
from fastgcn.backends.batches import Minibatch, Minibatches
from fastgcn.backends.cpu import CpuBackend
from fastgcn.backends.steps import flat_gradient
from fastgcn.config import TrainConfig
from fastgcn.sampling import FullSampler


class GradientErrors:
    """Compares estimators by the gradients of some batches, at the weights of one network.

    There are `batches` of them, or fewer where an epoch has fewer.
    """

    def __init__(self, network: TrainedNetwork, *, batches: int) -> None:
        self.network = network
        network.restore()
        trainer = network.trainer
        whole = FullSampler(trainer.data.adjacency, trainer.config.sampled_layers)
        rng = torch.Generator().manual_seed(trainer.config.seed)
        feed = Minibatches(trainer.data, trainer.config, trainer.model, whole, rng)
        self.batches = list(islice(feed.shuffled(), batches))
        self.exact = [gradient(trainer, part) for part in feed.singly(self.batches)]

    def measure(self, config: TrainConfig, *, draws: int) -> Record:
        """E‖g − g*‖² / ‖g*‖², the mean over the batches, from so many draws for each.

        g is the gradient of a batch's loss with respect to all weights under the estimator of
        `config`, g* that with whole neighbourhoods. `variance` is E‖g − Eg‖² / ‖g*‖²; what it
        leaves of `error` is bias, for the loss is not linear in what is estimated. `rows` are
        the hidden rows that a step computes.
        """
        self.network.restore()
        trainer = self.network.trainer_with(config)
        errors, variances, rows = [], [], []
        for batch, exact in zip(self.batches, self.exact, strict=True):
            gradients = []
            for part in trainer.minibatches.singly(repeat(batch, draws)):
                gradients.append(gradient(trainer, part))
                rows.append(len(part.x))
            drawn, scale = torch.stack(gradients), exact.square().sum()
            errors.append(((drawn - exact).square().sum(dim=1) / scale).numpy())
            variances.append(float(drawn.var(dim=0).sum() / scale))
        within = float(np.var(errors, axis=1, ddof=1).sum()) / draws
        return {
            "error": float(np.mean(errors)),
            "standard_error": within**0.5 / len(self.batches),
            "variance": float(np.mean(variances)),
            "rows": float(np.mean(rows)),
        }


def gradient(trainer: CpuBackend, part: Minibatch) -> Tensor:
    """(parameters,): that of a prepared batch's loss, at the weights as they are."""
    return flat_gradient(trainer.model, trainer.loss, part.blocks, part.x, part.labels)
