"""Several runs side by side: sections on scores, curves, nodes, time and settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.metrics import better
from fastgcn.report import numbers, quality
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import Series, bars, lines
from fastgcn.report.quality import Evaluated, Scored
from fastgcn.report.training import PURPOSES, score_name, setting_text
from fastgcn.train.run import Run


def sections(runs: Sequence[Run], graphs: Sequence[Graph]) -> list[Section]:
    """The sections of the page; the runs must predict the same kind of thing."""
    kinds = {(run.model.task, run.model.target is None) for run in runs}
    if len(kinds) > 1:
        raise InputError(
            "runs that predict classes and runs that predict numbers cannot be compared; "
            "make a report of each"
        )
    names = run_names(runs)
    numeric = runs[0].model.target is not None
    found: list[Any] = [
        (numbers.evaluate_numbers if numeric else quality.evaluate_run)(run, graph)
        for run, graph in zip(runs, graphs, strict=True)
    ]
    same = all(np.array_equal(each.nodes, found[0].nodes) for each in found) and (
        len({graph.n_nodes for graph in graphs}) == 1
    )
    parts = [_scores(runs, names, found, same=same), _curves(runs, names)]
    if not numeric:
        parts.append(_classes(names, found))
        if same and not found[0].multilabel:
            parts.append(_nodes(names, found))
    return [*parts, _time(runs, names), _settings(runs, names)]


def run_names(runs: Sequence[Run]) -> list[str]:
    """A short name for each run, different for each: its folder's, with a number if need be."""
    plain = [Path(run.path).name if run.path else run.config.method for run in runs]
    return [
        name if plain.count(name) == 1 else f"{name} ({number})"
        for number, name in enumerate(plain, start=1)
    ]


def _scores(
    runs: Sequence[Run], names: Sequence[str], found: Sequence[Scored], *, same: bool
) -> Section:
    scores = [each.scores.scores() for each in found]
    metrics = list(scores[0])
    first = metrics[0]
    best = max(range(len(runs)), key=lambda i: better(first, scores[i][first]))
    rows = [
        (
            name,
            *(f"{each[metric]:.4f}" for metric in metrics),
            f"{len(part.nodes):,} {part.part_name}",
            f"{run.metrics['best_epoch']} of {run.metrics['epochs']}",
            str(run.config.seed),
        )
        for name, each, part, run in zip(names, scores, found, runs, strict=True)
    ]
    svg = bars(
        list(names),
        [(score_name(first), [each[first] for each in scores])],
        long_names=True,
        title=f"{score_name(first)[:1].upper()}{score_name(first)[1:]} by run",
        description=f"The best is {names[best]}, {scores[best][first]:.4f}.",
        y_label=score_name(first),
    )
    values = [each[first] for each in scores]
    text = (
        f"{names[best]} has the best {score_name(first)}, {values[best]:.4f}; the runs lie "
        f"between {min(values):.4f} and {max(values):.4f}."
        if min(values) < max(values)
        else f"All runs have the same {score_name(first)}, {values[best]:.4f}."
    )
    if not same:
        text += " The runs are not scored on the same nodes, so their scores do not compare."
    elif len({run.config.seed for run in runs}) == 1:
        text += " One seed says little: differences below a point are often chance."
    head = ("run", *map(score_name, metrics), "nodes", "epoch kept", "seed")
    content: list[Content] = [
        text,
        Figure(svg, f"{score_name(first)} of each run."),
        Table(head, rows, "Scores"),
    ]
    return Section("scores", "Scores", "Which run is best?", content)


def _curves(runs: Sequence[Run], names: Sequence[str]) -> Section:
    figures: list[Content] = []
    metric = runs[0].metrics.get("metric", "micro_f1")
    keys = {"val_loss": "Validation loss", f"val_{metric}": f"Validation {score_name(metric)}"}
    for key, title in keys.items():
        for axis in ("epoch", "seconds"):
            series = [_curve(run, name, key, axis) for run, name in zip(runs, names, strict=True)]
            shown = [each for each in series if len(each.x)]
            if not shown:
                continue
            svg = lines(
                shown,
                title=f"{title} by {axis}",
                description=f"{len(shown)} runs.",
                x_label=axis if axis == "epoch" else "seconds of training and validation",
                y_label=title[0].lower() + title[1:],
            )
            figures.append(Figure(svg, f"{title} of each run against {axis}."))
    if not figures:
        figures = ["No run was validated while it trained."]
    return Section("curves", "Learning curves", "Which run learns faster?", figures)


def _curve(run: Run, name: str, key: str, axis: str) -> Series:
    x, y, spent = [], [], 0.0
    for record in run.history:
        spent += record.get("seconds", 0.0)
        if key in record:
            x.append(float(record["epoch"]) if axis == "epoch" else spent)
            y.append(record[key])
    return Series(name, x, y, markers=False)


def _classes(names: Sequence[str], found: Sequence[Evaluated]) -> Section:
    classes = list(dict.fromkeys(name for each in found for name in each.names))
    by_run = [dict(zip(each.names, each.scores.f1, strict=True)) for each in found]
    rows = [
        (name, *(f"{each[name]:.3f}" if name in each else "–" for each in by_run))
        for name in classes
    ]
    content: list[Content] = [Table(("class", *names), rows, "F1 by class and run")]
    return Section("classes", "Classes", "Is a run better at some classes?", content)


def _nodes(names: Sequence[str], found: Sequence[Evaluated]) -> Section:
    """Pairs of runs: how many nodes only one of them gets right."""
    right = [each.decision.classes(each.probabilities) == each.labels for each in found]
    rows = []
    for b in range(1, len(names)):
        for a in range(b):
            only_a, only_b = int((right[a] & ~right[b]).sum()), int((~right[a] & right[b]).sum())
            rows.append(
                (names[a], names[b], f"{int((right[a] & right[b]).sum()):,}", f"{only_a:,}",
                 f"{only_b:,}", f"{int((~right[a] & ~right[b]).sum()):,}",
                 f"{_chance(only_a, only_b):.3f}")
            )  # fmt: skip
    head = ("first", "second", "both right", "only first", "only second", "neither", "p")
    content: list[Content] = [
        "Where two runs differ, one is right and the other wrong. p is the probability that chance "
        "alone splits those nodes as unevenly or more (McNemar's exact test); a small one speaks "
        "for a real difference on these nodes, with these weights.",
        Table(head, rows, "Nodes that two runs get right"),
    ]
    return Section("nodes", "Nodes", "Do the runs make the same errors?", content)


def _chance(a: int, b: int) -> float:
    """Two-sided p of a fair coin that falls `a` and `b` times on its sides."""
    from scipy.stats import binomtest

    return 1.0 if a + b == 0 else float(binomtest(a, a + b).pvalue)


def _time(runs: Sequence[Run], names: Sequence[str]) -> Section:
    seconds = [[run.metrics.get(f"{p}_seconds", 0.0) for p in PURPOSES] for run in runs]
    shown = [i for i in range(len(PURPOSES)) if any(each[i] for each in seconds)]
    purposes = [list(PURPOSES)[i] for i in shown]
    svg = bars(
        names,
        [(p, [each[i] for each in seconds]) for i, p in zip(shown, purposes, strict=True)],
        title="Seconds by purpose",
        description="; ".join(
            f"{n} {sum(each):.2f} s" for n, each in zip(names, seconds, strict=True)
        )
        + ".",
        y_label="seconds",
        unit=" s",
    )
    rows = [
        (name, *(f"{each[i]:.2f}" for i in shown), f"{sum(each):.2f}",
         f"{1000 * run.metrics['seconds_per_batch']:.3f}", str(run.metrics["device"]))
        for name, each, run in zip(names, seconds, runs, strict=True)
    ]  # fmt: skip
    head = ("run", *purposes, "in all", "ms a batch", "device")
    content: list[Content] = [
        Figure(svg, "Wall-clock seconds of each run."),
        Table(head, rows, "Seconds"),
    ]
    return Section("time", "Time", "Which run is faster?", content)


def _settings(runs: Sequence[Run], names: Sequence[str]) -> Section:
    chosen = [{k: setting_text(v) for k, v in run.config.to_dict().items()} for run in runs]
    keys = list(dict.fromkeys(key for each in chosen for key in each))
    rows = [(key, *(each.get(key, "–") for each in chosen)) for key in keys]
    differ = [row for row in rows if len(set(row[1:])) > 1]
    content: list[Content] = ["All runs have the same settings."]
    if differ:
        content = [Table(("setting", *names), differ, "Settings that differ")]
    return Section("settings", "Settings", "In what do the runs differ?", content)
