"""`fit` and `resume`: the only training loop."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from fastgcn.backends import Backend, Checkpoint, MakeSampler, choose_backend, name_of
from fastgcn.backends.base import check_alike, with_prefix
from fastgcn.backends.data import check_trainable
from fastgcn.config import TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.diagnose.auto import resolve_samples
from fastgcn.errors import DivergedError, FastGCNError, FormatError, InputError
from fastgcn.features.plan import check_device_memory, check_memory
from fastgcn.graph.graph import Graph
from fastgcn.machine import choose_device, memory_of_device, thread_count
from fastgcn.model import GCN, WeightAverage, all_finite
from fastgcn.progress import note
from fastgcn.train.divergence import NotFiniteError, check_epoch, check_validation, what_to_change
from fastgcn.train.presets import resolve
from fastgcn.train.run import Run, RunFolder

if TYPE_CHECKING:
    from fastgcn.backends.ranks.shard import Shard

# Called with the record of each epoch; a callback that returns True ends the run there.
Callback = Callable[[dict[str, Any]], bool | None]

# Seconds between checkpoints: the most work that a kill loses, beside the current epoch.
_CHECKPOINT_EVERY = 1.0

_PURPOSES = ("precompute", "sampling", "compute", "evaluation")


def fit(
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    sampler: MakeSampler | None = None,
    model: GCN | None = None,
    callbacks: Sequence[Callback] = (),
    shard: "Shard | None" = None,
    **settings: Any,
) -> Run:
    """Train a network on the training nodes of `graph`; validation chooses the weights kept.

    Settings are given by `config`, by name (`epochs=20`), or both; a name overrides the config.
    Settings that are not given come from the named preset (`preset="paper"`), or are chosen for
    the graph. `run_dir` keeps the run on disk, where it survives an interruption (`resume`). If
    several processes train, each passes its `shard` of the graph; the first of them writes the
    run.

    `sampler` makes your own sampler from Â of the training graph; test it with `check_sampler`
    first. It runs on the CPU, and the network of `config` trains with its blocks.

    `model` is a network to start from, such as that of an earlier run; a copy of it is trained.

    `callbacks` are called with the record of each epoch. If one returns True, training ends
    after that epoch, and the run is finished as if early stopping had ended it.

    If a loss or a weight becomes NaN or infinite, `DivergedError` says what to change. Its `run`,
    and `run_dir`, hold the best epoch before that.

    >>> import fastgcn
    >>> run = fastgcn.fit(fastgcn.load("digits"), epochs=2, samples=50)
    >>> len(run.history), run.config.norm
    (2, 'layer')
    """
    config = resolve(graph, config, settings)
    if shard is None and graph.labels is not None:
        device = choose_device(config.device)
        if device.type == "cpu":
            check_memory(graph, config)
        else:
            check_device_memory(graph, config, torch.cuda.mem_get_info(device)[0])
    if shard is None and sampler is None:
        config = resolve_samples(graph, config)
    path = None if run_dir is None else Path(run_dir)
    backend = choose_backend(graph, config, path, shard=shard, sampler=sampler, model=model)
    folder = None
    if path is not None:
        # Checked before the folder is made, so that a refused run leaves nothing behind.
        check_trainable(graph, config)
        about = {
            "config": config.to_dict(),
            "data": None if graph.source is None else dict(graph.source),
            "fingerprint": fingerprint(graph),
            "sampler": None if sampler is None else name_of(sampler),
            "imported": graph.imported,
        }
        folder = backend.on_first("the run's folder", lambda: RunFolder.create(path, about))
    try:
        return _train(graph, config, backend, folder, callbacks)
    except FastGCNError:
        if folder is not None:
            folder.discard_if_unused()
        raise
    finally:
        if folder is not None:
            folder.release()


def resume(
    run_dir: str | os.PathLike[str],
    graph: Graph,
    *,
    sampler: MakeSampler | None = None,
    callbacks: Sequence[Callback] = (),
    shard: "Shard | None" = None,
) -> Run:
    """Continue an interrupted run; on the CPU the result is that of an uninterrupted run.

    Any number of processes can continue it together, each with its `shard`. If another process
    is training the run, a `BusyError` names it. If the run used a sampler of your own, pass it
    again.
    """
    path = Path(run_dir)
    if shard is None:
        folder = RunFolder.to_resume(path)
    else:
        about = shard.group.broadcast("the run", lambda: RunFolder.to_resume(path).about)
        folder = RunFolder(path, about)
    if folder.finished:
        return folder.load()
    if fingerprint(graph) != folder.about["fingerprint"]:
        raise InputError(
            f"{run_dir} was trained on other data: {graph.name} does not have its fingerprint; "
            "resume with the graph and split the run was started with"
        )
    own = folder.about.get("sampler")
    if (own is None) != (sampler is None):
        raise InputError(
            f"{run_dir} was trained with the settings' own sampler; resume it without `sampler`"
            if own is None
            else f"{run_dir} was trained with the sampler {own}; give it again, "
            "fastgcn.resume(run_dir, graph, sampler=...) in Python"
        )
    backend = choose_backend(graph, folder.config, path, shard=shard, sampler=sampler)
    kept = backend.on_first("the run's folder", folder.claim)
    try:
        return _train(graph, folder.config, backend, kept, callbacks)
    finally:
        folder.release()


def _train(
    graph: Graph,
    config: TrainConfig,
    backend: Backend,
    folder: RunFolder | None,
    callbacks: Sequence[Callback],
) -> Run:
    with thread_count(config.threads), memory_of_device():
        training = Training(config, backend)
        _restore(training, folder)
        saved = time.monotonic()
        stopped = False
        while training.has_more_epochs and not stopped:
            try:
                record = training.epoch()
            except NotFiniteError as wrong:
                _diverged(graph, training, folder, str(wrong))
            if folder is not None:
                folder.append_history(record)
                if time.monotonic() - saved >= _CHECKPOINT_EVERY:
                    folder.save_checkpoint(training.checkpoint())
                    saved = time.monotonic()
            verdict, interrupt = _ask(callbacks, record)
            verdict = backend.agree(verdict)  # what stops one of several processes stops all
            if verdict == _INTERRUPTED:
                if folder is not None:
                    folder.save_checkpoint(training.checkpoint())
                raise interrupt or KeyboardInterrupt
            stopped = verdict == _STOP
        return _finish(graph, training, folder)


# What callbacks answer; the largest counts.
_GO_ON, _STOP, _INTERRUPTED = range(3)


def _ask(callbacks: Sequence[Callback], record: dict[str, Any]) -> tuple[int, BaseException | None]:
    """Call the callbacks; what they answer, and the Ctrl-C or signal that one of them raised."""
    try:
        answers = [callback(record) for callback in callbacks]
    except Exception:
        raise
    except BaseException as interrupt:
        return _INTERRUPTED, interrupt
    return (_STOP if True in answers else _GO_ON), None


class Training:
    """A run between two epochs: its history, its best weights, and the next epoch."""

    def __init__(self, config: TrainConfig, backend: Backend) -> None:
        self.config, self.backend = config, backend
        self.seconds = dict.fromkeys(_PURPOSES, 0.0)  # by purpose, with those before a resume
        start = time.perf_counter()
        backend.prepare()
        self.seconds["precompute"] += time.perf_counter() - start
        averaging = config.averaging
        self.average = WeightAverage(backend.model, averaging) if averaging else None
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}  # the weights after the epoch at position `best_at`
        self.best_at = 0
        self.batches = 0

    @property
    def has_more_epochs(self) -> bool:
        done = len(self.history)
        return done < self.config.epochs and not should_stop(
            self.history, self.config, self.best_at
        )

    def epoch(self) -> dict[str, Any]:
        """One pass over the training nodes, and the record of it.

        Raises `NotFiniteError` if a number went wrong. History and best weights do not change then.
        """
        start = time.perf_counter()
        trained = self.backend.train_epoch(len(self.history))
        for purpose, seconds in trained.seconds.items():
            self.seconds[purpose] += seconds
        self.batches += trained.batches
        check_epoch(trained.loss, self.backend.model.state_dict())
        number = len(self.history) + 1
        record: dict[str, Any] = {
            "epoch": number,
            "train_loss": trained.loss,
            "empty_rows": trained.empty_rows,
        }
        model = self.backend.model
        if self.average is not None:
            model = self.average.add(model, number)
        if number % self.backend.validate_every == 0 or number == self.config.epochs:
            began = time.perf_counter()
            scores = self.backend.evaluate("val", model)
            self.seconds["evaluation"] += time.perf_counter() - began
            check_validation(scores)
            if scores is not None:
                record |= {f"val_{name}": value for name, value in scores.scores().items()}
        record["seconds"] = time.perf_counter() - start
        record["seconds_per_batch"] = self.seconds_per_batch
        self.history.append(record)
        if not self.best or is_better(record, self.history[self.best_at]):
            self.best_at = number - 1
            self.best = {k: v.detach().clone() for k, v in model.state_dict().items()}
        return record

    @property
    def seconds_per_batch(self) -> float:
        return (self.seconds["sampling"] + self.seconds["compute"]) / max(self.batches, 1)

    def checkpoint(self) -> Checkpoint:
        tensors = self.backend.state()
        kept = {f"best.{name}": value for name, value in self.best.items()}
        if self.average is not None:
            state = self.average.model.state_dict()
            kept |= {f"average.{name}": value for name, value in state.items()}
        tensors |= {name: value.detach().cpu() for name, value in kept.items()}
        progress = {
            "epochs": len(self.history),
            "batches": self.batches,
            "seconds": self.seconds,
        }
        return Checkpoint(tensors, progress)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint; its `progress` includes the history."""
        tensors, progress = checkpoint.tensors, checkpoint.progress
        self.history = progress["history"]
        self.backend.restore(tensors, len(self.history))
        self.best = with_prefix(tensors, "best.")
        check_alike(self.best, self.backend.model.state_dict())
        if self.average is not None:
            self.average.model.load_state_dict(with_prefix(tensors, "average."))
        self.batches = progress["batches"]
        self.seconds |= progress["seconds"]
        self.best_at = best_epoch(self.history)


def _restore(training: Training, folder: RunFolder | None) -> None:
    """Restore a training from its run's checkpoint, if there is one."""

    def read() -> Checkpoint | None:
        checkpoint = None if folder is None else folder.load_checkpoint()
        if folder is not None and checkpoint is not None:
            progress = checkpoint.progress
            progress["history"] = folder.read_history(progress["epochs"])
        return checkpoint

    backend = training.backend
    checkpoint = backend.broadcast(backend.on_first("the checkpoint", read))
    if checkpoint is not None:
        if not all_finite(checkpoint.tensors.values()):
            raise _not_its_state(folder, "holds numbers that are not finite")
        try:
            training.restore(checkpoint)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError):
            raise _not_its_state(folder, "is not the state of this run") from None
    if folder is not None:
        folder.write_history(training.history)


def _not_its_state(folder: RunFolder | None, why: str) -> FormatError:
    where = "the run" if folder is None else folder.path
    return FormatError(f"{where}/state.safetensors {why}; delete it to train from the first epoch")


def _diverged(graph: Graph, training: Training, folder: RunFolder | None, wrong: str) -> NoReturn:
    """Keep the best epoch so far, as a run that has stopped, and say what to change.

    If there was no epoch before the one that went wrong, nothing is kept.
    """
    backend, epoch = training.backend, len(training.history) + 1
    change = what_to_change(backend.largest_feature(), graph, training.config)
    reason = f"training diverged in epoch {epoch}, where {wrong}; {change}"
    run, kept = None, "no epoch before it can be kept"
    if training.history:
        run = _finish(graph, training, folder, stopped=reason)
        kept = f"epoch {run.metrics['best_epoch']}, the best before it, is kept"
        kept += "" if run.path is None else f" in {run.path}"
    elif folder is not None:
        folder.discard()

    def fail() -> None:
        raise DivergedError(f"{reason}; {kept}", run)

    backend.on_first("training", fail)
    raise AssertionError("unreachable: the call above fails in all processes")


def _finish(
    graph: Graph, training: Training, folder: RunFolder | None, stopped: str | None = None
) -> Run:
    """Keep the best weights, score them on the test nodes, and write the run's result.

    `stopped` is why the run has stopped and counts as not finished.
    """
    backend, config = training.backend, training.config
    if folder is not None and stopped is None:
        folder.save_checkpoint(training.checkpoint())
    model = backend.model
    model.load_state_dict(training.best)
    best = training.history[training.best_at]
    metrics: dict[str, Any] = {
        "dataset": graph.name,
        "seed": config.seed,
        "epochs": len(training.history),
        "best_epoch": best["epoch"],
    }
    if stopped is not None:
        metrics["stopped"] = stopped
    if graph.split.val.size:
        metrics["validate_every"] = backend.validate_every
    metrics |= {name: value for name, value in best.items() if name.startswith("val_")}
    start = time.perf_counter()
    scores = backend.evaluate("test", last=True)
    training.seconds["evaluation"] += time.perf_counter() - start
    if scores is not None and not math.isfinite(scores.loss):
        note("The network's outputs for test nodes are not finite, so there are no test scores.")
        scores = None
    if scores is not None:
        metrics |= {f"test_{name}": value for name, value in scores.scores().items()}
        metrics["test_classes"] = {
            name: list(getattr(scores, name)) for name in ("precision", "recall", "f1", "support")
        }
    spent = training.seconds
    metrics |= {
        "train_seconds": spent["sampling"] + spent["compute"] + spent["evaluation"],
        "seconds_per_batch": training.seconds_per_batch,
        **{f"{purpose}_seconds": seconds for purpose, seconds in spent.items()},
        "batches": training.batches,
        "device": str(backend.device),
        **backend.facts(),
    }
    run = Run(
        model=model.eval(),
        config=config,
        history=training.history,
        metrics=metrics,
        class_names=None if graph.class_names is None else tuple(graph.class_names),
        feature_names=None if graph.feature_names is None else tuple(graph.feature_names),
        # The folder has it already; for a graph in memory, all of its bytes must be hashed.
        fingerprint=fingerprint(graph) if folder is None else folder.about["fingerprint"],
        source=graph.source,
        imported=graph.imported,
        path=None if folder is None else folder.path,
    )
    if folder is not None:
        folder.finish(run)
    return run


History = Sequence[dict[str, Any]]

# The authors' rule compares, from this epoch on, the last `_RECENT` losses with those before.
_WARM_UP = 30
_RECENT = 2


def should_stop(history: History, config: TrainConfig, best: int | None = None) -> bool:
    """True to stop after the last epoch of `history`; never after one without validation.

    * `authors`: after 30 validations, stop when the mean of the last 2 losses exceeds the mean
      of the 30 before them;
    * `patience`: stop after `patience` epochs, validated or not, without a better one.

    `best` is the position of the best epoch, if it is known already.
    """
    if config.early_stopping == "none" or not history or "val_loss" not in history[-1]:
        return False
    if config.early_stopping == "patience":
        best = best_epoch(history) if best is None else best
        return len(history) - 1 - best >= config.patience
    backwards = (record["val_loss"] for record in reversed(history) if "val_loss" in record)
    losses = list(islice(backwards, _RECENT + _WARM_UP))
    return len(losses) > _WARM_UP and bool(np.mean(losses[:_RECENT]) > np.mean(losses[_RECENT:]))


def best_epoch(history: History) -> int:
    """The position of the epoch to keep: highest validation micro-F1, lowest loss among equals.

    If no epoch was validated, it is the last one.
    """
    best = 0
    for position, record in enumerate(history):
        if is_better(record, history[best]):
            best = position
    return best


def is_better(record: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """True if an epoch is better than the one kept so far."""
    if "val_micro_f1" not in kept:
        return True
    if "val_micro_f1" not in record:
        return False
    score, other = ((each["val_micro_f1"], -each["val_loss"]) for each in (record, kept))
    return score > other
