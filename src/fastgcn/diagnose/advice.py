"""From errors to an answer: which member, and how many vertices, for a target error."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastgcn.config import TrainConfig
from fastgcn.diagnose.estimates import Estimate
from fastgcn.diagnose.gauge import Gauge
from fastgcn.diagnose.members import name_of
from fastgcn.diagnose.session import Session

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
