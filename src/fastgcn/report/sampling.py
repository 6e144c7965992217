"""What sampling did: how much of its neighbourhood a row gets to see."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fastgcn.backends.data import training_graph
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import Series, lines
from fastgcn.report.plots.axes import fit_range
from fastgcn.sampling import Block
from fastgcn.sampling.choose import make_sampler
from fastgcn.train.run import Run

_BATCHES = 10
_RECORDED = "The shares by epoch were recorded in training, in the first batch of each epoch."


@dataclass(frozen=True, slots=True)
class LayerStatistics:
    """Means over blocks of one sampled layer, the rows of all of them taken together."""

    rows: float  # rows of a block
    vertices: float  # distinct vertices below that some row meets
    met: float  # vertices a row meets
    neighbours: float  # entries of a row of Â
    empty: float  # share of rows that meet none


def sampling_statistics(run: Run, graph: Graph, *, own: bool) -> Section:
    """Rows that met no sampled vertex, by epoch, and what blocks of this run look like.

    `own`: whether `graph` is the one that the run was trained on; no other can say how it drew.
    """
    config = run.config
    content: list[Content]
    if "sampler" in run.metrics:
        who = f"Blocks came from a sampler of your own, {run.metrics['sampler']}."
        content = [f"{who} {_course(run)}", *_figures(run), _RECORDED]
    elif not config.neighbor_sampling and not config.layer_samples:
        content = [f"Nothing was drawn: {_no_draws(config)}."]
    elif not own:
        content = [_course(run), *_figures(run), _RECORDED]
    else:
        layers = measure_layers(config, graph)
        content = [
            f"{_course(run)} {_reach(layers[-1])}",
            *_figures(run),
            _table(config, layers),
            f"{_RECORDED} {_how(config)}",
        ]
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
    return [
        _layer([blocks[layer] for blocks in drawn], np.diff(trained.adjacency.indptr))
        for layer in range(len(drawn[0]))
    ]


def _layer(
    blocks: list[Block], entries: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> LayerStatistics:
    met = torch.cat([vertices_met(block) for block in blocks]).double()
    rows = torch.cat([block.dst for block in blocks]).numpy()
    return LayerStatistics(
        rows=len(rows) / len(blocks),
        vertices=float(np.mean([len(block.src) for block in blocks])),
        met=float(met.mean()),
        neighbours=float(entries[rows].mean()),
        empty=float((met == 0).double().mean()),
    )


def vertices_met(block: Block) -> Tensor:
    """(s,) int64: how many distinct vertices of `src` each row of a block has a weight for."""
    entries = block.adj.to_sparse()
    rows, columns = entries.indices()[:, entries.values() != 0]
    # A vertex may have several entries in a row, one for each time that it was drawn for it.
    pairs = torch.unique(rows * block.adj.shape[1] + columns)
    return torch.bincount(pairs // block.adj.shape[1], minlength=len(block.dst))


def _no_draws(config: TrainConfig) -> str:
    if config.method == "fastgcn":
        return "the only layer is precomputed, and exact"
    return f"{config.method} uses whole neighbourhoods"


def _course(run: Run) -> str:
    if run.config.history:
        return (
            "No row counts as empty: with history, one that meets no sampled vertex is estimated "
            "as it was at the last refresh."
        )
    shares = [record["empty_rows"] for record in run.history]
    if not any(shares):
        return "Every batch node met a sampled vertex."
    over = (
        f" (between {min(shares):.1%} and {max(shares):.1%} over the epochs)"
        if len(shares) > 1
        else ""
    )
    return (
        f"On average {np.mean(shares):.1%} of the batch nodes met no sampled vertex{over}, and "
        "their convolution was estimated as zero."
    )


def _reach(top: LayerStatistics) -> str:
    return (
        f"A batch node meets {top.met:.1f} sampled vertices on average, of {top.neighbours:.1f} "
        "that its row of Â has."
    )


def _figures(run: Run) -> list[Content]:
    epochs = [record["epoch"] for record in run.history]
    shares = [100 * record["empty_rows"] for record in run.history]
    if len(shares) == 1 or not any(shares):
        return []
    svg = lines(
        [Series("empty rows", epochs, shares)],
        title="Batch nodes that met no sampled vertex",
        description=f"Between {min(shares):.1f}% and {max(shares):.1f}% over {len(epochs)} epochs.",
        x_label="epoch",
        y_label="% of the first batch of the epoch",
        y_range=fit_range([0, *shares], log=False, name="y"),
    )
    return [Figure(svg, "Share of nodes whose sampled convolution is empty, by epoch.")]


def _table(config: TrainConfig, layers: list[LayerStatistics]) -> Table:
    sizes = config.fanouts if config.neighbor_sampling else config.layer_samples
    first = config.layers - len(layers) + 1
    rows = [
        (
            str(first + i),
            f"{size:,} a row" if config.neighbor_sampling else f"{size:,}",
            f"{layer.rows:,.1f}",
            f"{layer.vertices:,.1f}",
            f"{layer.met:.2f}",
            f"{layer.neighbours:.2f}",
            f"{layer.empty:.1%}",
        )
        for i, (size, layer) in enumerate(zip(sizes, layers, strict=True))
    ]
    return Table(
        ("layer", "drawn", "rows", "distinct below", "met by a row", "row of Â", "empty rows"),
        rows,
        "Blocks of the sampled layers, from the input up (means)",
    )


def _how(config: TrainConfig) -> str:
    text = (
        f"The table is of {_BATCHES} batches drawn anew by the run's sampler on its training graph."
    )
    if config.distribution == "optimal" and config.layer_samples:
        text += " Those are drawn as before the first epoch, when the network's rows are not known."
    return text
