"""`Training`: a run between two epochs; when it stops, and which epoch it keeps."""

import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import IntArray
from fastgcn.backends import Backend, Checkpoint
from fastgcn.backends.base import check_alike, with_prefix
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.plan import check_device_memory, check_memory
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import Task
from fastgcn.kernels.compiling import clock, take_seconds
from fastgcn.machine import choose_device
from fastgcn.metrics import Decision, Metrics, Target, better
from fastgcn.model import WeightAverage
from fastgcn.train.decision import chosen_metric, positive_class
from fastgcn.train.divergence import check_epoch, check_validation

_PURPOSES = ("compiling", "precompute", "sampling", "compute", "evaluation")


class Training:
    """A run between two epochs: its history, its best weights, and the next epoch."""

    def __init__(self, config: TrainConfig, backend: Backend) -> None:
        self.config, self.backend = config, backend
        self.seconds = dict.fromkeys(_PURPOSES, 0.0)  # by purpose, with those before a resume
        start = clock()
        backend.prepare()
        self.counts = backend.class_counts()  # (C,) of the training nodes
        task, self.target = backend.model.task, backend.model.target
        backend.on_first("the labels", lambda: check_labels(self.counts, task, self.target))
        self.metric = chosen_metric(config, self.counts, task)
        self.seconds["precompute"] += clock() - start
        self._begin()

    def _begin(self) -> None:
        model = self.backend.model
        positive = positive_class(self.counts, multilabel=model.multilabel)
        model.decision = Decision(positive=positive)
        averaging = self.config.averaging
        self.average = WeightAverage(self.backend.model, averaging) if averaging else None
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}  # the weights after the epoch at position `best_at`
        self.best_at = 0
        self.batches = 0

    def restart(self, epochs: int) -> None:
        """Train again from the first epoch on, for some epochs."""
        self.backend.prepare()
        self._begin()
        for _ in range(epochs):
            self.epoch()

    @property
    def has_more_epochs(self) -> bool:
        done = len(self.history)
        return done < self.config.epochs and not should_stop(
            self.history, self.config, self.best_at
        )

    def notes(self) -> list[str]:
        """Sentences on what was chosen for the user."""
        if self.target is not None:
            return [
                f"Trained as regression, by {self.backend.model.loss_name}: targets are "
                f"standardised in training, by the training nodes' mean {self.target.mean:g} and "
                f"standard deviation {self.target.scale:g}; validation selects by {self.metric}."
            ]
        if self.config.metric != "auto" or self.metric == "micro_f1":
            return []
        share = self.counts.min() / self.counts.sum()
        return [
            f"Validation selects by {self.metric}, because only {share:.1%} of the training nodes "
            "are of the rarer class; --metric chooses another."
        ]

    def better(self, record: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
        return is_better(record, kept, self.metric)

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
            began = clock()
            scores = self.backend.evaluate("val", model, also=(self.metric,))
            self.seconds["evaluation"] += clock() - began
            check_validation(scores)
            if scores is not None:
                check_defined(self.metric, scores)
                record |= {f"val_{name}": value for name, value in scores.scores().items()}
        record["seconds"] = time.perf_counter() - start
        record["seconds_per_batch"] = self.seconds_per_batch
        self.history.append(record)
        if not self.best or self.better(record, self.history[self.best_at]):
            self.best_at = number - 1
            self.best = {k: v.detach().clone() for k, v in model.state_dict().items()}
        return record

    @property
    def seconds_per_batch(self) -> float:
        return (self.seconds["sampling"] + self.seconds["compute"]) / max(self.batches, 1)

    def book_compiling(self) -> None:
        """Book what was compiled until now, also by the candidates of a race before this run."""
        self.seconds["compiling"] += take_seconds()

    def checkpoint(self) -> Checkpoint:
        self.book_compiling()
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
        validated = any("val_micro_f1" in record for record in self.history)
        if validated and not any(f"val_{self.metric}" in record for record in self.history):
            self.metric = "micro_f1"  # an earlier version began this run
        self.best_at = best_epoch(self.history, self.metric)


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
        usual = "r2" if "val_r2" in history[-1] else "micro_f1"
        metric = usual if config.metric == "auto" else config.metric
        best = best_epoch(history, metric) if best is None else best
        return len(history) - 1 - best >= config.patience
    backwards = (record["val_loss"] for record in reversed(history) if "val_loss" in record)
    losses = list(islice(backwards, _RECENT + _WARM_UP))
    return len(losses) > _WARM_UP and bool(np.mean(losses[:_RECENT]) > np.mean(losses[_RECENT:]))


def best_epoch(history: History, metric: str = "micro_f1") -> int:
    """The position of the epoch to keep: best by the metric, lowest loss among equals.

    If no epoch was validated, it is the last one.
    """
    best = 0
    for position, record in enumerate(history):
        if is_better(record, history[best], metric):
            best = position
    return best


def is_better(record: Mapping[str, Any], kept: Mapping[str, Any], metric: str = "micro_f1") -> bool:
    """True if an epoch is better than the one kept so far."""
    name = f"val_{metric}"
    if name not in kept:
        return True
    if name not in record:
        return False
    score, other = ((better(metric, each[name]), -each["val_loss"]) for each in (record, kept))
    return score > other


def check_room(graph: Graph, config: TrainConfig) -> None:
    """Refuse a training that needs more memory than there is, before anything is allocated."""
    if graph.labels is None:
        return  # refused in other words
    device = choose_device(config.device)
    if device.type == "cpu":
        check_memory(graph, config)
    else:
        check_device_memory(graph, config, torch.cuda.mem_get_info(device)[0])


def check_labels(counts: IntArray, task: Task, target: Target | None) -> None:
    """Refuse training nodes of a single class, or of equal numbers: any network would be right."""
    if target is not None and target.scale <= 1e-12 * abs(target.mean):
        raise InputError(
            f"all training nodes have the target {target.mean:g}, so there is nothing to learn; "
            "look at the label column, or draw another split (--split random)"
        )
    if task == "classification" and np.count_nonzero(counts) == 1:
        raise InputError(
            "all training nodes are of one class, so there is nothing to learn; look at the label "
            "column, or draw another split (--split random)"
        )


def check_defined(metric: str, scores: Metrics) -> None:
    """Refuse to select by a metric that is not defined for the validation nodes."""
    if metric not in scores.scores():
        raise InputError(
            f"metric = {metric!r} is not defined for these validation nodes: {_needs(metric)}; "
            "choose another one (--metric micro_f1), or another split"
        )


def _needs(metric: str) -> str:
    if metric == "f1":
        return "it is for two classes, macro_f1 for more"
    if metric == "balanced_accuracy":
        return "it is for one class a node"
    if metric.startswith("recall@"):
        return "K is at most the number of classes, and a share P% of nodes is for two classes"
    return "it needs a class that some of them have and some have not"
