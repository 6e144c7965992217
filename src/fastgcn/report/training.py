"""How training went, epoch by epoch, and where its time went."""

import math
import shlex
from typing import Any

from fastgcn._version import __version__
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.report.judged import PART_NAMES
from fastgcn.report.page import Code, Content, Figure, Section, Table
from fastgcn.report.plots import Series, bars, lines
from fastgcn.train.run import Run

_PURPOSES = {
    "precompute": "computing ÂX and preparing the graph, once",
    "sampling": "waiting for a batch: drawing vertices, gathering rows",
    "compute": "forward, backward and optimiser",
    "evaluation": "validation, and the final test",
}

_NONE = "–"  # an epoch without validation


def learning_curves(run: Run) -> Section:
    """Loss and validation score by epoch, the kept epoch marked."""
    history = run.history
    kept = history[run.metrics["best_epoch"] - 1]
    judged = sum("val_loss" in record for record in history)
    content: list[Content] = [_course(run, kept)]
    if len(history) > 1:  # one point is no curve
        content.append(_loss_figure(history, kept))
        content += [_score_figure(history, kept)] if judged > 1 else []
    content += [
        _milestones(history, kept),
        "The training loss is the mean over the batches of an epoch, as sampled, while the weights "
        "change" + (f"; validation is by the full network after {_when(run)}." if judged else "."),
    ]
    return Section("curves", "Learning curves", "Did training converge, and when?", content)


def _when(run: Run) -> str:
    """The epochs after which there was validation; runs of earlier versions do not say."""
    every = run.metrics.get("validate_every", 1)
    return "every epoch" if every == 1 else f"every {every} epochs and the last one"


def _course(run: Run, kept: dict[str, Any]) -> str:
    first, last = run.history[0], run.history[-1]
    if first is last:
        return f"There was one epoch, with a training loss of {first['train_loss']:.4f}."
    text = (
        f"The training loss went from {first['train_loss']:.4f} to {last['train_loss']:.4f} in "
        f"{len(run.history)} epochs."
    )
    if "val_loss" in kept:
        text += (
            f" Epoch {kept['epoch']} was kept, with a validation loss of {kept['val_loss']:.4f} "
            f"and micro-F1 of {kept['val_micro_f1']:.4f}; at the end they were "
            f"{last['val_loss']:.4f} and {last['val_micro_f1']:.4f}."
        )
    return text


def _loss_figure(history: list[dict[str, Any]], kept: dict[str, Any]) -> Figure:
    series = [_by_epoch(history, "training", "train_loss")]
    if "val_loss" in kept:
        series += [
            _by_epoch(history, "validation", "val_loss"),
            _kept(kept, "val_loss"),
        ]
    svg = lines(
        series,
        title="Loss by epoch",
        description=_range_text(series),
        x_label="epoch",
        y_label="cross entropy",
    )
    return Figure(svg, "Cross entropy of the training batches and of the validation nodes.")


def _score_figure(history: list[dict[str, Any]], kept: dict[str, Any]) -> Figure:
    series = [_by_epoch(history, "validation", "val_micro_f1"), _kept(kept, "val_micro_f1")]
    svg = lines(
        series,
        title="Validation micro-F1 by epoch",
        description=_range_text(series),
        x_label="epoch",
        y_label="micro-F1",
    )
    return Figure(svg, "Micro-F1 of the validation nodes.")


def _by_epoch(history: list[dict[str, Any]], label: str, key: str) -> Series:
    known = [record for record in history if key in record]
    return Series(label, [r["epoch"] for r in known], [r[key] for r in known])


def _kept(kept: dict[str, Any], key: str) -> Series:
    return Series(f"kept: epoch {kept['epoch']}", [kept["epoch"]], [kept[key]])


def _range_text(series: list[Series]) -> str:
    """What a line does, for those who do not see it."""
    parts = [f"{s.label} from {s.y[0]:.4f} to {s.y[-1]:.4f}" for s in series if len(s.x) > 1]
    return f"{'; '.join(parts)}."


def _milestones(history: list[dict[str, Any]], kept: dict[str, Any]) -> Table:
    keys = [
        key for key in ("train_loss", "val_loss", "val_micro_f1", "val_macro_f1") if key in kept
    ]
    names = {"first": history[0], "kept": kept, "last": history[-1]}
    rows = [
        (
            f"{name} ({record['epoch']})",
            *(f"{record[key]:.4f}" if key in record else _NONE for key in keys),
        )
        for name, record in names.items()
    ]
    head = ("epoch", *(key.replace("_", " ").replace("f1", "F1") for key in keys))
    return Table(head, rows, "The first, the kept and the last epoch")


def time_split(run: Run) -> Section:
    """Seconds by purpose."""
    seconds = {purpose: run.metrics[f"{purpose}_seconds"] for purpose in _PURPOSES}
    total = math.fsum(seconds.values())
    largest = max(seconds, key=seconds.__getitem__)
    svg = bars(
        list(seconds),
        [("seconds", list(seconds.values()))],
        title="Seconds by purpose",
        description="; ".join(f"{name} {value:.2f} s" for name, value in seconds.items()) + ".",
        y_label="seconds",
        unit=" s",
    )
    rows = [
        (purpose, f"{seconds[purpose]:.2f}", f"{seconds[purpose] / (total or 1):.1%}", meaning)
        for purpose, meaning in _PURPOSES.items()
    ]
    return Section(
        "time",
        "Time",
        "Where did the time go?",
        [
            f"Of {total:.2f} s, {seconds[largest] / (total or 1):.0%} went into {largest}. A batch "
            f"took {run.metrics['seconds_per_batch'] * 1000:.3f} ms (sampling and compute, mean of "
            f"{run.metrics['batches']:,}).",
            Figure(svg, "Wall-clock seconds over the whole run, all its sessions together."),
            Table(("purpose", "seconds", "share", "what it is"), rows, "Time by purpose"),
            f"Measured while training, on {run.metrics['device']}.",
        ],
    )


def settings(config: TrainConfig) -> Section:
    """Those that differ from the defaults first, then all of them."""
    chosen, defaults = config.to_dict(), TrainConfig().complete().to_dict()
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
