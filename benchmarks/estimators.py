"""The estimators compared: error of the gradient, time of a step, both at once, and accuracy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from benchmarks.cases import OWN_SPLIT, Case, from_cases, graph
from benchmarks.network import GradientErrors, TrainedNetwork, time_steps
from benchmarks.pages import DASH, Experiment, from_records, line_figure, mean_sd, short
from benchmarks.results import Measurement, Record, Results
from benchmarks.settings import paper_settings
from fastgcn.config import TrainConfig
from fastgcn.data.registry import PLANETOID
from fastgcn.machine import thread_count
from fastgcn.report.page import Content, Figure, Table
from fastgcn.report.plots import Series

BASELINE = "Algorithm 2"
DATA = ("cora", "pubmed", "reddit-sim")

# A step takes as long as another's if it takes at most so much longer, in parts of that one:
# where cost hardly depends on t, the noise of the clock would decide otherwise.
TOLERANCE = 0.03
_CLEARLY = 1.05  # a gain below this is the clock's noise


@dataclass(frozen=True, slots=True)
class Member:
    """One estimator: the settings in which it departs from Algorithm 2.

    `drawn`: whether figures show it; more than a few lines cannot be told apart.
    """

    name: str
    settings: Mapping[str, Any]
    drawn: bool = False

    def config(self, base: TrainConfig, samples: int | None = None) -> TrainConfig:
        """The settings `base` with this estimator, and so many vertices a layer if given."""
        return base.replace(**self.settings, **({} if samples is None else {"samples": samples}))

    def in_words(self) -> str:
        """The settings as they are written in a file.

        >>> Member("LADIES", {"distribution": "ladies", "history": True}).in_words()
        'distribution = "ladies", history = true'
        """
        words = [
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}".lower()
            for name, value in self.settings.items()
        ]
        return ", ".join(words)


_EXACT = {"distribution": "ladies", "self_term": "exact"}
_SIZES = {"distribution": "ladies", "power": 1.0}
_STRATIFIED = {"draws": "stratified"}

MEMBERS = (
    Member(BASELINE, {}, drawn=True),
    Member("Algorithm 1", {"distribution": "uniform"}),
    Member("flat", {"distribution": "flat"}),
    Member("optimal", {"distribution": "optimal"}),
    Member("stratified", _STRATIFIED),
    Member("Poisson", {"draws": "poisson"}),
    Member("successive", {"draws": "successive"}),
    Member("neighbours", {"neighbors_only": True}, drawn=True),
    Member("neighbours, stratified", {"neighbors_only": True} | _STRATIFIED),
    Member("exact self", {"self_term": "exact"}),
    Member("LADIES", {"distribution": "ladies"}, drawn=True),
    Member("LADIES, exact self", _EXACT, drawn=True),
    Member("LADIES, exact self, stratified", _EXACT | _STRATIFIED),
    Member("LADIES by sizes", _SIZES),
    Member("LADIES by sizes, stratified", _SIZES | _STRATIFIED, drawn=True),
    Member("LADIES by sizes, exact self, stratified", _SIZES | {"self_term": "exact"} | _STRATIFIED,
           drawn=True),
    Member("history", {"history": True}, drawn=True),
    Member("history, 5 epochs", {"history": True, "history_every": 5}),
    Member("LADIES, exact self, history", _EXACT | {"history": True}),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How thoroughly is measured.

    Attributes:
        sizes: sample sizes, in units of the paper's t.
        network_epochs: epochs that the network has been trained for when gradients are compared.
        batches, draws: batches whose gradients are compared, and draws for each.
        rounds, chunk_seconds: chunks of steps that a time is the median of, and their length.
        seeds: trainings of each member, with seeds 0, 1, ...
        epochs: at most so many each; None: the settings' own.
    """

    sizes: tuple[float, ...] = (1 / 16, 1 / 4, 1, 4)
    network_epochs: int = 10
    batches: int = 4
    draws: int = 30
    rounds: int = 25
    chunk_seconds: float = 0.08
    seeds: int = 3
    epochs: int | None = None

    def samples(self, t: int, nodes: int) -> list[int]:
        """The sample sizes around t, of a training graph of so many nodes; t is one of them."""
        around = {round(t * size) for size in self.sizes}
        return sorted({t, *(min(max(size, 1), nodes) for size in around)})


FULL = Effort()  # about ten minutes on two cores
QUICK = Effort(
    sizes=(1 / 4, 1), network_epochs=5, batches=2, draws=4, rounds=2, chunk_seconds=0.02,
    seeds=1, epochs=5,
)  # fmt: skip


Seconds = Mapping[int, float]  # a step, by sample size, ascending


def equal_time_samples(seconds: Seconds, limit: float) -> int | None:
    """The largest t whose step takes at most `limit`, by the times of some sizes.

    Between two sizes time is taken to be linear in t; beyond the largest nothing is claimed.
    None: even the smallest size takes longer.

    >>> equal_time_samples({100: 1.0, 400: 1.5, 1600: 4.0}, limit=2.0)
    640
    >>> equal_time_samples({100: 1.0, 400: 1.5}, limit=0.5) is None
    True
    """
    within = [t for t, each in seconds.items() if each <= limit]
    beyond = [t for t in seconds if within and t > within[-1]]
    if not beyond:
        return within[-1] if within else None
    last, following = within[-1], beyond[0]
    share = (limit - seconds[last]) / (seconds[following] - seconds[last])
    return last + int(share * (following - last))


class Costs:
    """Gradient errors and step times of all members on one data set.

    The settings are the paper's, those for Reddit where the paper does not have the data.
    """

    def __init__(self, data: str, effort: Effort) -> None:
        self.data, self.effort, self.split = data, effort, split_of(data)
        self.base = paper_settings(data).replace(epochs=effort.network_epochs)
        (self.t,) = self.base.layer_samples
        self.about = {"data": data, "split": self.split}

    @cached_property
    def network(self) -> TrainedNetwork:
        ages = {member.config(self.base).history_every for member in MEMBERS}
        return TrainedNetwork(graph(self.data, self.split), self.base, ages)

    @cached_property
    def gradients(self) -> GradientErrors:
        return GradientErrors(self.network, batches=self.effort.batches)

    def plan(self, results: Results) -> Iterator[Measurement]:
        """The times, and then the errors at the sizes that the times lead to."""
        yield self._times()
        if (found := self._found(results)) is not None:
            for member in MEMBERS:
                for t in all_sizes(*found[member.name]):
                    yield self._error(member.config(self.base, t))

    def _times(self) -> Measurement:
        effort = self.effort
        key = self.about | {
            "experiment": "estimator-times",
            "configs": {m.name: m.config(self.base).to_dict() for m in MEMBERS},
            "sizes": list(effort.sizes),
            "rounds": effort.rounds,
            "chunk_seconds": effort.chunk_seconds,
        }
        return Measurement(f"{self.data}: times of steps", key, self._measure_times, alone=True)

    def _measure_times(self) -> Record:
        with thread_count(0):
            network = self.network
            sizes = self.effort.samples(self.t, network.trainer.data.adjacency.n)
            configs = {(m.name, t): m.config(self.base, t) for m in MEMBERS for t in sizes}
            trainers = {f"{n}, {t}": network.trainer_with(c) for (n, t), c in configs.items()}
            found = time_steps(
                trainers, rounds=self.effort.rounds, chunk_seconds=self.effort.chunk_seconds
            )
            times: Record = {member.name: {} for member in MEMBERS}
            for (name, t), config in configs.items():
                step = found[f"{name}, {t}"]
                beside = network.seconds_an_epoch(config) / step["batches_per_epoch"]
                times[name][str(t)] = step["seconds_per_batch"] + beside
        return {"members": times}

    def _error(self, config: TrainConfig) -> Measurement:
        batches, draws = self.effort.batches, self.effort.draws
        key: Record = self.about | {"experiment": "gradient-error", "config": config.to_dict()}
        key |= {"batches": batches, "draws": draws}

        def measure() -> Record:
            with thread_count(0):
                return self.gradients.measure(config, draws=draws)

        # Here, where the network is: training it again in other processes takes longer.
        label = f"{self.data}: gradients, t = {config.samples}"
        return Measurement(label, key, measure, alone=True)

    def _found(self, results: Results) -> dict[str, tuple[Seconds, int | None]] | None:
        """The times of each member, and its largest size within Algorithm 2's time."""
        found = results.get(self._times().key)
        if found is None:
            return None
        times = {
            name: {int(t): seconds for t, seconds in by_size.items()}
            for name, by_size in found["members"].items()
        }
        limit = times[BASELINE][self.t] * (1 + TOLERANCE)
        within = {name: equal_time_samples(each, limit) for name, each in times.items()}
        return {name: (times[name], (within | {BASELINE: self.t})[name]) for name in times}

    def summary(self, results: Results) -> Record | None:
        """All figures, members in their order; None as long as some are missing."""
        found = self._found(results)
        if found is None:
            return None
        members = []
        for member in MEMBERS:
            seconds, equal = found[member.name]
            at: dict[int, Record] = {}
            for t in all_sizes(seconds, equal):
                error = results.get(self._error(member.config(self.base, t)).key)
                if error is None:
                    return None
                at[t] = {"t": t, **error}
            curve = [{"seconds": s, **at[t]} for t, s in seconds.items()]
            own: Record = {"member": member.name, "seconds": seconds[self.t], "curve": curve}
            members.append(at[self.t] | own | {"equal": None if equal is None else at[equal]})
        return {"data": self.data, "t": self.t, "members": members}

    def show(self, results: Results) -> list[Content | None]:
        found = self.summary(results)
        return [] if found is None else [cost_table(found), finding(found), figure(found)]


def all_sizes(seconds: Seconds, equal: int | None) -> list[int]:
    """Sample sizes that were timed, and that at equal time."""
    return sorted({*seconds, *([] if equal is None else [equal])})


def split_of(data: str) -> str | None:
    """The paper's split of its data; reddit-sim has its own, other data are split at random."""
    if data == "reddit-sim":
        return None
    return "full" if data in PLANETOID else "random"


def experiments(effort: Effort, data: Sequence[str] = DATA) -> list[Experiment]:
    """The members, their costs but on Cora, and their accuracy but on reddit-sim."""
    compared = [Costs(name, effort) for name in data if name != "cora"]
    cases = {name: accuracy_cases(name, effort) for name in data if name != "reddit-sim"}
    trained = [case for each in cases.values() for case in each.values()]
    rows = [(member.name, member.in_words() or "those of the paper") for member in MEMBERS]
    members = Table(("estimator", "settings"), rows, "The estimators")
    return [
        from_records("members", "The estimators", {}, lambda _: [members]),
        *(
            Experiment(name=c.data, title=f"Error and time on {c.data}", plan=c.plan, show=c.show)
            for c in compared
        ),
        from_cases("accuracy", "Accuracy", lambda: trained, partial(accuracy_table, cases)),
    ]


def accuracy_cases(data: str, effort: Effort) -> dict[str, Case]:
    """Trainings of every member on a data set, at the settings' own learning rate."""
    base = paper_settings(data)
    base = base if effort.epochs is None else base.replace(epochs=effort.epochs)
    return {
        member.name: Case(
            label=f"{data}: {member.name}",
            data=data,
            split=split_of(data) or OWN_SPLIT,
            config=member.config(base),
            rates=(base.learning_rate,),
            seeds=effort.seeds,
        )
        for member in MEMBERS
    }


def accuracy_table(cases: Mapping[str, Mapping[str, Case]], results: Results) -> list[Table]:
    """Test micro-F1: a row for each member, a column for each data set."""
    rows = []
    for member in MEMBERS:
        own = [each[member.name] for each in cases.values()]
        # As many seeds for each member, though more may be on file.
        scores = (case.test_scores(results)[: case.seeds] for case in own)
        rows.append((member.name, *(mean_sd(each, 4) for each in scores)))
    return [Table(("estimator", *cases), rows, "Test micro-F1, mean ± sd over seeds")]


def cost_table(costs: Record) -> Table:
    """A row for each member: its error and time at the paper's t, and its error at equal time."""
    rows = []
    for each in costs["members"]:
        there, gain = each["equal"], gain_of(costs, each)
        known = there is not None
        least = "≥ " if known and is_capped(each) else ""
        at_equal_time = (
            (f"{least}{there['t']:,}", _error(there), f"{least}{short(gain)}")
            if known
            else (DASH,) * 3
        )
        cells = (_error(each), short(each["variance"]), short(each["rows"]))
        rows.append((each["member"], *cells, f"{1000 * each['seconds']:.2f}", *at_equal_time))
    head = (
        "estimator", "error", "variance", "rows", "ms a step",
        "t at equal time", "error there", "gain",
    )  # fmt: skip
    caption = f"Error of the gradient and time on {costs['data']}, t = {costs['t']:,}"
    return Table(head, rows, caption)


def is_capped(member: Record) -> bool:
    """True if even the largest size tried is within the time, so that the gain may be larger.

    Algorithm 2 itself is compared at its own size.
    """
    return member["member"] != BASELINE and bool(
        member["equal"]["t"] >= max(point["t"] for point in member["curve"])
    )


def gain_of(costs: Record, member: Record) -> float | None:
    """How many times a member's error is below Algorithm 2's, at the time of its step."""
    if member["equal"] is None:
        return None
    return float(costs["members"][0]["error"] / member["equal"]["error"])


def finding(costs: Record) -> str:
    """Which estimator is best at equal time, in a sentence or two."""
    gains = {each["member"]: gain_of(costs, each) for each in costs["members"]}
    known = {name: gain for name, gain in gains.items() if gain is not None}
    best = max(known, key=lambda name: known[name])
    at = {each["member"]: each for each in costs["members"] if each["equal"] is not None}
    text = f"On {costs['data']}, at the time that a step of Algorithm 2 takes with "
    text += f"t = {costs['t']:,}, "
    if known[best] < _CLEARLY:
        text += "no estimator's error is clearly below its own."
    else:
        least = "at least " if is_capped(at[best]) else ""
        text += f"the smallest error is that of {best}: {least}{short(known[best])} times below its"
        text += " own."
        alike = [name for name in at if name != best and _alike(at[name], at[best])]
        if alike:
            text += f" Not distinguishable from it: {', '.join(alike)}."
    slow = len(gains) - len(known)
    return f"{text} {slow} of {len(gains)} take longer at any size tried." if slow else text


def _alike(member: Record, best: Record) -> bool:
    """True if two errors at equal time differ by no more than the error of their difference."""
    one, other = member["equal"], best["equal"]
    spread = float(np.hypot(one["standard_error"], other["standard_error"]))
    return bool(abs(one["error"] - other["error"]) <= spread)


def figure(costs: Record) -> Figure | None:
    """Error against time for some of the members, over the sizes tried."""
    shown = {member.name for member in MEMBERS if member.drawn}
    series = []
    for each in costs["members"]:
        if each["member"] in shown:
            curve = sorted(each["curve"], key=lambda point: point["seconds"])
            milliseconds = [1000 * point["seconds"] for point in curve]
            series.append(Series(each["member"], milliseconds, [p["error"] for p in curve]))
    sizes = [point["t"] for point in costs["members"][0]["curve"]]
    title = f"Error of the gradient against time, {costs['data']}"
    about = f"{title}, t from {min(sizes):,} to {max(sizes):,}"
    return line_figure(series, title, about, "ms a step", "squared error / squared norm")


def _error(found: Record) -> str:
    return f"{short(found['error'])} ± {short(found['standard_error'], 1)}"
