"""A search as a user of PyG would do it: train every setting, keep what validation prefers.

Test labels are not here: a `Task` has the labels of training and validation nodes alone, and
`select` sees validation scores. Predictions of the selected network are scored elsewhere.

The stopping rule is that of `fastgcn.train.training`: at most 400 epochs, patience 50, and the
epoch with the highest validation micro-F1 is kept, with the lowest loss among equals. It is written
without a branch, so that on a GPU an epoch is recorded once (a CUDA graph) and replayed; settings
run side by side there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.peers.networks import Network, Setting, edges_for

EPOCHS, PATIENCE, RATE = 400, 50, 0.01
_CHECK_EVERY = 10  # epochs between two looks at whether a training has stopped
NONE = -1  # the label of a node that a part does not have


class Task:
    """A graph on a device, and the labels of training and validation nodes under a split."""

    def __init__(self, features: Any, ends: Any, n_classes: int, device: str) -> None:
        dense = features.toarray() if hasattr(features, "toarray") else np.array(features)
        self.device = torch.device(device)
        self.x = torch.tensor(dense, dtype=torch.float32, device=self.device)
        self.ends = torch.from_numpy(np.asarray(ends, np.int64)).to(self.device)
        self.n_classes = n_classes
        n = len(self.x)
        self.train = torch.full((n,), NONE, device=self.device)
        self.val = torch.full((n,), NONE, device=self.device)
        self._edges: dict[tuple[str, bool], tuple[Any, ...]] = {}

    def use(self, train: tuple[Any, Any], val: tuple[Any, Any]) -> None:
        """Take a split: (nodes, labels) of the training and of the validation nodes."""
        for labels, (nodes, classes) in ((self.train, train), (self.val, val)):
            labels.fill_(NONE)
            ids = torch.from_numpy(np.asarray(nodes, np.int64)).to(self.device)
            labels[ids] = torch.from_numpy(np.asarray(classes, np.int64)).to(self.device)

    def edges(self, kind: str, *, fast: bool) -> tuple[Any, ...]:
        if (kind, fast) not in self._edges:
            self._edges[kind, fast] = edges_for(kind, self.ends, len(self.x), fast=fast)
        return self._edges[kind, fast]


@dataclass(frozen=True, slots=True)
class Tried:
    """A trained setting: its best validation micro-F1, the loss there, and the epochs."""

    setting: Setting
    val_micro_f1: float
    val_loss: float
    best_epoch: int
    epochs: int


def select(tried: Sequence[Tried]) -> int:
    """The position of the setting to keep: the highest F1, the lowest loss among equals."""
    order = [(each.val_micro_f1, -each.val_loss) for each in tried]
    return order.index(max(order))


class Trainer:
    """The training of one setting on a task; it can begin again with another seed or split."""

    def __init__(self, task: Task, setting: Setting, *, fast: bool = True) -> None:
        self.task, self.setting = task, setting
        cuda = task.device.type == "cuda"
        self.edges = task.edges(setting.kind, fast=fast)
        self.network = Network(setting, task.x.shape[1], task.n_classes).to(task.device)
        self.weights = list(self.network.parameters())
        self.optimizer = torch.optim.Adam(
            self.weights, lr=RATE, weight_decay=setting.weight_decay, capturable=cuda
        )
        self.best = [weight.detach().clone() for weight in self.weights]
        # Nodes right and loss of the best epoch; that epoch, and the last one that counts.
        self.right, self.best_at, self.done = (
            torch.zeros((), dtype=torch.int64, device=task.device) for _ in range(3)
        )
        self.loss = torch.zeros((), device=task.device)
        self.stream: Any = torch.cuda.Stream() if cuda else None  # type: ignore[no-untyped-call]
        self.recorded: Any = None

    def begin(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.network.reset()
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()
        for value in (self.right, self.best_at, self.done, self.loss):
            value.zero_()
        self.right.fill_(-1)

    def record(self) -> None:
        """Record an epoch as a CUDA graph; `begin` afterwards."""
        self.begin(0)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self._epoch()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # of what the epochs so far took: a recording has its own memory
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded, stream=self.stream):
            self._epoch()
        self.recorded = recorded

    def epoch(self) -> None:
        if self.recorded is None:
            self._epoch()
            return
        with torch.cuda.stream(self.stream):
            self.recorded.replay()

    def _epoch(self) -> None:
        """One step on all training nodes, and validation; nothing changes after the last epoch."""
        task = self.task
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.network(task.x, self.edges)
        loss = functional.cross_entropy(logits, task.train, ignore_index=NONE)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.network.eval()
        with torch.no_grad():
            logits = self.network(task.x, self.edges)
            loss = functional.cross_entropy(logits, task.val, ignore_index=NONE)
            right = (logits.argmax(1) == task.val).sum()
            counts = (self.done - self.best_at < PATIENCE) & (self.done < EPOCHS)
            self.done.add_(counts)
            better = (right > self.right) | ((right == self.right) & (loss < self.loss))
            better &= counts
            for kept, new in zip(
                (self.right, self.loss, self.best_at, *self.best),
                (right, loss, self.done, *self.weights),
                strict=True,
            ):
                kept.copy_(torch.where(better, new, kept))

    def has_stopped(self) -> bool:
        done, best_at = torch.stack([self.done, self.best_at]).tolist()
        return bool(done - best_at >= PATIENCE or done >= EPOCHS)

    def result(self) -> Tried:
        right, done, best_at = torch.stack([self.right, self.done, self.best_at]).tolist()
        n_val = int((self.task.val != NONE).sum())
        return Tried(self.setting, right / n_val, float(self.loss), best_at, done)

    def predictions(self) -> np.ndarray[Any, Any]:
        """(n,) classes by the weights of the best epoch."""
        with torch.no_grad():
            for weight, best in zip(self.weights, self.best, strict=True):
                weight.copy_(best)
            self.network.eval()
            found: np.ndarray[Any, Any] = (
                self.network(self.task.x, self.edges).argmax(1).cpu().numpy()
            )
        return found


def make_trainers(task: Task, settings: Sequence[Setting]) -> tuple[list[Trainer], str]:
    """Trainers of the settings in the fastest form that works here, and what that is."""
    if task.device.type != "cuda":
        return [Trainer(task, each) for each in settings], "eager"
    why = ""
    for fast, form in ((True, "recorded"), (False, "recorded, plain edges")):
        try:
            trainers = [Trainer(task, each, fast=fast) for each in settings]
            for trainer in trainers:
                trainer.record()
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            torch.cuda.synchronize()
            why += f"; not {form}: {str(error)[:300]}"
        else:
            return trainers, form + why
    return [Trainer(task, each, fast=False) for each in settings], "eager, plain edges" + why


def train(trainers: Sequence[Trainer], seed: int) -> list[Tried]:
    """Train all from the same seed, side by side, until each has stopped."""
    for trainer in trainers:
        trainer.begin(seed)
    cuda = trainers[0].task.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
    running = list(trainers)
    while running:
        for trainer in running:
            for _ in range(_CHECK_EVERY):
                trainer.epoch()
        if cuda:
            torch.cuda.synchronize()
        running = [each for each in running if not each.has_stopped()]
    return [trainer.result() for trainer in trainers]
