"""`explain`: which features and which neighbours made a prediction.

The score that is explained is the log-odds of a class, which does not saturate as its probability
does; of a regression, it is the predicted number. Two questions are answered over the node's
receptive field:

* *Features*, by integrated gradients (Sundararajan et al. 2017): with x the features of all nodes
  of the field and b a baseline, (x - b) times the mean gradient on the line from b to x. Their sum
  is the score less that of the baseline.
* *Neighbours*, by leaving out: the score less that of the same node in the graph without the
  neighbour. This is exact, with the degrees of that graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.backends.exact import check_width
from fastgcn.errors import InputError, nearest
from fastgcn.graph.graph import Graph, own_ids, positions
from fastgcn.infer.field import Inputs, ReceptiveField
from fastgcn.infer.finite import Described, check_rows, check_weights
from fastgcn.infer.predict import check_features, model_of
from fastgcn.model import as_gcn
from fastgcn.network import Network

if TYPE_CHECKING:
    from fastgcn.train.run import Run

# Steps of the integral; the middle of each is taken.
_STEPS = 32

# The effects of features may miss the difference of scores by this share; more is said.
_GAP = 0.1

# Multiplications for leaving out, a few seconds of one core, and the fewest neighbours to try.
_WORK = 4 * 10**9
_FEWEST = 20


@dataclass(frozen=True, slots=True)
class FeatureEffect:
    """What a feature, or a column of your table, adds to the score.

    Attributes:
        name: of the feature; if the graph was imported from tables, of the column.
        value: what the node itself has there.
        effect: the sum over all nodes of the field.
        own: the part of it that comes from the node itself; the rest comes from its neighbours.
    """

    name: str
    value: Any
    effect: float
    own: float


@dataclass(frozen=True, slots=True)
class NeighborEffect:
    """What a node nearby adds to the score by being there.

    Attributes:
        id: your own id of it.
        hops: its distance.
        label: its label in the graph; None if it has none. The network does not read it.
        effect: the score less the score without it.
        change: the output (probability or number) less that without it.
        feature: of its features, the one that adds or takes away most.
    """

    id: Any
    hops: int
    label: str | None
    effect: float
    change: float
    feature: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a network has this output for a node.

    Attributes:
        node: your own id of it.
        prediction: the class that is predicted; with several labels a node, these joined by |; or
            the number.
        target: the class, or label, that is explained; "number" for a regression.
        label: the node's label in the graph; None if it has none.
        output: the probability of `target`, or the number.
        score: its log-odds, or the number.
        baseline: the score if all nodes had average features, or none if these are sparse.
        features: those with the largest effects, either way, the largest first.
        neighbors: the same for nodes nearby.
        field: how many nodes' features the output depends on, the node itself included.
        notes: what was left out.
    """

    node: Any
    prediction: str
    target: str
    label: str | None
    output: float
    score: float
    baseline: float
    features: tuple[FeatureEffect, ...]
    neighbors: tuple[NeighborEffect, ...]
    field: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def explain(
    run_or_model: "Run | Network", graph: Graph, node: Any, *, target: Any = None, top: int = 10
) -> Explanation:
    """Which features and neighbours made the prediction for a node.

    `node` is your own id of it. `target` is the class to explain, by name or number; by default the
    predicted one (for several labels a node, the most probable). `top` bounds the features and the
    neighbours in the result.

    >>> import fastgcn
    >>> graph = fastgcn.load("digits")
    >>> run = fastgcn.fit(graph, epochs=2, samples=50)
    >>> found = fastgcn.explain(run, graph, 7)
    >>> len(found.features), found.neighbors[0].hops
    (10, 1)
    """
    model = as_gcn(model_of(run_or_model), "explain")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise InputError(f"top must be a whole number of at least 1, got {top!r}")
    check_weights(model)
    check_width(model, graph.n_features, f"{graph.name} has")
    check_features(run_or_model, graph)
    (number,) = positions(graph, [str(node)]).tolist()
    field = ReceptiveField(model, graph, number)
    names = names_of_classes(run_or_model)
    inputs, blocks = field.inputs(), field.blocks()
    with torch.no_grad():
        logits = field.logits(blocks, inputs)
    described = Described(graph.features, graph.node_ids)
    asked = field.nodes[:1]
    check_rows(logits.numpy(), asked, described, feature_names=graph.feature_names)
    chances = model.predictions(logits).numpy()
    place = _target(target, names, model, chances)
    score = _score_of(model, place)
    gradients, baseline = _mean_gradients(field, inputs, score)
    columns = Columns.of(graph)
    features, by_node = _feature_effects(field, gradients, columns, top)
    neighbors, notes = _neighbor_effects(field, inputs, gradients, by_node, score, columns, top)
    return Explanation(
        node=own_ids(graph, asked)[0],
        prediction=_predicted(model, chances, names),
        target=names[place],
        label=label_of(graph, number),
        output=float(chances[0, place]),
        score=float(score(logits)),
        baseline=baseline,
        features=features,
        neighbors=neighbors,
        field=len(field.nodes),
        notes=(*_gap(float(score(logits)) - baseline, float(by_node.sum())), *notes),
    )


def _gap(expected: float, total: float) -> tuple[str, ...]:
    """A note if the effects of features are far from adding up, because of a coarse integral."""
    if abs(expected - total) <= _GAP * max(abs(expected), 1.0):
        return ()
    return (
        f"the effects of all features add up to {total:+.3f} instead of {expected:+.3f}: the "
        "network bends sharply between the baseline and this node, so they are rough",
    )


# What a regression explains.
NUMBER = "number"

Score = Callable[[Tensor], Tensor]


def _score_of(model: Network, place: int) -> Score:
    """The log-odds of a class from logits (1, C), a tensor of one number; or the number itself, in
    the user's units."""

    def score(logits: Tensor) -> Tensor:
        if model.target is not None:
            return model.predictions(logits)[0, 0]
        row = logits[0] / model.decision.temperature
        if model.multilabel or len(row) == 1:
            return row[place]
        others = torch.cat([row[:place], row[place + 1 :]])
        return row[place] - others.logsumexp(0)

    return score


def names_of_classes(run_or_model: "Run | Network") -> list[str]:
    if model_of(run_or_model).target is not None:
        return [NUMBER]
    known = None if isinstance(run_or_model, Network) else run_or_model.class_names
    count = model_of(run_or_model).sizes[-1]
    return [str(c) for c in range(count)] if known is None else [str(name) for name in known]


def _target(target: Any, names: list[str], model: Network, chances: FloatArray) -> int:
    """The place of the class to explain among the network's outputs."""
    if model.target is not None:
        if target not in (None, NUMBER):
            raise InputError("the run predicts a number and has no classes; leave target out")
        return 0
    if target is None:
        row = chances[0]
        return int(row.argmax() if model.multilabel else model.decision.classes(chances)[0])
    if str(target) in names:
        return names.index(str(target))
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(names):
        return target
    raise InputError(
        f"the run has no class {str(target)!r}{nearest(str(target), names)}; it has "
        f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"
    )


def _predicted(model: Network, chances: FloatArray, names: list[str]) -> str:
    if model.target is not None:
        return f"{chances[0, 0]:.6g}"
    if model.multilabel:
        return "|".join(name for name, p in zip(names, chances[0], strict=True) if p > 0.5)
    return names[int(model.decision.classes(chances)[0])]


def label_of(graph: Graph, node: int) -> str | None:
    """A node's label by name; several joined by |."""
    if graph.labels is None:
        return None
    value: Any = graph.labels[node]
    if np.ndim(value):
        return "|".join(_name(graph.class_names, int(c)) for c in np.flatnonzero(value))
    if np.asarray(value).dtype.kind == "f":
        return None if np.isnan(value) else f"{float(value):g}"
    return None if value < 0 else _name(graph.class_names, int(value))


def _name(names: Sequence[str] | None, number: int) -> str:
    return str(number) if names is None else str(names[number])


def _mean_gradients(field: ReceptiveField, inputs: Inputs, score: Score) -> tuple[Inputs, float]:
    """The mean gradient of the score by XW and XR, from the baseline to the inputs; and the score
    of the baseline."""
    blocks, start = field.blocks(), field.average_inputs()
    ends = [each for each in inputs if each is not None]
    starts = [each for each in start if each is not None]
    means = [torch.zeros_like(each) for each in ends]
    for step in range(_STEPS):
        share = (step + 0.5) / _STEPS
        at = [torch.lerp(a, b, share).requires_grad_() for a, b in zip(starts, ends, strict=True)]
        found = score(field.logits(blocks, (at[0], at[1] if len(at) > 1 else None)))
        slopes = torch.autograd.grad(found, at) if found.requires_grad else means
        for mean, slope in zip(means, slopes, strict=True):
            mean.add_(slope, alpha=1 / _STEPS)
    with torch.no_grad():
        baseline = float(score(field.logits(blocks, start)))
    return (means[0], means[1] if len(means) > 1 else None), baseline


@dataclass(frozen=True, slots=True)
class Columns:
    """Features by name: single ones, or those that a column of the user's table became.

    Attributes:
        names: of the features or columns.
        starts: (k,) the first feature of each.
        encoders: of the first columns, if the graph was imported from tables.
    """

    names: list[str]
    starts: IntArray
    encoders: list[dict[str, Any]]

    @classmethod
    def of(cls, graph: Graph) -> "Columns":
        width = graph.n_features
        known = graph.feature_names
        names = [f"feature {i}" for i in range(width)] if known is None else list(map(str, known))
        encoders = (graph.imported or {}).get("encoders") or []
        if not encoders:
            return cls(names, np.arange(width), [])
        from fastgcn.data.tables.encoders import feature_names  # loads Arrow

        widths = [len(feature_names(spec)) for spec in encoders]
        kept = [spec for spec, count in zip(encoders, widths, strict=True) if count]
        ends = np.cumsum([count for count in widths if count])
        used = int(ends[-1]) if len(ends) else 0
        if used > width:  # the encoders are not those of these features
            return cls(names, np.arange(width), [])
        starts = [0, *ends.tolist()][: len(kept)]
        titles = [spec["column"] for spec in kept] + names[used:]  # those of the edges' structure
        return cls(titles, np.array([*starts, *range(used, width)], np.int64), kept)

    def sums(self, effects: FloatArray) -> FloatArray:
        """(..., k): the sum over the features of each column, of (..., F)."""
        found: FloatArray = np.add.reduceat(effects, self.starts, axis=-1)
        return found

    def value(self, place: int, row: FloatArray) -> Any:
        """What a row (F,) of the graph's features has in a column, as it was in the table."""
        first = int(self.starts[place])
        if place >= len(self.encoders):
            return float(row[first])
        from fastgcn.data.tables.encoders import feature_names, shown_value  # loads Arrow

        spec = self.encoders[place]
        return shown_value(spec, row[first : first + len(feature_names(spec))])


def _feature_effects(
    field: ReceptiveField, gradients: Inputs, columns: Columns, top: int
) -> tuple[tuple[FeatureEffect, ...], FloatArray]:
    """The features with the largest effects; and (k,) the sum of the effects of each node's."""
    own: FloatArray = np.zeros(field.features.width)
    near: FloatArray = np.zeros(field.features.width)
    by_node = np.empty(len(field.nodes))
    for places, effects in field.attributions(gradients):
        by_node[places] = effects.sum(axis=1)
        if places[0] == 0:
            own += effects[0]
            near -= effects[0]
        near += effects.sum(axis=0, dtype=np.float64)
    own, near = columns.sums(own), columns.sums(near)
    row = field.graph.features[field.nodes[:1]]
    values: AnyArray = np.asarray(row.toarray() if hasattr(row, "toarray") else row)[0]
    order = np.argsort(-(np.abs(own) + np.abs(near)), kind="stable")[:top].tolist()
    found = tuple(
        FeatureEffect(
            columns.names[i], columns.value(i, values), float(own[i] + near[i]), float(own[i])
        )
        for i in order
    )
    return found, by_node


def _neighbor_effects(
    field: ReceptiveField,
    inputs: Inputs,
    gradients: Inputs,
    by_node: FloatArray,
    score: Score,
    columns: Columns,
    top: int,
) -> tuple[tuple[NeighborEffect, ...], tuple[str, ...]]:
    """The neighbours with the largest effects, each left out in turn; and what was not tried."""
    count = len(field.nodes) - 1
    each = max(field.entries * field.model.sizes[1], 1)
    tried = 1 + np.argsort(-np.abs(by_node[1:]), kind="stable")
    tried = tried[: max(_FEWEST, _WORK // each)]
    without = [None, *tried.tolist()]
    with torch.no_grad():
        logits = (field.logits(field.blocks(without=place), inputs) for place in without)
        scores = np.array([float(score(found)) for found in logits])
    outputs = expit(scores) if field.model.target is None else scores
    effects, changes = scores[0] - scores[1:], outputs[0] - outputs[1:]
    shown = np.argsort(-np.abs(effects), kind="stable")[:top]
    places = tried[shown]
    causes = np.empty(len(places), np.int64)
    done = 0
    for some, found in field.attributions(gradients, places):
        causes[done : done + len(some)] = np.abs(columns.sums(found)).argmax(axis=1)
        done += len(some)
    ids = own_ids(field.graph, field.nodes[places])
    neighbors = tuple(
        NeighborEffect(
            id=own,
            hops=int(field.hops[place]),
            label=label_of(field.graph, int(field.nodes[place])),
            effect=float(effects[i]),
            change=float(changes[i]),
            feature=columns.names[cause],
        )
        for own, place, i, cause in zip(ids, places, shown, causes, strict=True)
    )
    if len(tried) == count:
        return neighbors, ()
    note = (
        f"{len(tried):,} of the {count:,} nodes within {field.depth} hops were left out in turn: "
        "those whose features add or take away most; the others may matter too"
    )
    return neighbors, (note,)
