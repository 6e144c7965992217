"""The paper's theory against measurements: convergence (App. D) and variance (Prop. 2 to 4)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch

from benchmarks.cases import OWN_SPLIT, graph
from benchmarks.pages import DASH, short
from benchmarks.paper_scale import Scale
from benchmarks.results import Measurement, Record, Results
from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.cpu import ready
from fastgcn.config import TrainConfig
from fastgcn.graph.adjacency import Adjacency, normalize
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.progress import progress
from fastgcn.report.page import Content, Figure, Table
from fastgcn.report.plots import Series, bars, lines
from fastgcn.sampling import LayerSampler, variance

# Appendix D: SGD with a consistent gradient converges as O(1/k). Ridge regression on one
# convolution, with W (F, C) and Y (n, C) the classes as 0 and 1:
#
#     f(W) = 1/(2n) ‖ÂXW − Y‖² + λ/2 ‖W‖²,        ∇f(W) = HW − (ÂX)ᵀY/n,
#     H = (ÂX)ᵀÂX/n + λI,  l = least eigenvalue of H,  W* = H⁻¹(ÂX)ᵀY/n.
#
# A step draws a batch of s rows and, for these, a block B of Â with t vertices:
#
# * one draw, as in training: g = (BX)ᵀ(BXW − Y_s)/s + λW. It is consistent but biased: its mean is
#   the gradient of f(W) + 1/(2n)·Σ_v Var y(v), whose minimiser W_t is known exactly too;
# * two draws: g = (BX)ᵀ(B'XW − Y_s)/s + λW with B' drawn independently, whose mean is ∇f(W).

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

    def measure() -> Record:
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

    return Measurement(f"{DATA}: SGD, {_DRAWS[draws]}, t = {t}", key, measure, _CODE)


_CODE = ("fastgcn.sampling", "fastgcn.graph.adjacency")


def plan_convergence(scale: Scale, _: Results) -> Iterator[Measurement]:
    for draws in _DRAWS:
        for t in scale.descent_sizes:
            yield _descent(scale, draws, t)


def show_convergence(scale: Scale, results: Results) -> list[Content]:
    """Squared distances against k, and their slopes."""
    found = {
        draws: {t: results.get(_descent(scale, draws, t).key) for t in scale.descent_sizes}
        for draws in _DRAWS
    }
    known = {d: {t: v for t, v in each.items() if v is not None} for d, each in found.items()}
    content: list[Content] = [_distances(draws, each) for draws, each in known.items() if each]
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
        *content,
        Table(head, rows, caption),
        *_convergence_finding(scale, known),
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


def _distances(draws: int, found: Mapping[int, Record]) -> Figure:
    series = [
        Series(f"t = {t}", value["k"], value["distance"], markers=False)
        for t, value in found.items()
    ]
    first = next(iter(found.values()))
    k, start = first["k"], first["distance"][0]
    series.append(Series("1/k", k, [start / step for step in k], dashed=True, markers=False))
    goal = "W_t" if draws == 1 else "W*"
    slopes = ", ".join(f"{value['slope']:.2f} for t = {t}" for t, value in found.items())
    svg = lines(
        series,
        title=f"Squared distance to {goal}, {_DRAWS[draws]}",
        description=f"Mean squared distance to {goal} against the step k, both on logarithmic "
        f"scales, with a line of slope -1. Slopes: {slopes}.",
        x_label="step k",
        y_label=f"mean squared distance to {goal}",
        x_log=True,
        y_log=True,
    )
    return Figure(svg, f"Mean squared distance to {goal}, {_DRAWS[draws]}; dashed: 1/k")


def _convergence_finding(scale: Scale, known: Mapping[int, Mapping[int, Record]]) -> list[str]:
    values = [value for each in known.values() for value in each.values()]
    if not values:
        return []
    slopes = [value["slope"] for value in values]
    bounded = sum(value["within_bound"] == scale.steps - 2 for value in values)
    text = (
        f"Slopes lie between {min(slopes):.2f} and {max(slopes):.2f}; the bound of the theorem "
        f"holds at every step in {bounded} of {len(values)} descents."
    )
    biases = {t: value["bias"] for t, value in known[1].items() if value["bias"] > 0}
    if len(biases) > 1:
        slope = np.polyfit(np.log(list(biases)), np.log(list(biases.values())), 1)[0]
        text += (
            f" The squared bias of one draw's limit falls as t to the power {slope:.2f}: the "
            "estimator is consistent."
        )
    return [text]


# Prop. 2, Thm 3 and Prop. 4: measured against closed-form variance.

_ROWS = 16  # s: rows that are averaged; more only cost time
_Z = 1.96  # of a 95 % interval

Law = Literal["uniform", "importance", "optimal"]

# The distributions and the paper's statement on each.
_LAWS: dict[Law, str] = {"uniform": "Prop. 2", "importance": "Prop. 4", "optimal": "Thm 3"}
_FORMS = {
    "independent": "average, own draws",
    "shared": "average, shared draw",
    "rows": "sum over rows",
}


def _variance_config(scale: Scale) -> TrainConfig:
    return scale.small.config.replace(epochs=scale.variance_epochs, seed=0)


def _variance(scale: Scale, law: Law) -> Measurement:
    key = {
        "experiment": "variance",
        "data": scale.small.name,
        "split": scale.small.split,
        "config": _variance_config(scale).to_dict(),
        "distribution": law,
        "rows": _ROWS,
        "repetitions": scale.repetitions,
    }
    how = partial(measure_variance, scale, law)
    return Measurement(f"{scale.small.label}: variance, {law}", key, how)


def plan_variance(scale: Scale, _: Results) -> Iterator[Measurement]:
    for law in _LAWS:
        yield _variance(scale, law)


def _trained_layer(scale: Scale) -> tuple[Adjacency, FloatArray]:
    """Â of the training graph, and x = HW of the sampled layer of a network trained on it."""
    config = _variance_config(scale)
    with thread_count(config.threads):
        trainer = ready(graph(scale.small.name, scale.small.split), config)
        for epoch in range(config.epochs):
            trainer.train_epoch(epoch)
        first, second = (layer.weight.detach() for layer in trainer.model.convolutions)
        mixed = trainer.data.rows(torch.arange(trainer.data.adjacency.n))
        x = torch.relu(mixed @ first) @ second
    return trainer.data.adjacency, np.asarray(x.numpy(), dtype=np.float64)


def measure_variance(scale: Scale, law: Law) -> Record:
    """Mean squared errors of the sampler's estimates, and their closed forms."""
    adjacency, x = _trained_layer(scale)
    (t,) = _variance_config(scale).layer_samples
    sampler = LayerSampler(adjacency, [t], distribution=law)
    sampler.set_row_norms([np.linalg.norm(x, axis=1)])
    q, exact = sampler.probabilities(), adjacency.to_scipy() @ x
    rng, choose = torch.Generator().manual_seed(0), np.random.default_rng(0)
    n, values = adjacency.n, torch.from_numpy(x.astype(np.float32))
    batch = choose.integers(0, n, _ROWS)

    def estimate(rows: IntArray) -> FloatArray:
        (block,) = sampler.sample(torch.from_numpy(rows), rng)
        return np.asarray(block.mix(values[block.src]).numpy(), dtype=np.float64)

    errors: dict[str, list[float]] = {form: [] for form in _FORMS}
    with progress(f"Drawing, {law}", scale.repetitions, "repetitions") as advance:
        for _ in range(scale.repetitions):
            rows = choose.integers(0, n, _ROWS)
            own = np.concatenate([estimate(row) for row in np.split(rows, _ROWS)])
            for form, drawn in (("independent", own), ("shared", estimate(rows))):
                errors[form].append(float(np.sum((drawn.mean(axis=0) - exact.mean(axis=0)) ** 2)))
            errors["rows"].append(float(np.sum((estimate(batch) - exact[batch]) ** 2)))
            advance(1)
    named = getattr(variance, f"{law}_variance")
    closed = {
        "independent": named(adjacency, x, _ROWS, t),
        "shared": variance.shared_variance(adjacency, x, q, _ROWS, t),
        "rows": variance.row_variance(adjacency, x, q, t, batch),
    }
    forms = {
        form: {
            "closed": closed[form],
            "measured": float(np.mean(found)),
            "standard_error": float(np.std(found, ddof=1) / np.sqrt(len(found))),
        }
        for form, found in errors.items()
    }
    all_rows = {
        "independent": named(adjacency, x, n, t),
        "shared": variance.shared_variance(adjacency, x, q, np.arange(n), t),
    }
    return {"forms": forms, "all_rows": all_rows, "n": n}


def show_variance(scale: Scale, results: Results) -> list[Content]:
    """Closed forms, measurements, and their ratios with intervals."""
    found = {law: results.get(_variance(scale, law).key) or {} for law in _LAWS}
    rows = []
    for form, meaning in _FORMS.items():
        for law, statement in _LAWS.items():
            value = found[law].get("forms", {}).get(form)
            cells = [DASH] * 4
            if value is not None:
                low, high = _interval(value)
                quotient = value["measured"] / value["closed"]
                cells = [short(value["closed"]), short(value["measured"]), f"{quotient:.3f}"]
                cells.append(f"{low:.3f} to {high:.3f}")
            rows.append((meaning, f"{law}, {statement}" if form == "independent" else law, *cells))
    head = ("variance of", "q", "closed form", "measured", "ratio", "95 % interval")
    (t,) = _variance_config(scale).layer_samples
    return [
        Table(head, rows, "Measured and closed-form variance"),
        *_gains(found),
        *_variance_finding(found),
        f"One sampled convolution of a network trained for {scale.variance_epochs} epochs on "
        f"{scale.small.label}, t = {t} vertices, s = {_ROWS} rows; means of squared errors over "
        f"{scale.repetitions:,} repetitions with the sampler that trains networks, on the scale of "
        "the sums of eq. 10. The paper's propositions give every row a draw of its own; its "
        "algorithms share one draw among all rows, which leaves the average noisier and the sum "
        "of the rows' variances, which is what the next layer sees, unchanged. All three are "
        "compared. The paper proves these formulas and measures none of them.",
    ]


def _interval(value: Record) -> tuple[float, float]:
    """Of measured / closed form, by the normal law."""
    margin = _Z * value["standard_error"]
    low, high = value["measured"] - margin, value["measured"] + margin
    return low / value["closed"], high / value["closed"]


def _gains(found: Mapping[Law, Record]) -> list[Figure]:
    if not all(found.values()):
        return []
    base = found["uniform"]["forms"]
    series: list[tuple[str, list[float | None]]] = [
        (law, [each["forms"][form]["measured"] / base[form]["closed"] for form in _FORMS])
        for law, each in found.items()
    ]
    svg = bars(
        list(_FORMS.values()),
        series,
        title="Measured variance, uniform = 1",
        description="Measured variance of each form, divided by the closed form for uniform "
        "sampling. " + " ".join(_variance_finding(found)),
        y_label="measured variance / closed form for uniform q",
    )
    return [Figure(svg, "Measured variance relative to uniform sampling's closed form")]


def _variance_finding(found: Mapping[Law, Record]) -> list[str]:
    known = [value for one in found.values() for value in one.get("forms", {}).values()]
    if not known:
        return []
    inside = sum(low <= 1 <= high for low, high in map(_interval, known))
    texts = [f"{inside} of {len(known)} intervals contain 1, of which about 95 % should."]
    if all(found.values()):
        rows = {law: each["forms"]["rows"]["closed"] for law, each in found.items()}
        texts.append(
            "The sum of the rows' variances under importance sampling is "
            f"{rows['importance'] / rows['uniform']:.2f} of that under uniform sampling; under "
            f"Theorem 3's q, which needs the trained rows, it is "
            f"{rows['optimal'] / rows['uniform']:.2f}."
        )
    if found["importance"]:
        both = found["importance"]["all_rows"]
        texts.append(
            f"The average over as many rows as there are vertices ({found['importance']['n']:,}) "
            f"has variance {short(both['shared'])} with one draw for all of them, and would have "
            f"{short(both['independent'])} with independent draws: a shared error does not average "
            "away."
        )
    return [" ".join(texts)]
