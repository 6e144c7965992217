"""`Team`: what the trainer of one rank works with."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from fastgcn.adam import Adam
from fastgcn.batches import Feed
from fastgcn.config import TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.distributed.inputs import prepare_share
from fastgcn.distributed.judge import SharedJudge
from fastgcn.distributed.matrix import OwnRows
from fastgcn.distributed.resume import History, share_checkpoint
from fastgcn.distributed.sampler import ShareSampler
from fastgcn.distributed.share import Share
from fastgcn.distributed.step import SharedStep, ShareFeed
from fastgcn.errors import InputError
from fastgcn.losses import loss_for
from fastgcn.models import GCN
from fastgcn.runs import Checkpoint
from fastgcn.samplers import Sampler
from fastgcn.samplers.draws import POINTS
from fastgcn.steps import Step
from fastgcn.training_data import TrainingData, check_trainable
from fastgcn.validation_interval import Sizes, validation_interval
from fastgcn.workshop import Part

T = TypeVar("T")

_DISTRIBUTIONS = ("importance", "uniform", "flat", "ladies")


class Team:
    """A rank with its share of a graph, as a `workshop.Workshop`."""

    def __init__(self, share: Share, config: TrainConfig) -> None:
        self.share, self.config, self.world = share, config, share.world
        self.world.together("settings", self._check)
        self.world.agree("settings", config.to_dict())
        self.world.agree("data", fingerprint(share.graph))
        self._matrix: OwnRows | None = None

    def _check(self) -> None:
        check_trainable(self.share.graph, self.config)
        check_shareable(self.config)
        self.world.use(self.config.device)

    def on_first(self, what: str, do: Callable[[], T]) -> T | None:
        """What `do()` gives on the first rank, None on the others; where it fails, all fail."""
        return self.world.together(what, lambda: do() if self.world.first else None)

    def shared(
        self, read: Callable[[], tuple[Checkpoint | None, History]]
    ) -> tuple[Checkpoint | None, History]:
        """The state that the first rank reads."""
        found = self.on_first("the checkpoint", read)
        return share_checkpoint(self.world, *(found or (None, [])))

    @property
    def device(self) -> torch.device:
        return self.world.device

    def data(self) -> TrainingData:
        self._matrix, data = prepare_share(self.share, self.config)
        return data

    def sampler(self, data: TrainingData) -> Sampler:  # noqa: ARG002
        """It takes over own rows of Â, numbering their columns in its own way."""
        assert self._matrix is not None
        matrix, self._matrix = self._matrix, None
        return ShareSampler(matrix, self.config, self.world)

    def feed(self, data: TrainingData, model: GCN, sampler: Sampler, rng: torch.Generator) -> Feed:
        return ShareFeed(data, self.config, model, sampler, rng)

    def loss(self, data: TrainingData) -> nn.Module:
        own = data.labels if self.config.inductive else data.labels[self.share.split.train]
        channel = self.world.host
        return loss_for(
            own, self.share.graph, self.config, lambda part: channel.reduce(part, "class counts")
        )

    def step(self, model: GCN, loss: nn.Module, optimizer: Adam) -> Step:
        return SharedStep(model, loss, optimizer, self.world.rows)

    def judge(self, part: Part, *, once: bool = False) -> SharedJudge | None:  # noqa: ARG002
        if not getattr(self.share.graph.split, part).size:
            return None
        return SharedJudge(self.share, self.config, getattr(self.share.split, part))

    def validation_interval(self, data: TrainingData, widths: Sequence[int]) -> int:
        """As one process has it, by the sizes of all ranks together."""
        share, batch_nodes = self.share, len(data.batch_nodes)
        own = Sizes.of(data.adjacency, batch_nodes, share.csr, share.features, share.split.val)
        whole = self.world.host.reduce(torch.tensor(own), "sizes").tolist()
        sizes = Sizes(*whole)._replace(batch_nodes=batch_nodes)
        return validation_interval(sizes, self.config, widths)

    def begin_epoch(self, epoch: int, dropout_rng: torch.Generator) -> None:
        """Ranks drop different entries. The first goes on with the generator that checkpoints
        keep; the others begin anew, so that a run can continue on any number of ranks."""
        if not self.world.first:
            words = np.random.SeedSequence([self.config.seed, epoch, self.world.rank])
            dropout_rng.manual_seed(int(words.generate_state(1, np.uint64)[0] >> 1))

    def facts(self) -> dict[str, Any]:
        """How many ranks there are, and what this one has sent."""
        return {
            "ranks": self.world.size,
            "sent_bytes": self.world.rows.sent + self.world.host.sent,
        }


def check_shareable(config: TrainConfig) -> None:
    """Refuse, in one sentence, settings that ranks cannot train with together."""

    def need(what: str, good: bool, got: object, choices: str) -> None:
        if not good:
            raise InputError(
                f"{what} = {got!r} cannot be trained by several processes; use {choices}, or a "
                "single process"
            )

    need("method", config.method == "fastgcn", config.method, "fastgcn")
    kinds = ", ".join(_DISTRIBUTIONS)
    need("distribution", config.distribution in _DISTRIBUTIONS, config.distribution, kinds)
    need("draws", config.draws in POINTS, config.draws, ", ".join(POINTS))
    need("norm", config.norm != "batch", config.norm, "layer or none")
    need("samples", config.samples != "auto", config.samples, "numbers, from fastgcn diagnose")
    need("memory", config.memory == "auto", config.memory, "more processes, or auto")
    need("inputs_dtype", config.inputs_dtype == "float32", config.inputs_dtype, "float32")
    for name in ("history", "neighbors_only"):
        need(name, not getattr(config, name), True, "false")
