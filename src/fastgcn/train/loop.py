"""The one training loop's state: what an epoch changes, and how it is kept."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fastgcn.arrays import FloatArray
from fastgcn.backends.base import Workshop, choose_workshop
from fastgcn.backends.batches import ahead
from fastgcn.backends.data import check_trainable
from fastgcn.backends.steps import Adam
from fastgcn.config import TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.diagnose.auto import resolve_samples
from fastgcn.errors import FormatError, InputError
from fastgcn.features.plan import check_memory
from fastgcn.features.stored import StoredRows
from fastgcn.graph.graph import Graph
from fastgcn.machine import choose_device, memory_of_device, one_thread, thread_count
from fastgcn.model import WeightAverage
from fastgcn.sampling import Block, LayerSampler
from fastgcn.sampling.history import HistorySampler
from fastgcn.train.presets import best_preset
from fastgcn.train.run import Checkpoint, Run, RunFolder, build_model
from fastgcn.train.stopping import best_epoch, is_better, should_stop

if TYPE_CHECKING:
    from fastgcn.backends.ranks.backend import RanksBackend
    from fastgcn.backends.ranks.shard import Shard

# Multiplications of a step's first product below which it is taken on one thread. The other one
# samples; and where cores are busy, two threads that wait for each other take ten times as long.
_SMALL_PRODUCT = 1 << 25


@dataclass(slots=True)
class Clock:
    """Seconds spent by purpose, over all sessions of a run.

    Batches are sampled while others are computed; `sampling` is what a step waits for its own.
    """

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("precompute", "sampling", "compute", "evaluation"), 0.0
        )
    )

    @contextmanager
    def charge(self, purpose: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[purpose] += time.perf_counter() - start


class Trainer:
    """The state of a run between two epochs, and how to take it one epoch further."""

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        folder: RunFolder | None,
        workshop: Workshop | None = None,
    ) -> None:
        self.config, self.clock = config, Clock()
        self.workshop = workshop or choose_workshop(graph, config, folder.path if folder else None)
        self.device = self.workshop.device
        with self.clock.charge("precompute"):
            self.data = self.workshop.data()
        sizes = [graph.n_features, *config.hidden_sizes, graph.n_classes]
        self.model = build_model(config, sizes, multilabel=graph.multilabel).to(self.device)
        self.model.set_feature_statistics(self.data.statistics)
        self.average = WeightAverage(self.model, config.averaging) if config.averaging else None
        self.optimizer = Adam(self._parameter_groups(), config.learning_rate)
        self.sampler = self.workshop.sampler(self.data)
        self.rng = torch.Generator().manual_seed(config.seed + 1)
        self.feed = self.workshop.feed(self.data, self.model, self.sampler, self.rng)
        self.dropout_rng = torch.Generator(self.device).manual_seed(config.seed + 2)
        self.model.dropout.rng = self.dropout_rng
        self.loss = self.workshop.loss(self.data).to(self.device)
        self.step = self.workshop.step(self.model, self.loss, self.optimizer)
        self.validation = self.workshop.judge("val")
        every = config.validate_every
        if every == "auto":
            every = self.workshop.validation_interval(self.data, self.model.sizes)
        self.validate_every = every
        self._small_steps = False  # not known before the first batch
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}  # the weights after the epoch at position `best_at`
        self.best_at = 0
        self.batches = 0

    def _parameter_groups(self) -> list[dict[str, Any]]:
        """L2 on the first layer's weights as the authors have it, or on all weights."""
        decayed = [
            weight
            for number, layer in enumerate(self.model.convolutions)
            if number == 0 or self.config.weight_decay_on == "all"
            for weight in (layer.weight, layer.own_weight)
            if weight is not None
        ]
        chosen = {id(p) for p in decayed}
        others = [p for p in self.model.parameters() if id(p) not in chosen]
        return [
            {"params": decayed, "weight_decay": self.config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]

    @property
    def has_more_epochs(self) -> bool:
        done = len(self.history)
        return done < self.config.epochs and not should_stop(
            self.history, self.config, self.best_at
        )

    def epoch(self) -> dict[str, Any]:
        """One pass over the training nodes, and the record of it."""
        start = time.perf_counter()
        self.workshop.begin_epoch(len(self.history), self.dropout_rng)
        with self.clock.charge("sampling"):
            self._show_hidden_rows()
        losses, sizes = self.train_on(self.feed.shuffled())
        number = len(self.history) + 1
        record = {
            "epoch": number,
            "train_loss": sum(map(mul, losses, sizes)) / sum(sizes),
            "empty_rows": self.feed.empty_rows,
        }
        judged = self.model
        if self.average is not None:
            judged = self.average.add(self.model, number)
        due = number % self.validate_every == 0 or number == self.config.epochs
        if self.validation is not None and due:
            with self.clock.charge("evaluation"):
                scores = self.validation(judged)
            record |= {f"val_{name}": value for name, value in scores.scores().items()}
        record["seconds"] = time.perf_counter() - start
        spent = self.clock.seconds
        record["seconds_per_batch"] = (spent["sampling"] + spent["compute"]) / self.batches
        self.history.append(record)
        if not self.best or is_better(record, self.history[self.best_at]):
            self.best_at = number - 1
            self.best = {k: v.detach().clone() for k, v in judged.state_dict().items()}
        return record

    def train_on(self, batches: Iterable[Tensor]) -> tuple[list[float], list[int]]:
        """A step for each batch: their losses and sizes."""
        losses: list[float] = []
        sizes: list[int] = []
        parcels, seconds = self.feed.parcels(batches), self.clock.seconds
        with self.clock.charge("sampling"), one_thread(self._small_steps):
            parcel = next(parcels, None)
        if parcel is None:
            return losses, sizes
        small = parcel.x.numel() // len(parcel) * self.model.sizes[1] < _SMALL_PRODUCT
        self._small_steps = small
        # Who waits for a disk does not compute, so that one core is enough for both.
        on_disk = isinstance(self.data.inputs, StoredRows)
        if on_disk or (torch.get_num_threads() > 1 and not self.feed.quick):
            parcels = ahead(parcels)
        with closing(parcels), one_thread(small):
            while parcel is not None:
                start = time.perf_counter()
                losses += parcel.steps(self.step)
                stepped = time.perf_counter()
                sizes += parcel.sizes
                self.batches += len(parcel)
                parcel = next(parcels, None)
                # Not by `charge`, which takes longer than a small step's own bookkeeping.
                seconds["compute"] += stepped - start
                seconds["sampling"] += time.perf_counter() - stepped
        return losses, sizes

    def _show_hidden_rows(self) -> None:
        """Give the sampler what it wants to know of the current network."""
        due = len(self.history) % self.config.history_every == 0
        if isinstance(self.sampler, HistorySampler) and due:
            self.sampler.refresh(self.hidden_rows())
        if isinstance(self.sampler, LayerSampler) and self.config.distribution == "optimal":
            self.sampler.set_row_norms(self.row_norms())

    @torch.no_grad()
    def row_norms(self) -> list[FloatArray]:
        """(n,) |x(u)| = ‖H(u)W‖ of every sampled layer under the current weights (Thm 3)."""
        layers = self.model.convolutions[self.config.precompute :]
        return [
            (h @ layer.weight).norm(dim=1).cpu().numpy()
            for h, layer in zip(self.hidden_rows(), layers, strict=True)
        ]

    @torch.no_grad()
    def hidden_rows(self) -> list[Tensor]:
        """H (n, d) that goes into each sampled layer, of the whole training graph."""
        matrix = self.data.adjacency
        every = torch.arange(matrix.n)
        csr = matrix.indptr, matrix.indices, matrix.values
        whole = Block.of_csr(every, every, csr).to(self.device)
        hidden = [self.data.rows(every).to(self.device)]
        self.model.eval()  # looking at all rows must not move a batch norm's figures
        for number, layer in enumerate(self.model.convolutions[:-1]):
            exact = self.config.precompute and number == 0
            mixed = layer(hidden[-1], None if exact else whole)
            hidden.append(self.model.activate(number, mixed))
        self.model.train()
        return hidden[self.config.precompute :]

    def checkpoint(self) -> Checkpoint:
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.model.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{k}": v for k, v in state.items()}
        if isinstance(self.sampler, HistorySampler):
            kept = enumerate(self.sampler.hidden)
            tensors |= {f"kept.{layer}": h for layer, h in kept if h is not None}
        tensors["rng"] = self.rng.get_state()
        tensors["dropout_rng"] = self.dropout_rng.get_state()
        progress = {
            "epochs": len(self.history),
            "batches": self.batches,
            "seconds": self.clock.seconds,
        }
        return Checkpoint({k: v.detach().cpu() for k, v in tensors.items()}, progress)

    def restore(self, checkpoint: Checkpoint, history: list[dict[str, Any]]) -> None:
        def named(prefix: str) -> dict[str, Tensor]:
            start = f"{prefix}."
            return {
                k.removeprefix(start): v
                for k, v in checkpoint.tensors.items()
                if k.startswith(start)
            }

        self.model.load_state_dict(named("model"))
        self.best = named("best")
        if self.average is not None:
            self.average.model.load_state_dict(named("average"))
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in named("adam").items():
            number, name = key.split(".", 1)
            state.setdefault(int(number), {})[name] = value
        full = self.optimizer.state_dict()
        self.optimizer.load_state_dict({"state": state, "param_groups": full["param_groups"]})
        if isinstance(self.sampler, HistorySampler) and (kept := named("kept")):
            layers = range(len(self.sampler.hidden))
            self.sampler.refresh([kept.get(str(layer)) for layer in layers])
        self.rng.set_state(checkpoint.tensors["rng"])
        dropout_state = checkpoint.tensors["dropout_rng"]
        if len(dropout_state) == len(self.dropout_rng.get_state()):
            self.dropout_rng.set_state(dropout_state)
        else:  # another kind of device goes on: its generator has no such state
            self.dropout_rng.manual_seed(self.config.seed + 2 + len(history))
        self.batches = checkpoint.progress["batches"]
        self.clock.seconds |= checkpoint.progress["seconds"]
        self.history, self.best_at = history, best_epoch(history)


OnEpoch = Callable[[dict[str, Any]], None]

# Seconds between checkpoints: what a kill can cost at most, beside the epoch under way.
_CHECKPOINT_EVERY = 1.0


def fit(
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    on_epoch: OnEpoch | None = None,
    shard: "Shard | None" = None,
) -> Run:
    """Train a network on the training nodes of `graph`; validation chooses the weights kept.

    Without a config, with the best settings known for such a graph. `run_dir` keeps the run on
    disk, where it survives an interruption (`resume`). `on_epoch` is called with the record of
    each epoch. Where several processes train, each is given its `shard` of the graph; the first
    of them keeps the run.

    >>> import fastgcn
    >>> run = fastgcn.fit(fastgcn.load("digits"), fastgcn.TrainConfig(epochs=2, samples=50))
    >>> len(run.history)
    2
    """
    config = config or best_preset(graph)
    backend = _ranks_backend(shard, config)
    if backend is None:
        config = resolve_samples(graph, config)
    folder = None
    if run_dir is not None:
        # Before the folder is made: a refused run leaves nothing behind.
        check_trainable(graph, config)
        if choose_device(config.device).type == "cpu":
            check_memory(graph, config)
        about = {
            "config": config.to_dict(),
            "data": None if graph.source is None else dict(graph.source),
            "fingerprint": fingerprint(graph),
        }
        folder = _on_first(backend, lambda: RunFolder.create(Path(run_dir), about))
    return _train(graph, config, folder, on_epoch, backend)


def resume(
    run_dir: str | os.PathLike[str],
    graph: Graph,
    *,
    on_epoch: OnEpoch | None = None,
    shard: "Shard | None" = None,
) -> Run:
    """Continue an interrupted run; on the CPU it ends as it would have uninterrupted.

    Any number of processes can continue it, each given its `shard`.
    """
    path = Path(run_dir)
    if shard is None:
        folder = RunFolder.open(path)
    else:
        about = shard.group.broadcast("the run", lambda: RunFolder.open(path).about)
        folder = RunFolder(path, about)
    if folder.finished:
        return folder.load()
    if fingerprint(graph) != folder.about["fingerprint"]:
        raise InputError(
            f"{run_dir} was trained on other data: {graph.name} does not have its fingerprint; "
            "resume with the graph and split the run was started with"
        )
    backend = _ranks_backend(shard, folder.config)
    kept = _on_first(backend, lambda: folder)
    return _train(graph, folder.config, kept, on_epoch, backend)


def _ranks_backend(shard: "Shard | None", config: TrainConfig) -> "RanksBackend | None":
    if shard is None:
        return None
    from fastgcn.backends.ranks.backend import RanksBackend

    return RanksBackend(shard, config)


def _on_first(backend: "RanksBackend | None", make: Callable[[], RunFolder]) -> RunFolder | None:
    """The folder of a run; where several processes train, only the first has it."""
    return make() if backend is None else backend.on_first("the run's folder", make)


def _train(
    graph: Graph,
    config: TrainConfig,
    folder: RunFolder | None,
    on_epoch: OnEpoch | None,
    backend: "RanksBackend | None",
) -> Run:
    with thread_count(config.threads), memory_of_device():
        trainer = Trainer(graph, config, folder, backend)
        _restore(trainer, folder, backend)
        saved = time.monotonic()
        while trainer.has_more_epochs:
            record = trainer.epoch()
            if folder is not None:
                folder.append_history(record)
                if time.monotonic() - saved >= _CHECKPOINT_EVERY:
                    folder.save_checkpoint(trainer.checkpoint())
                    saved = time.monotonic()
            if on_epoch is not None:
                on_epoch(record)
        return _finish(graph, trainer, folder)


def _restore(trainer: Trainer, folder: RunFolder | None, backend: "RanksBackend | None") -> None:
    """Bring a trainer to where its run was left, if it was."""

    def read() -> tuple[Checkpoint | None, list[dict[str, Any]]]:
        checkpoint = None if folder is None else folder.load_checkpoint()
        if folder is None or checkpoint is None:
            return None, []
        return checkpoint, folder.read_history(checkpoint.progress["epochs"])

    checkpoint, history = read() if backend is None else backend.shared(read)
    if checkpoint is not None:
        try:
            trainer.restore(checkpoint, history)
        except (KeyError, ValueError, RuntimeError):
            where = "the run" if folder is None else folder.path
            raise FormatError(
                f"{where}/state.safetensors is not the state of this run; "
                "delete it to train from the first epoch"
            ) from None
    if folder is not None:
        folder.write_history(trainer.history)


def _finish(graph: Graph, trainer: Trainer, folder: RunFolder | None) -> Run:
    model, clock = trainer.model, trainer.clock
    if folder is not None:
        folder.save_checkpoint(trainer.checkpoint())
    model.load_state_dict(trainer.best)
    best = trainer.history[trainer.best_at]
    metrics: dict[str, Any] = {
        "dataset": graph.name,
        "seed": trainer.config.seed,
        "epochs": len(trainer.history),
        "best_epoch": best["epoch"],
    }
    if trainer.validation is not None:
        metrics["validate_every"] = trainer.validate_every
    metrics |= {name: value for name, value in best.items() if name.startswith("val_")}
    if graph.split.test.size:
        with clock.charge("evaluation"):
            # What training held goes first: both together would be the run's peak of memory.
            del trainer.data, trainer.feed, trainer.sampler, trainer.validation
            judge = trainer.workshop.judge("test", once=True)
            scores = judge(model) if judge is not None and len(judge) else None
        if scores is not None:
            metrics |= {f"test_{name}": value for name, value in scores.scores().items()}
            metrics["test_classes"] = {
                name: list(getattr(scores, name))
                for name in ("precision", "recall", "f1", "support")
            }
    spent = clock.seconds
    metrics |= {
        "train_seconds": spent["sampling"] + spent["compute"] + spent["evaluation"],
        "seconds_per_batch": (spent["sampling"] + spent["compute"]) / max(trainer.batches, 1),
        **{f"{purpose}_seconds": seconds for purpose, seconds in spent.items()},
        "batches": trainer.batches,
        "device": str(trainer.device),
        **trainer.workshop.facts(),
    }
    run = Run(
        model=model.eval(),
        config=trainer.config,
        history=trainer.history,
        metrics=metrics,
        class_names=None if graph.class_names is None else tuple(graph.class_names),
        feature_names=None if graph.feature_names is None else tuple(graph.feature_names),
        # The folder has it already; of a graph in memory it is a hash over all of its bytes.
        fingerprint=fingerprint(graph) if folder is None else folder.about["fingerprint"],
        source=graph.source,
        path=None if folder is None else folder.path,
    )
    if folder is not None:
        folder.finish(run)
    return run
