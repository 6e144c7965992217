"""`check_sampler` accepts right samplers of any kind, and names what is wrong with others."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fastgcn import Adjacency, Block, FullSampler, LayerSampler, Sampler
from fastgcn.errors import InputError
from fastgcn.graph.csr import CSR
from fastgcn.sampling import variance
from fastgcn.sampling.check import Outcome, check_sampler, tiny_graphs
from fastgcn.sampling.draws import Rng
from fastgcn.sampling.neighborhood import NeighborSampler
from tests.proofs.enumeration import Member, dense

GRAPH = tiny_graphs()["weighted"]
EVERYONE = list(range(GRAPH.n))


def test_no_sampling_passes_with_no_error() -> None:
    checked = check_sampler(
        lambda adjacency: FullSampler(adjacency, 2), GRAPH, row_error=0.0, repetitions=5
    )
    assert (checked.layers, checked.row_error) == (2, 0.0)


def test_what_is_estimated_may_be_another_matrix() -> None:
    """GraphSAGE's neighbours, two a row, are a mean over them on average and not Â."""
    csr = CSR(np.array([0, 3, 4, 4]), np.array([0, 1, 2, 0]), None)
    mean = np.array([[1 / 3, 1 / 3, 1 / 3], [1, 0, 0], [0, 0, 0]])
    graph = Adjacency(csr.indptr, csr.indices, np.ones(4, np.float32))

    def make(_: Adjacency) -> Sampler:
        return NeighborSampler(csr, [2], include_self=False)

    assert not check_sampler(make, graph, mean=mean, own_rows=True, repetitions=500).exact
    with pytest.raises(AssertionError, match="one layer is biased"):
        check_sampler(make, graph, repetitions=500)


@pytest.mark.parametrize("draws", ["independent", "successive", "poisson"])
def test_members_pass_at_random_too(draws: str) -> None:
    """Without a list of outcomes; false alarms: 1e-6 a check, as far as means are normal."""
    chosen = Member({"draws": draws})
    q = chosen.q(dense(GRAPH), np.array(EVERYONE))
    closed = variance.ROW_VARIANCE[draws]  # type: ignore[index]
    more = {"repetitions": 1000} if draws == "successive" else {}
    checked = check_sampler(
        lambda adjacency: chosen.make(adjacency, [2]),
        GRAPH,
        row_error=closed(GRAPH, np.eye(4), q, 2, **more),
    )
    assert not checked.exact
    assert 1 < checked.sources <= 4


class Spoiled:
    """A right sampler whose blocks are then spoiled."""

    def __init__(self, spoil: Callable[[list[Block]], list[Block]]) -> None:
        self.sampler = LayerSampler(GRAPH, [3, 3], self_term="exact")
        self.spoil = spoil

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        return self.spoil(self.sampler.sample(batch, rng))


def top(blocks: list[Block], **changes: Any) -> list[Block]:
    return [*blocks[:-1], replace(blocks[-1], **changes)]


def global_noise(blocks: list[Block]) -> list[Block]:
    torch.rand(1)
    return blocks


def python_noise(blocks: list[Block]) -> list[Block]:
    random.random()
    return blocks


def global_seed(blocks: list[Block]) -> list[Block]:
    """Leaves the global generator in the same state each time, but not as it was."""
    torch.manual_seed(1)
    return blocks


class Ascending:
    """A right sampler that answers for the batch in ascending order."""

    def __init__(self, adjacency: Adjacency) -> None:
        self.sampler = LayerSampler(adjacency, [2])

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        return self.sampler.sample(batch.sort().values, rng)


class Counting:
    """Draws other numbers each time, whatever generator it is given."""

    def __init__(self, adjacency: Adjacency) -> None:
        self.sampler, self.calls = LayerSampler(adjacency, [2]), 0

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:  # noqa: ARG002
        self.calls += 1
        return self.sampler.sample(batch, torch.Generator().manual_seed(self.calls))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda _: [], "at least one block"),
        (lambda blocks: blocks[::-1], "must be the batch"),
        (lambda blocks: top(blocks, dst=blocks[-1].dst.flip(0)), "must be the batch"),
        (lambda blocks: top(blocks, src=blocks[-1].src + 1), "dst of the one below"),
        (lambda blocks: top(blocks[1:], src=blocks[1].src * 0), "src must be distinct"),
        (lambda blocks: top(blocks[1:], src=blocks[1].src + 9), "src must lie in 0..3"),
        (lambda blocks: top(blocks[1:], src=blocks[1].src.flip(0)), "src must begin with dst"),
        (lambda blocks: top(blocks, adj=torch.ones(4, 9)), "adj must be"),
        (lambda blocks: top(blocks, adj=blocks[-1].adj.to_dense().double()), "must be float32"),
        (lambda blocks: top(blocks, adj=blocks[-1].adj.to_dense() * torch.nan), "must be finite"),
        (lambda blocks: top(blocks, adj=blocks[-1].adj.to_sparse_coo()), "dense or sparse CSR"),
        (lambda blocks: top(blocks, src=blocks[-1].src.int()), "src must be int64"),
        (lambda blocks: [*blocks[:-1], blocks[-1].adj], "list of Block, got a Tensor"),
        (lambda blocks: top(blocks, adj=blocks[-1].adj.to_dense() * 1.1), "one layer is biased"),
        (lambda blocks: [replace(blocks[0], adj=-blocks[0].adj.to_dense()), blocks[1]], "together"),
        (global_noise, "not from a global one"),
        (python_noise, "not from a global one"),
        (global_seed, "not from a global one"),
    ],
)
def test_what_is_wrong_is_named(
    spoil: Callable[[list[Block]], list[Block]], complaint: str
) -> None:
    state = torch.get_rng_state()
    with pytest.raises(AssertionError, match=complaint):
        check_sampler(lambda _: Spoiled(spoil), GRAPH, batch=[2, 0], own_rows=True, repetitions=300)
    torch.set_rng_state(state)


def test_rows_must_be_in_the_order_of_the_batch() -> None:
    """The default batch is in ascending order, in which such a sampler makes no mistake."""
    with pytest.raises(AssertionError, match="must be the batch, in its order"):
        check_sampler(Ascending, GRAPH)


def test_a_bias_that_could_go_unseen_is_told() -> None:
    """Sixteen times the repetitions see a fourth of it; with all outcomes, any bias is seen."""
    chosen = Member()

    def make(adjacency: Adjacency) -> Sampler:
        return chosen.make(adjacency, [2])

    few, many = (check_sampler(make, GRAPH, repetitions=r).unseen_bias for r in (200, 3200))
    assert few / many == pytest.approx(4, rel=0.2)
    every = check_sampler(make, GRAPH, outcomes=chosen.outcomes(dense(GRAPH), [2], EVERYONE))
    assert every.unseen_bias < 1e-4 < many


def test_a_sampler_must_depend_on_its_generator_alone() -> None:
    with pytest.raises(AssertionError, match="one generator state"):
        check_sampler(Counting, GRAPH)


@pytest.mark.parametrize("exact", [True, False])
def test_a_wrong_formula_is_refused(exact: bool) -> None:
    chosen = Member()
    outcomes = chosen.outcomes(dense(GRAPH), [2], EVERYONE) if exact else None
    q = chosen.q(dense(GRAPH), np.array(EVERYONE))
    wrong = 1.5 * variance.row_variance(GRAPH, np.eye(4), q, 2)
    with pytest.raises(AssertionError, match="the error of one layer is off"):
        check_sampler(
            lambda adjacency: chosen.make(adjacency, [2]),
            GRAPH,
            row_error=wrong,
            outcomes=outcomes,
        )


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (Outcome(0.5, [np.array([0.1, 0.9])]), "sum to 0.5, not to one"),
        (Outcome(1.0, [np.array([0.1])]), "has 1 points, 2 are needed"),
        (Outcome(1.0, []), "more often than the outcome says"),
        (Outcome(1.0, [np.array([0.1, 0.9])] * 2), "less often than the outcome says"),
    ],
)
def test_outcomes_that_do_not_fit_the_sampler_are_refused(outcome: Outcome, complaint: str) -> None:
    def make(adjacency: Adjacency) -> Sampler:
        return LayerSampler(adjacency, [2])

    with pytest.raises(AssertionError, match=complaint):
        check_sampler(make, GRAPH, outcomes=[outcome])


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("mean", np.eye(3), "mean must have shape"),
        ("h", np.ones(4), "h must have shape"),
        ("h", np.full((4, 1), np.nan), "h must be finite"),
        ("batch", [0, 9], "batch must lie in 0..3"),
        ("batch", [], "batch must name at least one node"),
        ("batch", [0.5], "batch must be integers"),
        ("repetitions", 1, "repetitions must be at least 2"),
        ("false_alarm", 0.0, "false_alarm must be above 0 and below 1"),
    ],
)
def test_what_cannot_be_checked_with_is_refused(what: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_sampler(lambda adjacency: LayerSampler(adjacency, [2]), GRAPH, **{what: value})
