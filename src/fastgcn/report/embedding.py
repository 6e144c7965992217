"""A map of the hidden rows: what the network makes of the nodes."""

import numpy as np

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.graph.graph import Graph
from fastgcn.infer.predict import embed
from fastgcn.report.judged import Judged
from fastgcn.report.page import Figure, Section
from fastgcn.report.plots import scatter
from fastgcn.train.run import Run

# More points would hide each other; also bounds the map's size and the time it takes.
_POINTS = 2_000


def embedding_map(run: Run, graph: Graph, judged: Judged) -> Section:
    """The two directions in which the last hidden rows vary most."""
    chosen = _some(len(judged.nodes), run.config.seed)
    layer = max(1, run.config.layers - 1)
    rows = embed(run, graph, judged.nodes[chosen], layer=layer)
    points, share = principal_plane(rows)
    if judged.multilabel:
        category = judged.right[chosen].astype(int)
        names: tuple[str, ...] = ("some label wrong", "all labels right")
        shows = "Nodes are marked by whether all their labels are right."
    else:
        category, names = np.asarray(judged.labels[chosen]), judged.names
        shows = _neighbours_agree(points, category)
    svg = scatter(
        points,
        category,
        names,
        title="The nodes as the network sees them",
        description=f"A map of {len(points):,} nodes. {shows}",
    )
    which = "class scores" if layer == run.config.layers else f"hidden layer {layer}"
    every = f"all {len(points):,} {judged.part} nodes"
    if len(points) < len(judged.nodes):
        every = f"{len(points):,} {judged.part} nodes, drawn at random from {len(judged.nodes):,}"
    return Section(
        "map",
        "Map of the embeddings",
        "Does the network keep the classes apart?",
        [
            f"The plane shows {share:.0%} of the variance of the rows. {shows}",
            Figure(svg, f"{len(points):,} {judged.part} nodes in the plane of most variance."),
            f"Rows of the {which} ({rows.shape[1]} numbers a node) of the full network for {every}"
            ", projected onto their first two principal components. The few points that lie far "
            "out are drawn at the edge.",
        ],
    )


def principal_plane(rows: FloatArray) -> tuple[FloatArray, float]:
    """(k, 2): rows (k, d) in the plane of most variance, and the share of variance it holds."""
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    # An axis may point either way; the largest entry decides, so that the map is always the same.
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    points = np.zeros((len(rows), 2))
    kept = min(2, len(singular))
    points[:, :kept] = (left * singular * signs)[:, :kept]
    total = float((singular**2).sum())
    return points, float((singular[:2] ** 2).sum() / total) if total else 1.0


def _some(count: int, seed: int) -> IntArray:
    if count <= _POINTS:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, _POINTS, replace=False))


def _neighbours_agree(points: FloatArray, category: IntArray) -> str:
    """How often the nearest point on the map is of the same class, and how often by chance."""
    if len(points) < 2:
        return "There is one node only."
    square = (points**2).sum(axis=1)
    distance = square[:, None] + square - 2 * points @ points.T
    np.fill_diagonal(distance, np.inf)
    same = float((category[distance.argmin(axis=1)] == category).mean())
    counts = np.bincount(category)
    chance = float((counts * (counts - 1)).sum() / (len(points) * (len(points) - 1)))
    return (
        f"The nearest point on the map is of the same class for {same:.0%} of the nodes; by "
        f"chance it would be for {chance:.0%}."
    )
