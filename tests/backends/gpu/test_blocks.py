"""Draws and blocks on the device against their references, and against the CPU's sampler."""

import numpy as np
import pytest
import torch

from fastgcn.arrays import FloatArray
from fastgcn.backends.gpu import sampler as sampling
from fastgcn.backends.gpu.sampler import KINDS, DeviceSampler
from fastgcn.config import Distribution, Draws
from fastgcn.graph.adjacency import Adjacency
from fastgcn.kernels.gpu.blocks import dense_block, sampled_rows_reference
from fastgcn.kernels.gpu.draw import points_reference
from fastgcn.sampling import LayerSampler
from fastgcn.sampling.draws import fixed_q
from tests.backends.gpu.small import DEVICE, batches, matrix
from tests.thorough import some

N, K, SIZE, T = 60, 3, 9, 20


def sampler(**settings: object) -> DeviceSampler:
    return DeviceSampler(matrix()[1], [T], size=SIZE, steps=K, seed=4, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("exact_self", [False, True])
@pytest.mark.parametrize(
    ("distribution", "power", "draws"),
    [
        ("importance", None, "independent"),
        ("uniform", None, "stratified"),
        ("flat", 0.5, "systematic"),
        ("ladies", None, "independent"),
        ("ladies", 1.0, "stratified"),
        ("ladies", 1.5, "systematic"),
    ],
)
def test_blocks_are_what_the_draws_make_of_the_rows(
    distribution: Distribution, power: float | None, draws: Draws, exact_self: bool
) -> None:
    dense, _ = matrix()
    device = sampler(distribution=distribution, power=power, draws=draws, exact_self=exact_self)
    rows, steps = batches(K, SIZE, N), torch.tensor([5], device=DEVICE)
    (blocks,) = device.sample(rows, steps)
    q: torch.Tensor | float = device.power if distribution == "ladies" else device.laws[0].q
    for k in range(K):
        want = sampled_rows_reference(
            dense, rows[k], device.drawn[0].vertices[k], q, exact_self=exact_self
        )
        found = dense_block(blocks, k, SIZE, N)
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)
        assert (blocks.sources[k, int(blocks.n_sources[k]) :] == -1).all()
    first, bits = device.places
    assert (first == first.max()).all(), "the work space is left as it was found"
    assert not bits.any()


@pytest.mark.parametrize("draws", list(KINDS))
@pytest.mark.parametrize("before", [7, 1 << 40])
def test_vertices_are_those_that_the_points_fall_on(draws: Draws, before: int) -> None:
    device = sampler(draws=draws)
    (law,) = device.laws
    device.sample(batches(K, SIZE, N), torch.tensor([before], device=DEVICE))
    seed = device.seed * 61
    cumulative = law.cumulative.cpu().numpy()
    for k in range(K):
        points = points_reference(seed, before + k, T, KINDS[draws])
        want = np.searchsorted(cumulative, points * cumulative[-1], side="right")
        np.testing.assert_array_equal(device.drawn[0].vertices[k].cpu(), want)


def test_vertices_of_no_chance_are_never_drawn() -> None:
    _, small = matrix()
    small.values[small.indices >= N - 5] = 0.0
    device = DeviceSampler(small, [T], size=SIZE, steps=K, seed=0)
    (blocks,) = device.sample(batches(K, SIZE, N), torch.zeros(1, dtype=torch.int64, device=DEVICE))
    assert int(device.drawn[0].vertices.max()) < N - 5
    assert bool(torch.isfinite(blocks.entries[: int(blocks.offsets[-1])]).all())


def test_hubs_and_draws_that_take_several_chunks() -> None:
    n, t = 1_500, 1_100
    dense, large = matrix(n, degree=2.0)
    device = DeviceSampler(large, [t], size=SIZE, steps=K, seed=0)
    rows = batches(K, SIZE, n)
    (blocks,) = device.sample(rows, torch.tensor([3], device=DEVICE))
    assert len(blocks.chunk_hits) > 1
    for k in range(K):
        drawn = device.drawn[0].vertices[k]
        want = sampled_rows_reference(dense, rows[k], drawn, device.laws[0].q, exact_self=False)
        found = dense_block(blocks, k, SIZE, n)
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("room", "count"), [(64, 8), (5, 4), (3, 3), (1, 1)])
def test_groups_are_equal_and_fit_the_memory(
    monkeypatch: pytest.MonkeyPatch, room: int, count: int
) -> None:
    """Of 8 batches; what a last group lacks would be computed in vain."""
    _, small = matrix()

    def made() -> DeviceSampler:
        return DeviceSampler(small, [T], size=SIZE, steps=8, seed=0)

    each = sampling._BUFFER_BYTES // made()._most_batches()
    monkeypatch.setattr(sampling, "_BUFFER_BYTES", room * each + each // 2)
    device = made()
    assert device.count == count
    assert len(device.sets) == (1 if count == 8 else 2)


def test_rows_without_entries_give_an_empty_block() -> None:
    device = sampler(distribution="ladies")
    rows = torch.full((K, SIZE), 7, dtype=torch.int32, device=DEVICE)
    rows[:, 1:] = -1
    # The work space holds what was met before them.
    device.sample(batches(K, SIZE, N), torch.zeros(1, dtype=torch.int64, device=DEVICE))
    (blocks,) = device.sample(rows, torch.zeros(1, dtype=torch.int64, device=DEVICE))
    assert int(blocks.offsets[-1]) == 0
    assert (blocks.n_sources == 0).all()


def test_lower_layers_have_the_sources_of_the_upper_as_rows() -> None:
    dense, small = matrix()
    device = DeviceSampler(small, [15, 10], size=SIZE, steps=K, seed=0, exact_self=True)
    lower, upper = device.sample(
        batches(K, SIZE, N), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    )
    for k in range(K):
        rows = upper.sources[k]
        want = sampled_rows_reference(
            dense, rows, device.drawn[0].vertices[k], device.laws[0].q, exact_self=True
        )
        found = dense_block(lower, k, len(rows), N)
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("distribution", "draws"),
    some(
        [("ladies", "systematic"), ("flat", "stratified"), ("importance", "independent")], every=3
    ),
)
def test_expectation_and_variance_are_those_of_the_cpu(
    distribution: Distribution, draws: Draws
) -> None:
    """Σ of a block's estimate of ÂX over 200 draws on each side.

    The means differ by a normal variable of known error and the variances by a ratio near one;
    five standard errors give a false alarm in less than one of a million runs of each.
    """
    dense, small = matrix()
    x = torch.rand((N, 3), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    rows = batches(1, SIZE, N)[0].clamp(min=0)[: SIZE // 2]
    count, groups = 50, 4
    device = DeviceSampler(
        small, [T], size=len(rows), steps=count, seed=1, distribution=distribution, draws=draws
    )
    there = []
    for group in range(groups):
        steps = torch.tensor([group * count], device=DEVICE)
        (blocks,) = device.sample(rows.repeat(count, 1), steps)
        there += [float((dense_block(blocks, k, len(rows), N) @ x).sum()) for k in range(count)]
    indptr, indices, values = (part.cpu().numpy() for part in small.csr)
    sampler = LayerSampler(
        Adjacency(indptr, indices, values), [T], distribution=distribution, draws=draws
    )
    rng, batch = torch.Generator().manual_seed(3), torch.unique(rows).long().cpu()
    assert len(batch) == len(rows)
    here = []
    for _ in range(count * groups):
        (block,) = sampler.sample(batch, rng)
        here.append(float((block.adj.to_dense() @ x.cpu()[block.src]).sum()))
    exact = float((dense[rows.long()] @ x).sum())
    for estimates in (here, there):
        error = np.std(estimates) / len(estimates) ** 0.5
        assert abs(np.mean(estimates) - exact) < 5 * error + 1e-6
    ratio = np.var(there) / np.var(here)
    assert abs(np.log(ratio)) < 5 * (4 / len(here)) ** 0.5


@pytest.mark.parametrize("distribution", ["uniform", "importance", "flat", "optimal"])
@pytest.mark.parametrize("row_norms", [np.linspace(0, 1, 5), np.zeros(5)])
def test_q_is_that_of_the_cpu(distribution: Distribution, row_norms: FloatArray) -> None:
    norms = np.array([0.0, 1.0, 2.0, 0.5, 3.0])
    want = fixed_q(distribution, norms, 1.5, row_norms)
    there = [torch.from_numpy(each).to(DEVICE) for each in (norms, row_norms)]
    found = fixed_q(distribution, there[0], 1.5, there[1])
    np.testing.assert_allclose(found.cpu().numpy(), want, rtol=1e-14)
