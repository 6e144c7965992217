"""Data sets (Table 1), precomputation (Table 2), and uniform sampling (Figure 2)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.cases import Case, graph
from benchmarks.pages import DASH, line_figure, listed, mean, mean_sd, ratio, short
from benchmarks.paper_scale import DataSet, Scale, beside, step_times
from benchmarks.published import F1, STATISTICS, TABLE_2
from benchmarks.results import Measurement, Record, Results
from fastgcn.report.page import Content, Figure, Table
from fastgcn.report.plots import Series

Contents = list[Content]
Plan = Iterator[Measurement]

# Table 1: the data sets.


def _statistics(data: DataSet) -> Measurement:
    def count() -> Record:
        loaded = graph(data.name, data.split)
        return {
            "nodes": loaded.n_nodes,
            "edges": loaded.n_edges,
            "classes": loaded.n_classes,
            "features": loaded.n_features,
            **{part: len(nodes) for part, nodes in loaded.split.items()},
            "cleaned": asdict(loaded.cleaned),
        }

    key = {"experiment": "statistics", "data": data.name, "split": data.split}
    return Measurement(f"{data.label}: statistics", key, count, ("fastgcn.data.load",))


def plan_datasets(scale: Scale, _: Results) -> Plan:
    yield from map(_statistics, scale.data)


def show_datasets(scale: Scale, results: Results) -> Contents:
    """Our counts beside the paper's."""
    names = {"train": "training", "val": "validation"}
    rows: list[tuple[str, ...]] = []
    same = known = 0
    remarks = []
    for data in scale.data:
        found = results.get(_statistics(data).key) or {}
        for name, theirs in STATISTICS[data.paper].items():
            ours = found.get(name)
            known += ours is not None
            same += ours == theirs
            text = f"{theirs:,}" if data.from_paper else f"{theirs:,} on {data.paper}"
            mine = DASH if ours is None else f"{ours:,}"
            rows.append((f"{data.label}: {names.get(name, name)}", mine, text, ratio(ours, theirs)))
        removed = {name: k for name, k in found.get("cleaned", {}).items() if k}
        if removed:
            what = listed([f"{k:,} {name.replace('_', ' ')}" for name, k in removed.items()])
            before = found["edges"] + sum(removed.values()) // 2
            remarks.append(
                f"Reading {data.label} removed {what} from its list, which has both directions "
                f"of an edge; with them it has {before:,} edges."
            )
    stand_ins = [
        f"{data.label} is a generated graph that stands in for {data.paper}: figures on it are "
        f"comparable among the systems measured here, and with the paper's on {data.paper} only "
        "in their order."
        for data in scale.data
        if not data.from_paper
    ]
    return [
        Table(("", "here", "the paper", "ratio"), rows, "Table 1: data set statistics"),
        f"{same} of {known} counts are those of the paper. " + " ".join(remarks),
        "Counted on the loaded graphs; an undirected edge counts once.",
        *stand_ins,
    ]


# Table 2: what precomputing ÂX saves, on Pubmed.

# Ours, the settings, and the column of the paper's table that it stands beside.
_KINDS: dict[str, tuple[Mapping[str, Any], str]] = {
    "both sampled": ({"precompute": False}, "sampling"),
    "both sampled, neighbours": ({"precompute": False, "neighbors_only": True}, "sampling"),
    "precompute": ({}, "precompute"),
}
_NEEDED_SAVING = 3


def _table2_cases(scale: Scale) -> dict[tuple[str, int], Case]:
    return {
        (kind, t): scale.medium.sized_case(t, seeds=scale.table_seeds, how=kind, **settings)
        for kind, (settings, _) in _KINDS.items()
        for t in scale.table_sizes
    }


def _table2_times(scale: Scale) -> Measurement:
    configs = {f"{kind}, t = {t}": case.config for (kind, t), case in _table2_cases(scale).items()}
    return step_times("time an epoch", scale.medium, configs, scale)


def plan_table2(scale: Scale, results: Results) -> Plan:
    yield _table2_times(scale)
    for case in _table2_cases(scale).values():
        yield from case.plan(results)


def show_table2(scale: Scale, results: Results) -> Contents:
    """Time an epoch and F1 by sample size, with and without precomputation."""
    data, cases = scale.medium, _table2_cases(scale)
    found = results.get(_table2_times(scale).key) or {}
    seconds = {
        name: one["seconds_per_batch"] * one["batches_per_epoch"] for name, one in found.items()
    }
    scores = {name: case.test_scores(results) for name, case in cases.items()}
    rows = []
    for kind, t in cases:
        time, paper = seconds.get(f"{kind}, t = {t}"), TABLE_2[_KINDS[kind][1]][t]
        cells = [short(time), beside(paper[0], data, 3), ratio(time, paper[0])]
        cells += [mean_sd(scores[kind, t]), beside(paper[1], data, 3)]
        rows.append((f"{kind}, t = {t}", *cells, ratio(mean(scores[kind, t]), paper[1])))
    head = (data.label, "epoch, s", "the paper", "ratio", "F1", "the paper", "ratio")
    return [
        Table(head, rows, "Seconds an epoch, and test micro-F1, mean ± sd over seeds"),
        *_table2_plot(scale, scores),
        *_table2_finding(scale, seconds),
        "Importance sampling with the same t for every sampled layer, batches of "
        f"{data.config.batch_size:,}, rate {data.config.learning_rate:g}. "
        '"Both sampled" draws among all vertices, as Algorithm 2 is written; at these sizes nearly '
        "all rows of both layers then meet no sampled vertex. The authors' program draws among "
        'the neighbours of the rows above, and "neighbours" does so too, with weights that keep '
        "the estimate unbiased.",
        f"An epoch's time is the median time of a batch over {scale.rounds} turns, times the "
        "batches of an epoch. It is training alone, without evaluation and without the one "
        "computation of ÂX. F1 is by the full network.",
    ]


def _table2_plot(scale: Scale, scores: Mapping[tuple[str, int], list[float]]) -> list[Figure]:
    series = []
    for kind in _KINDS:
        known = [t for t in scale.table_sizes if scores[kind, t]]
        if known:
            series.append(Series(kind, known, [mean(scores[kind, t]) or 0.0 for t in known]))
    if not series:
        return []
    for column, paper in TABLE_2.items():
        sizes = list(scale.table_sizes)
        name = f"the paper, {column}"
        series.append(Series(name, sizes, [paper[t][1] for t in sizes], dashed=True))
    about = (
        "Test micro-F1 against the sample size t, with both layers sampled and with the first "
        "precomputed; dashed lines are the paper's."
    )
    title = f"F1 by sample size, {scale.medium.label}"
    caption = "Test micro-F1 against sample size; dashed: the paper's Table 2"
    return [line_figure(series, title, about, "sample size t", "test micro-F1", caption, logs="x")]


def _table2_finding(scale: Scale, seconds: Mapping[str, float]) -> list[str]:
    texts = []
    for kind in list(_KINDS)[:-1] if seconds else []:
        savings = [
            seconds[f"{kind}, t = {t}"] / seconds[f"precompute, t = {t}"] for t in scale.table_sizes
        ]
        enough = sum(saving >= _NEEDED_SAVING for saving in savings)
        texts.append(
            f"Precomputing makes an epoch {short(min(savings))} to {short(max(savings))} times as "
            f"fast as with {kind}; it is at least {_NEEDED_SAVING} times at {enough} of "
            f"{len(savings)} sizes."
        )
    return [" ".join(texts) + " In the paper it is 5.3 to 5.5 times."] if texts else []


# Figure 2: uniform against importance sampling.

_LAWS = ("importance", "uniform")
Scores = dict[str, dict[int, list[float]]]  # by distribution and sample size


def _figure2_case(data: DataSet, law: str, t: int) -> Case:
    return data.sized_case(t, seeds=data.size_seeds, how=law, distribution=law)


def plan_figure2(scale: Scale, results: Results) -> Plan:
    for data in scale.data:
        for law in _LAWS:
            for t in data.sizes:
                yield from _figure2_case(data, law, t).plan(results)


def show_figure2(scale: Scale, results: Results) -> Contents:
    """F1 against sample size for both distributions."""
    content: Contents = []
    for data in scale.data:
        scores: Scores = {
            law: {t: _figure2_case(data, law, t).test_scores(results) for t in data.sizes}
            for law in _LAWS
        }
        content += [_figure2_table(data, scores), *_figure2_plot(data, scores)]
        content += _figure2_finding(data, scores)
    rates = [
        f"{d.config.learning_rate:g} on {d.label}, at most {d.size_epochs} epochs"
        for d in scale.data
    ]
    content.append(
        "The paper draws this figure without printing its numbers or sizes, after stating that "
        "all experiments from there on precompute the first layer, so one layer is sampled here "
        "too; sizes are those that its text names and some around them. Its F1 at the size of its "
        "Figure 3 stands beside ours. Mean ± sd of the test micro-F1 over seeds, at one learning "
        f"rate a data set, the preset's: {listed(rates)}."
    )
    return content


def _figure2_table(data: DataSet, scores: Scores) -> Table:
    rows = []
    for t in data.sizes:
        important, uniform = (scores[law][t] for law in _LAWS)
        theirs = F1["fastgcn"][data.paper] if t == data.config.samples else None
        known = bool(important and uniform)
        gain = f"{np.mean(important) - np.mean(uniform):+.4f}" if known else DASH
        cells = (mean_sd(uniform, 4), mean_sd(important, 4), gain, beside(theirs, data, 3))
        seeds = f"{len(uniform)} and {len(important)}"
        rows.append((str(t), *cells, ratio(mean(important), theirs), seeds))
    head = ("t", "uniform", "importance", "gain", "the paper", "ratio", "seeds")
    return Table(head, rows, f"Test micro-F1 on {data.label}")


def _figure2_plot(data: DataSet, scores: Scores) -> list[Figure]:
    series = []
    for law in _LAWS:
        known = {t: found for t, found in scores[law].items() if found}
        if known:
            spread = [float(np.std(found, ddof=len(found) > 1)) for found in known.values()]
            means = [float(np.mean(found)) for found in known.values()]
            series.append(Series(law, list(known), means, spread))
    if not series:
        return []
    about = (
        f"Test micro-F1 on {data.label} against the sample size t, with error bars of one standard "
        "deviation over seeds. " + " ".join(_figure2_finding(data, scores))
    )
    title = f"Uniform and importance sampling, {data.label}"
    caption = f"{data.label}: mean and standard deviation over seeds"
    return [line_figure(series, title, about, "sample size t", "test micro-F1", caption, logs="x")]


def _figure2_finding(data: DataSet, scores: Scores) -> list[str]:
    known = [t for t in data.sizes if all(scores[law][t] for law in _LAWS)]
    if not known:
        return []
    gains = {t: np.mean(scores["importance"][t]) - np.mean(scores["uniform"][t]) for t in known}
    errors = {t: _standard_error([scores[law][t] for law in _LAWS]) for t in known}
    return [
        f"{data.label}: importance is at or above uniform at "
        f"{sum(gains[t] >= 0 for t in known)} of {len(known)} sizes, and above by more than the "
        f"standard error of the difference at {sum(gains[t] > errors[t] for t in known)}."
    ]


def _standard_error(groups: Sequence[Sequence[float]]) -> float:
    """Of the difference of two means; infinite where there is one seed."""
    if min(map(len, groups)) < 2:
        return float("inf")
    return float(np.sqrt(sum(np.var(values, ddof=1) / len(values) for values in groups)))
