"""The members of the family of estimators that are compared, each as settings of training."""

from typing import Any, get_args

from fastgcn.config import Distribution, Draws, SelfTerm, TrainConfig

# `optimal` is left out, for each of its draws costs a share of a full forward pass, and
# `systematic`, which can be worse than independent draws; the settings' own member is in anyway.
# Each with its `power`.
LAWS: tuple[tuple[Distribution, float | None], ...] = (
    ("uniform", None),
    ("importance", None),
    ("flat", None),
    ("ladies", None),
    ("ladies", 1.0),
)
DRAWS: tuple[Draws, ...] = ("independent", "stratified", "successive", "poisson")
FIELDS = ("distribution", "power", "draws", "self_term", "neighbors_only", "correct_weights")


def family(config: TrainConfig) -> list[TrainConfig]:
    """The settings' own member, then all the others."""
    own = config.replace(history=False)
    plain = {"neighbors_only": False, "correct_weights": True}
    members = [
        own.replace(
            distribution=distribution, power=power, draws=draws, self_term=self_term, **plain
        )
        for distribution, power in LAWS
        for self_term in get_args(SelfTerm)
        for draws in DRAWS
    ]
    return [own, *(member for member in members if choices(member) != choices(own))]


def choices(member: TrainConfig) -> dict[str, Any]:
    """What tells members apart."""
    return {field: getattr(member, field) for field in FIELDS}


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
