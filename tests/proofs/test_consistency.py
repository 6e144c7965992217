"""Thm 1: as the samples grow, the loss and the gradient tend to those of the full network."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fastgcn import GCN, Adjacency, Block, FullSampler, Graph, LayerSampler, normalize
from fastgcn.arrays import FloatArray
from tests.proofs.enumeration import dense, points_of, replay

N, CLASSES = 24, 3
REPETITIONS = 120
DISTRIBUTIONS = ("uniform", "importance")


def problem(n: int, edges: int) -> tuple[Adjacency, Tensor, Tensor, GCN]:
    """A directed graph with weights, its features and labels, and a two-layer ReLU network."""
    rng = np.random.default_rng(5)
    ends = rng.integers(0, n, size=(2, edges))
    graph = Graph.from_edges(
        ends[0],
        ends[1],
        weights=rng.uniform(0.2, 3, size=edges),
        directed=True,
        features=rng.normal(size=(n, 5)),
    )
    labels = torch.from_numpy(rng.integers(0, CLASSES, size=n))
    model = GCN([5, 6, CLASSES], rng=torch.Generator().manual_seed(6))
    return normalize(graph), torch.from_numpy(np.asarray(graph.features)), labels, model


ADJ, X, LABELS, MODEL = problem(N, 70)
LOSS = nn.CrossEntropyLoss()


def loss_of(blocks: list[Block]) -> Tensor:
    """The mean over the batch of g(H^(2)(v)), eq. 4."""
    loss: Tensor = LOSS(MODEL(blocks, X[blocks[0].src]), LABELS[blocks[-1].dst])
    return loss


def gradient_of(loss: Tensor, model: GCN) -> FloatArray:
    """∇L over all weights, one vector, float64."""
    parts = torch.autograd.grad(loss, list(model.parameters()))
    return np.asarray(torch.cat([p.flatten() for p in parts]).double().numpy())


def full_blocks(adjacency: Adjacency, layers: int) -> list[Block]:
    return FullSampler(adjacency, layers).sample(torch.arange(adjacency.n))


def test_the_full_network_is_equation_1() -> None:
    """What all that follows is compared with: the loss of Â·ReLU(ÂXW₀)·W₁."""
    first, second = (layer.weight.detach().double().numpy() for layer in MODEL.convolutions)
    a = dense(ADJ)
    logits = a @ np.maximum(a @ X.numpy() @ first, 0) @ second
    log_sums = np.log(np.exp(logits).sum(axis=1))
    expected = np.mean(log_sums - logits[np.arange(N), LABELS.numpy()])
    assert float(loss_of(full_blocks(ADJ, 2)).detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_error_of_the_loss_falls_as_one_over_sqrt_t(distribution: Any) -> None:
    """L_{t0,t1,t2} → L with t0 = t1 = t2 = t, the batch too being drawn with replacement.

    The root mean square error over 120 repetitions has a relative standard error of about
    1/√240 = 6.5 %, so that its slope over t = 512, 2048, 8192 on logarithmic axes has one of
    0.065/1.96 = 0.033. The band of 0.17 around −1/2 is five of these: false alarms of 6e-7 in
    each of the two cases, as far as errors are normal.
    """
    with torch.no_grad():
        truth = float(loss_of(full_blocks(ADJ, 2)))
        rng, sizes, errors = torch.Generator().manual_seed(7), [512, 2048, 8192], []
        for t in sizes:
            sampler = LayerSampler(ADJ, [t, t], distribution=distribution)
            losses = []
            for _ in range(REPETITIONS):
                batch = torch.randint(N, (t,), generator=rng)
                losses.append(float(loss_of(sampler.sample(batch, rng))))
            errors.append(np.sqrt(np.mean((np.array(losses) - truth) ** 2)))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.17
    assert errors[-1] < 0.01 * truth


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_many_samples_reproduce_batched_gcn(distribution: Any) -> None:
    """One draw of a million a layer: loss within 0.3 %, gradient within 3 %, of no sampling.

    At t = 8192 the loss is off by half a percent (see above), so here, eleven times less, by
    0.05 %; the gradient, measured over other seeds, by 0.6 %. The tolerances are five times
    as wide or more.
    """
    blocks = LayerSampler(ADJ, [10**6] * 2, distribution=distribution).sample(
        torch.arange(N), torch.Generator().manual_seed(8)
    )
    sampled, full = loss_of(blocks), loss_of(full_blocks(ADJ, 2))
    assert float(sampled.detach()) == pytest.approx(float(full.detach()), rel=0.003)
    truth = gradient_of(full, MODEL)
    error = np.linalg.norm(gradient_of(sampled, MODEL) - truth)
    assert error < 0.03 * np.linalg.norm(truth)


@pytest.mark.parametrize("neighbors_only", [True, False])
def test_drawing_everyone_without_replacement_is_batched_gcn(neighbors_only: bool) -> None:
    """t = n distinct vertices leave nothing to chance: equal to float32 rounding."""
    sampler = LayerSampler(ADJ, [N, N], draws="successive", neighbors_only=neighbors_only)
    sampled = loss_of(sampler.sample(torch.arange(N), torch.Generator().manual_seed(9)))
    full = loss_of(full_blocks(ADJ, 2))
    assert float(sampled.detach()) == pytest.approx(float(full.detach()), rel=1e-5)
    np.testing.assert_allclose(
        gradient_of(sampled, MODEL), gradient_of(full, MODEL), rtol=1e-4, atol=1e-5
    )


def folded_draws(q: FloatArray, t: int) -> Iterator[tuple[float, FloatArray]]:
    """Probability and points of each way to draw t times from three vertices, order ignored."""
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, t + 1)))])
    for first in range(t + 1):
        for second in range(t + 1 - first):
            counts = np.array([first, second, t - first - second])
            log_p = log_factorial[t] + np.sum(counts * np.log(q) - log_factorial[counts])
            yield float(np.exp(log_p)), points_of(q, np.repeat(np.arange(3), counts))


def mean_gradient(
    model: GCN, adjacency: Adjacency, ax: Tensor, labels: Tensor, t: int
) -> FloatArray:
    """E[∇L] exactly: every outcome of the one sampled layer (the first is precomputed)."""
    sampler = LayerSampler(adjacency, [t])
    mean = np.zeros(sum(p.numel() for p in model.parameters()))
    total = 0.0
    for probability, points in folded_draws(sampler.probabilities(), t):
        blocks = replay(sampler, torch.arange(3), [points])
        loss = LOSS(model(blocks, ax[blocks[0].src]), labels)
        mean += probability * gradient_of(loss, model)
        total += probability
    assert total == pytest.approx(1)
    return mean


def test_the_bias_of_the_gradient_vanishes_as_one_over_t() -> None:
    """The sampled gradient is biased, since the loss is curved, but consistent: bias ~ 1/t.

    Three vertices, so that the mean over all draws is exact and nothing is left to chance.
    """
    adjacency, x, labels, model = problem(3, 5)
    (block,) = full_blocks(adjacency, 1)
    ax = block.adj @ x[block.src]
    truth = gradient_of(LOSS(model([block], ax[block.src]), labels), model)
    sizes = [8, 16, 32]
    biases = [np.linalg.norm(mean_gradient(model, adjacency, ax, labels, t) - truth) for t in sizes]
    slope = np.polyfit(np.log(sizes), np.log(biases), 1)[0]
    assert -1.15 < slope < -0.85
    assert biases[0] > 1e-3 * np.linalg.norm(truth), "there was no bias to begin with"
