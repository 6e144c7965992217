"""How good predicted numbers are: sections on the scores, the errors, the degrees and the map."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastgcn.arrays import FloatArray
from fastgcn.graph.graph import Graph
from fastgcn.infer.predict import as_trained, embed, evaluate, predict
from fastgcn.metrics import measure
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import against, bars, scatter
from fastgcn.report.quality import (
    EXPLAIN,
    LISTED,
    PART_NAMES,
    Scored,
    degree_bins,
    drawn,
    how_scored,
    labelled_part,
    lowest_and_highest,
    on_nodes,
    own_id,
    principal_plane,
    score_rows,
)
from fastgcn.train.run import Run

# Equal numbers of nodes from small to large targets, whose errors are compared.
_GROUPS = 5
# Bins of the residuals; the outermost have all that lie further out.
_BINS = 9


@dataclass(frozen=True, slots=True)
class Predicted(Scored):
    """Predicted and true numbers (k,) of the labelled nodes (k,) of a part of the split."""

    truth: FloatArray
    found: FloatArray


def evaluate_numbers(run: Run, graph: Graph) -> Predicted:
    """Predict the labelled test nodes, or else the validation nodes, or else the training nodes."""
    graph = as_trained(run, graph)
    part, nodes = labelled_part(graph, PART_NAMES)
    evaluate(run, graph, nodes[:1])  # checks that the network and the graph fit together
    found = predict(run, graph, nodes)
    assert graph.labels is not None
    truth: FloatArray = np.asarray(graph.labels[nodes], np.float64)
    scores = measure(found, truth, run.model.target)
    return Predicted(part, nodes, scores, truth, found)


def headline(run: Run, found: Predicted) -> str:
    """The line under the title."""
    return f"R² {found.scores.r2:.4f} {on_nodes(run, found)}"


def summary(run: Run, found: Predicted) -> Section:
    """The scores of training, and those of this report if they differ."""
    cells = score_rows(run, found, ".5g")
    target = run.model.target
    assert target is not None
    content: list[Content] = [
        _against_the_mean(found, target.mean),
        Table(("nodes", "R²", "MAE", "RMSE", "loss"), cells, "Scores"),
        how_scored(run, found.how)
        + " R² is the share of the variance that is explained; MAE and RMSE, the mean absolute and "
        "the root of the mean squared error, are in the units of the target. The loss is that of "
        f"targets standardised by the training nodes' mean {target.mean:g} and standard deviation "
        f"{target.scale:g}.",
    ]
    if run.stopped is not None:
        content.insert(0, f"This run is not finished: {run.stopped}.")
    return Section("summary", "Summary", "How good is the model?", content)


def _against_the_mean(found: Predicted, mean: float) -> str:
    """The error, compared with always naming the mean of the training nodes."""
    always = float(np.sqrt(np.square(found.truth - mean).mean()))
    return (
        f"The model explains {max(found.scores.r2, 0.0):.1%} of the variance of the "
        f"{found.part_name} nodes' targets. Its predictions are off by {found.scores.rmse:.5g} "
        f"(RMSE); always naming the mean of the training nodes, {mean:g}, would be off by "
        f"{always:.5g}."
    )


def errors(run: Run, graph: Graph, found: Predicted) -> Section:
    """Predicted against true numbers, the residuals, and the errors by size of the target."""
    residuals = found.found - found.truth
    chosen = drawn(len(found.nodes), run.config.seed)
    svg = against(
        found.truth[chosen],
        found.found[chosen],
        title="Predicted against true numbers",
        description=f"R² is {found.scores.r2:.4f}. On the line, a prediction is right.",
        x_label="true",
        y_label="predicted",
        hints=[
            f"{own_id(graph, found.nodes[i])}: true {found.truth[i]:.5g}, "
            f"predicted {found.found[i]:.5g}"
            for i in chosen
        ],
    )
    mean, spread = float(residuals.mean()), float(residuals.std())
    names, shares = _histogram(residuals, found.scores.rmse)
    pictured = bars(
        names,
        [("share of nodes", shares)],
        title="Residuals, in RMSE",
        description="; ".join(f"{n}: {s:.3f}" for n, s in zip(names, shares, strict=True)) + ".",
        y_label="share of nodes",
    )
    content: list[Content] = [
        f"Predictions are {'too high' if mean > 0 else 'too low'} by {abs(mean):.4g} on average; "
        f"the residuals' standard deviation is {spread:.5g}.",
        Figure(svg, f"{len(chosen):,} {found.part_name} nodes; on the line, prediction and truth "
               "are equal."),
        Figure(pictured, "Residuals, predicted minus true, in units of the RMSE: the share of "
               "nodes in each bin."),
        _by_size(found, residuals),
        found.how,
    ]  # fmt: skip
    return Section("errors", "Errors", "Where is the model wrong, and by how much?", content)


def worst_errors(graph: Graph, found: Predicted) -> Section:
    """The predictions that are furthest off, with their ids."""
    residuals = found.found - found.truth
    degrees = np.diff(graph.indptr)[found.nodes]
    order = np.argsort(-np.abs(residuals), kind="stable")[:LISTED]
    rows = [
        (
            own_id(graph, found.nodes[i]),
            f"{found.truth[i]:.5g}",
            f"{found.found[i]:.5g}",
            f"{residuals[i]:+.5g}",
            f"{degrees[i]:,}",
        )
        for i in order
    ]
    content: list[Content] = [
        f"The {len(rows)} largest errors. A target that is wrong in the data is often among them.",
        Table(
            ("node", "true", "predicted", "error", "degree"),
            rows,
            "Errors, the largest first",
            False,
        ),
        EXPLAIN,
    ]
    return Section("worst", "Worst errors", "Which predictions are furthest off?", content)


def _histogram(residuals: FloatArray, unit: float) -> tuple[list[str], list[float]]:
    """The bins of residuals in `unit`s, and the share of the nodes in each."""
    half = _BINS / 2
    place = np.clip(np.floor(residuals / (unit or 1.0) * 2 + half), 0, _BINS - 1).astype(int)
    shares = np.bincount(place, minlength=_BINS) / len(residuals)
    edges = (np.arange(_BINS + 1) - half) / 2
    names = [f"{low:+.2f} to {high:+.2f}" for low, high in pairwise(edges)]
    names[0], names[-1] = f"below {edges[1]:+.2f}", f"above {edges[-2]:+.2f}"
    return names, shares.tolist()


def _by_size(found: Predicted, residuals: FloatArray) -> Table:
    order = np.argsort(found.truth, kind="stable")
    rows = [
        (
            f"{found.truth[some[0]]:.5g} to {found.truth[some[-1]]:.5g}",
            f"{len(some):,}",
            f"{residuals[some].mean():+.4g}",
            f"{np.abs(residuals[some]).mean():.4g}",
        )
        for some in np.array_split(order, min(_GROUPS, len(order)))
    ]
    return Table(("true", "nodes", "mean residual", "MAE"), rows, "Errors by size of the target")


def by_degree(graph: Graph, found: Predicted) -> Section:
    """The mean absolute error in the degree bins 0, 1, 2-3, 4-7, ..."""
    residuals = np.abs(found.found - found.truth)
    names, members = degree_bins(graph, found.nodes)
    scores = [float(residuals[some].mean()) for some in members]
    counts = [int(np.count_nonzero(some)) for some in members]
    svg = bars(
        names,
        [("MAE", scores)],
        title="Mean absolute error by degree",
        description="; ".join(f"{n}: {s:.4g}" for n, s in zip(names, scores, strict=True)) + ".",
        y_label="MAE",
    )
    columns = zip(names, counts, scores, strict=True)
    rows = [(name, f"{count:,}", f"{score:.5g}") for name, count, score in columns]
    content: list[Content] = [
        lowest_and_highest(names, scores, counts, "mean absolute error"),
        Figure(svg, f"Mean absolute error of the {found.part_name} nodes by degree."),
        Table(("degree", "nodes", "MAE"), rows, "Degree bins"),
        f"{found.how} The degree of a node is its number of neighbours in the whole graph; each "
        "bin is twice as wide as the one before.",
    ]
    return Section("degree", "Degree", "Are nodes with few neighbours predicted worse?", content)


def embedding_map(run: Run, graph: Graph, found: Predicted) -> Section:
    """The two directions in which the last hidden rows vary most, by thirds of the target."""
    chosen = drawn(len(found.nodes), run.config.seed)
    layer = max(1, run.config.layers - 1)
    rows = embed(run, graph, found.nodes[chosen], layer=layer)
    points, share = principal_plane(rows)
    cuts = np.quantile(found.truth, [1 / 3, 2 / 3])
    svg = scatter(
        points,
        np.searchsorted(cuts, found.truth[chosen]),
        (f"up to {cuts[0]:.4g}", f"up to {cuts[1]:.4g}", f"above {cuts[1]:.4g}"),
        title="The nodes as the network sees them",
        description=f"A map of {len(points):,} nodes; marks show the thirds of the true numbers.",
        hints=[f"{own_id(graph, found.nodes[i])}: {found.truth[i]:.5g}" for i in chosen],
    )
    content: list[Content] = [
        f"The plane shows {share:.0%} of the variance of the rows. Marks show the thirds of the "
        "true numbers.",
        Figure(svg, f"{len(points):,} {found.part_name} nodes in the plane of most variance."),
        f"Rows of layer {layer} ({rows.shape[1]} numbers a node) of the full network, projected "
        "onto their first two principal components. The few points that lie far out are drawn at "
        "the edge.",
    ]
    return Section(
        "map", "Map of the embeddings", "Does the network keep small and large apart?", content
    )
