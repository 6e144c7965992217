"""A diagnosis as tables of text, as plain data, and in words."""

from collections.abc import Sequence
from typing import Any

from fastgcn.diagnose.advice import Advice
from fastgcn.diagnose.diagnosis import Cost, Diagnosis, Measurement
from fastgcn.diagnose.estimates import percent
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
        one_layer = len({m.layer for m in found.members}) == 1
        batches = "one batch" if found.batches == 1 else f"{found.batches} batches"
        said = (
            f"Over all {found.training_nodes:,} training nodes, in {batches}: closed forms "
            f"{'' if one_layer else 'of the top layer '}are exact, ± is the 95 % interval of what "
            "was drawn."
        )
    else:
        said = (
            f"Estimated from {found.rows:,} rows of each of {found.batches} random batches of the "
            f"{found.training_nodes:,} training nodes; ± is the 95 % interval."
        )
    if found.without_history:
        said += " The settings' history is left out: what it gains, only training can tell."
    return said


def as_data(found: Diagnosis) -> dict[str, Any]:
    """Everything as plain data, ready for JSON."""
    return {
        "dataset": found.dataset,
        "nodes": found.nodes,
        "training_nodes": found.training_nodes,
        "network": "trained" if found.trained else "random",
        "samples": found.members[0].t,
        "batch_size": found.config.batch_size,
        "batches": found.batches,
        "rows": found.rows,
        "complete": found.complete,
        "without_history": found.without_history,
        "full_seconds": found.full_seconds,
        "members": [_measured(m) for m in found.members],
        "curves": [_measured(m) for m in found.curves],
        "costs": [_cost(cost) for cost in found.costs],
        "advice": [_advice(advice) for advice in found.advice],
    }


def _cells(m: Measurement) -> Sequence[str]:
    closed = "none" if m.closed is None else percent(m.closed)
    return closed, percent(m.drawn), f"{100 * m.empty_rows:.1f} %"


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
