"""`Backend`, the interface between the training loop and the place where the work is done.

The loop in `fastgcn.train.loop` knows epochs, validation, checkpoints and the run folder. A
`Backend` knows where the graph lies and where products are taken: on the CPU, on a GPU, or in
several processes. Everything a backend does is behind the few methods below.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.backends.steps import Adam
from fastgcn.config import TrainConfig
from fastgcn.features.extremes import Extreme, extreme
from fastgcn.graph.graph import Graph
from fastgcn.machine import one_thread
from fastgcn.metrics import Metrics, Sums, scored, tally
from fastgcn.network import Network

Part = Literal["val", "test"]
T = TypeVar("T")

# Fewer outputs than this become probabilities on one thread.
_FEW = 1 << 22


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One pass over the training nodes.

    Attributes:
        loss: the mean over the training nodes.
        batches: how many steps were taken.
        empty_rows: the share of rows of the first batch with no edge to any sampled vertex.
        seconds: time by purpose. Batches are sampled while others are computed; "sampling" is
            the time that steps wait for them.
    """

    loss: float
    batches: int
    empty_rows: float
    seconds: Mapping[str, float]


@dataclass(slots=True)
class Checkpoint:
    """Everything an interrupted run needs to continue as if nothing had happened."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]


class Backend(Protocol):
    """Trains and applies one network on one graph, in one place."""

    @property
    def device(self) -> torch.device: ...

    @property
    def model(self) -> Network:
        """The network being trained; available after `prepare`."""
        ...

    @property
    def validate_every(self) -> int:
        """Epochs between two validations."""
        ...

    def prepare(self) -> None:
        """Build Â, ÂX, the network, the sampler and the optimiser."""
        ...

    def train_epoch(self, epoch: int) -> EpochResult:
        """One pass over the training nodes; `epoch` counts from 0."""
        ...

    def evaluate(
        self,
        part: Part,
        model: Network | None = None,
        *,
        last: bool = False,
        also: Sequence[str] = (),
    ) -> Metrics | None:
        """Scores of the exact network on a part of the split; None if it has no labelled node.

        `model` replaces the one being trained, such as by its running average. With `last`,
        nothing is trained or evaluated afterwards: what only training needs is released first.
        `also` names scores beside the usual four.
        """
        ...

    def outputs(
        self, part: Part, model: Network | None = None
    ) -> tuple[FloatArray, AnyArray] | None:
        """Logits (k, C) and labels of the labelled nodes of a part; None if there are none.

        `model` is as for `evaluate`. If there are several processes, all get the nodes of all.
        """
        ...

    def class_counts(self) -> IntArray:
        """(C,) how many labelled training nodes have each class, or each label; numbers have no
        class."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything that the next epoch depends on, on the CPU."""
        ...

    def restore(self, state: Mapping[str, Tensor], epoch: int) -> None:
        """Go back to a `state` that was taken after `epoch` epochs."""
        ...

    def facts(self) -> dict[str, Any]:
        """Entries that this backend adds to a run's result."""
        ...

    def largest_feature(self) -> Extreme:
        """The feature farthest from zero, which may explain a loss that is not finite."""
        ...

    def on_first(self, what: str, do: Callable[[], T]) -> T | None:
        """What `do()` returns in the process that writes files, None in all others.

        If it fails in one process, `what` is named and it fails in all.
        """
        ...

    def broadcast(self, checkpoint: "Checkpoint | None") -> "Checkpoint | None":
        """The checkpoint that the first process has read, in all processes."""
        ...

    def agree(self, value: int) -> int:
        """The largest value that a process gives, in all of them."""
        ...


class Learner:
    """The network, its optimiser and its generators: the state that every backend has.

    Attributes:
        rng: draws batches and vertices on the CPU.
        dropout_rng: draws what dropout zeroes, on the network's device.
    """

    def __init__(self, model: Network, config: TrainConfig, device: torch.device) -> None:
        self.model, self._seed = model.to(device), config.seed
        self.optimizer = Adam(_parameter_groups(model, config), config.learning_rate)
        self.rng = torch.Generator().manual_seed(config.seed + 1)
        self.dropout_rng = torch.Generator(device).manual_seed(config.seed + 2)
        model.draw_from(self.dropout_rng)

    def state(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for number, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": value for name, value in moments.items()}
        tensors["rng"] = self.rng.get_state()
        tensors["dropout_rng"] = self.dropout_rng.get_state()
        return {name: value.detach().cpu() for name, value in tensors.items()}

    def restore(self, state: Mapping[str, Tensor], epoch: int) -> None:
        self.model.load_state_dict(with_prefix(state, "model."))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in with_prefix(state, "adam.").items():
            number, name = key.split(".", 1)
            moments.setdefault(int(number), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        # Compiled steps write to the moments as to arrays of the size of the weights.
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        for which, found in moments.items():
            for name in ("exp_avg", "exp_avg_sq"):
                check_alike({name: found[name]}, {name: weights[which]})
            if found["step"].numel() != 1 or which < 0:
                raise ValueError("the optimiser's state is not that of these weights")
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.rng.set_state(state["rng"])
        if len(state["dropout_rng"]) == len(self.dropout_rng.get_state()):
            self.dropout_rng.set_state(state["dropout_rng"])
        else:  # the run was on another kind of device, whose generator has another state
            self.dropout_rng.manual_seed(self._seed + 2 + epoch)


class Scorer(Protocol):
    """Scores a network on some nodes; its length is the number of labelled ones."""

    def __len__(self) -> int: ...

    def __call__(self, model: Network, also: Sequence[str] = ()) -> Metrics: ...

    def outputs(self, model: Network) -> tuple[FloatArray, AnyArray]: ...


def score(
    model: Network,
    logits: Tensor,
    labels: Any,
    also: Sequence[str] = (),
    *,
    reduce: Callable[[Sums], Sums] = lambda own: own,
    gather: Callable[[Any, Any], tuple[Any, Any]] = lambda rows, known: (rows, known),
) -> Metrics:
    """Scores of outputs (k, C) as the network's predictions (`fastgcn.metrics.scored`).

    With `also`, the loss without temperature is among them, if there is a temperature.
    """

    def found() -> Any:
        # The other thread of torch would keep its core busy for milliseconds after a small softmax.
        with one_thread(True) if logits.numel() < _FEW else nullcontext():
            rows = model.predictions(logits)
        return rows if isinstance(labels, Tensor) else rows.cpu().numpy()

    decision = model.decision
    metrics = scored(found(), labels, model.rule, also, reduce=reduce, gather=gather)
    if not also or decision.temperature == 1.0:
        return metrics
    model.decision = replace(decision, temperature=1.0)
    try:
        loss = reduce(tally(found(), labels)).metrics().loss
    finally:
        model.decision = decision
    return replace(metrics, more={**metrics.more, "loss_uncalibrated": loss})


def count_classes(labels: AnyArray, n_classes: int) -> IntArray:
    """(C,) int64: how many of (k,) class ids or (k, C) label sets have each class; numbers have
    none."""
    if labels.dtype.kind == "f":
        return np.empty(0, np.int64)
    if labels.ndim == 2:
        found: IntArray = np.count_nonzero(labels, axis=0)
        return found
    return np.bincount(labels[labels >= 0], minlength=n_classes)


class LearnerBackend:
    """The members of `Backend` that do not depend on where the work is done.

    A subclass sets `learner` in `prepare`, and has `_evaluator` and `_release`.
    """

    graph: Graph
    learner: Learner

    def __init__(self) -> None:
        self._evaluators: dict[Part, Scorer | None] = {}

    @property
    def model(self) -> Network:
        return self.learner.model

    def _evaluator(self, part: Part, *, last: bool) -> Scorer | None:
        """The scorer of a part of the split; None if the part is empty."""
        raise NotImplementedError

    def _release(self) -> None:
        """Free what only training needs, so that the test does not raise the peak of memory."""
        raise NotImplementedError

    def _scorer(self, part: Part, *, last: bool = False) -> Scorer | None:
        if part not in self._evaluators:
            self._evaluators[part] = self._evaluator(part, last=last)
        evaluator = self._evaluators[part]
        return evaluator if evaluator is not None and len(evaluator) else None

    def evaluate(
        self,
        part: Part,
        model: Network | None = None,
        *,
        last: bool = False,
        also: Sequence[str] = (),
    ) -> Metrics | None:
        if last:
            self._evaluators.clear()
            self._release()
        scorer = self._scorer(part, last=last)
        return None if scorer is None else scorer(self.model if model is None else model, also)

    def outputs(
        self, part: Part, model: Network | None = None
    ) -> tuple[FloatArray, AnyArray] | None:
        scorer = self._scorer(part)
        return None if scorer is None else scorer.outputs(self.model if model is None else model)

    def class_counts(self) -> IntArray:
        assert self.graph.labels is not None
        labels = self.graph.labels[self.graph.split.train]
        return count_classes(labels, self.graph.n_classes)

    def state(self) -> dict[str, Tensor]:
        return self.learner.state()

    def restore(self, state: Mapping[str, Tensor], epoch: int) -> None:
        self.learner.restore(state, epoch)

    def largest_feature(self) -> Extreme:
        return extreme(self.graph.features)

    def on_first(self, what: str, do: Callable[[], T]) -> T | None:  # noqa: ARG002
        return do()

    def broadcast(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        return checkpoint

    def agree(self, value: int) -> int:
        return value


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, named without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def check_alike(tensors: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
    """Raise a `ValueError` unless two sets of tensors have the same names, shapes and types."""
    found, expected = (
        {name: (tuple(each.shape), each.dtype) for name, each in some.items()}
        for some in (tensors, others)
    )
    if found != expected:
        raise ValueError(f"tensors must be {expected}, got {found}")


def _parameter_groups(model: Network, config: TrainConfig) -> list[dict[str, Any]]:
    """L2 on the first layer's weights, as in the authors' program, or on all weights."""
    decayed = model.decayed(config.weight_decay_on)
    chosen = {id(p) for p in decayed}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
