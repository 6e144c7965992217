"""What the run is: its settings, its data, and how to use it."""

import shlex
from typing import Any

from fastgcn._version import __version__
from fastgcn.config import TrainConfig
from fastgcn.graph import Graph
from fastgcn.page import Code, Content, Section, Table
from fastgcn.report.judged import PART_NAMES
from fastgcn.runs import Run


def settings(config: TrainConfig) -> Section:
    """Those that differ from the defaults first, then all of them."""
    chosen, defaults = config.to_dict(), TrainConfig().to_dict()
    changed = [
        (name, _text(value), _text(defaults[name]))
        for name, value in chosen.items()
        if value != defaults[name]
    ]
    content: list[Content] = [
        Table(("setting", "value", "default"), changed, "Settings that differ from the defaults")
        if changed
        else "All settings have their default values.",
        Table(
            ("setting", "value"),
            [(name, _text(value)) for name, value in chosen.items()],
            "All settings",
        ),
    ]
    return Section("settings", "Settings", "How was the model trained?", content)


def how_to_use(run: Run, graph: Graph) -> Section:
    """Lines to paste, with this run's folder and data."""
    if run.path is None:
        content: list[Content] = [
            "This run is in memory only; train with run_dir= to keep it on disk."
        ]
    else:
        folder = shlex.quote(str(run.path))
        data = _data_argument(run, graph)
        content = [
            Code(_snippet(run, graph), "In Python:"),
            Code(
                f"fastgcn evaluate {folder}{data}\n"
                f"fastgcn predict {folder}{data} --out predictions.csv\n"
                f"fastgcn embed {folder}{data} --out rows.parquet",
                "On the command line:",
            ),
        ]
    return Section("use", "Use", "How is the model loaded and applied?", content)


def origin(run: Run, graph: Graph, here: str) -> Section:
    """The data, its fingerprint, which is `here`, and the version."""
    same = here == run.fingerprint
    weights = sum(parameter.numel() for parameter in run.model.parameters())
    rows = [
        ("data", graph.name),
        ("nodes", f"{graph.n_nodes:,}"),
        ("edges", f"{graph.n_edges:,} {'directed' if graph.directed else 'undirected'}"),
        ("features", f"{graph.n_features:,}"),
        ("labels" if graph.multilabel else "classes", f"{graph.n_classes:,}"),
        *((f"{PART_NAMES[name]} nodes", f"{len(part):,}") for name, part in graph.split.items()),
        ("weights of the network", f"{weights:,}"),
        ("fastgcn", __version__),
    ]
    note = (
        "The graph is the one that the run was trained on, bit for bit."
        if same
        else "The graph, or its split, is not the one that the run was trained on."
    )
    return Section(
        "data",
        "Data and version",
        "What was the model trained on?",
        [
            note,
            Table(("fact", "value"), rows, "The graph of this report"),
            Code(run.fingerprint, "Fingerprint of the data that the run was trained on:"),
            *([] if same else [Code(here, "Fingerprint of this data:")]),
        ],
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _snippet(run: Run, graph: Graph) -> str:
    if graph.source is None:
        load = "graph = ...  # the graph that you made in memory"
    else:
        options = dict(graph.source)
        first = repr(str(options.pop("data")))
        arguments = [first, *(f"{name}={value!r}" for name, value in options.items())]
        load = f"graph = fastgcn.load({', '.join(arguments)})"
    return (
        "import fastgcn\n\n"
        f"run = fastgcn.Run.load({str(run.path)!r})\n"
        f"{load}\n"
        "probabilities = fastgcn.predict(run, graph, nodes=[0, 1, 2])\n"
        "rows = fastgcn.embed(run, graph, nodes=[0, 1, 2])"
    )


def _data_argument(run: Run, graph: Graph) -> str:
    """Nothing where the run finds its data itself."""
    if run.source is not None and dict(run.source) == dict(graph.source or {}):
        return ""
    if graph.source is None:
        return " DATA"
    text = f" {shlex.quote(str(graph.source['data']))}"
    for option, flag in (("split", "--split"), ("seed", "--split-seed")):
        if option in graph.source:
            text += f" {flag} {shlex.quote(str(graph.source[option]))}"
    return text
