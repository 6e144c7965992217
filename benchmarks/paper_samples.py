"""Data sets (Table 1), precomputation (Table 2), and uniform sampling (Figure 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from benchmarks.cases import Case, graph
from benchmarks.pages import (
    DASH,
    line_figure,
    listed,
    mean,
    mean_sd,
    ratio,
    sd,
    short,
    standard_error,
)
from benchmarks.paper_scale import Contents, DataSet, Scale, beside, step_times
from benchmarks.published import F1, STATISTICS, TABLE_2
from benchmarks.results import Measurement, Record, Results
from fastgcn.report.page import Figure, Table
from fastgcn.report.plots import Series

# Table 1: the data sets.


def _statistics(data: DataSet) -> Measurement:
    key = {"experiment": "statistics", "data": data.name, "split": data.split}
    how = partial(_count, data)
    return Measurement(f"{data.label}: statistics", key, how, ("fastgcn.data.load",))


def _count(data: DataSet) -> Record:
    loaded = graph(data.name, data.split)
    names = ("nodes", "edges", "classes", "features")
    counts = {name: getattr(loaded, f"n_{name}") for name in names}
    parts = {part: len(nodes) for part, nodes in loaded.split.items()}
    return {**counts, **parts, "cleaned": asdict(loaded.cleaned)}


def statistics(scale: Scale) -> list[Measurement]:
    return [_statistics(data) for data in scale.data]


def show_datasets(scale: Scale, results: Results) -> Contents:
    """Our counts beside the paper's."""
    names = {"train": "training", "val": "validation"}
    rows, same, remarks = [], [], []
    for data in scale.data:
        found = results.get(_statistics(data).key) or {}
        for name, theirs in STATISTICS[data.paper].items():
            ours = found.get(name)
            same += [] if ours is None else [ours == theirs]
            mine = DASH if ours is None else f"{ours:,}"
            text = beside(theirs, data, 0)
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
        f"{sum(same)} of {len(same)} counts are those of the paper. " + " ".join(remarks),
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


def table2_cases(scale: Scale) -> dict[tuple[str, int], Case]:
    return {
        (kind, t): scale.medium.sized_case(t, seeds=scale.table_seeds, how=kind, **settings)
        for kind, (settings, _) in _KINDS.items()
        for t in scale.table_sizes
    }


def table2_scores(scale: Scale, results: Results) -> dict[str, dict[int, list[float]]]:
    """Test scores by kind and sample size."""
    cases = table2_cases(scale)
    return {k: {t: cases[k, t].test_scores(results) for t in scale.table_sizes} for k in _KINDS}


def _table2_times(scale: Scale) -> Measurement:
    configs = {f"{kind}, t = {t}": case.config for (kind, t), case in table2_cases(scale).items()}
    return step_times("time an epoch", scale.medium, configs, scale)


def table2(scale: Scale) -> list[Case | Measurement]:
    return [_table2_times(scale), *table2_cases(scale).values()]


def show_table2(scale: Scale, results: Results) -> Contents:
    """Time an epoch and F1 by sample size, with and without precomputation."""
    data, cases = scale.medium, table2_cases(scale)
    found = results.get(_table2_times(scale).key) or {}
    seconds = {
        name: one["seconds_per_batch"] * one["batches_per_epoch"] for name, one in found.items()
    }
    scores = table2_scores(scale, results)
    rows = []
    for kind, t in cases:
        time, paper = seconds.get(f"{kind}, t = {t}"), TABLE_2[_KINDS[kind][1]][t]
        cells = [short(time), beside(paper[0], data, 3), ratio(time, paper[0])]
        cells += [mean_sd(scores[kind][t]), beside(paper[1], data, 3)]
        rows.append((f"{kind}, t = {t}", *cells, ratio(mean(scores[kind][t]), paper[1])))
    head = (data.label, "epoch, s", "the paper", "ratio", "F1", "the paper", "ratio")
    theirs = [
        Series(f"the paper, {name}", list(paper), [f1 for _, f1 in paper.values()], dashed=True)
        for name, paper in TABLE_2.items()
    ]
    return [
        Table(head, rows, "Seconds an epoch, and test micro-F1, mean ± sd over seeds"),
        _by_size(scores, f"F1 by sample size, {data.label}", "dashed: the paper's Table 2", theirs),
        _savings(scale, seconds),
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


Scores = Mapping[str, Mapping[int, list[float]]]  # by kind and sample size


def _by_size(
    scores: Scores, title: str, about: str, theirs: Sequence[Series] = ()
) -> Figure | None:
    """The mean test score of each kind over sample sizes, with standard deviations."""
    series = []
    for kind, found in scores.items():
        known = {t: each for t, each in found.items() if each}
        spread = [sd(each) if len(each) > 1 else 0.0 for each in known.values()]
        means = [float(np.mean(each)) for each in known.values()]
        series += [Series(kind, list(known), means, spread)] if known else []
    about = f"{title}: mean test micro-F1 and standard deviation over seeds; {about}"
    shown = [*series, *theirs] if series else []
    return line_figure(shown, title, about, "sample size t", "test micro-F1", logs="x")


def _savings(scale: Scale, seconds: Mapping[str, float]) -> str:
    texts = []
    for kind in list(_KINDS)[:-1] if seconds else []:
        savings = [
            seconds[f"{kind}, t = {t}"] / seconds[f"precompute, t = {t}"] for t in scale.table_sizes
        ]
        enough = sum(saving >= _NEEDED_SAVING for saving in savings)
        texts.append(
            f"Precomputing makes an epoch {short(min(savings))} to {short(max(savings))} times as "
            f"fast as with {kind}; it is at least {_NEEDED_SAVING} times at {enough} of "
            f"{len(savings)} sizes. In the paper it is 5.3 to 5.5 times."
        )
    return " ".join(texts)


# Figure 2: uniform against importance sampling.

_LAWS = ("uniform", "importance")


def _figure2_case(data: DataSet, law: str, t: int) -> Case:
    return data.sized_case(t, seeds=data.size_seeds, how=law, distribution=law)


def figure2(scale: Scale) -> list[Case]:
    return [_figure2_case(d, law, t) for d in scale.data for law in _LAWS for t in d.sizes]


def figure2_scores(data: DataSet, results: Results) -> dict[str, dict[int, list[float]]]:
    """Test scores by distribution and sample size."""
    return {
        law: {t: _figure2_case(data, law, t).test_scores(results) for t in data.sizes}
        for law in _LAWS
    }


def show_figure2(scale: Scale, results: Results) -> Contents:
    """F1 against sample size for both distributions."""
    content: Contents = []
    for data in scale.data:
        scores = figure2_scores(data, results)
        found = _gain_in_words(data, scores)
        title = f"Uniform and importance sampling, {data.label}"
        content += [_figure2_table(data, scores), _by_size(scores, title, found), found]
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
        both = [scores[law][t] for law in _LAWS]
        theirs = F1["fastgcn"][data.paper] if t == data.config.samples else None
        gain = f"{difference(*reversed(both))[0]:+.4f}" if all(both) else DASH
        cells = (*(mean_sd(each, 4) for each in both), gain, beside(theirs, data, 3))
        seeds = " and ".join(str(len(each)) for each in both)
        rows.append((str(t), *cells, ratio(mean(both[1]), theirs), seeds))
    head = ("t", *_LAWS, "gain", "the paper", "ratio", "seeds")
    return Table(head, rows, f"Test micro-F1 on {data.label}")


def _gain_in_words(data: DataSet, scores: Scores) -> str:
    pairs = [[scores[law][t] for law in ("importance", "uniform")] for t in data.sizes]
    gains = [difference(*both)[0] for both in pairs if all(both)]
    if not gains:
        return ""
    above = sum(is_clear(*both) and difference(*both)[0] > 0 for both in pairs if all(both))
    return (
        f"{data.label}: importance is at or above uniform at {sum(g >= 0 for g in gains)} of "
        f"{len(gains)} sizes, and above by more than {CLEARLY:g} standard errors of the difference "
        f"at {above}."
    )


# Means count as different beyond so many standard errors of their difference: one comparison of
# equal means in twenty says so.
CLEARLY = 2.0


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The difference of two means and its standard error, infinite where one has one score."""
    gain = float(np.mean(ours) - np.mean(theirs))
    if min(len(ours), len(theirs)) < 2:
        return gain, float("inf")
    return gain, float(np.hypot(standard_error(ours), standard_error(theirs)))


def is_clear(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether two means differ by more than chance makes likely.

    >>> is_clear([0.80, 0.81], [0.90, 0.91]), is_clear([0.8, 0.9], [0.82, 0.9]), is_clear([0], [1])
    (True, False, False)
    """
    gain, error = difference(ours, theirs)
    return bool(abs(gain) > CLEARLY * error)
