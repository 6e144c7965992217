"""Appendix D: SGD with a consistent gradient converges as O(1/k).

The problem is ridge regression on one convolution, with W (F, C) and Y (n, C) the classes as 0
and 1:

    f(W) = 1/(2n) ‖ÂXW − Y‖² + λ/2 ‖W‖²,        ∇f(W) = HW − (ÂX)ᵀY/n,
    H = (ÂX)ᵀÂX/n + λI,  l = least eigenvalue of H,  W* = H⁻¹(ÂX)ᵀY/n.

A step draws a batch of s rows and, for these, a block B of Â with t vertices:

* one draw, as in training: g = (BX)ᵀ(BXW − Y_s)/s + λW. It is consistent but biased: its mean is
  the gradient of f(W) + 1/(2n)·Σ_v Var y(v), whose minimiser W_t is known exactly too;
* two draws: g = (BX)ᵀ(B'XW − Y_s)/s + λW with B' drawn independently, whose mean is ∇f(W).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from benchmarks.cases import OWN_SPLIT, graph
from benchmarks.pages import DASH, line_figure, short
from benchmarks.paper_scale import Contents, Scale
from benchmarks.results import Measurement, Record, Results
from fastgcn.arrays import FloatArray
from fastgcn.graph.adjacency import normalize
from fastgcn.graph.graph import Graph
from fastgcn.report.page import Figure, Table
from fastgcn.report.plots import Series
from fastgcn.sampling import LayerSampler

DATA = "digits"  # comes with the package; small enough to solve exactly
BATCH = 64
RIDGE = 1.0  # in units of the largest eigenvalue of (ÂX)ᵀÂX/n, which is scaled to one
_DRAWS = {1: "one draw a step", 2: "two draws a step"}
_POINTS = 40  # of a curve


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

    def sampled() -> FloatArray:
        """(s, F): BX."""
        (block,) = problem.sampler.sample(batch, rng)
        return np.asarray(block.mix(problem.x[block.src]).numpy(), dtype=np.float64)

    left = sampled()
    right = left if draws == 1 else sampled()
    error = right @ w - problem.y[batch.numpy()]
    return np.asarray(left.T @ error / len(batch) + RIDGE * w)


def _descent(scale: Scale, draws: int, t: int) -> Measurement:
    key = {"experiment": "convergence", "data": DATA, "draws": draws, "t": t, "batch": BATCH}
    key |= {"ridge": RIDGE, "steps": scale.steps, "runs": scale.descents}

    how = partial(measure_descent, scale, draws, t)
    return Measurement(f"{DATA}: SGD, {_DRAWS[draws]}, t = {t}", key, how, _CODE)


def measure_descent(scale: Scale, draws: int, t: int) -> Record:
    """Distances over steps, their slope, and how far the limit is from the optimum."""
    problem = regression(graph(DATA, OWN_SPLIT), t)
    descent = descend(problem, draws=draws, steps=scale.steps, runs=scale.descents)
    shown = np.unique(np.geomspace(1, scale.steps, _POINTS).round().astype(int))
    return {
        "k": shown.tolist(),
        "distance": [float(f"{d:.4g}") for d in descent.distance[shown - 1]],
        "slope": descent.slope,
        "within_bound": descent.within_bound,
        "bias": float(np.sum((problem.limit - problem.best) ** 2)),
        "size": float(np.sum(problem.best**2)),
    }


_CODE = ("fastgcn.sampling", "fastgcn.graph.adjacency")


def descents(scale: Scale) -> list[Measurement]:
    return [_descent(scale, draws, t) for draws in _DRAWS for t in scale.descent_sizes]


def show_convergence(scale: Scale, results: Results) -> Contents:
    """Squared distances against k, and their slopes."""
    found = {
        draws: {t: results.get(_descent(scale, draws, t).key) for t in scale.descent_sizes}
        for draws in _DRAWS
    }
    known = {d: {t: v for t, v in each.items() if v is not None} for d, each in found.items()}
    rows = []
    for t in scale.descent_sizes:
        cells = []
        for value in (found[draws][t] for draws in _DRAWS):
            steps = f"{value['within_bound']:,} of {scale.steps - 2:,}" if value else DASH
            cells += [f"{value['slope']:.2f}" if value else DASH, steps]
        one = found[1][t]
        rows.append((str(t), *cells, short(one["bias"] / one["size"] if one else None)))
    head = ("t", "one draw", "bound holds", "two draws", "bound holds", "‖W_t − W*‖² / ‖W*‖²")
    caption = (
        "Slope of log distance over log k (the theorem: -1), steps at which the theorem's bound "
        "holds, and how far one draw's limit is from the optimum"
    )
    return [
        *(_distances(draws, each) for draws, each in known.items() if each),
        Table(head, rows, caption),
        _bias_in_words(known[1]),
        f"Ridge regression on one convolution of {DATA}, where the optimum W* is solved for "
        f"exactly: batches of {BATCH} rows, blocks of t vertices from the importance sampler that "
        f"trains networks, steps 1/(lk) with l the least curvature, {scale.steps:,} steps, means "
        f"over {scale.descents} repetitions; slopes are fitted to the last nine tenths of the "
        "steps. With one draw a step, as in training, the gradient is consistent but biased: it "
        "leads to the minimiser W_t of the loss plus the sampling variance, also known exactly, "
        "and distances are to that point. With two independent draws a step it is unbiased, and "
        "distances are to W*. G is the largest root mean square of a gradient on the way, for no "
        "strictly convex function has bounded gradients everywhere. The paper states the theorem "
        "without an experiment.",
    ]


def _distances(draws: int, found: Mapping[int, Record]) -> Figure | None:
    series = [
        Series(f"t = {t}", value["k"], value["distance"], markers=False)
        for t, value in found.items()
    ]
    k, start = series[0].x, series[0].y[0]
    series.append(Series("1/k", k, [start / step for step in k], dashed=True, markers=False))
    goal = "W_t" if draws == 1 else "W*"
    slopes = ", ".join(f"{value['slope']:.2f} for t = {t}" for t, value in found.items())
    title = f"Mean squared distance to {goal}, {_DRAWS[draws]}"
    about = f"{title}; dashed: 1/k. Slopes: {slopes}"
    return line_figure(series, title, about, "step k", f"mean squared distance to {goal}")


def _bias_in_words(one_draw: Mapping[int, Record]) -> str:
    biases = {t: value["bias"] for t, value in one_draw.items() if value["bias"] > 0}
    if len(biases) < 2:
        return ""
    slope = np.polyfit(np.log(list(biases)), np.log(list(biases.values())), 1)[0]
    return (
        f"The squared bias of one draw's limit falls as t to the power {slope:.2f}: the "
        "estimator is consistent."
    )
