"""Training in one process: graph, sampler and batches on the CPU, products on a CPU or a GPU."""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastgcn.ahead import ahead
from fastgcn.backends.base import EpochResult, Learner, LearnerBackend, Part, Scorer, with_prefix
from fastgcn.backends.batches import Minibatches
from fastgcn.backends.data import SharedData, TrainingData, make_loss, prepare
from fastgcn.backends.direct import make_step
from fastgcn.backends.evaluator import Evaluator, Sizes, validation_interval
from fastgcn.backends.steps import CompiledStep, Step
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.graph.adjacency import Adjacency
from fastgcn.graph.graph import Graph
from fastgcn.kernels.compiling import clock
from fastgcn.machine import choose_device, one_thread, pool_threads
from fastgcn.model import as_gcn, start_from
from fastgcn.sampling import make_sampler
from fastgcn.sampling.block import (
    Block,
    LayerRows,
    Sampler,
    restore_sampler,
    sampler_state,
    show_network,
)
from fastgcn.sampling.check import check_blocks

MakeSampler = Callable[[Adjacency], Sampler]

# Below this many multiplications, a step's first product runs on one thread. The other core
# samples; on busy cores, two threads that wait for each other take ten times as long.
_SMALL_PRODUCT = 1 << 25

# The same for steps that share their work with the threads of `over_ranges`, which do not wait for
# each other.
_SMALL_PART = 1 << 22


class CpuBackend(LearnerBackend):
    """The whole graph is in this process; `folder` is for arrays that do not fit in memory.

    `sampler` makes the user's own sampler from Â of the training graph; it replaces the one that
    the settings name. `model` is a network to start from; a copy of it is trained. `shared` holds
    what several trainings on the graph have in common.

    Attributes, after `prepare`:
        data: the training graph.
        model, sampler, minibatches, loss, step: the parts that an epoch uses.
        stops_within_epochs: True if an epoch ends as soon as a loss is not finite.
    """

    stops_within_epochs = True

    data: TrainingData
    sampler: Sampler
    minibatches: Minibatches
    loss: nn.Module
    step: Step
    validate_every: int

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        folder: Path | None = None,
        *,
        sampler: MakeSampler | None = None,
        model: nn.Module | None = None,
        shared: SharedData | None = None,
    ) -> None:
        super().__init__()
        self.graph, self.config, self.folder = graph, config, folder
        self.shared = SharedData() if shared is None else shared
        self._make_sampler, self._given_model = sampler, model
        self._small_steps = False  # set by the first batch

    @property
    def device(self) -> torch.device:
        return choose_device(self.config.device)

    def prepare(self) -> None:
        graph, config = self.graph, self.config
        self.data = self._training_data()
        model = start_from(self._given_model, config, graph)
        model.set_feature_statistics(self.data.statistics)
        model.set_target(self.data.target)
        self.learner = Learner(model, config, self.device)
        self.sampler = self._sampler()
        self.minibatches = self._minibatches()
        self.loss = self._loss().to(self.device)
        self.step = self._step()
        every = config.validate_every
        self.validate_every = self._validation_interval() if every == "auto" else every

    # A subclass overrides these.

    def _training_data(self) -> TrainingData:
        config = self.config
        beside = config.precompute and config.input_skip
        key = (config.precompute, beside, config.inputs_dtype, config.neighbor_sampling)
        make = partial(prepare, self.graph, config, self.folder)
        return self.shared.get((*self._graph_key, *key), make)

    @property
    def _graph_key(self) -> tuple[Any, ...]:
        """The settings that decide what Â and X are."""
        config = self.config
        return config.normalization, config.feature_scaling, config.inductive

    def _sampler(self) -> Sampler:
        if self._make_sampler is None:
            return make_sampler(self.config, self.data.adjacency, self.data.edges)
        sampler = self._make_sampler(self.data.adjacency)
        self._check_blocks_of(sampler)
        return sampler

    def _check_blocks_of(self, sampler: Sampler) -> None:
        """Refuse a user's sampler whose blocks do not fit the network."""
        config, batch = self.config, self.data.batch_nodes[: self.config.batch_size]
        blocks = sampler.sample(batch, torch.Generator().manual_seed(config.seed))
        try:
            check_blocks(blocks, batch, self.data.adjacency.n, own_rows=config.needs_own_rows)
        except AssertionError as error:
            raise InputError(
                f"the sampler does not fit the network: {error}; fastgcn.check_sampler tests one"
            ) from None
        if len(blocks) != config.sampled_layers:
            raise InputError(
                f"the sampler must give a block for each of the {config.sampled_layers} sampled "
                f"layers, got {len(blocks)}; with precompute = true the first layer has none"
            )

    def _minibatches(self) -> Minibatches:
        return Minibatches(self.data, self.config, self.model, self.sampler, self.learner.rng)

    def _loss(self) -> nn.Module:
        return make_loss(self.data, self.graph, self.config)

    def _step(self) -> Step:
        return make_step(self.model, self.loss, self.learner.optimizer)

    def _evaluator(self, part: Part, *, last: bool) -> Scorer | None:
        nodes = getattr(self.graph.split, part)
        if not nodes.size:
            return None
        config = self.config
        make = partial(Evaluator, self.graph, config, nodes, once=last, folder=self.folder)
        if last:
            return make()
        key = (part, config.evaluation_graph, config.input_skip, config.layers, config.method)
        return self.shared.get((*self._graph_key, *key), make)

    def _validation_interval(self) -> int:
        graph, data = self.graph, self.data
        sizes = Sizes.of(
            data.adjacency, len(data.batch_nodes), graph.csr, graph.features, graph.split.val
        )
        return validation_interval(sizes, self.config, self.model.sizes)

    def train_epoch(self, epoch: int) -> EpochResult:
        start = clock()
        show_network(self.sampler, epoch, self.layer_rows)
        seconds = {"sampling": clock() - start, "compute": 0.0}
        losses, sizes = self.train_on(self.minibatches.shuffled(), seconds)
        mean = sum(map(mul, losses, sizes)) / sum(sizes)
        return EpochResult(mean, len(sizes), self.minibatches.empty_rows, seconds)

    def train_on(
        self, batches: Iterable[Tensor], seconds: dict[str, float] | None = None
    ) -> tuple[list[float], list[int]]:
        """Take a step for each batch; return their losses and sizes, and add to `seconds`.

        There may be fewer if a loss is not finite.
        """
        seconds = {"sampling": 0.0, "compute": 0.0} if seconds is None else seconds
        losses: list[float] = []
        sizes: list[int] = []
        groups = self.minibatches.groups(batches)
        start = clock()
        with one_thread(self._small_steps):
            group = next(groups, None)
        seconds["sampling"] += clock() - start
        if group is None:
            return losses, sizes
        compiled = isinstance(self.step, CompiledStep)
        work = group.x.numel() // len(group) * self.model.sizes[1]
        small = work < (_SMALL_PRODUCT if compiled else _SMALL_PART)
        self._small_steps = small
        # A thread that waits for a disk does not compute, so one core is enough for both.
        on_disk = self.data.inputs.on_disk
        if on_disk or (pool_threads() > 1 and not self.minibatches.quick):
            if not (compiled or small):
                groups = (each for some in groups for each in some.turned())
            groups = ahead(groups)
        with closing(groups), one_thread(small, pool=not compiled):
            while group is not None:
                start = clock()
                losses += group.steps(self.step)
                stepped = clock()
                sizes += group.sizes
                if self.stops_within_epochs and not math.isfinite(losses[-1]):
                    break
                group = next(groups, None)
                seconds["compute"] += stepped - start
                seconds["sampling"] += clock() - stepped
        return losses, sizes

    def layer_rows(self) -> list[LayerRows]:
        """The rows that each sampled layer works on, for the whole training graph."""
        model = as_gcn(self.model, "distribution = 'optimal' or history = true")
        layers = model.convolutions[self.config.precompute :]
        return [
            LayerRows(hidden, layer.weight.detach())
            for hidden, layer in zip(self.hidden_rows(), layers, strict=True)
        ]

    @torch.no_grad()
    def hidden_rows(self) -> list[Tensor]:
        """The input H (n, d) of each sampled layer, for the whole training graph."""
        matrix = self.data.adjacency
        every = torch.arange(matrix.n)
        csr = matrix.indptr, matrix.indices, matrix.values
        whole = Block.of_csr(every, every, csr).to(self.device)
        hidden = [self.data.rows(every).to(self.device)]
        model = as_gcn(self.model, "reading all hidden rows")
        model.eval()  # reading all rows must not change a batch norm's statistics
        for number, layer in enumerate(model.convolutions[:-1]):
            exact = self.config.precompute and number == 0
            mixed = layer(hidden[-1], None if exact else whole)
            hidden.append(model.activate(number, mixed))
        model.train()
        return hidden[self.config.precompute :]

    def _release(self) -> None:
        del self.data, self.sampler, self.minibatches, self.step
        self.shared.clear()

    def state(self) -> dict[str, Tensor]:
        kept = sampler_state(self.sampler)
        return super().state() | {f"kept.{name}": value for name, value in kept.items()}

    def restore(self, state: Mapping[str, Tensor], epoch: int) -> None:
        super().restore(state, epoch)
        restore_sampler(self.sampler, with_prefix(state, "kept."))

    def facts(self) -> dict[str, Any]:
        """The name of the user's sampler, if there is one."""
        return {} if self._make_sampler is None else {"sampler": name_of(self._make_sampler)}


def name_of(sampler: MakeSampler) -> str:
    """The name of a user's sampler, as a run records it."""
    return str(getattr(sampler, "__qualname__", type(sampler).__qualname__))


def ready(graph: Graph, config: TrainConfig) -> CpuBackend:
    """A prepared backend, for tests and benchmarks that look at its parts."""
    backend = CpuBackend(graph, config)
    backend.prepare()
    return backend
