"""Prop. 2, Thm 3 and Prop. 4: the sampler's variance, measured against the closed forms."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import torch

from benchmarks.cases import graph
from benchmarks.pages import DASH, short, standard_error
from benchmarks.paper_scale import Contents, Scale
from benchmarks.results import GIVEN_CODE, Measurement, Record, Results
from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.cpu import ready
from fastgcn.config import TrainConfig
from fastgcn.graph.adjacency import Adjacency
from fastgcn.machine import thread_count
from fastgcn.model import as_gcn
from fastgcn.progress import progress
from fastgcn.report.page import Figure, Table
from fastgcn.report.plots import bars
from fastgcn.sampling import LayerSampler, variance

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
    code = (*GIVEN_CODE, "fastgcn.sampling.variance")
    return Measurement(f"{scale.small.label}: variance, {law}", key, how, code)


def variances(scale: Scale) -> list[Measurement]:
    return [_variance(scale, law) for law in _LAWS]


def _trained_layer(scale: Scale) -> tuple[Adjacency, FloatArray]:
    """Â of the training graph, and x = HW of the sampled layer of a network trained on it."""
    config = _variance_config(scale)
    with thread_count(config.threads):
        trainer = ready(graph(scale.small.name, scale.small.split), config)
        for epoch in range(config.epochs):
            trainer.train_epoch(epoch)
        first, second = (layer.weight.detach() for layer in as_gcn(trainer.model).convolutions)
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
            "standard_error": standard_error(found),
        }
        for form, found in errors.items()
    }
    all_rows = {
        "independent": named(adjacency, x, n, t),
        "shared": variance.shared_variance(adjacency, x, q, np.arange(n), t),
    }
    return {"forms": forms, "all_rows": all_rows, "n": n}


def show_variance(scale: Scale, results: Results) -> Contents:
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
        _gains(found),
        _variance_finding(found),
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


def _gains(found: Mapping[Law, Record]) -> Figure | None:
    if not all(found.values()):
        return None
    base = found["uniform"]["forms"]
    series: list[tuple[str, list[float | None]]] = [
        (law, [each["forms"][form]["measured"] / base[form]["closed"] for form in _FORMS])
        for law, each in found.items()
    ]
    caption = "Measured variance relative to uniform sampling's closed form"
    svg = bars(
        list(_FORMS.values()),
        series,
        title="Measured variance, uniform = 1",
        description=caption,
        y_label="measured variance / closed form for uniform q",
    )
    return Figure(svg, caption)


def _variance_finding(found: Mapping[Law, Record]) -> str:
    known = [value for one in found.values() for value in one.get("forms", {}).values()]
    if not known:
        return ""
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
    return " ".join(texts)
