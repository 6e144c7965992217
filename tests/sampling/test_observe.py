"""Samplers that look at the network: what they ask for, what they keep, and how they go on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fastgcn import Block, LayerSampler, Sampler, TrainConfig
from fastgcn.sampling import FullSampler, LayerRows, make_sampler
from fastgcn.sampling.block import restore_sampler, sampler_state, show_network
from fastgcn.sampling.check import tiny_graphs
from fastgcn.sampling.draws import Rng
from fastgcn.sampling.history import HistorySampler

GRAPH = tiny_graphs()["weighted"]
DRAWS = torch.Generator().manual_seed(1)
ROWS = [LayerRows(torch.rand(4, 3, generator=DRAWS), torch.rand(3, 2, generator=DRAWS))]


def never() -> list[LayerRows]:
    pytest.fail("rows of the whole graph were computed for a sampler that does not look at them")


@pytest.mark.parametrize("distribution", ["importance", "uniform", "flat", "ladies"])
def test_most_samplers_do_not_look(distribution: Any) -> None:
    for sampler in (LayerSampler(GRAPH, [2], distribution=distribution), FullSampler(GRAPH, 1)):
        show_network(sampler, 0, never)
        assert sampler_state(sampler) == {}
        restore_sampler(sampler, {"0": ROWS[0].hidden})


def test_optimal_draws_by_the_norms_of_the_current_rows() -> None:
    seen, given = (LayerSampler(GRAPH, [2], distribution="optimal") for _ in range(2))
    before = seen.probabilities()
    show_network(seen, 5, lambda: ROWS)
    norms = np.linalg.norm((ROWS[0].hidden @ ROWS[0].weight).numpy(), axis=1)
    np.testing.assert_allclose(ROWS[0].norms(), norms, rtol=1e-6)
    given.set_row_norms([norms])
    np.testing.assert_allclose(seen.probabilities(), given.probabilities(), rtol=1e-6)
    assert not np.allclose(seen.probabilities(), before)


def test_a_history_looks_every_so_many_epochs_and_goes_on_from_what_it_kept() -> None:
    config = TrainConfig(samples=2, history=True, history_every=2)
    first, second = (make_sampler(config, GRAPH, None) for _ in range(2))
    assert sampler_state(first) == {}
    show_network(first, 1, never)
    show_network(first, 2, lambda: ROWS)
    assert isinstance(first, HistorySampler)
    assert first.refreshes == 1
    state = sampler_state(first)
    assert list(state) == ["0"]
    assert torch.equal(state["0"], ROWS[0].hidden)
    restore_sampler(second, state)
    batch = torch.tensor([2, 0])
    one, other = (each.sample(batch, torch.Generator().manual_seed(0)) for each in (first, second))
    h = torch.ones(4, 3)
    assert torch.equal(one[0].mix(h[one[0].src]), other[0].mix(h[other[0].src]))


def test_a_sampler_of_the_users_own_need_only_observe() -> None:
    class Watcher:
        seen = 0

        def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
            return FullSampler(GRAPH, 1).sample(batch, rng)

        def observe(self, rows: Sequence[LayerRows]) -> None:
            self.seen += len(rows)

    watcher = Watcher()
    sampler: Sampler = watcher
    for epoch in range(3):
        show_network(sampler, epoch, lambda: ROWS)
    assert watcher.seen == 3
