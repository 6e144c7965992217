"""The race: candidates train side by side, and validation drops the worse ones after each round.

The winner trains on from where it stands, so a race costs the epochs of the losers. All candidates
share the training graph, and each trains on threads of its own as long as there are several. The
same seed gives the same choice on any number of threads; on a GPU, rounding may change it.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastgcn.backends import choose_backend
from fastgcn.backends.data import SharedData, check_trainable
from fastgcn.config import TrainConfig
from fastgcn.diagnose.auto import resolve_samples
from fastgcn.graph.graph import Graph
from fastgcn.machine import memory_of_device, thread_count
from fastgcn.metrics import better
from fastgcn.progress import note, progress
from fastgcn.train.automatic import Candidate, epoch_work
from fastgcn.train.presets import entrants
from fastgcn.train.side_by_side import train_side_by_side
from fastgcn.train.training import Training, check_room

# Epochs after which a round ends and the worse half of the candidates is dropped: of full passes at
# a rate of 0.02, and of sampled batches, which take many steps an epoch.
_FULL_ROUNDS = (20, 40, 80)
_SAMPLED_ROUNDS = (3, 6, 12)
_FULL_RATE = 0.02

# There is no race if an epoch takes more multiplications than this: some ten seconds of a CPU.
_LARGEST_EPOCH = 1 << 38

# Candidates that learn slowly end better. So the first round drops none that is this close to the
# best, and each later round none that is within a third of that.
_CLOSE = 0.03

# Another candidate must be better than the first by this share of the standard error of F1. Within
# it they count as equal, and the first is taken.
_MARGIN = 0.25


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate of a race, and how far it came.

    Attributes:
        epochs: how many it was trained for in the race.
        val_micro_f1, val_loss: of its best epoch so far; a regression has no F1.
        score: what it was judged by.
        kept: True for the winner.
        metric, value: what validation selects by, and its best value so far.
    """

    name: str
    epochs: int
    val_micro_f1: float | None
    val_loss: float
    score: float
    kept: bool = False
    metric: str = "micro_f1"
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings of a run, and how they were chosen.

    Attributes:
        why: one sentence; empty if the user gave all settings.
        tried: the candidates of the race, best first; empty if there was none.
        seconds: that the race took.
        training: the winner's, which goes on; None if there was no race.
    """

    config: TrainConfig
    why: str = ""
    tried: tuple[Tried, ...] = ()
    seconds: float = 0.0
    training: Training | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """What a run keeps of it, beside the settings."""
        tried = [asdict(each) for each in self.tried]
        return {"why": self.why, "tried": tried, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, config: TrainConfig, kept: Mapping[str, Any] | None) -> "Choice":
        """From what a run has kept; nothing is known of a run of an earlier version."""
        kept = kept or {}
        tried = tuple(Tried(**each) for each in kept.get("tried", ()))
        return cls(config, kept.get("why", ""), tried, kept.get("seconds", 0.0))

    def table(self) -> list[str]:
        """Lines of a small table: what was tried, what was chosen and why."""
        if not self.tried:
            return [f"Settings: {self.why}"] if self.why else []
        width = max(len(each.name) for each in self.tried)
        metric = self.tried[0].metric
        shown = "" if metric == "micro_f1" else f"  val {metric}"
        f1 = "" if self.tried[0].val_micro_f1 is None else "  val F1"
        lines = [f"{'candidate':{width}}  epochs{f1}  val loss{shown}"]
        for each in self.tried:
            mark = f"{each.value:>{len(shown)}.4f}" if shown and each.value is not None else ""
            mark += "  chosen" if each.kept else ""
            score = "" if each.val_micro_f1 is None else f"  {each.val_micro_f1:.4f}"
            lines.append(f"{each.name:{width}}  {each.epochs:6}{score}  {each.val_loss:8.4f}{mark}")
        return [*lines, f"Settings: {self.why}"]


def choose(
    graph: Graph, config: TrainConfig | None = None, settings: Mapping[str, Any] | None = None
) -> Choice:
    """The settings of a run: those that the user gave, and the rest by a race on validation.

    There is no race if there is nothing to choose, nothing to choose by, or if the user asks for
    fewer epochs than the first round has; the first candidate is taken then.
    """
    check_trainable(graph)
    found = entrants(graph, config, settings)
    found = [Candidate(name, resolve_samples(graph, each)) for name, each in found]
    first = found[0].config
    if len(found) == 1:
        return Choice(first)
    if not graph.split.val.size:
        return Choice(first, why=f"{found[0].name}, as there are no validation nodes to race on")
    if first.epochs < rounds_of(first)[0]:
        return Choice(first, why=f"{found[0].name}, as {first.epochs} epochs are too few to race")
    if epoch_work(graph, first) > _LARGEST_EPOCH:
        return Choice(first, why=f"{found[0].name}, as the graph is too large to race on")
    check_trainable(graph, first)
    for each in found:
        check_room(graph, each.config)
    with thread_count(first.threads), memory_of_device():
        choice = race(graph, found)
    for line in choice.table():
        note(line)
    return choice


def rounds_of(config: TrainConfig) -> tuple[int, ...]:
    """The epochs after which each round of a race may end; at half the rate, twice as many."""
    if config.method != "gcn":
        return _SAMPLED_ROUNDS
    slower = 2 if config.learning_rate <= _FULL_RATE / 2 else 1
    return tuple(slower * epochs for epochs in _FULL_ROUNDS)


def rounds_for(found: Sequence[Candidate]) -> tuple[int, ...]:
    """Rounds that leave one candidate; one more if layers differ, as deep networks learn later."""
    deep = len({each.config.layers for each in found}) > 1
    return rounds_of(found[0].config)[: max(1, math.ceil(math.log2(len(found)))) + deep]


def race(graph: Graph, found: Sequence[Candidate]) -> Choice:
    """Train all candidates; each round drops the worse half, but for those close to the best."""
    shared, began = SharedData(), time.perf_counter()
    running = {
        number: Training(each.config, choose_backend(graph, each.config, shared=shared))
        for number, each in enumerate(found)
    }
    rounds = rounds_for(found)
    tried: dict[int, Tried] = {}
    with progress("Racing candidates", len(found) * rounds[-1], "epochs") as advance:

        def drop(number: int) -> None:
            advance(max(0, rounds[-1] - len(running.pop(number).history)))

        for done, epochs in enumerate(rounds):
            failed = train_side_by_side(running, epochs, advance)
            for number, wrong in failed.items():
                note(f"Dropped {found[number].name}, where {wrong}")
                drop(number)
            for number, training in running.items():
                tried[number] = judged(found[number].name, training, number, graph)
            ranked = sorted(running, key=lambda number: -tried[number].score)
            last = epochs == rounds[-1]
            places = 1 if last else math.ceil(len(ranked) / 2)
            for number in ranked[places:]:
                if last or not _close(tried[number], tried[ranked[0]], _CLOSE / 3**done):
                    drop(number)
            if not running:
                break
    shared.clear()
    if not running:
        return Choice(found[0].config, f"{found[0].name}; no candidate had finite numbers")
    ((winner, training),) = running.items()
    tried[winner] = replace(tried[winner], kept=True)
    spent = time.perf_counter() - began
    lengths = ", ".join(map(str, rounds[:-1])) + (" and " if rounds[1:] else "") + str(rounds[-1])
    return Choice(
        training.config,
        f"{found[winner].name}, first of {len(found)} by validation after {lengths} epochs",
        tuple(sorted(tried.values(), key=lambda each: (-each.epochs, -each.score))),
        round(spent, 3),
        training,
    )


def _close(each: Tried, best: Tried, share: float) -> bool:
    """True if a candidate is so close to the best one that it may still overtake it."""
    return best.score - each.score <= share * abs(best.score)


def judged(name: str, training: Training, number: int, graph: Graph) -> Tried:
    """A candidate by its best epoch so far; `number` is 0 for the first.

    By default by F1, not by the loss: candidates with stronger regularisation are less sure of what
    they predict correctly.
    """
    best, metric = training.history[training.best_at], training.metric
    value = best[f"val_{metric}"]
    if metric == "r2":  # of a linear regression (Olkin and Finn)
        error = 2 * math.sqrt(max(value, 0.0)) * (1 - value) / math.sqrt(len(graph.split.val))
    elif 0 <= value <= 1 and metric != "loss":
        positives = training.backend.model.decision.positive is not None and metric not in _COUNTED
        n = max(1, round(len(graph.split.val) * (_rarer(training) if positives else 1)))
        error = math.sqrt(max(value * (1 - value), 0.0) / n)
    else:
        error = value / math.sqrt(len(graph.split.val))
    score = better(metric, value) - (_MARGIN * error if number else 0.0)
    f1 = best.get("val_micro_f1")
    return Tried(
        name, len(training.history), f1, best["val_loss"], score, metric=metric, value=value
    )


# Scores that count all nodes; of two classes, the others have the error of the rarer class alone.
_COUNTED = ("micro_f1", "accuracy", "calibration_error")


def _rarer(training: Training) -> float:
    """The share of the rarer class among the training nodes."""
    return float(training.counts.min() / max(training.counts.sum(), 1))
