"""A run as one self-contained HTML page: how good it is, how it got there, how to use it."""

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
    from fastgcn.report import embedding, sampling, scores
    from fastgcn.report import scores as classes
    from fastgcn.report import scores as structure
    from fastgcn.report import training as curves
    from fastgcn.report import training as facts
    from fastgcn.report.judged import judge
    from fastgcn.report.page import render_page

    judged = judge(run, graph)
    here = fingerprint(graph)
    sections = [
        scores.summary(run, judged),
        curves.learning_curves(run),
        classes.by_class(judged),
        structure.by_degree(graph, judged),
        embedding.embedding_map(run, graph, judged),
        sampling.sampling_statistics(run, graph, own=here == run.fingerprint),
        curves.time_split(run),
        facts.settings(run.config),
        facts.how_to_use(run, graph),
        facts.origin(run, graph, here),
    ]
    return render_page(
        title=f"{run.config.method} on {run.metrics['dataset']}",
        subtitle=scores.headline(run, judged),
        sections=sections,
        footer=f"Made by fastgcn {__version__}.",
    )
