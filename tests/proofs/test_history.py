"""The history: what is kept, when it is exact, what it costs. Unbiased: see test_family.py."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fastgcn import LayerSampler, TrainConfig
from fastgcn.errors import InputError
from fastgcn.graph.csr import CSR
from fastgcn.sampling import make_sampler
from fastgcn.sampling.check import tiny_graphs
from fastgcn.sampling.history import HistoryBlock, HistorySampler
from tests.proofs.enumeration import dense

GRAPH = tiny_graphs()["weighted"]
ROWS = torch.tensor([2, 0, 1])
HIDDEN = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32))


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def refreshed(*hidden: torch.Tensor | None) -> HistorySampler:
    sampler = HistorySampler(LayerSampler(GRAPH, [2] * len(hidden)))
    sampler.refresh(hidden)
    return sampler


def one_block(sampler: HistorySampler) -> HistoryBlock:
    (block,) = sampler.sample(ROWS, rng())
    assert isinstance(block, HistoryBlock)
    return block


def test_a_fresh_history_leaves_nothing_to_chance() -> None:
    block = one_block(refreshed(HIDDEN))
    exact = dense(GRAPH)[ROWS] @ HIDDEN.numpy()
    np.testing.assert_allclose(block.mix(HIDDEN[block.src]), exact, rtol=1e-5)
    np.testing.assert_allclose(block.mixed(HIDDEN[block.src].numpy()), exact, rtol=1e-5)
    assert block.mix_first_only
    assert block.empty_rows == 0


def test_the_gradient_is_that_of_the_sampled_block() -> None:
    """H̄ is a constant: what reaches H goes through the sampled entries alone."""
    block = one_block(refreshed(HIDDEN))
    h = (2 * HIDDEN)[block.src].requires_grad_()
    block.mix(h).sum().backward()  # type: ignore[no-untyped-call]
    assert h.grad is not None
    np.testing.assert_allclose(h.grad, block.unmixed(np.ones((len(ROWS), 3), np.float32)))


def test_a_dense_block_mixes_alike() -> None:
    """As blocks are on a GPU."""
    block, h = one_block(refreshed(HIDDEN)), (2 * HIDDEN)
    dense_block = replace(block, adj=block.adj.to_dense()).to("cpu")
    assert isinstance(dense_block, HistoryBlock)
    torch.testing.assert_close(dense_block.mix(h[block.src]), block.mix(h[block.src]))


def test_until_the_first_refresh_blocks_are_plain() -> None:
    sampler = HistorySampler(LayerSampler(GRAPH, [2]))
    (block,), (plain,) = sampler.sample(ROWS, rng()), sampler.sampler.sample(ROWS, rng())
    assert not isinstance(block, HistoryBlock)
    assert torch.equal(block.adj.to_dense(), plain.adj.to_dense())


def test_a_layer_may_go_without() -> None:
    sampler = refreshed(None, HIDDEN)
    below, above = sampler.sample(ROWS, rng())
    assert not isinstance(below, HistoryBlock)
    assert isinstance(above, HistoryBlock)
    assert sampler.hidden[0] is None


def test_what_is_kept_does_not_change_with_what_was_given() -> None:
    hidden = HIDDEN.clone()
    sampler = refreshed(hidden)
    hidden.zero_()
    (kept,) = sampler.hidden
    assert kept is not None
    assert torch.equal(kept, HIDDEN)


def test_its_cost_is_counted() -> None:
    """A product of Â's entries with three columns for each refreshed layer."""
    sampler = refreshed(HIDDEN, None)
    sampler.refresh([HIDDEN, HIDDEN])
    assert sampler.refreshes == 2
    assert sampler.multiplications == 3 * 3 * len(GRAPH.values)
    assert sampler.seconds > 0


@pytest.mark.parametrize("hidden", [[], [HIDDEN, HIDDEN], [HIDDEN[:3]], [HIDDEN[:, 0]]])
def test_rows_that_do_not_fit_are_refused(hidden: list[torch.Tensor]) -> None:
    sampler = HistorySampler(LayerSampler(GRAPH, [2]))
    with pytest.raises(InputError, match="hidden must be 1 matrices, .* of 4 rows"):
        sampler.refresh(hidden)


def test_settings_choose_the_member_of_the_family() -> None:
    config = TrainConfig(
        hidden=(8, 8),
        samples=(3, 2),
        distribution="flat",
        power=0.5,
        draws="stratified",
        self_term="exact",
        neighbors_only=True,
        history=True,
    )
    csr = CSR(GRAPH.indptr, GRAPH.indices, None)
    sampler = make_sampler(config, GRAPH, csr)
    assert isinstance(sampler, HistorySampler)
    layer = sampler.sampler
    chosen = (layer.samples, layer.distribution, layer.power, layer.draws)
    assert chosen == ((3, 2), "flat", 0.5, "stratified")
    assert (layer.exact_self, layer.own_rows, layer.from_rows) == (True, True, True)
    plain = make_sampler(config.replace(history=False), GRAPH, csr)
    assert isinstance(plain, LayerSampler)


@pytest.mark.parametrize(("skip", "own_rows"), [(True, True), (False, False)])
def test_a_skip_path_has_the_own_rows_sampled_along(skip: bool, own_rows: bool) -> None:
    config = TrainConfig(samples=2, skip=skip)
    sampler = make_sampler(config, GRAPH, CSR(GRAPH.indptr, GRAPH.indices, None))
    assert isinstance(sampler, LayerSampler)
    assert (sampler.own_rows, sampler.exact_self) == (own_rows, False)
