"""SGD on a strictly convex problem whose gradient is sampled: the setting of Thm 5 (App. D).

Ridge regression on one convolution, with W (F, C) and Y (n, C) the classes as 0 and 1:

    f(W) = 1/(2n) ‖ÂXW − Y‖² + λ/2 ‖W‖²,        ∇f(W) = HW − (ÂX)ᵀY/n,
    H = (ÂX)ᵀÂX/n + λI,  l = least eigenvalue of H,  W* = H⁻¹(ÂX)ᵀY/n.

A step draws a batch of s rows and, for these, a block B of Â with t vertices:

* one draw, as in training: g = (BX)ᵀ(BXW − Y_s)/s + λW. It is consistent but biased: its mean is
  the gradient of f(W) + 1/(2n)·Σ_v Var y(v), whose minimiser W_t is known exactly too;
* two draws: g = (BX)ᵀ(B'XW − Y_s)/s + λW with B' drawn independently, whose mean is ∇f(W).
"""

from dataclasses import dataclass

import numpy as np
import torch

from fastgcn.arrays import FloatArray
from fastgcn.graph.adjacency import normalize
from fastgcn.graph.graph import Graph
from fastgcn.sampling import LayerSampler

BATCH = 64
RIDGE = 1.0  # in units of the largest eigenvalue of (ÂX)ᵀÂX/n, which is scaled to one


@dataclass(frozen=True, slots=True)
class Problem:
    """The regression on a graph: its sampler, X scaled, Y, and the exact solutions."""

    sampler: LayerSampler
    x: torch.Tensor  # (n, F) float32
    y: FloatArray  # (n, C)
    hessian: FloatArray  # (F, F)
    biased_hessian: FloatArray  # (F, F), of the objective that one draw descends on
    right: FloatArray  # (F, C): (ÂX)ᵀY/n

    @property
    def best(self) -> FloatArray:
        """W*."""
        return np.asarray(np.linalg.solve(self.hessian, self.right))

    @property
    def limit(self) -> FloatArray:
        """W_t, where one draw a step leads."""
        return np.asarray(np.linalg.solve(self.biased_hessian, self.right))


def regression(graph: Graph, t: int) -> Problem:
    """The problem on the whole of a graph, with t vertices a block."""
    assert graph.labels is not None
    adjacency = normalize(graph)
    x = np.asarray(graph.features, dtype=np.float64)
    mixed = adjacency.to_scipy() @ x
    n, width = mixed.shape
    scale = np.sqrt(np.linalg.eigvalsh(mixed.T @ mixed / n)[-1])
    x, mixed = x / scale, mixed / scale
    gram = mixed.T @ mixed / n
    y = np.eye(graph.n_classes)[graph.labels]
    sampler = LayerSampler(adjacency, [t])
    ridge = RIDGE * np.eye(width)
    # Σ_v Var y(v) = 1/t (Σ_u c(u)²/q(u)·|x(u)W|² − ‖ÂXW‖²): see `variance.row_variance`.
    weight = adjacency.column_norms() ** 2 / sampler.probabilities()
    penalty = (x.T @ (x * weight[:, None]) / n - gram) / t
    return Problem(
        sampler=sampler,
        x=torch.from_numpy(x.astype(np.float32)),
        y=y,
        hessian=gram + ridge,
        biased_hessian=gram + penalty + ridge,
        right=mixed.T @ y / n,
    )


@dataclass(frozen=True, slots=True)
class Descent:
    """E‖W_k − goal‖² for k = 1, 2, ..., and the largest E‖g_k‖² met."""

    distance: FloatArray
    steepness: float
    curvature: float

    @property
    def slope(self) -> float:
        """Of log distance against log k, over the last nine tenths of the steps."""
        k = np.arange(1, len(self.distance) + 1)
        late = k > len(k) // 10
        return float(np.polyfit(np.log(k[late]), np.log(self.distance[late]), 1)[0])

    @property
    def within_bound(self) -> int:
        """At how many steps from the third on max(‖W_1 − goal‖², G²/l²)/k bounds the distance.

        For k = 2 the proof shows no more than G²/l².
        """
        k = np.arange(1, len(self.distance) + 1)
        bound = max(self.distance[0], self.steepness / self.curvature**2) / k
        return int((self.distance[2:] <= bound[2:]).sum())


def descend(problem: Problem, *, draws: int, steps: int, runs: int) -> Descent:
    """SGD with steps 1/(lk) from W = 0, averaged over runs; `draws` blocks a gradient."""
    hessian = problem.biased_hessian if draws == 1 else problem.hessian
    goal = problem.limit if draws == 1 else problem.best
    curvature = float(np.linalg.eigvalsh(hessian)[0])
    distance, steepness = np.zeros(steps), np.zeros(steps)
    for run in range(runs):
        rng = torch.Generator().manual_seed(run)
        w = np.zeros_like(goal)
        for k in range(steps):
            gradient = _gradient(problem, w, draws, rng)
            distance[k] += np.sum((w - goal) ** 2) / runs
            steepness[k] += np.sum(gradient**2) / runs
            w = w - gradient / (curvature * (k + 1))
    return Descent(distance, float(steepness.max()), curvature)


def _gradient(problem: Problem, w: FloatArray, draws: int, rng: torch.Generator) -> FloatArray:
    batch = torch.randperm(len(problem.y), generator=rng)[:BATCH]
    left = _sampled(problem, batch, rng)
    right = left if draws == 1 else _sampled(problem, batch, rng)
    error = right @ w - problem.y[batch.numpy()]
    return np.asarray(left.T @ error / len(batch) + RIDGE * w)


def _sampled(problem: Problem, batch: torch.Tensor, rng: torch.Generator) -> FloatArray:
    """(s, F): BX."""
    (block,) = problem.sampler.sample(batch, rng)
    return np.asarray(block.mix(problem.x[block.src]).numpy(), dtype=np.float64)
