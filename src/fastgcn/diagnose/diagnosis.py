"""`diagnose`: measures all samplers of the family and names the best for a target error.

A member of the family is a `TrainConfig`; members differ in the settings that `choices` lists.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fastgcn.config import Distribution, Draws, SelfTerm, TrainConfig
from fastgcn.diagnose.gauge import Estimate, Gauge
from fastgcn.diagnose.session import Session
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.network import Network
from fastgcn.progress import progress

# The family: each distribution with its `power`, each kind of draws, each self term. Left out are
# `optimal`, each draw of which costs a part of a full forward pass, and `systematic`, which can be
# worse than independent draws. The settings' own member is always added.
DISTRIBUTIONS: tuple[tuple[Distribution, float | None], ...] = (
    ("uniform", None),
    ("importance", None),
    ("flat", None),
    ("ladies", None),
    ("ladies", 1.0),
)
DRAWS: tuple[Draws, ...] = ("independent", "stratified", "successive", "poisson")
_CHOICES = ("distribution", "power", "draws", "self_term", "neighbors_only", "correct_weights")

# An error counts as reaching its target if it is above it by at most this factor.
_SLACK = 1.02
# Sample sizes of the curves, as multiples of the one at which members are compared.
_MULTIPLES = (0.25, 0.5, 1, 2, 4, 8, 16)
# The sample size if the settings say "auto": the paper's.
_USUAL_SAMPLES = 400


def family(config: TrainConfig) -> list[TrainConfig]:
    """The settings' own member, then all the others."""
    own = config.replace(history=False)
    members = [
        own.replace(
            distribution=distribution,
            power=power,
            draws=draws,
            self_term=self_term,
            neighbors_only=False,
            correct_weights=True,
        )
        for distribution, power in DISTRIBUTIONS
        for self_term in get_args(SelfTerm)
        for draws in DRAWS
    ]
    return [own, *(member for member in members if choices(member) != choices(own))]


def choices(member: TrainConfig) -> dict[str, Any]:
    """The settings in which members differ."""
    return {name: getattr(member, name) for name in _CHOICES}


def name_of(member: TrainConfig) -> str:
    """A member in words.

    >>> name_of(TrainConfig(distribution="ladies", draws="poisson", self_term="exact"))
    'ladies, poisson, exact self term'
    """
    power = "" if member.power is None else f"^{member.power:g}"
    words = [member.distribution + power, member.draws]
    if member.self_term == "exact":
        words.append("exact self term")
    if member.neighbors_only:
        words.append("among neighbours")
    if not member.correct_weights:
        words.append("the authors' factor")
    return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One member in one sampled layer (`layer` counts the network's layers from 1) at one t.

    `closed` is the relative error in closed form, None if there is none; `drawn` is measured.
    """

    member: TrainConfig
    layer: int
    t: int
    closed: Estimate | None
    drawn: Estimate
    empty_rows: float

    @property
    def error(self) -> Estimate:
        """The closed form if there is one, or else the measured error."""
        return self.closed or self.drawn


@dataclass(frozen=True, slots=True)
class Cost:
    """One member with t vertices in all sampled layers: a step's time, and its gradient's error.

    `gradient` is None if whole neighbourhoods are too large to compare with.
    """

    member: TrainConfig
    t: int
    seconds: float
    gradient: Estimate | None


@dataclass(frozen=True, slots=True)
class Offer:
    """A member with the sample sizes for a target, one per sampled layer; at most all nodes."""

    member: TrainConfig
    samples: tuple[int, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, member: TrainConfig, needs: Sequence[tuple[int, Estimate]]) -> "Offer":
        """From t and the error there of each sampled layer."""
        return cls(member, tuple(t for t, _ in needs), tuple(error.value for _, error in needs))

    @property
    def cost(self) -> int:
        return sum(self.samples)

    def reaches(self, target: float) -> bool:
        return max(self.errors) <= target * _SLACK


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation for a relative error `target` in each sampled layer.

    `offer` is the fastest of those that reach the target, None if none does. `seconds` is the
    time of a step with it, `full_seconds` that of a step with whole neighbourhoods.
    """

    target: float
    nodes: int
    offer: Offer | None
    seconds: float | None
    full_seconds: float | None

    @property
    def worth_sampling(self) -> bool:
        """True if a sampled step takes less time than an exact one."""
        if self.offer is None or self.seconds is None:
            return False
        return self.full_seconds is None or self.seconds < self.full_seconds

    @property
    def sentence(self) -> str:
        """The answer in words."""
        asked = f"For {100 * self.target:g} % relative error a layer"
        full = "whole neighbourhoods (--method gcn-batched) are exact"
        if self.full_seconds is not None:
            full += f" and take {1000 * self.full_seconds:.3g} ms a step"
        if self.offer is None or self.seconds is None:
            return f"{asked}, even t = {self.nodes:,}, all nodes, is not enough; {full}."
        sizes = ", ".join(f"{t:,}" for t in self.offer.samples)
        use = f"{name_of(self.offer.member)}, t = {sizes}"
        took = f"{1000 * self.seconds:.3g} ms a step"
        if not self.worth_sampling:
            return f"{asked}, sampling does not pay: {use} takes {took}; {full}."
        return f"{asked}, use {use}: {took}" + (f"; {full}." if self.full_seconds else ".")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All measurements, and the recommendations.

    Attributes:
        dataset: the graph's name.
        nodes: the number of nodes of its training graph, from which vertices are drawn.
        training_nodes: how many of these are trained on, the rows of batches.
        config: the settings; `samples` is the t at which members are compared.
        without_history: True if the settings have a `history`, which is left out here.
        trained: True if the network is a run's, False if its weights are random.
        batches, rows: how many batches were measured, and rows of each.
        complete: True if these are all training nodes, so that closed forms are exact.
        members: all members at that t.
        curves, costs: the settings' own member, and the best of each distribution, against t.
        full_seconds: a step with whole neighbourhoods; None if these are too large.
        advice: a recommendation for each target error.
    """

    dataset: str
    nodes: int
    training_nodes: int
    config: TrainConfig
    without_history: bool
    trained: bool
    batches: int
    rows: int
    complete: bool
    members: list[Measurement]
    curves: list[Measurement]
    costs: list[Cost]
    full_seconds: float | None
    advice: list[Advice]


def diagnose(
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    model: Network | None = None,
    targets: Sequence[float] = (0.1, 0.05),
) -> Diagnosis:
    """Measure the error of sampling on the graph that training on `graph` would use.

    The network is `model`, or one with the settings' sizes and random weights. An error is
    √(E Σ_v |y(v) − e(v)|² / Σ_v |e(v)|²) over batch rows v: 0.1 is 10 %. There is one piece of
    advice for each of `targets`.
    """
    given = (config or TrainConfig()).complete()
    config = _as_sampled(graph, given)
    targets = _checked_targets(targets)
    with thread_count(config.threads):
        session = Session(graph, config, model)
        members = [session.gauges(member) for member in family(config)]
        measured = _measure(session, members, [session.t], "Measuring the family")
        offers = [_offers(members, target) for target in targets]
        advice = [_advise(session, *each) for each in zip(offers, targets, strict=True)]
        best = [choices(offer.member) for offer in _best_of_each(offers[0], targets[0])]
        chosen = [members[0], *(m for m in members[1:] if choices(m[0].member) in best)]
        wanted = {min(max(round(session.t * factor), 1), session.n) for factor in _MULTIPLES}
        curves = _measure(session, chosen, sorted(wanted), "Measuring errors against t")
        costs = _costs(session, chosen, sorted(wanted))
    top = members[0][-1]
    return Diagnosis(
        dataset=graph.name,
        nodes=session.n,
        training_nodes=len(session.network.data.batch_nodes),
        config=config,
        without_history=given.history,
        trained=model is not None,
        batches=len(session.batches),
        rows=max(len(convolution.chosen) for convolution in top.convolutions),
        complete=top.covered == 1,
        members=measured,
        curves=curves,
        costs=costs,
        full_seconds=session.full_seconds,
        advice=advice,
    )


def _as_sampled(graph: Graph, config: TrainConfig) -> TrainConfig:
    """The settings for FastGCN's sampling, with one t of at most all nodes."""
    if config.neighbor_sampling:
        raise InputError(
            "diagnose is about vertices drawn for a layer; give settings or a run of method "
            f"fastgcn, got {config.method}, which draws neighbours for each node"
        )
    if config.sampled_layers == 0:
        raise InputError(
            "nothing is sampled: the only layer is precomputed, and exact; set precompute = false "
            "or give the network a hidden layer"
        )
    samples = _USUAL_SAMPLES if config.samples == "auto" else config.samples
    # The size of the top layer, whose rows are the batch.
    t = samples if isinstance(samples, int) else samples[-1]
    nodes = len(graph.split.train) if config.inductive else graph.n_nodes
    return config.replace(method="fastgcn", samples=max(min(t, nodes), 1), history=False)


def _checked_targets(targets: Sequence[float]) -> list[float]:
    """The targets from the largest down, each once."""
    if not targets:
        raise InputError("there must be at least one target error, such as 0.1, got none")
    for target in targets:
        if not 0 < target <= 10:
            raise InputError(
                f"a target error must be above 0 and at most 10, 0.1 being 10 %, got {target:g}"
            )
    return sorted(set(targets), reverse=True)


def _offers(members: Sequence[list[Gauge]], target: float) -> list[Offer]:
    """The sizes of each member for a target; only members whose closed form is quick to solve.

    Below the top layer, they hold for the rows that the settings' own member drew.
    """
    return [
        Offer.of(gauges[0].member, [gauge.samples_for(target) for gauge in gauges])
        for gauges in members
        if all(gauge.quick for gauge in gauges)
    ]


def _best_of_each(offers: Sequence[Offer], target: float) -> list[Offer]:
    """For each distribution the offer with the fewest vertices; those that reach it come first."""
    best: dict[str, Offer] = {}
    for offer in sorted(offers, key=lambda o: (not o.reaches(target), o.cost, max(o.errors))):
        best.setdefault(offer.member.distribution, offer)
    return list(best.values())


def _advise(session: Session, offers: Sequence[Offer], target: float) -> Advice:
    """The fastest of the best offers, each measured on the rows that it draws itself."""
    best = [offer for offer in _best_of_each(offers, target) if offer.reaches(target)]
    if session.network.layers > 1:
        best = [Offer.of(offer.member, session.needs(offer.member, target)) for offer in best]
    able = [offer for offer in best if offer.reaches(target)]
    timed = [(session.seconds(offer.member, offer.samples), offer) for offer in able]
    seconds, offer = min(timed, key=lambda pair: pair[0]) if timed else (None, None)
    return Advice(target, session.n, offer, seconds, session.full_seconds)


def _measure(
    session: Session, members: Sequence[list[Gauge]], sizes: Sequence[int], what: str
) -> list[Measurement]:
    """Each member in each layer at each t."""
    first_layer = session.config.layers - session.network.layers + 1
    found = []
    with progress(what, len(members) * len(sizes), "cases") as advance:
        for gauges in members:
            for t in sizes:
                for layer, gauge in enumerate(gauges, start=first_layer):
                    closed, drawn = gauge.closed(t), gauge.drawn(t)
                    found.append(
                        Measurement(gauge.member, layer, t, closed, drawn.error, drawn.empty_rows)
                    )
                advance(1)
    return found


def _costs(session: Session, members: Sequence[list[Gauge]], sizes: Sequence[int]) -> list[Cost]:
    """The time of a step of each member at each t, and the error of its gradient."""
    found = []
    with progress("Measuring gradients and times", len(members) * len(sizes), "cases") as advance:
        for member in (gauges[0].member for gauges in members):
            for t in sizes:
                samples = [t] * session.network.layers
                gradient = session.gradient_error(member, samples)
                found.append(Cost(member, t, session.seconds(member, samples), gradient))
                advance(1)
    return found
