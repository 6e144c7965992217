"""Runs as one self-contained HTML page: how good they are, how they got there, how to use them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastgcn._version import __version__

if TYPE_CHECKING:
    from fastgcn.graph.graph import Graph
    from fastgcn.train.run import Run


def run_report(run: "Run", graph: "Graph") -> str:
    """The report of a run as HTML; predictions are for the labelled test nodes of `graph`.

    >>> import fastgcn
    >>> graph = fastgcn.load("digits")
    >>> run = fastgcn.fit(graph, fastgcn.TrainConfig(epochs=2, samples=50, hidden=8))
    >>> '<section id="degree"' in run_report(run, graph)
    True
    """
    from fastgcn.data.layout import fingerprint
    from fastgcn.infer.predict import as_trained
    from fastgcn.report import numbers, quality, ranking, training
    from fastgcn.report.page import render_page

    graph = as_trained(run, graph)
    if run.model.target is None:
        found = quality.evaluate_run(run, graph)
        subtitle = quality.headline(run, found)
        good = [
            quality.summary(run, found),
            quality.by_class(found),
            *ranking.probability_sections(found),
            ranking.worst_errors(graph, found),
            quality.by_degree(graph, found),
            quality.embedding_map(run, graph, found),
        ]
    else:
        predicted = numbers.evaluate_numbers(run, graph)
        subtitle = numbers.headline(run, predicted)
        good = [
            numbers.summary(run, predicted),
            numbers.errors(run, graph, predicted),
            numbers.worst_errors(graph, predicted),
            numbers.by_degree(graph, predicted),
            numbers.embedding_map(run, graph, predicted),
        ]
    here = fingerprint(graph)
    sections = [
        good[0],
        *training.choice(run),
        training.learning_curves(run),
        *good[1:],
        training.sampling_statistics(run, graph, own=here == run.fingerprint),
        training.time_split(run),
        training.settings(run.config),
        training.how_to_use(run, graph),
        training.origin(run, graph, here),
    ]
    return render_page(
        title=f"{run.config.method} on {run.metrics['dataset']}",
        subtitle=subtitle,
        sections=sections,
        footer=f"Made by fastgcn {__version__}.",
    )


def compare_report(runs: Sequence["Run"], graphs: Sequence["Graph"]) -> str:
    """Runs side by side as HTML: scores, curves, time, classes and the settings that differ.

    `graphs` are those that the runs are applied to, one for each.

    >>> import fastgcn
    >>> graph = fastgcn.load("digits")
    >>> runs = [fastgcn.fit(graph, epochs=2, samples=50, hidden=h, preset="paper") for h in (8, 16)]
    >>> '<section id="settings"' in compare_report(runs, [graph, graph])
    True
    """
    from fastgcn.report.comparison import sections
    from fastgcn.report.page import render_page

    names = dict.fromkeys(str(run.metrics["dataset"]) for run in runs)
    return render_page(
        title=f"{len(runs)} runs on {', '.join(names)}",
        subtitle="compared by the full network, without sampling, on the same part of the split",
        sections=sections(runs, graphs),
        footer=f"Made by fastgcn {__version__}.",
    )
