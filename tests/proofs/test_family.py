"""The whole family through the one contract, every outcome run: unbiased, and its variance.

Entries of a block are float32, so "exactly" means to about five digits.
"""

from typing import Any

import numpy as np
import pytest
import torch

from fastgcn.sampling import variance
from fastgcn.sampling.check import check_sampler, tiny_graphs
from fastgcn.sampling.history import HistorySampler
from tests.proofs.enumeration import DISTRIBUTIONS, DRAWS, Member, dense

GRAPHS = tiny_graphs()
ROW_NORMS = np.array([0.3, 2.0, 0.0, 1.0])  # |x(u)| of `optimal`; one of them is zero
ROWS = [2, 0, 1]


def member(**options: Any) -> Member:
    return Member(options, ROW_NORMS if options.get("distribution") == "optimal" else None)


LAWS: list[dict[str, Any]] = [
    *({"distribution": d, "neighbors_only": n} for d in DISTRIBUTIONS for n in (False, True)),
    {"distribution": "flat", "power": 0.5},
    {"distribution": "ladies"},
    {"distribution": "ladies", "power": 1.0},
]


def name(options: dict[str, Any]) -> str:
    return " ".join(str(key if value is True else value) for key, value in options.items() if value)


def closed_form(chosen: Member, graph: str, x: Any, t: int) -> float | None:
    """What `fastgcn.sampling.variance` says of the error of rows; None where it only simulates."""
    draws = chosen.options["draws"]
    if draws == "successive":
        return None
    adj, rows = dense(GRAPHS[graph]), np.array(ROWS)
    q = chosen.q(adj, rows)
    if not q.any():
        return 0.0
    along = {"along": chosen.law(adj, rows)} if draws in ("stratified", "systematic") else {}
    sampled = variance.off_diagonal(adj) if chosen.exact_self else adj
    return variance.ROW_VARIANCE[draws](sampled, x, q, t, ROWS, **along)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("self_term", ["sampled", "exact"])
@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("law", LAWS, ids=name)
def test_every_member_is_unbiased_and_has_its_error(
    graph: str, self_term: str, draws: str, law: dict[str, Any]
) -> None:
    """One layer, two vertices drawn: E[block] = the rows of Â, E‖error‖² = the closed form."""
    chosen = member(**law, draws=draws, self_term=self_term)
    checked = check_sampler(
        lambda adjacency: chosen.make(adjacency, [2]),
        GRAPHS[graph],
        batch=ROWS,
        row_error=closed_form(chosen, graph, np.eye(4), 2),
        own_rows=self_term == "exact",
        outcomes=chosen.outcomes(dense(GRAPHS[graph]), [2], ROWS),
    )
    assert checked.exact


@pytest.mark.parametrize("own", [{}, {"own_rows": True}, {"self_term": "exact"}], ids=name)
@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("law", [LAWS[2], LAWS[-1]], ids=name)
def test_two_linear_layers_are_unbiased(
    own: dict[str, Any], draws: str, law: dict[str, Any]
) -> None:
    """Each layer draws for itself, so E[B₂B₁] = ÂÂ, over all outcomes of both draws."""
    chosen = member(**law, **own, draws=draws)
    checked = check_sampler(
        lambda adjacency: chosen.make(adjacency, [1, 2]),
        GRAPHS["weighted"],
        batch=ROWS[:2],
        own_rows=bool(own),
        outcomes=chosen.outcomes(dense(GRAPHS["weighted"]), [1, 2], ROWS[:2]),
    )
    assert checked.layers == 2


HIDDEN = np.random.default_rng(1).normal(size=(4, 3))
KEPT = HIDDEN + 0.3 * np.random.default_rng(2).normal(size=(4, 3))  # rows of some epochs ago


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("self_term", ["sampled", "exact"])
@pytest.mark.parametrize("draws", ["independent", "poisson", "stratified"])
def test_a_history_leaves_only_the_change_to_be_sampled(
    graph: str, self_term: str, draws: str
) -> None:
    """E = ÂH for any H̄, and the variance is that of x = H − H̄."""
    chosen = member(draws=draws, self_term=self_term)

    def make(adjacency: Any) -> HistorySampler:
        sampler = HistorySampler(chosen.make(adjacency, [2]))
        sampler.refresh([torch.from_numpy(KEPT)])
        return sampler

    check_sampler(
        make,
        GRAPHS[graph],
        batch=ROWS,
        h=HIDDEN,
        row_error=closed_form(chosen, graph, HIDDEN - KEPT, 2),
        own_rows=self_term == "exact",
        outcomes=chosen.outcomes(dense(GRAPHS[graph]), [2], ROWS),
    )


def test_two_layers_with_a_history_are_unbiased() -> None:
    """H̄ of the upper layer is of the rows that the lower one makes."""
    chosen, matrix = member(), dense(GRAPHS["weighted"])

    def make(adjacency: Any) -> HistorySampler:
        sampler = HistorySampler(chosen.make(adjacency, [2, 2]))
        sampler.refresh([torch.from_numpy(KEPT), torch.from_numpy(matrix @ KEPT)])
        return sampler

    outcomes = chosen.outcomes(matrix, [2, 2], ROWS[:2])
    check_sampler(make, GRAPHS["weighted"], batch=ROWS[:2], h=HIDDEN, outcomes=outcomes)
