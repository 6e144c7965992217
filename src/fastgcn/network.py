"""`Network`: what training and inference ask of any network; `OwnNetwork`, a user's module as one.

`fastgcn.model.GCN` is the network that is trained by default.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Generator, Tensor, nn

from fastgcn.errors import InputError
from fastgcn.features.sparse import SparseMatrix, SparseRows, dense
from fastgcn.features.store import Statistics
from fastgcn.graph.labels import Task
from fastgcn.metrics import Decision, Target
from fastgcn.sampling.block import Block

InputRows = Tensor | SparseRows


class Network(nn.Module):
    """A network with M layers that read blocks, and what its outputs mean.

    `sizes` are the widths F, d_1, ..., C. `task` says what the outputs are: logits of a softmax
    over classes, or of a sigmoid for each label, or a standardised number, whose mean and scale
    `set_target` stores with the weights; `loss` is what it is trained by. `decision` has what was
    chosen on validation nodes after training: a temperature, and for two classes a threshold.
    `normalization` and `feature_scaling` are stored with the network, because its weights are
    useless with another Â or with other features. `ensemble` is how many networks it consists of.
    """

    ensemble = 1

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        task: Task = "classification",
        loss: str = "mse",
        normalization: str = "symmetric",
        feature_scaling: str = "none",
    ) -> None:
        super().__init__()
        self.sizes, self.task = tuple(sizes), task
        self.decision = Decision()
        self.normalization, self.feature_scaling = normalization, feature_scaling
        if feature_scaling == "standard":
            self.register_buffer("feature_mean", torch.zeros(self.sizes[0]))
            self.register_buffer("feature_scale", torch.ones(self.sizes[0]))
        self._target_loss = loss
        if self.task == "regression":
            self.register_buffer("target_mean", torch.zeros((), dtype=torch.float64))
            self.register_buffer("target_scale", torch.ones((), dtype=torch.float64))

    def forward(
        self, blocks: Sequence[Block], x: InputRows, *, layers: int | None = None
    ) -> Tensor:
        """Logits of `blocks[-1].dst`; x holds the rows of `blocks[0].src`. With `layers`, the
        result is H after that many layers."""
        raise NotImplementedError

    def member_logits(self, blocks: Sequence[Block], x: InputRows) -> list[Tensor]:
        """The logits that a loss is taken of: one for each network that is trained together."""
        return [self(blocks, x)]

    def draw_from(self, rng: Generator) -> None:
        """Let dropout draw from a generator."""
        raise NotImplementedError

    def decayed(self, which: str) -> list[nn.Parameter]:
        """The weights under the L2 penalty: of the "first" layer, or of "all"."""
        raise NotImplementedError

    @property
    def depth(self) -> int:
        """M, the number of layers."""
        return len(self.sizes) - 1

    @property
    def needs_own_rows(self) -> bool:
        """True if every block must hold `dst` in `src`."""
        raise NotImplementedError

    @property
    def multilabel(self) -> bool:
        return self.task == "multilabel"

    @property
    def target(self) -> Target | None:
        """Mean and scale of the numbers that a regression predicts; None for classes."""
        if self.task != "regression":
            return None
        mean, scale = cast(Tensor, self.target_mean), cast(Tensor, self.target_scale)
        return Target(float(mean), float(scale), self._target_loss)

    @property
    def loss_name(self) -> str:
        """The loss of a regression in words."""
        return "Huber's loss" if self._target_loss == "huber" else "the squared error"

    def set_target(self, target: Target | None) -> None:
        """Store what the training nodes' targets were standardised by, with the weights."""
        if target is not None:
            cast(Tensor, self.target_mean).fill_(target.mean)
            cast(Tensor, self.target_scale).fill_(target.scale)

    @property
    def rule(self) -> Decision | Target:
        """How outputs become predictions."""
        return self.target or self.decision

    @property
    def feature_statistics(self) -> Statistics | None:
        """Mean and scale that standardise any graph's features; None if features are not."""
        if self.feature_scaling != "standard":
            return None
        mean, scale = cast(Tensor, self.feature_mean), cast(Tensor, self.feature_scale)
        return Statistics(mean.cpu().numpy(), scale.cpu().numpy())

    def set_feature_statistics(self, statistics: Statistics | None) -> None:
        """Store the training nodes' statistics with the weights."""
        if statistics is not None:
            cast(Tensor, self.feature_mean).copy_(torch.from_numpy(statistics.mean))
            cast(Tensor, self.feature_scale).copy_(torch.from_numpy(statistics.scale))

    def predictions(self, outputs: Tensor) -> Tensor:
        """(k, C) probabilities of classes; (k, 1) float64 numbers in the user's units for a
        regression."""
        if self.task != "regression":
            return self.probabilities(outputs)
        scale, mean = cast(Tensor, self.target_scale), cast(Tensor, self.target_mean)
        return outputs.double() * scale + mean

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of classes: rows that sum to one, or with `multilabel` a probability per label.

        They are NaN where logits are not finite.
        """
        if self.decision.temperature != 1.0:
            logits = logits / self.decision.temperature
        if self.multilabel:
            return torch.sigmoid(logits) + (logits - logits)  # inf - inf is NaN
        return torch.softmax(logits, dim=1)


class OwnNetwork(Network):
    """A module whose `forward(blocks, x)` gives logits, with what training and inference ask.

    `blocks` has one `Block` for each layer, from the input up, whose `src` begins with its `dst`;
    x (k, F) holds the rows of `blocks[0].src`, dense; the result is (s, C) for the rows of
    `blocks[-1].dst`. Of `sizes`, only F, C and their number are known; the others serve estimates
    of work.

    Everything random in the module comes from torch's generator, which is seeded for each step, so
    that a run can be repeated and continued.
    """

    def __init__(self, module: nn.Module, sizes: Sequence[int], **about: object) -> None:
        super().__init__(sizes, **about)  # type: ignore[arg-type]
        self.module = module
        self._rng: Generator | None = None

    def forward(
        self, blocks: Sequence[Block], x: InputRows, *, layers: int | None = None
    ) -> Tensor:
        if layers not in (None, self.depth):
            raise InputError(
                f"{self.name} gives logits only, so it has no rows of layer {layers}; embed with "
                f"layer = 0 (the features) or {self.depth} (the logits)"
            )
        rows = dense(cast(Tensor | SparseMatrix, x))
        if not self.training or self._rng is None:
            return self._checked(self.module(blocks, rows), blocks)
        devices = [] if self._rng.device.type == "cpu" else [self._rng.device]
        with torch.random.fork_rng(devices):
            torch.manual_seed(
                int(torch.randint(2**62, (), generator=self._rng, device=self._rng.device))
            )
            return self._checked(self.module(blocks, rows), blocks)

    def _checked(self, out: object, blocks: Sequence[Block]) -> Tensor:
        expected = blocks[-1].dst.numel(), self.sizes[-1]
        if not isinstance(out, Tensor) or tuple(out.shape) != expected:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise InputError(
                f"{self.name}.forward(blocks, x) must return logits of shape {expected}, a row for "
                f"each of blocks[-1].dst, got {got}; it is given {len(blocks)} blocks, one for "
                "each of its layers (samples = one number for each, or n_layers of the module)"
            )
        return out

    @property
    def name(self) -> str:
        """The class of the module."""
        return type(self.module).__qualname__

    def draw_from(self, rng: Generator) -> None:
        self._rng = rng

    def decayed(self, which: str) -> list[nn.Parameter]:  # noqa: ARG002
        """All matrices, because nobody knows which of them are the first layer's."""
        return [weight for weight in self.module.parameters() if weight.ndim > 1]

    @property
    def needs_own_rows(self) -> bool:
        return True
