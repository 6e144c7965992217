"""Prop. 2, Thm 3 and Prop. 4: measured against closed-form variance."""

from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch

from benchmarks.paper.graphs import graph
from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.scale import Scale
from benchmarks.paper.tables import significant
from benchmarks.results import Record
from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.cpu import ready
from fastgcn.config import TrainConfig
from fastgcn.graph.adjacency import Adjacency
from fastgcn.machine import thread_count
from fastgcn.progress import progress
from fastgcn.report.page import Content, Figure, Section, Table
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


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:  # noqa: ARG001
    """A measurement for each distribution."""
    for law in _LAWS:
        yield Measurement(
            f"{scale.small.label}: variance, {law}", _key(scale, law), partial(_measure, scale, law)
        )


def _config(scale: Scale) -> TrainConfig:
    return scale.small.config.replace(epochs=scale.variance_epochs, seed=0)


def _key(scale: Scale, law: Law) -> Record:
    return {
        "experiment": "variance",
        "data": scale.small.name,
        "split": scale.small.split,
        "config": _config(scale).to_dict(),
        "distribution": law,
        "rows": _ROWS,
        "repetitions": scale.repetitions,
    }


def _trained_layer(scale: Scale) -> tuple[Adjacency, FloatArray]:
    """Â of the training graph, and x = HW of the sampled layer of a network trained on it."""
    config = _config(scale)
    with thread_count(config.threads):
        trainer = ready(graph(scale.small.name, scale.small.split), config)
        for epoch in range(config.epochs):
            trainer.train_epoch(epoch)
        first, second = (layer.weight.detach() for layer in trainer.model.convolutions)
        mixed = trainer.data.rows(torch.arange(trainer.data.adjacency.n))
        x = torch.relu(mixed @ first) @ second
    return trainer.data.adjacency, np.asarray(x.numpy(), dtype=np.float64)


def _measure(scale: Scale, law: Law) -> Record:
    """Mean squared errors of the sampler's estimates, and their closed forms."""
    adjacency, x = _trained_layer(scale)
    (t,) = _config(scale).layer_samples
    sampler = LayerSampler(adjacency, [t], distribution=law)
    sampler.set_row_norms([np.linalg.norm(x, axis=1)])
    q, exact = sampler.probabilities(), adjacency.to_scipy() @ x
    rng, choose = torch.Generator().manual_seed(0), np.random.default_rng(0)
    batch = choose.integers(0, adjacency.n, _ROWS)
    values = torch.from_numpy(x.astype(np.float32))

    def estimate(rows: IntArray) -> FloatArray:
        (block,) = sampler.sample(torch.from_numpy(rows), rng)
        return np.asarray(block.mix(values[block.src]).numpy(), dtype=np.float64)

    errors: dict[str, list[float]] = {form: [] for form in _FORMS}
    with progress(f"Drawing, {law}", scale.repetitions, "repetitions") as advance:
        for _ in range(scale.repetitions):
            rows = choose.integers(0, adjacency.n, _ROWS)
            own = np.concatenate([estimate(row) for row in np.split(rows, _ROWS)])
            for form, drawn in (("independent", own), ("shared", estimate(rows))):
                errors[form].append(float(np.sum((drawn.mean(axis=0) - exact.mean(axis=0)) ** 2)))
            errors["rows"].append(float(np.sum((estimate(batch) - exact[batch]) ** 2)))
            advance(1)
    named = {
        "uniform": variance.uniform_variance,
        "importance": variance.importance_variance,
        "optimal": variance.optimal_variance,
    }[law]
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
    n = adjacency.n
    all_rows = {
        "independent": named(adjacency, x, n, t),
        "shared": variance.shared_variance(adjacency, x, q, np.arange(n), t),
    }
    return {"forms": forms, "all_rows": all_rows, "n": n}


def present(scale: Scale, kept: Kept) -> Section:
    """Closed forms, measurements, and their ratios with intervals."""
    found = {law: kept.get(_key(scale, law)) or {} for law in _LAWS}
    content: list[Content] = [_table(found), *_plot(found), *_findings(found)]
    (t,) = _config(scale).layer_samples
    content.append(
        f"One sampled convolution of a network trained for {scale.variance_epochs} epochs on "
        f"{scale.small.label}, t = {t} vertices, s = {_ROWS} rows; means of squared errors over "
        f"{scale.repetitions:,} repetitions with the sampler that trains networks, on the scale of "
        "the sums of eq. 10. The paper's propositions give every row a draw of its own; its "
        "algorithms share one draw among all rows, which leaves the average noisier and the sum "
        "of the rows' variances, which is what the next layer sees, unchanged. All three are "
        "compared. The paper proves these formulas and measures none of them."
    )
    return Section(
        "variance",
        "Variance (Prop. 2, theorem 3, Prop. 4)",
        "Is the variance of the sampler the one that the paper derives?",
        content,
    )


def _table(found: dict[Law, Record]) -> Table:
    rows = []
    for form, meaning in _FORMS.items():
        for law, statement in _LAWS.items():
            value = found[law].get("forms", {}).get(form)
            name = f"{law}, {statement}" if form == "independent" else law
            if value is None:
                rows.append((meaning, name, *[significant(None)] * 4))
                continue
            low, high = _interval(value)
            ratio = value["measured"] / value["closed"]
            rows.append(
                (
                    meaning,
                    name,
                    significant(value["closed"]),
                    significant(value["measured"]),
                    f"{ratio:.3f}",
                    f"{low:.3f} to {high:.3f}",
                )
            )
    head = ("variance of", "q", "closed form", "measured", "ratio", "95 % interval")
    return Table(head, rows, "Measured and closed-form variance")


def _interval(value: Record) -> tuple[float, float]:
    """Of measured / closed form, by the normal law."""
    margin = _Z * value["standard_error"]
    low, high = value["measured"] - margin, value["measured"] + margin
    return low / value["closed"], high / value["closed"]


def _plot(found: dict[Law, Record]) -> list[Figure]:
    if not all(found.values()):
        return []
    series: list[tuple[str, list[float | None]]] = []
    for law in _LAWS:
        gains = [
            _form(found, law, form)["measured"] / _form(found, "uniform", form)["closed"]
            for form in _FORMS
        ]
        series.append((law, list(gains)))
    svg = bars(
        list(_FORMS.values()),
        series,
        title="Measured variance, uniform = 1",
        description="Measured variance of each form, divided by the closed form for uniform "
        "sampling. " + " ".join(_findings(found)),
        y_label="measured variance / closed form for uniform q",
    )
    return [Figure(svg, "Measured variance relative to uniform sampling's closed form")]


def _form(found: dict[Law, Record], law: Law, form: str) -> Record:
    value: Record = found[law]["forms"][form]
    return value


def _findings(found: dict[Law, Record]) -> list[str]:
    known = [value for one in found.values() for value in one.get("forms", {}).values()]
    if not known:
        return []
    inside = sum(low <= 1 <= high for low, high in map(_interval, known))
    texts = [f"{inside} of {len(known)} intervals contain 1, of which about 95 % should."]
    if all(found.values()):
        rows = {law: _form(found, law, "rows")["closed"] for law in _LAWS}
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
            f"has variance {significant(both['shared'])} with one draw for all of them, and would "
            f"have {significant(both['independent'])} with independent draws: a shared error does "
            "not average away."
        )
    return [" ".join(texts)]
