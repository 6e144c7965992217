"""`RanksBackend`: the CPU's backend in one of several processes, on its shard of the graph."""

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from safetensors.torch import load, save
from scipy.sparse import csr_array
from torch import Tensor, nn

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.base import Checkpoint, EpochResult, Part, count_classes
from fastgcn.backends.batches import Minibatches, MinibatchGroup
from fastgcn.backends.cpu import CpuBackend
from fastgcn.backends.data import (
    TrainingData,
    check_trainable,
    label_tensor,
    loss_for,
    target_of,
)
from fastgcn.backends.evaluator import Sizes, validation_interval
from fastgcn.backends.ranks.collectives import Communicator, ring_product
from fastgcn.backends.ranks.forward import ShardEvaluator
from fastgcn.backends.ranks.sampler import ShardSampler
from fastgcn.backends.ranks.shard import Shard, ShardAdjacency, normalize_shard
from fastgcn.backends.steps import Adam, AutogradStep, Step, loss_of
from fastgcn.config import TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.errors import InputError
from fastgcn.features.extremes import Extreme, extreme
from fastgcn.features.plan import check_memory
from fastgcn.features.sparse import InputRows
from fastgcn.features.store import (
    ColumnMoments,
    DenseStore,
    FeatureStore,
    NodeFeatures,
    SideBySide,
    Statistics,
    column_moments,
    statistics_of,
)
from fastgcn.graph.adjacency import Adjacency
from fastgcn.network import Network
from fastgcn.sampling.block import Block, Sampler
from fastgcn.sampling.draws import POINTS

T = TypeVar("T")

_DISTRIBUTIONS = ("importance", "uniform", "flat", "ladies")


def prepare_shard(shard: Shard, config: TrainConfig) -> tuple[ShardAdjacency, TrainingData]:
    """This rank's rows of Â of the training graph, and its `TrainingData`, as `prepare` makes them
    for one process; `batch_nodes` are those of all ranks."""
    nodes = shard.split.train if config.inductive else None
    matrix = normalize_shard(shard, nodes, config.normalization)
    statistics = _statistics(shard) if config.feature_scaling == "standard" else None
    features = NodeFeatures(shard.features, config.feature_scaling, nodes, statistics)
    inputs: FeatureStore = features
    if config.precompute:
        mixed = DenseStore(_propagated(shard, matrix, features))
        inputs = SideBySide(mixed, features) if config.input_skip else mixed
    target = None
    if shard.graph.regression:
        comm = shard.group.host_comm
        target = target_of(
            shard.labels[shard.split.train],
            config,
            lambda sums: comm.all_reduce(sums, "statistics of targets"),
        )
    return matrix, TrainingData(
        Adjacency(*matrix.rows),
        None,
        features,
        inputs,
        torch.from_numpy(_batch_nodes(shard, matrix)),
        label_tensor(shard.labels if nodes is None else shard.labels[nodes], target),
        statistics,
        target,
    )


def _propagated(shard: Shard, matrix: ShardAdjacency, features: NodeFeatures) -> FloatArray:
    """(s, F) float32: this rank's rows of ÂX; rows of X are passed from rank to rank in a ring."""

    def rows(start: int, stop: int) -> FloatArray:
        some: FloatArray = features.between(start, stop).numpy()
        features.forget()
        return some

    return ring_product(shard.group.host_comm, matrix.rows, matrix.bounds, features.width, rows)


def _batch_nodes(shard: Shard, matrix: ShardAdjacency) -> IntArray:
    """(k,) int64: the numbers of all ranks' training nodes."""
    if matrix.nodes is not None:
        return np.arange(matrix.n)
    comm, own = shard.group.host_comm, shard.split.train + shard.start
    counts = comm.gather_counts(len(own), "numbers of nodes")
    return comm.all_gather(torch.from_numpy(own), counts, "training nodes").numpy()


def _statistics(shard: Shard) -> Statistics:
    """Statistics of the features of all ranks' training nodes."""
    own = column_moments(shard.features, shard.split.train)
    counts = [own.rows, own.entries]
    row = torch.from_numpy(np.concatenate([counts, own.mean, own.squares]))[None]
    comm, width = shard.group.host_comm, len(own.mean)
    rows = comm.all_gather(row, [1] * comm.size, "statistics of features").numpy()
    found = ColumnMoments(0, 0, np.zeros(width), np.zeros(width))
    for count, entries, *rest in rows:
        mean, squares = np.array(rest[:width]), np.array(rest[width:])
        found = found.joined(ColumnMoments(int(count), int(entries), mean, squares))
    return statistics_of(found, sparse=isinstance(shard.features, csr_array))


@dataclass(frozen=True, slots=True)
class ShardMinibatch(MinibatchGroup):
    """This rank's part of a batch; `nodes` and `empty` count those of all ranks."""

    nodes: int = 0
    empty: int = 0

    @property
    def sizes(self) -> list[int]:
        return [self.nodes]

    @property
    def empty_rows(self) -> float:
        return self.empty / self.nodes


class ShardMinibatches(Minibatches):
    """Makes this rank's parts of the batches, which all ranks draw from the same generator."""

    def _drawn(self, batches: Iterable[Tensor]) -> Iterator[MinibatchGroup]:
        assert isinstance(self.sampler, ShardSampler)
        for batch in batches:
            blocks, own = self.sampler.sample(batch, self.rng), self.sampler.own(batch)
            x = self.data.input_rows(blocks[0].src if blocks else own)
            empty = blocks[-1].empty_rows if blocks else 0
            labels = self.data.labels[own]
            yield ShardMinibatch(blocks, x, labels, nodes=len(batch), empty=empty)


class AllReduceStep(AutogradStep):
    """A step along the gradient of the whole batch's loss; each rank has a part of the batch.

    The loss is Σ_v w(v)·l(v) / Σ_v w(v) over the nodes of all ranks. Ranks add up the derivatives
    of their sums, the sums and the weights in one message, and divide.
    """

    def __init__(
        self, model: Network, loss: nn.Module, optimizer: Adam, comm: Communicator
    ) -> None:
        super().__init__(model, summed(loss), optimizer)
        self.comm = comm

    def __call__(self, blocks: Sequence[Block], x: InputRows, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        own = loss_of(self.model, self.loss, blocks, x, labels)
        own.backward()  # type: ignore[no-untyped-call]
        parameters = list(self.model.parameters())
        parts = [cast(Tensor, p.grad).reshape(-1) for p in parameters]
        facts = torch.stack([own.detach(), weight_of(self.loss, labels.to(own.device))])
        whole = self.comm.all_reduce(torch.cat([*parts, facts]), "gradients")
        *gradients, (total, weight) = torch.split(whole, [*(p.numel() for p in parameters), 2])
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = (gradient / weight).view_as(parameter)
        self.move()
        return float(total / weight)


def summed(loss: nn.Module) -> nn.Module:
    """The same loss, summed over nodes and not averaged."""
    found: Any = copy.deepcopy(loss)
    found.reduction = "sum"
    return cast(nn.Module, found)


def weight_of(loss: nn.Module, labels: Tensor) -> Tensor:
    """(): the divisor that turns the sum over nodes into their mean."""
    if labels.ndim == 1 and isinstance(weight := loss.weight, Tensor):
        return weight[labels].sum()
    return torch.tensor(float(labels.numel()), device=labels.device)


class RanksBackend(CpuBackend):
    """One of several processes that train together, each with its shard of the graph."""

    # Ranks draw batches ahead together; one that stopped would leave the others waiting.
    stops_within_epochs = False

    def __init__(self, shard: Shard, config: TrainConfig) -> None:
        super().__init__(shard.graph, config)
        self.shard, self.group = shard, shard.group
        self.group.on_all("settings", self._check)
        self.group.check_equal("settings", config.to_dict())
        self.group.check_equal("data", fingerprint(shard.graph))
        self._matrix: ShardAdjacency | None = None

    def _check(self) -> None:
        check_trainable(self.shard.graph, self.config)
        check_ranks_can(self.config)
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        check_memory(self.shard.graph, self.config, shares=self.group.size, here=here)
        self.group.use_device(self.config.device)

    def on_first(self, what: str, do: Callable[[], T]) -> T | None:
        return self.group.on_all(what, lambda: do() if self.group.is_main else None)

    def broadcast(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        comm, what = self.group.host_comm, "the checkpoint"
        tensors = b"" if checkpoint is None else save(checkpoint.tensors)
        progress = b"" if checkpoint is None else json.dumps(checkpoint.progress).encode()
        tensors, progress = (comm.broadcast(data, what) for data in (tensors, progress))
        return Checkpoint(load(tensors), json.loads(progress)) if progress else None

    def agree(self, value: int) -> int:
        return max(self.group.host_comm.gather_counts(value, "whether to go on"))

    @property
    def device(self) -> torch.device:
        return self.group.device

    def _training_data(self) -> TrainingData:
        self._matrix, data = prepare_shard(self.shard, self.config)
        return data

    def _sampler(self) -> Sampler:
        """The sampler takes over this rank's rows of Â and renumbers their columns in place."""
        assert self._matrix is not None
        matrix, self._matrix = self._matrix, None
        return ShardSampler(matrix, self.config, self.group)

    def _minibatches(self) -> Minibatches:
        return ShardMinibatches(self.data, self.config, self.model, self.sampler, self.learner.rng)

    def _loss(self) -> nn.Module:
        labels = self.data.labels
        own = labels if self.config.inductive else labels[self.shard.split.train]
        comm = self.group.host_comm
        return loss_for(
            own, self.shard.graph, self.config, lambda part: comm.all_reduce(part, "class counts")
        )

    def _step(self) -> Step:
        return AllReduceStep(self.model, self.loss, self.learner.optimizer, self.group.step_comm)

    def _evaluator(self, part: Part, *, last: bool) -> ShardEvaluator | None:  # noqa: ARG002
        if not getattr(self.shard.graph.split, part).size:
            return None
        return ShardEvaluator(self.shard, self.config, getattr(self.shard.split, part))

    def _validation_interval(self) -> int:
        """As in one process, by the sizes of all ranks together."""
        shard, batch_nodes = self.shard, len(self.data.batch_nodes)
        own = Sizes.of(self.data.adjacency, batch_nodes, shard.csr, shard.features, shard.split.val)
        whole = self.group.host_comm.all_reduce(torch.tensor(own), "sizes").tolist()
        sizes = Sizes(*whole)._replace(batch_nodes=batch_nodes)
        return validation_interval(sizes, self.config, self.model.sizes)

    def train_epoch(self, epoch: int) -> EpochResult:
        """Each rank has its own dropout. The first rank uses the generator that checkpoints keep;
        the others reseed theirs each epoch, so that any number of ranks can resume a run."""
        if not self.group.is_main:
            words = np.random.SeedSequence([self.config.seed, epoch, self.group.rank])
            self.learner.dropout_rng.manual_seed(int(words.generate_state(1, np.uint64)[0] >> 1))
        return super().train_epoch(epoch)

    def class_counts(self) -> IntArray:
        labels = self.shard.labels[self.shard.split.train]
        own = torch.from_numpy(count_classes(labels, self.graph.n_classes))
        return self.group.host_comm.all_reduce(own, "numbers of nodes").numpy()

    def largest_feature(self) -> Extreme:
        own, comm = extreme(self.shard.features), self.group.host_comm
        row = torch.tensor([own.value, own.node + self.shard.start, own.column])[None]
        rows = comm.all_gather(row.double(), [1] * comm.size, "largest features").tolist()
        each = [Extreme(value, int(node), int(column)) for value, node, column in rows]
        return max(each, key=lambda found: found.size)

    def facts(self) -> dict[str, Any]:
        """The number of ranks, and the bytes that this one has sent."""
        return {
            "ranks": self.group.size,
            "sent_bytes": self.group.step_comm.sent + self.group.host_comm.sent,
        }


def check_ranks_can(config: TrainConfig) -> None:
    """Refuse, in one sentence, settings with which several processes cannot train."""

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
    for name in ("history", "neighbors_only", "pair"):
        need(name, not getattr(config, name), True, "false")
