"""From errors to an answer: which member, and how many vertices, for a target error."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastgcn.config import TrainConfig
from fastgcn.diagnose.gauge import Estimate, Gauge
from fastgcn.diagnose.session import Session, choices, family, name_of
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.model import GCN
from fastgcn.progress import progress

# By so much an error may be above its target and count as reached.
_SLACK = 1.02


@dataclass(frozen=True, slots=True)
class Offer:
    """A member with as many vertices in each sampled layer as a target needs, or all there are."""

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
    """What to use for a relative error `target` in each sampled layer.

    `offer` is the quickest of those that reach the target; None where none does. `seconds` is
    what a step with it takes, `full_seconds` one with whole neighbourhoods.
    """

    target: float
    nodes: int
    offer: Offer | None
    seconds: float | None
    full_seconds: float | None

    @property
    def worth_sampling(self) -> bool:
        """Whether sampling takes less time than being exact."""
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


def offers(members: Sequence[list[Gauge]], target: float) -> list[Offer]:
    """What each member needs for a target; only members whose closed form is quick to solve.

    Below the top layer this is for the rows that are there, which the settings' own member drew.
    """
    return [
        Offer.of(gauges[0].member, [gauge.samples_for(target) for gauge in gauges])
        for gauges in members
        if all(gauge.quick for gauge in gauges)
    ]


def best_of_each(found: Sequence[Offer], target: float) -> list[Offer]:
    """Of each distribution the offer with the fewest vertices, if one reaches the target."""
    best: dict[str, Offer] = {}
    for offer in sorted(found, key=lambda o: (not o.reaches(target), o.cost, max(o.errors))):
        best.setdefault(offer.member.distribution, offer)
    return list(best.values())


def advise(session: Session, found: Sequence[Offer], target: float) -> Advice:
    """The quickest of the best offers, by the clock, each for the rows that it draws itself."""
    best = [offer for offer in best_of_each(found, target) if offer.reaches(target)]
    if session.network.layers > 1:
        best = [Offer.of(offer.member, session.needs(offer.member, target)) for offer in best]
    able = [offer for offer in best if offer.reaches(target)]
    timed = [(session.seconds(offer.member, offer.samples), offer) for offer in able]
    seconds, offer = min(timed, key=lambda pair: pair[0]) if timed else (None, None)
    return Advice(target, session.n, offer, seconds, session.full_seconds)


# Sample sizes of the curves, as multiples of the one that members are compared at.
_MULTIPLES = (0.25, 0.5, 1, 2, 4, 8, 16)
# Where settings leave t to be found: the paper's.
_USUAL_SAMPLES = 400


@dataclass(frozen=True, slots=True)
class Measurement:
    """One member in one sampled layer (number `layer` of the network's, from 1) at one t.

    `closed` is the relative error in closed form, None where there is none; `drawn` that seen.
    """

    member: TrainConfig
    layer: int
    t: int
    closed: Estimate | None
    drawn: Estimate
    empty_rows: float

    @property
    def error(self) -> Estimate:
        """The best that is known: theory, or else what was seen."""
        return self.closed or self.drawn


@dataclass(frozen=True, slots=True)
class Cost:
    """One member with t vertices in all sampled layers: a step's time, and its gradient's error.

    `gradient` is None where whole neighbourhoods are too large to compare with.
    """

    member: TrainConfig
    t: int
    seconds: float
    gradient: Estimate | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was measured, and what follows.

    Attributes:
        dataset: the graph's name.
        nodes: how many its training graph has, to draw from.
        training_nodes: how many of these are trained on, the rows of batches.
        config: the settings; `samples` is the t that members are compared at.
        without_history: whether the settings have a `history`, which is left out here.
        trained: whether the network's weights are those of a run, or random.
        batches, rows: how many batches were looked at, and rows of each.
        complete: whether these are all training nodes, so that closed forms are exact.
        members: all members at that t.
        curves, costs: the settings' own member, and the best of each distribution, against t.
        full_seconds: a step with whole neighbourhoods; None where these are too large.
        advice: for each target error, what to use.
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
    model: GCN | None = None,
    targets: Sequence[float] = (0.1, 0.05),
) -> Diagnosis:
    """Measure how far sampling strays on the training graph of `graph`, as training sees it.

    The network is `model`, or one with the settings' sizes and random weights. An error is
    √(E Σ_v |y(v) − e(v)|² / Σ_v |e(v)|²) over batch rows v: 0.1 is 10 %. `targets` are those that
    advice is given for.
    """
    given = (config or TrainConfig()).complete()
    config = as_sampled(graph, given)
    targets = checked_targets(targets)
    with thread_count(config.threads):
        session = Session(graph, config, model)
        members = [session.gauges(member) for member in family(config)]
        measured = measure(session, members, [session.t], "Measuring the family")
        needs = [offers(members, target) for target in targets]
        advice = [advise(session, *each) for each in zip(needs, targets, strict=True)]
        best = [choices(offer.member) for offer in best_of_each(needs[0], targets[0])]
        chosen = [members[0], *(m for m in members[1:] if choices(m[0].member) in best)]
        curves = measure(session, chosen, sizes(session), "Measuring errors against t")
        costs = price(session, chosen, sizes(session))
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


def as_sampled(graph: Graph, config: TrainConfig) -> TrainConfig:
    """The settings as FastGCN's sampling would have them, with one t within the graph."""
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
    # That of the top layer, whose rows are the batch.
    t = samples if isinstance(samples, int) else samples[-1]
    nodes = len(graph.split.train) if config.inductive else graph.n_nodes
    return config.replace(method="fastgcn", samples=max(min(t, nodes), 1), history=False)


def checked_targets(targets: Sequence[float]) -> list[float]:
    """From the largest down, each once."""
    if not targets:
        raise InputError("there must be at least one target error, such as 0.1, got none")
    for target in targets:
        if not 0 < target <= 10:
            raise InputError(
                f"a target error must be above 0 and at most 10, 0.1 being 10 %, got {target:g}"
            )
    return sorted(set(targets), reverse=True)


def sizes(session: Session) -> list[int]:
    """The t of the curves, at most all nodes."""
    wanted = {min(max(round(session.t * multiple), 1), session.n) for multiple in _MULTIPLES}
    return sorted(wanted)


def measure(
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


def price(session: Session, members: Sequence[list[Gauge]], sizes: Sequence[int]) -> list[Cost]:
    """What a step of each member takes at each t, and how good its gradient is."""
    found = []
    with progress("Measuring gradients and times", len(members) * len(sizes), "cases") as advance:
        for member in (gauges[0].member for gauges in members):
            for t in sizes:
                samples = [t] * session.network.layers
                gradient = session.gradient_error(member, samples)
                found.append(Cost(member, t, session.seconds(member, samples), gradient))
                advance(1)
    return found
