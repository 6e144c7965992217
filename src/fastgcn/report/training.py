"""How training went: sections on the curves, the sampling, the time, the settings and the data."""

import math
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastgcn._version import __version__
from fastgcn.arrays import IntArray
from fastgcn.backends.data import training_graph
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.metrics import better
from fastgcn.report.page import Code, Content, Figure, Section, Table
from fastgcn.report.plots import Series, bars, lines
from fastgcn.report.quality import PART_NAMES
from fastgcn.sampling import make_sampler
from fastgcn.sampling.block import Block
from fastgcn.train.run import Run

PURPOSES = {
    "compiling": "compiling kernels, once on a machine",
    "precompute": "computing ÂX and preparing the graph, once",
    "sampling": "waiting for a batch: drawing vertices, gathering rows",
    "compute": "forward, backward and optimiser",
    "evaluation": "validation, and the final test",
}
_RECORDED = "The shares by epoch were recorded in training, in the first batch of each epoch."
# Batches drawn for the statistics of sampling.
_BATCHES = 10


def learning_curves(run: Run) -> Section:
    """Loss and validation score by epoch; the kept epoch is marked."""
    history = run.history
    kept = history[run.metrics["best_epoch"] - 1]
    validated = sum("val_loss" in record for record in history)
    content: list[Content] = [_from_first_to_last(run, kept), *curves(run)]
    note = "The training loss is the mean over the batches of an epoch, as sampled, while the "
    note += "weights change"
    if validated:
        every = run.metrics.get("validate_every", 1)  # runs of earlier versions lack it
        when = "every epoch" if every == 1 else f"every {every} epochs and the last one"
        note += f"; validation is by the full network after {when}"
    content += [_milestones(history, kept), f"{note}."]
    return Section("curves", "Learning curves", "Did training converge, and when?", content)


def _score(run: Run) -> tuple[str, str]:
    """The score of a curve, as the history has it and in words."""
    return ("val_micro_f1", "micro-F1") if run.model.target is None else ("val_r2", "R²")


def curves(run: Run) -> list[Figure]:
    """The loss and the score that validation selects by, of runs that have several epochs."""
    history, found = run.history, []
    kept = history[run.metrics["best_epoch"] - 1]
    if len(history) > 1:
        what = "cross entropy" if run.model.target is None else run.model.loss_name
        caption = f"{what.capitalize()} of the training batches and of the validation nodes."
        loss = {"training": "train_loss", "validation": "val_loss"}
        found.append(_curve(history, kept, loss, "Loss", what, caption))
    metric = run.metrics.get("metric", "micro_f1")  # runs of earlier versions lack it
    if metric != "loss" and sum(f"val_{metric}" in record for record in history) > 1:
        name = score_name(metric)
        caption = f"{name[0].upper()}{name[1:]} of the validation nodes."
        score = {"validation": f"val_{metric}"}
        found.append(_curve(history, kept, score, f"Validation {name}", name, caption))
    return found


def score_name(metric: str) -> str:
    """
    >>> score_name("micro_f1"), score_name("average_precision"), score_name("recall@5%")
    ('micro-F1', 'average precision', 'recall@5%')
    """
    own = {"f1": "F1", "micro_f1": "micro-F1", "macro_f1": "macro-F1", "roc_auc": "ROC-AUC"}
    own |= {"r2": "R²", "mae": "MAE", "rmse": "RMSE"}
    return own.get(metric, metric.replace("_", " "))


def _from_first_to_last(run: Run, kept: dict[str, Any]) -> str:
    first, last = run.history[0], run.history[-1]
    if first is last:
        return f"There was one epoch, with a training loss of {first['train_loss']:.4f}."
    text = (
        f"The training loss went from {first['train_loss']:.4f} to {last['train_loss']:.4f} in "
        f"{len(run.history)} epochs."
    )
    if "val_loss" in kept:
        name, shown = _score(run)
        text += (
            f" Epoch {kept['epoch']} was kept, with a validation loss of {kept['val_loss']:.4f} "
            f"and {shown} of {kept[name]:.4f}; at the end they were "
            f"{last['val_loss']:.4f} and {last[name]:.4f}."
        )
    if run.model.ensemble > 1:
        text += f" This is the first of the {run.model.ensemble} networks of the model."
    return text


def _curve(
    history: list[dict[str, Any]],
    kept: dict[str, Any],
    keys: dict[str, str],
    title: str,
    y_label: str,
    caption: str,
) -> Figure:
    """Recorded numbers by epoch, one line for each of `keys`, and the kept epoch's validation."""
    series = []
    for label, key in keys.items():
        known = [record for record in history if key in record]
        if known:
            series.append(Series(label, [r["epoch"] for r in known], [r[key] for r in known]))
    description = "; ".join(f"{s.label} from {s.y[0]:.4f} to {s.y[-1]:.4f}" for s in series) + "."
    if keys["validation"] in kept:
        epoch, value = kept["epoch"], kept[keys["validation"]]
        series.append(Series(f"kept: epoch {epoch}", [epoch], [value]))
    title = f"{title} by epoch"
    svg = lines(series, title=title, description=description, x_label="epoch", y_label=y_label)
    return Figure(svg, caption)


def _milestones(history: list[dict[str, Any]], kept: dict[str, Any]) -> Table:
    recorded = ("train_loss", "val_loss", "val_micro_f1", "val_macro_f1", "val_r2", "val_mae")
    keys = [key for key in recorded if key in kept]
    rows = [
        (
            f"{name} ({record['epoch']})",
            *(f"{record[key]:.4f}" if key in record else "–" for key in keys),
        )
        for name, record in (("first", history[0]), ("kept", kept), ("last", history[-1]))
    ]
    head = ("epoch", *(key.replace("_", " ").replace("f1", "F1") for key in keys))
    return Table(head, rows, "The first, the kept and the last epoch")


def choice(run: Run) -> list[Section]:
    """What the automatic choice tried, if it tried anything."""
    kept = run.metrics.get("choice", {})
    tried = kept.get("tried", [])
    if not tried:
        return []
    metric = tried[0].get("metric", "micro_f1")
    rows = [
        (
            each["name"] + (" (chosen)" if each["kept"] else ""),
            f"{each['epochs']:,}",
            f"{_raced(each):.4f}",
            f"{each['val_loss']:.4f}",
        )
        for each in tried
    ]
    head = ("candidate", "epochs", f"validation {score_name(metric)}", "validation loss")
    took = f" The race took {kept['seconds']:.1f} s." if "seconds" in kept else ""
    content: list[Content] = [
        f"{kept['why'][:1].upper()}{kept['why'][1:]}. Candidates train from the same seed; only "
        f"the leading ones go on to the next round, and the winner goes on to the end.{took}",
        *race(run),
        Table(head, rows, "Candidates, best first"),
    ]
    return [Section("choice", "Automatic choice", "Which settings were tried?", content)]


def _raced(each: dict[str, Any]) -> float:
    """The score of a candidate; runs of earlier versions have micro-F1 only."""
    value = each.get("value")
    return float(each["val_micro_f1"] if value is None else value)


def race(run: Run) -> list[Figure]:
    """The candidates of the race by their best validation score, if there was one."""
    tried = run.metrics.get("choice", {}).get("tried", [])
    if not tried:
        return []
    metric = tried[0].get("metric", "micro_f1")
    found = {
        f"{each['name']}, {each['epochs']} epochs" + (" (chosen)" if each["kept"] else ""): _raced(
            each
        )
        for each in tried
    }
    best = max(found, key=lambda name: better(metric, found[name]))
    lower = better(metric, 1.0) < 0
    svg = bars(
        list(found),
        [(score_name(metric), list(found.values()))],
        long_names=True,
        title="Race of candidates" + (" (lower is better)" if lower else ""),
        description=f"{len(found)} candidates; the best is {best}, {found[best]:.4f}.",
        y_label=f"{score_name(metric)} of the validation nodes",
    )
    return [Figure(svg, "The race that chose the settings.")]


@dataclass(frozen=True, slots=True)
class LayerStatistics:
    """Means over the rows of all blocks of one sampled layer."""

    rows: float  # rows of a block
    vertices: float  # distinct vertices below with an edge to some row
    met: float  # drawn vertices to which a row has an edge
    neighbours: float  # entries of a row of Â
    empty: float  # share of rows with no edge to any drawn vertex


def sampling_statistics(run: Run, graph: Graph, *, own: bool) -> Section:
    """The share of rows without a sampled neighbour, by epoch, and figures of the run's blocks.

    `own`: True if the run was trained on `graph`; only then can its blocks be drawn again.
    """
    config = run.config
    if "sampler" in run.metrics:
        who = f"Blocks came from a sampler of your own, {run.metrics['sampler']}."
        content: list[Content] = [f"{who} {_empty_rows(run)}", *_empty_rows_figure(run), _RECORDED]
    elif not config.neighbor_sampling and not config.layer_samples:
        reason = f"{config.method} uses whole neighbourhoods"
        if config.method == "fastgcn":
            reason = "the only layer is precomputed, and exact"
        content = [f"Nothing was drawn: {reason}."]
    elif not own:
        content = [_empty_rows(run), *_empty_rows_figure(run), _RECORDED]
    else:
        layers = measure_layers(config, graph)
        how = (
            f"{_RECORDED} The table is of {_BATCHES} new batches, drawn by the run's sampler on "
            "its training graph."
        )
        if config.distribution == "optimal" and config.layer_samples:
            how += (
                " They are drawn as before the first epoch, when no rows of the network are known."
            )
        reach = (
            f"On average, {layers[-1].met:.1f} of the {layers[-1].neighbours:.1f} vertices in a "
            "batch node's row of Â are sampled."
        )
        table = _layer_table(config, layers)
        content = [f"{_empty_rows(run)} {reach}", *_empty_rows_figure(run), table, how]
    return Section("sampling", "Sampling", "How much did each row see of its neighbours?", content)


def measure_layers(config: TrainConfig, graph: Graph) -> list[LayerStatistics]:
    """A few batches drawn by the run's sampler on its training graph, layers from the input up."""
    trained = training_graph(graph, config)
    sampler = make_sampler(config, trained.adjacency, trained.csr)
    rng = torch.Generator().manual_seed(config.seed)
    candidates = trained.batch_nodes(graph)
    drawn = []
    for _ in range(_BATCHES):
        order = torch.randperm(len(candidates), generator=rng)[: config.batch_size]
        drawn.append(sampler.sample(candidates[order], rng))
    degrees = np.diff(trained.adjacency.indptr)
    return [_statistics(blocks, degrees) for blocks in zip(*drawn, strict=True)]


def _statistics(blocks: tuple[Block, ...], degrees: IntArray) -> LayerStatistics:
    met = torch.cat([vertices_met(block) for block in blocks]).double()
    rows = torch.cat([block.dst for block in blocks]).numpy()
    return LayerStatistics(
        rows=len(rows) / len(blocks),
        vertices=float(np.mean([len(block.src) for block in blocks])),
        met=float(met.mean()),
        neighbours=float(degrees[rows].mean()),
        empty=float((met == 0).double().mean()),
    )


def vertices_met(block: Block) -> Tensor:
    """(s,) int64: how many distinct vertices of `src` each row of a block has a weight for."""
    entries = block.adj.to_sparse()
    rows, columns = entries.indices()[:, entries.values() != 0]
    # A row may have several entries for a vertex, one for each time it was drawn.
    pairs = torch.unique(rows * block.adj.shape[1] + columns)
    return torch.bincount(pairs // block.adj.shape[1], minlength=len(block.dst))


def _empty_rows(run: Run) -> str:
    if run.config.history:
        return (
            "No row counts as empty: with history, a row without a sampled vertex keeps its "
            "estimate of the last refresh."
        )
    shares = [record["empty_rows"] for record in run.history]
    if not any(shares):
        return "Every batch node had a sampled vertex in its row of Â."
    over = f" (between {min(shares):.1%} and {max(shares):.1%} over the epochs)"
    return (
        f"On average {np.mean(shares):.1%} of the batch nodes had no sampled vertex in their row"
        f"{over if len(shares) > 1 else ''}, and their convolution was estimated as zero."
    )


def _empty_rows_figure(run: Run) -> list[Figure]:
    epochs = [record["epoch"] for record in run.history]
    shares = [100 * record["empty_rows"] for record in run.history]
    if len(shares) == 1 or not any(shares):
        return []
    svg = lines(
        [Series("empty rows", epochs, shares)],
        title="Batch nodes without a sampled vertex in their row of Â",
        description=f"Between {min(shares):.1f}% and {max(shares):.1f}% over {len(epochs)} epochs.",
        x_label="epoch",
        y_label="% of the first batch of the epoch",
        y_range=(0, max(shares)),
    )
    return [Figure(svg, "Share of nodes whose sampled convolution is empty, by epoch.")]


def _layer_table(config: TrainConfig, layers: list[LayerStatistics]) -> Table:
    sizes = config.fanouts if config.neighbor_sampling else config.layer_samples
    drawn = [f"{size:,}{' a row' if config.neighbor_sampling else ''}" for size in sizes]
    first = config.layers - len(layers) + 1
    rows = [
        (
            str(number),
            size,
            f"{layer.rows:,.1f}",
            f"{layer.vertices:,.1f}",
            f"{layer.met:.2f}",
            f"{layer.neighbours:.2f}",
            f"{layer.empty:.1%}",
        )
        for number, (size, layer) in enumerate(zip(drawn, layers, strict=True), start=first)
    ]
    return Table(
        ("layer", "drawn", "rows", "distinct below", "sampled a row", "row of Â", "empty rows"),
        rows,
        "Blocks of the sampled layers, from the input up (means)",
    )


def time_split(run: Run) -> Section:
    """Seconds by purpose."""
    # Runs of earlier versions have not booked compiling, and later ones seldom compile.
    found = {purpose: run.metrics.get(f"{purpose}_seconds", 0.0) for purpose in PURPOSES}
    seconds = {purpose: s for purpose, s in found.items() if s > 0 or purpose != "compiling"}
    total = math.fsum(seconds.values())
    shares = {purpose: value / (total or 1) for purpose, value in seconds.items()}
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
        (purpose, f"{seconds[purpose]:.2f}", f"{shares[purpose]:.1%}", PURPOSES[purpose])
        for purpose in seconds
    ]
    content: list[Content] = [
        f"Of {total:.2f} s, {shares[largest]:.0%} went into {largest}. A batch took "
        f"{run.metrics['seconds_per_batch'] * 1000:.3f} ms (sampling and compute, mean of "
        f"{run.metrics['batches']:,}).",
        Figure(svg, "Wall-clock seconds over the whole run, all its sessions together."),
        Table(("purpose", "seconds", "share", "what it is"), rows, "Time by purpose"),
        f"Measured while training, on {run.metrics['device']}.",
    ]
    return Section("time", "Time", "Where did the time go?", content)


def settings(config: TrainConfig) -> Section:
    """First the settings that differ from the defaults, then all of them."""
    chosen = {name: setting_text(value) for name, value in config.to_dict().items()}
    standard = TrainConfig().complete().to_dict()
    defaults = {name: setting_text(value) for name, value in standard.items()}
    changed = [
        (name, value, defaults[name]) for name, value in chosen.items() if value != defaults[name]
    ]
    content: list[Content] = ["All settings have their default values."]
    if changed:
        caption = "Settings that differ from the defaults"
        content = [Table(("setting", "value", "default"), changed, caption)]
    content.append(Table(("setting", "value"), list(chosen.items()), "All settings"))
    return Section("settings", "Settings", "How was the model trained?", content)


def setting_text(value: Any) -> str:
    """The value of a setting as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def how_to_use(run: Run, graph: Graph) -> Section:
    """Commands and code to paste, with this run's folder and data."""
    content: list[Content] = ["This run is in memory only; train with run_dir= to keep it on disk."]
    if run.path is not None:
        run_and_data = shlex.quote(str(run.path)) + _data_argument(run, graph)
        commands = (
            f"fastgcn evaluate {run_and_data}\n"
            f"fastgcn predict {run_and_data} --out predictions.csv\n"
            f"fastgcn embed {run_and_data} --out rows.parquet"
        )
        content = [
            Code(_python_lines(run, graph), "In Python:"),
            Code(commands, "On the command line:"),
        ]
    return Section("use", "Use", "How is the model loaded and applied?", content)


def _python_lines(run: Run, graph: Graph) -> str:
    load = "graph = ...  # the graph that you made in memory"
    options = dict(graph.source or {})
    if "data" in options:
        arguments = [repr(str(options.pop("data")))]
        arguments += [f"{name}={value!r}" for name, value in options.items()]
        load = f"graph = fastgcn.load({', '.join(arguments)})"
    elif options.pop("split", None) == "random":
        drawn = "".join(f", {name}={value!r}" for name, value in options.items())
        load += f"\ngraph = fastgcn.random_split(graph{drawn})"
    name = "probabilities" if run.model.target is None else "numbers"
    return (
        "import fastgcn\n\n"
        f"run = fastgcn.Run.load({str(run.path)!r})\n"
        f"{load}\n"
        f"{name} = fastgcn.predict(run, graph, nodes=[0, 1, 2])\n"
        "rows = fastgcn.embed(run, graph, nodes=[0, 1, 2])"
    )


def _data_argument(run: Run, graph: Graph) -> str:
    """The data on the command line; empty if the run finds its data itself."""
    source = dict(graph.source or {})
    if "data" not in source:
        return " DATA"
    if run.source is not None and dict(run.source) == source:
        return ""
    text = f" {shlex.quote(str(source['data']))}"
    for option, flag in (("split", "--split"), ("seed", "--split-seed")):
        if option in source:
            text += f" {flag} {shlex.quote(str(source[option]))}"
    return text


def origin(run: Run, graph: Graph, here: str) -> Section:
    """The data, its fingerprint `here`, and the version."""
    same = here == run.fingerprint
    weights = sum(parameter.numel() for parameter in run.model.parameters())
    rows = [
        ("data", graph.name),
        ("nodes", f"{graph.n_nodes:,}"),
        ("edges", f"{graph.n_edges:,} {'directed' if graph.directed else 'undirected'}"),
        ("features", f"{graph.n_features:,}"),
        ("learned", "a number a node")
        if graph.regression
        else ("labels" if graph.multilabel else "classes", f"{graph.n_classes:,}"),
        *((f"{PART_NAMES[name]} nodes", f"{len(part):,}") for name, part in graph.split.items()),
        ("weights of the network", f"{weights:,}"),
        ("fastgcn", __version__),
    ]
    is_it = "is the one that the run was trained on, bit for bit"
    is_not = "or its split, is not the one that the run was trained on"
    content: list[Content] = [
        f"The graph {is_it}." if same else f"The graph, {is_not}.",
        Table(("fact", "value"), rows, "The graph of this report"),
        Code(run.fingerprint, "Fingerprint of the data that the run was trained on:"),
        *([] if same else [Code(here, "Fingerprint of this data:")]),
    ]
    return Section("data", "Data and version", "What was the model trained on?", content)
