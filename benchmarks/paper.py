"""The paper's tables and figures, measured again: what each needs, and how it is shown.

Convergence and variance are in `theory`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from benchmarks import theory
from benchmarks.cases import CURVE_NODES, OWN_SPLIT, Case, graph
from benchmarks.network import time_configs
from benchmarks.pages import DASH, Experiment, listed, mean, mean_sd, ratio, short
from benchmarks.paper_scale import DataSet, Scale
from benchmarks.published import (
    BATCH_SECONDS,
    F1,
    NEW_GRAPHSAGE_SECONDS,
    ORIGINAL_SPLIT,
    STATISTICS,
    SYSTEMS,
    TABLE_2,
    TOTAL_SECONDS,
)
from benchmarks.results import Measurement, Record, Results
from fastgcn.config import TrainConfig
from fastgcn.report.page import Content, Figure, Table
from fastgcn.report.plots import Series, bars, lines
from fastgcn.train.presets import METHODS

Contents = list[Content]
Plan = Iterator[Measurement]


def experiments(scale: Scale) -> list[Experiment]:
    """All experiments of the paper, in its order."""
    tables: dict[str, tuple[str, str, Any, Any]] = {
        "datasets": (
            "Data sets (Table 1)",
            "Are these the graphs that the paper measured?",
            plan_datasets, show_datasets,
        ),
        "table2": (
            "Precomputing the first layer (Table 2)",
            "What does it cost, and what does it gain, to compute ÂX once instead of sampling it?",
            plan_table2, show_table2,
        ),
        "figure2": (
            "Uniform and importance sampling (Figure 2)",
            "Does importance sampling give more accurate networks than uniform sampling?",
            plan_figure2, show_figure2,
        ),
        "figure3": (
            "Time a batch and accuracy (Figure 3)",
            "Is FastGCN faster than the other systems, and as accurate?",
            plan_figure3, show_figure3,
        ),
        "table3": (
            "Time a batch (Table 3)",
            "How long does a training step take, and how many of FastGCN's steps is that?",
            plan_times, show_table3,
        ),
        "total-time": (
            "Total training time (appendix C)",
            "How long does training take in all, when every system stops by the same rule?",
            plan_trainings, show_total_time,
        ),
        "accuracy-vs-time": (
            "Accuracy against time (appendix C)",
            "How soon is each system how accurate?",
            plan_trainings, show_accuracy_vs_time,
        ),
        "original-split": (
            "The original split (appendix C)",
            "What is left of the accuracy where few nodes have labels, and does it help to see the "
            "whole graph?",
            plan_original_split, show_original_split,
        ),
        "convergence": (
            "Convergence (appendix D, theorem 5)",
            "Does SGD with sampled gradients converge as O(1/k) on a strictly convex problem?",
            theory.plan_convergence, theory.show_convergence,
        ),
        "variance": (
            "Variance (Prop. 2, theorem 3, Prop. 4)",
            "Is the variance of the sampler the one that the paper derives?",
            theory.plan_variance, theory.show_variance,
        ),
    }  # fmt: skip
    return [
        Experiment(
            name=name,
            title=title,
            question=question,
            plan=partial(plan, scale),
            show=partial(show, scale),
        )
        for name, (title, question, plan, show) in tables.items()
    ]


def beside(theirs: float | None, data: DataSet, digits: int | None = None) -> str:
    """A figure of the paper, and on which data where ours are others."""
    if theirs is None:
        return DASH
    text = short(theirs) if digits is None else f"{theirs:.{digits}f}"
    return text if data.from_paper else f"{text} on {data.paper}"


Figures = tuple[float | None, str, float | None]  # ours, how it is written, and the paper's


def against_paper(
    systems: Mapping[str, Callable[[DataSet], Figures]],
    data: Sequence[DataSet],
    caption: str,
    digits: int | None = None,
) -> Table:
    """A row for every system on every data set: ours, the paper's, and their ratio.

    The paper's figures have so many decimals, or three significant digits.
    """
    rows = []
    for each in data:
        for name, figures in systems.items():
            ours, text, theirs = figures(each)
            label = f"{each.label}: {name}"
            rows.append((label, text, beside(theirs, each, digits), ratio(ours, theirs)))
    return Table(("", "here", "the paper", "ratio"), rows, caption)


def _step_times(
    label: str, data: DataSet, configs: Mapping[str, TrainConfig], scale: Scale
) -> Measurement:
    """Seconds a batch of each of `configs` on a data set, in turns."""
    turns = {"rounds": scale.rounds, "chunk_seconds": scale.chunk_seconds}
    key = {
        "experiment": "step-time",
        "data": data.name,
        "split": data.split,
        "configs": {name: config.to_dict() for name, config in configs.items()},
        **turns,
    }
    return Measurement(
        f"{data.label}: {label}",
        key,
        lambda: time_configs(graph(data.name, data.split), configs, **turns),
    )


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
    return _step_times("time an epoch", scale.medium, configs, scale)


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
        cells = (short(time), beside(paper[0], data, 3), ratio(time, paper[0]))
        cells += (mean_sd(scores[kind, t]), beside(paper[1], data, 3))
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
    svg = lines(
        series,
        title=f"F1 by sample size, {scale.medium.label}",
        description="Test micro-F1 against the sample size t, with both layers sampled and with "
        "the first precomputed; dashed lines are the paper's.",
        x_label="sample size t",
        y_label="test micro-F1",
        x_log=True,
    )
    return [Figure(svg, "Test micro-F1 against sample size; dashed: the paper's Table 2")]


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
    svg = lines(
        series,
        title=f"Uniform and importance sampling, {data.label}",
        description=f"Test micro-F1 on {data.label} against the sample size t, with error bars "
        "of one standard deviation over seeds. " + " ".join(_figure2_finding(data, scores)),
        x_label="sample size t",
        y_label="test micro-F1",
        x_log=True,
    )
    return [Figure(svg, f"{data.label}: mean and standard deviation over seeds")]


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


# Figure 3 and Table 3: time a batch and accuracy of all systems.


def _batch_times(data: DataSet, scale: Scale) -> Measurement:
    configs = {system: data.settings(system) for system in data.systems}
    return _step_times("time a batch", data, configs, scale)


def plan_times(scale: Scale, _: Results) -> Plan:
    for data in scale.data:
        yield _batch_times(data, scale)


def plan_trainings(scale: Scale, results: Results) -> Plan:
    for data in scale.data:
        for system in data.systems:
            yield from data.case(system).plan(results)


def plan_figure3(scale: Scale, results: Results) -> Plan:
    yield from plan_times(scale, results)
    yield from plan_trainings(scale, results)


def _seconds_a_batch(scale: Scale, results: Results) -> dict[str, dict[str, float]]:
    """The measured time of every system, by data set and name; empty where it is not on file."""
    found = {data.label: results.get(_batch_times(data, scale).key) or {} for data in scale.data}
    return {
        label: {system: times["seconds_per_batch"] for system, times in each.items()}
        for label, each in found.items()
    }


def _scores(system: str, data: DataSet, results: Results) -> list[float]:
    return data.case(system).test_scores(results) if system in data.systems else []


def show_figure3(scale: Scale, results: Results) -> Contents:
    """Bars of the time a batch, and the table of F1."""
    seconds = _seconds_a_batch(scale, results)

    def score(system: str, data: DataSet) -> Figures:
        scores = _scores(system, data, results)
        return mean(scores), mean_sd(scores), F1[system].get(data.paper)

    texts = [_speeds(label, times) for label, times in seconds.items() if times]
    for data in scale.data:
        ours, batched = (mean(_scores(s, data, results)) for s in ("fastgcn", "gcn-batched"))
        if ours is not None and batched is not None:
            texts.append(
                f"On {data.label} the F1 of FastGCN minus that of batched GCN is "
                f"{ours - batched:+.3f}."
            )
    return [
        *_bars(seconds),
        against_paper(
            {name: partial(score, system) for system, name in SYSTEMS.items()},
            scale.data,
            "Test micro-F1, mean ± sd over seeds",
            digits=3,
        ),
        *([" ".join(texts)] if texts else []),
        "Times are those of Table 3, below. Every system trains in the same loop, and stops by "
        f"the same rule: after {scale.small.config.patience} epochs without a better validation "
        "score, or at the limit of the table. Validation chooses the epoch that is kept and, where "
        "several are given, the learning rate: the smallest whose mean is within a standard error "
        "of the best. Test nodes are evaluated once, by the full network.",
        _settings_table(scale, results),
    ]


def _bars(seconds: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    if not any(seconds.values()):
        return []
    series = [
        (name, [times.get(system) for times in seconds.values()])
        for system, name in SYSTEMS.items()
    ]
    svg = bars(
        list(seconds),
        series,
        title="Training time a batch",
        description="Seconds a batch on a logarithmic scale: "
        + " ".join(_speeds(label, times) for label, times in seconds.items() if times),
        y_label="seconds a batch",
        y_log=True,
        unit=" s",
    )
    caption = "Seconds a batch, on a logarithmic scale; a batch of the original GCN is all nodes"
    return [Figure(svg, caption)]


def _speeds(label: str, times: Mapping[str, float]) -> str:
    """How the others compare with FastGCN."""
    fast = times["fastgcn"]
    others = [
        f"{SYSTEMS[system]} takes {short(t / fast)} times as long"
        for system, t in times.items()
        if system != "fastgcn"
    ]
    return f"On {label} FastGCN takes {short(1000 * fast)} ms a batch; {', '.join(others)}."


def _settings_table(scale: Scale, results: Results) -> Table:
    rows = []
    for data in scale.data:
        for system in data.systems:
            case = data.case(system)
            batch = f"{case.config.batch_size:,}" if system != "gcn" else "all"
            rates, rate = " or ".join(f"{r:g}" for r in case.rates), case.rate(results)
            cells = (batch, rates, DASH if rate is None else f"{rate:g}")
            runs = str(len(case.runs(results)))
            rows.append((case.label, *cells, f"{case.config.epochs:,}", runs))
    head = ("", "batch", "rates", "chosen", "most epochs", "seeds")
    return Table(head, rows, "Settings of these trainings")


# A row's name, our system, and the paper's figures: its GraphSAGE was measured twice.
_TABLE3: dict[str, tuple[str, Mapping[str, float]]] = {
    "FastGCN": ("fastgcn", BATCH_SECONDS["fastgcn"]),
    "GraphSAGE-GCN, old program": ("graphsage-gcn", BATCH_SECONDS["graphsage-gcn"]),
    "GraphSAGE-GCN, new program": ("graphsage-gcn", NEW_GRAPHSAGE_SECONDS),
    "GraphSAGE-mean": ("graphsage-mean", {}),
    "GCN (batched)": ("gcn-batched", BATCH_SECONDS["gcn-batched"]),
    "GCN (original)": ("gcn", {}),
}


def show_table3(scale: Scale, results: Results) -> Contents:
    """Seconds a batch, and how many times FastGCN's that is."""
    seconds = _seconds_a_batch(scale, results)

    def time(name: str, data: DataSet) -> Figures:
        system, theirs = _TABLE3[name]
        ours = seconds[data.label].get(system)
        return ours, short(ours), theirs.get(data.paper)

    def times_fastgcn(name: str, data: DataSet) -> Figures:
        (ours, _, theirs), (fast, _, their_fast) = time(name, data), time("FastGCN", data)
        mine = ours / fast if ours and fast else None
        return mine, short(mine), theirs / their_fast if theirs and their_fast else None

    found = []
    for label, times in seconds.items():
        sage = [t for system, t in times.items() if system.startswith("graphsage")]
        if sage:
            found.append(f"{short(min(sage) / times['fastgcn'])} times on {label}")
    others = [name for name in _TABLE3 if name != "FastGCN"]
    return [
        against_paper(
            {name: partial(time, name) for name in _TABLE3},
            scale.data,
            "Seconds a batch; ratio is ours to the paper's",
        ),
        against_paper(
            {name: partial(times_fastgcn, name) for name in others},
            scale.data,
            "Time a batch in multiples of FastGCN's; ratio is ours to the paper's",
        ),
        *([f"The faster GraphSAGE takes FastGCN's time {listed(found)}."] if found else []),
        f"Medians over {scale.rounds} turns of about {scale.chunk_seconds:g} s, after a warm-up "
        "that also compiles kernels. The systems take turns, so that what else runs on the machine "
        "meets all of them. A time is that of sampling, reading rows, the step and all between "
        "them, on all cores, without evaluation and without the precomputation of ÂX. A step of "
        "the original GCN takes all nodes. The paper used four cores at 2.5 GHz and TensorFlow, "
        "and measured a second, new program of GraphSAGE in PyTorch; ours stands beside both.",
    ]


# Appendix C: total training time, and accuracy on training and test nodes on the way.


def _training_seconds(run: Record) -> float:
    """From the first batch to the last, and the precomputation before them."""
    return float(run["training_seconds"] + run["precompute_seconds"])


def _all_seconds(run: Record) -> float:
    return _training_seconds(run) + float(run["evaluation_seconds"])


def show_total_time(scale: Scale, results: Results) -> Contents:
    """Seconds to the stop, without evaluation and with it."""
    rows, texts = [], []
    for data in scale.data:
        runs = {s: data.case(s).runs(results, timed=True) for s in data.systems}
        ours = {s: mean([_training_seconds(run) for run in each]) for s, each in runs.items()}
        for system, name in SYSTEMS.items():
            found = runs.get(system, [])
            theirs = TOTAL_SECONDS.get(system, {}).get(data.paper)
            cells = (short(ours.get(system)), short(mean([_all_seconds(run) for run in found])))
            cells += (beside(theirs, data), ratio(ours.get(system), theirs))
            epochs = short(mean([run["epochs"] for run in found]))
            rows.append((f"{data.label}: {name}", *cells, epochs, str(len(found))))
        fast = ours["fastgcn"]
        texts += [
            f"On {data.label} {SYSTEMS[s]} trains {short(t / fast)} times as long as FastGCN."
            for s in ("graphsage-gcn", "gcn-batched")
            if fast and (t := ours.get(s))
        ]
    every = [f"{data.label}: {data.config.epochs}" for data in scale.data]
    less = [
        f"{data.label}: {SYSTEMS[system]} {limit.epochs}"
        for data in scale.data
        for system, limit in data.limits.items()
        if limit.epochs
    ]
    but = f"; but {', '.join(less)}" if less else ""
    head = ("", "training", "with evaluation", "the paper", "ratio", "epochs", "seeds")
    return [
        Table(head, rows, "Seconds of training in all; ratio is training / the paper"),
        *([" ".join(texts)] if texts else []),
        "Means over seeds of the trainings of Figure 3; training is ÂX, where it is "
        "precomputed, and all batches, and evaluation is on the validation part after every "
        "epoch. The paper does not say whether its times include evaluation. Each training ends "
        f"after {scale.small.config.patience} epochs without a better validation score, or at its "
        f"limit of epochs ({', '.join(every)}{but}).",
    ]


_MARGIN = 0.02


def show_accuracy_vs_time(scale: Scale, results: Results) -> Contents:
    """A curve a system, for training and for test nodes, of seed 0."""
    content: Contents = []
    rows = []
    for data in scale.data:
        curves: dict[str, Record] = {}
        for system in data.systems:
            runs = data.case(system).runs(results, timed=True)
            if runs and runs[0]["curve"]["seconds"]:
                curves[system] = runs[0]["curve"]
        if curves:
            content += [_curve_plot(data, curves, part) for part in ("training", "test")]
        level = max((max(curve["test"]) for curve in curves.values()), default=0.0) - _MARGIN
        for system, name in SYSTEMS.items():
            cells = (DASH,) * 3
            if system in curves:
                seconds, test = curves[system]["seconds"], curves[system]["test"]
                pairs = zip(seconds, test, strict=True)
                when = next((short(second) for second, f1 in pairs if f1 >= level), "never")
                cells = (f"{max(test):.3f}", f"{level:.3f}", when)
            rows.append((f"{data.label}: {name}", *cells))
    caption = f"When the test accuracy first reaches {_MARGIN} below the best of all systems"
    return [
        *content,
        Table(("", "best test accuracy", "level", "seconds to it"), rows, caption),
        "One training a system, seed 0, of those of Figure 3. The clock runs while batches are "
        "trained on, and stands during evaluation. Training nodes are evaluated by the full "
        f"network on the whole graph. Where a part has more than {CURVE_NODES:,} nodes, "
        f"{CURVE_NODES:,} of them are evaluated, always the same. The paper draws these curves "
        "without printing numbers.",
    ]


def _curve_plot(data: DataSet, curves: Mapping[str, Record], part: str) -> Figure:
    ys = {system: curve["train" if part == "training" else part] for system, curve in curves.items()}
    series = [
        Series(SYSTEMS[system], curves[system]["seconds"], y, markers=False)
        for system, y in ys.items()
    ]
    ends = ", ".join(f"{SYSTEMS[system]} ends at {y[-1]:.3f}" for system, y in ys.items())
    svg = lines(
        series,
        title=f"{data.label}: accuracy on {part} nodes",
        description=f"Accuracy on {part} nodes against seconds of training, on a logarithmic "
        f"scale: {ends}.",
        x_label="seconds of training",
        y_label="accuracy",
        x_log=True,
    )
    return Figure(svg, f"{data.label}: accuracy on {part} nodes over training time")


# Appendix C: the original split, with few labels.

_ON_ORIGINAL = {system: SYSTEMS.get(system, "FastGCN-transductive") for system in ORIGINAL_SPLIT}
_SEARCH_EPOCHS = 500


def _original_case(system: str, data: DataSet) -> Case:
    assert data.public is not None
    config, search = data.public, None  # FastGCN-transductive is searched to the end
    if system == "gcn":  # at Kipf and Welling's rate
        config = METHODS["gcn"](data.public)
        config = config.replace(epochs=min(config.epochs, data.public.epochs))
    elif system != "fastgcn-transductive":
        config = METHODS[system](config.replace(inductive=True, samples=data.public_samples))
        search = min(_SEARCH_EPOCHS, config.epochs)
    return Case(
        label=f"{data.label}, original split: {_ON_ORIGINAL[system]}",
        data=data.name,
        split=data.split if data.split == OWN_SPLIT else "public",
        config=config,
        rates=data.rates if system != "gcn" else (config.learning_rate,),
        seeds=data.seeds,
        search_epochs=search,
        curve=True,
    )


def plan_original_split(scale: Scale, results: Results) -> Plan:
    for data in scale.data:
        for system in _ON_ORIGINAL if data.public is not None else ():
            yield from _original_case(system, data).plan(results)


def show_original_split(scale: Scale, results: Results) -> Contents:
    """F1 and time beside the paper's."""
    data = [each for each in scale.data if each.public is not None]

    def score(system: str, data: DataSet) -> Figures:
        scores = _original_case(system, data).test_scores(results)
        return mean(scores), mean_sd(scores), ORIGINAL_SPLIT[system][data.paper][1]

    def time(system: str, data: DataSet) -> Figures:
        runs = _original_case(system, data).runs(results, timed=True)
        seconds = mean([_all_seconds(run) for run in runs])
        return seconds, short(seconds), ORIGINAL_SPLIT[system][data.paper][0]

    texts, how = [], []
    for each in data:
        inductive, whole, gcn = (
            score(s, each)[0] for s in ("fastgcn", "fastgcn-transductive", "gcn")
        )
        if inductive is not None and whole is not None and gcn is not None:
            texts.append(
                f"On {each.label} seeing the whole graph changes FastGCN's F1 by "
                f"{whole - inductive:+.3f}, and leaves it {whole - gcn:+.3f} from the original "
                "GCN's."
            )
        config = each.public
        assert config is not None
        how.append(
            f"{each.label}: at most {config.epochs:,} epochs, which here are single batches, "
            f"patience {config.patience:,}; L2 {config.weight_decay:g} on the first layer, "
            f"features scaled: {config.feature_scaling}. GCN has Kipf and Welling's settings. "
            "FastGCN and GraphSAGE-GCN are inductive: they see the graph of the training nodes "
            f"alone, of which FastGCN draws {each.public_samples}."
        )
    caption = "Test micro-F1 on the original split, mean ± sd over seeds"
    by_score, by_time = (
        {name: partial(figures, system) for system, name in _ON_ORIGINAL.items()}
        for figures in (score, time)
    )
    return [
        against_paper(by_score, data, caption, digits=3),
        against_paper(by_time, data, "Seconds of training in all, evaluation included"),
        *([" ".join(texts)] if texts else []),
        *how,
    ]
