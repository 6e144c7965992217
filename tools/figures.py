"""Draws the pictures of docs/concepts.md: `python -m tools.figures`, a minute.

Cora and Pubmed are loaded, which downloads them if they are not there.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

import fastgcn
from fastgcn import FullSampler, Graph, LayerSampler, NeighborSampler, Sampler
from fastgcn.report.plots import Series, bars, lines
from fastgcn.writing import write_text

OUT = Path(__file__).parents[1] / "docs" / "figures"
BATCH = 256


def generated() -> Graph:
    """20,000 nodes with hubs, in communities."""
    config = fastgcn.GenerateConfig(nodes=20_000, edges=200_000, features=32, classes=8)
    with tempfile.TemporaryDirectory() as folder:
        fastgcn.generate(config, Path(folder) / "graph")
        graph = fastgcn.open_store(Path(folder) / "graph")
        kept = [np.array(each) for each in (graph.indptr, graph.indices, graph.features)]
        return Graph(kept[0], kept[1], None, kept[2])


def computed(sampler: Sampler, graph: Graph) -> int:
    """Rows that a step computes: the nodes of all layers, in the mean of five batches."""
    counts = []
    for seed in range(5):
        rng = torch.Generator().manual_seed(seed)
        batch = torch.randperm(graph.n_nodes, generator=rng)[:BATCH]
        counts.append(BATCH + sum(len(block.src) for block in sampler.sample(batch, rng)))
    return int(np.mean(counts))


def growth(graph: Graph) -> str:
    adjacency, depths = fastgcn.normalize(graph), [1, 2, 3]
    found = {
        "all neighbours": [computed(FullSampler(adjacency, k), graph) for k in depths],
        "GraphSAGE, 10 each": [
            computed(NeighborSampler(graph.csr, [10] * k, include_self=True), graph) for k in depths
        ],
        "FastGCN, 400 a layer": [
            computed(LayerSampler(adjacency, [400] * k), graph) for k in depths
        ],
    }
    return bars(
        [f"{k} layer{'s' if k > 1 else ''}" for k in depths],
        [(name, [float(v) for v in values]) for name, values in found.items()],
        title="Nodes that a step on 256 nodes computes",
        description="; ".join(f"{name}: {values}" for name, values in found.items()) + ".",
        y_label="nodes, in all layers",
    )


def errors(graph: Graph) -> str:
    """The relative error of a sampled convolution of the features, by t."""
    adjacency, sizes = fastgcn.normalize(graph), [50, 100, 200, 400, 800, 1600, 3200]
    dense = graph.features if isinstance(graph.features, np.ndarray) else graph.features.toarray()
    x = torch.from_numpy(np.asarray(dense, np.float32))
    batch = torch.randperm(graph.n_nodes, generator=torch.Generator().manual_seed(0))[:BATCH]
    (whole,) = FullSampler(adjacency, 1).sample(batch, torch.Generator())
    exact = whole.adj @ x[whole.src]
    kinds: list[tuple[str, dict[str, str]]] = [
        ("uniform (Algorithm 1)", {"distribution": "uniform"}),
        ("importance (Algorithm 2)", {}),
        ("LADIES", {"distribution": "ladies"}),
        ("LADIES, stratified", {"distribution": "ladies", "draws": "stratified"}),
    ]
    series = []
    for name, options in kinds:
        line = []
        for t in sizes:
            sampler = LayerSampler(adjacency, [t], **options)  # type: ignore[arg-type]
            squares = []
            for seed in range(40):
                (block,) = sampler.sample(batch, torch.Generator().manual_seed(seed))
                squares.append(float(((block.adj @ x[block.src] - exact) ** 2).sum()))
            line.append(100 * float(np.sqrt(np.mean(squares) / float((exact**2).sum()))))
        series.append(Series(name, sizes, line))
    return lines(
        series,
        title="Error of a sampled convolution",
        description="; ".join(f"{s.label}: {s.y[0]:.0f} to {s.y[-1]:.0f} %" for s in series) + ".",
        x_label="t, vertices drawn",
        y_label="% relative error",
        x_log=True,
        y_log=True,
    )


def inductive() -> str:
    graph = fastgcn.load("cora")
    scores = []
    for seen in (True, False):
        runs = [
            fastgcn.fit(graph, preset="paper", epochs=60, inductive=not seen, seed=seed)
            for seed in range(3)
        ]
        scores.append(float(np.mean([run.metrics["test_micro_f1"] for run in runs])))
    names = ["in the graph while training", "added afterwards (inductive)"]
    return bars(
        names,
        [("accuracy", scores)],
        long_names=True,
        title="Accuracy of Cora's 1,000 test nodes",
        description="; ".join(f"{n}: {s:.3f}" for n, s in zip(names, scores, strict=True))
        + ". Means of three seeds.",
        y_label="accuracy",
    )


if __name__ == "__main__":
    some = generated()
    for name, svg in (
        ("growth", growth(some)),
        ("error", errors(fastgcn.load("pubmed"))),
        ("inductive", inductive()),
    ):
        write_text(OUT / f"concepts-{name}.svg", svg)
