"""The estimators compared: error of the gradient, time of a step, both at once, and accuracy."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice

from benchmarks.accuracy import Case, run_case
from benchmarks.as_written import AsWritten
from benchmarks.family import BASELINE, MEMBERS, Effort, Subject
from benchmarks.gradients import GradientErrors
from benchmarks.results import Record, Results
from benchmarks.rounds import time_steps
from benchmarks.trained_network import TrainedNetwork
from fastgcn.config import TrainConfig
from fastgcn.machine import thread_count
from fastgcn.progress import progress

# A step takes as long as another's if it takes at most so much longer, in parts of that one:
# where cost hardly depends on t, the noise of the clock would decide otherwise.
TOLERANCE = 0.03


def equal_time_samples(sizes: Sequence[int], seconds: Sequence[float], limit: float) -> int | None:
    """The largest t whose step takes at most `limit`, by the times of some sizes, ascending.

    Between two sizes time is taken to be linear in t; beyond the largest nothing is claimed.
    None: even the smallest size takes longer.

    >>> equal_time_samples([100, 400, 1600], [1.0, 1.5, 4.0], limit=2.0)
    640
    >>> equal_time_samples([100, 400], [1.0, 1.5], limit=0.5) is None
    True
    """
    within = [i for i, each in enumerate(seconds) if each <= limit]
    if not within:
        return None
    last = within[-1]
    if last == len(sizes) - 1:
        return sizes[last]
    share = (limit - seconds[last]) / (seconds[last + 1] - seconds[last])
    return sizes[last] + int(share * (sizes[last + 1] - sizes[last]))


class Costs:
    """Gradient errors and step times of all members on one data set, from a file of results."""

    def __init__(self, subject: Subject, effort: Effort, results: Results) -> None:
        self.subject, self.effort, self.results = subject, effort, results
        self.base = subject.config.replace(epochs=effort.network_epochs)
        (self.t,) = self.base.layer_samples
        self.about = {"data": subject.data, "split": subject.split}

    @cached_property
    def network(self) -> TrainedNetwork:
        """Made when something is not on file."""
        ages = {member.config(self.base).history_every for member in MEMBERS}
        return TrainedNetwork(self.subject.graph(), self.base, ages)

    @cached_property
    def gradients(self) -> GradientErrors:
        return GradientErrors(self.network, batches=self.effort.batches)

    def summary(self) -> Record:
        """All figures, members in their order."""
        with thread_count(0):
            times, written, where = self._times()
            limits = {"equal_time": times[BASELINE][self.t], "written_time": written["seconds"]}
            within = {
                name: {what: self._largest(by_size, limit) for what, limit in limits.items()}
                for name, by_size in times.items()
            }
            within[BASELINE]["equal_time"] = self.t
            errors = self._errors({name: {*times[name], *_known(within[name])} for name in times})
        members = []
        for member in MEMBERS:
            seconds, found = times[member.name], errors[member.name]
            curve = [{"t": size, "seconds": seconds[size]} | found[size] for size in seconds]
            members.append(
                {
                    "member": member.name,
                    "settings": dict(member.settings),
                    "seconds": seconds[self.t],
                    **found[self.t],
                    **{
                        what: None if t is None else {"t": t, **found[t]}
                        for what, t in within[member.name].items()
                    },
                    "curve": curve,
                }
            )
        return self.about | {"t": self.t, "written": written, "members": members, "where": where}

    def _largest(self, by_size: Mapping[int, float], limit: float) -> int | None:
        return equal_time_samples(list(by_size), list(by_size.values()), limit * (1 + TOLERANCE))

    def _times(self) -> tuple[dict[str, dict[int, float]], Record, Record]:
        """Seconds a step of each member, by sample size; seconds and rows of a step of Algorithm 2
        as it is written; and the machine that took them."""
        key = self.about | {
            "experiment": "estimator-times",
            "configs": {m.name: m.config(self.base).to_dict() for m in MEMBERS},
            "sizes": list(self.effort.sizes),
            "rounds": self.effort.rounds,
            "chunk_seconds": self.effort.chunk_seconds,
            "as_written": True,
        }
        found = self.results.measure(key, self._measure_times)
        times = {
            name: {int(t): seconds for t, seconds in by_size.items()}
            for name, by_size in found["members"].items()
        }
        return times, found["written"], self.results.where(key) or {}

    def _measure_times(self) -> Record:
        network = self.network
        sizes = self.effort.samples(self.t, network.trainer.data.adjacency.n)
        configs = {
            (member.name, t): member.config(self.base, t) for member in MEMBERS for t in sizes
        }
        trainers = {
            f"{name}, {t}": network.trainer_with(config) for (name, t), config in configs.items()
        }
        every = AsWritten(network.trainer.data.adjacency, [self.t])
        trainers["as written"] = network.trainer_with(self.base, every)
        found = time_steps(
            trainers, rounds=self.effort.rounds, chunk_seconds=self.effort.chunk_seconds
        )
        times: Record = {member.name: {} for member in MEMBERS}
        for (name, t), config in configs.items():
            step = found[f"{name}, {t}"]
            beside = network.seconds_an_epoch(config) / step["batches_per_epoch"]
            times[name][str(t)] = step["seconds_per_batch"] + beside
        feed = trainers["as written"].minibatches
        rows = [len(part.x) for part in feed.singly(islice(feed.shuffled(), self.effort.batches))]
        seconds = found["as written"]["seconds_per_batch"]
        return {"members": times, "written": {"seconds": seconds, "rows": sum(rows) / len(rows)}}

    def _errors(self, wanted: Mapping[str, set[int]]) -> dict[str, dict[int, Record]]:
        """Of each member's gradient, at the sample sizes wanted."""
        errors: dict[str, dict[int, Record]] = {member.name: {} for member in MEMBERS}
        total = sum(map(len, wanted.values()))
        with progress(f"Gradients, {self.subject.data}", total, "estimators") as advance:
            for member in MEMBERS:
                for t in sorted(wanted[member.name]):
                    errors[member.name][t] = self._error(member.config(self.base, t))
                    advance(1)
        return errors

    def _error(self, config: TrainConfig) -> Record:
        effort = self.effort
        key = self.about | {
            "experiment": "gradient-error",
            "config": config.to_dict(),
            "batches": effort.batches,
            "draws": effort.draws,
        }
        return self.results.measure(key, lambda: self.gradients.measure(config, draws=effort.draws))


def _known(sizes: Mapping[str, int | None]) -> list[int]:
    return [t for t in sizes.values() if t is not None]


def accuracies(subjects: Sequence[Subject], effort: Effort, results: Results) -> list[Record]:
    """Test scores of every member on every data set, at the settings' own learning rate."""
    cases = [
        Case(member.name, each.data, each.split, config, rates=(config.learning_rate,))
        for each in subjects
        if each.split is not None
        for member in MEMBERS
        for config in [member.config(_shortened(each.config, effort))]
    ]
    with progress("Training", len(cases) * effort.seeds, "runs") as advance:
        return [run_case(case, effort.seeds, results, advance) for case in cases]


def _shortened(config: TrainConfig, effort: Effort) -> TrainConfig:
    return config if effort.epochs is None else config.replace(epochs=effort.epochs)
