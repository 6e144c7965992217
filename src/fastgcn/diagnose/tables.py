"""A diagnosis as tables of text, as plain data, and in words."""

from collections.abc import Sequence
from typing import Any

from fastgcn.diagnose.advice import Advice
from fastgcn.diagnose.diagnosis import Cost, Diagnosis, Measurement
from fastgcn.diagnose.estimates import Estimate
from fastgcn.diagnose.members import choices, name_of
from fastgcn.page import Table

_ERRORS = ("closed form", "as drawn", "empty rows")


def member_table(found: Diagnosis) -> Table:
    """All members at one t, the best first in each layer."""
    ordered = sorted(found.members, key=lambda m: (-m.layer, m.error.value))
    t = found.members[0].t
    return Table(
        ("member", "layer", *_ERRORS),
        [(name_of(m.member), str(m.layer), *_cells(m)) for m in ordered],
        f"Relative error of a convolution from t = {t:,} vertices, the best first. {how(found)}",
    )


def size_tables(found: Diagnosis) -> list[Table]:
    """Of a few members each: errors, gradients and times against t."""
    costs = {(name_of(cost.member), cost.t): cost for cost in found.costs}
    rows: dict[str, list[tuple[str, ...]]] = {}
    for m in found.curves:
        name = name_of(m.member)
        cost = costs[name, m.t]
        gradient = "not measured" if cost.gradient is None else percent(cost.gradient)
        time = f"{1000 * cost.seconds:.3g}"
        row = (f"{m.t:,}", str(m.layer), *_cells(m), gradient, time)
        rows.setdefault(name, []).append(row)
    head = ("t", "layer", *_ERRORS, "gradient", "ms a step")
    return [Table(head, cells, name) for name, cells in rows.items()]


SIZES_NOTE = (
    "Against t: the settings' own member, and of each distribution the one that needs the fewest "
    "vertices. Gradients and times are those of a step with t vertices in all sampled layers; "
    "times are medians, measured on this machine."
)


def how(found: Diagnosis) -> str:
    """What the figures were taken from, and how sure they are."""
    if found.complete:
        return (
            f"Over all {found.nodes:,} nodes of the training graph, in {found.batches} batches: "
            "closed forms are exact, ± is the 95 % interval of what was drawn."
        )
    return (
        f"Estimated from {found.rows:,} rows of each of {found.batches} random batches of the "
        f"{found.nodes:,} nodes of the training graph; ± is the 95 % interval."
    )


def percent(estimate: Estimate) -> str:
    """
    >>> percent(Estimate(0.1234, 0.0051)), percent(Estimate(0.1234, 0.0))
    ('12.3 ± 0.5 %', '12.3 %')
    """
    spread = f" ± {100 * estimate.margin:.1f}" if estimate.margin else ""
    return f"{100 * estimate.value:.1f}{spread} %"


def as_data(found: Diagnosis) -> dict[str, Any]:
    """Everything as plain data, ready for JSON."""
    return {
        "dataset": found.dataset,
        "nodes": found.nodes,
        "network": "trained" if found.trained else "random",
        "samples": found.members[0].t,
        "batch_size": found.config.batch_size,
        "batches": found.batches,
        "rows": found.rows,
        "complete": found.complete,
        "full_seconds": found.full_seconds,
        "members": [_measured(m) for m in found.members],
        "curves": [_measured(m) for m in found.curves],
        "costs": [_cost(cost) for cost in found.costs],
        "advice": [_advice(advice) for advice in found.advice],
    }


def _cells(m: Measurement) -> Sequence[str]:
    closed = "none" if m.closed is None else percent(m.closed)
    return closed, percent(m.drawn), f"{m.empty_rows:.1%}"


def _measured(m: Measurement) -> dict[str, Any]:
    closed = (
        {} if m.closed is None else {"closed": m.closed.value, "closed_margin": m.closed.margin}
    )
    return {
        **choices(m.member),
        "layer": m.layer,
        "t": m.t,
        **closed,
        "drawn": m.drawn.value,
        "drawn_margin": m.drawn.margin,
        "empty_rows": m.empty_rows,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    gradient = {}
    if cost.gradient is not None:
        gradient = {"gradient": cost.gradient.value, "gradient_margin": cost.gradient.margin}
    return {**choices(cost.member), "t": cost.t, "seconds": cost.seconds, **gradient}


def _advice(advice: Advice) -> dict[str, Any]:
    offer = advice.offer
    use = {} if offer is None else {**choices(offer.member), "samples": list(offer.samples)}
    return {
        "target": advice.target,
        "worth_sampling": advice.worth_sampling,
        "use": use,
        "seconds": advice.seconds,
        "sentence": advice.sentence,
    }
