"""Inductive training reads nothing of a node outside the training part: no feature, label, edge."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from fastgcn import Graph, Split, fit, subgraph
from fastgcn.backends.cpu import ready
from fastgcn.machine import thread_count
from tests.communities import communities, quick, weights_of, with_only_training

SETTINGS: list[dict[str, Any]] = [
    {},
    {"precompute": False},
    {"hidden": (), "samples": 20},
    {"hidden": (8, 8), "samples": (15, 20), "dropout": 0.3, "bias": True},
    {"feature_scaling": "row", "normalization": "row"},
    {"feature_scaling": "standard", "precompute": False},
    {"distribution": "optimal", "precompute": False},
    {"distribution": "flat", "draws": "successive", "neighbors_only": True},
    {"class_weight": "balanced", "weight_decay_on": "all", "drop_last": True},
]
KINDS: list[dict[str, Any]] = [
    {},
    {"sparse": True},
    {"directed": True, "weighted": True},
    {"multilabel": True, "weighted": True},
]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Products of a few rows are not worth the threads, least of all on a busy machine."""
    with thread_count(1):
        yield


def poisoned(graph: Graph) -> Graph:
    """Outside the training part: NaN features, other labels, other edges (also to training)."""
    rng = np.random.default_rng(1)
    inside = np.zeros(graph.n_nodes, dtype=bool)
    inside[graph.split.train] = True
    old = graph.to_scipy().tocoo()
    kept = inside[old.row] & inside[old.col]
    source, target = rng.integers(graph.n_nodes, size=(2, 300))
    new = ~(inside[source] & inside[target])
    weights = None
    if graph.weights is not None:
        weights = np.concatenate([old.data[kept], rng.integers(1, 9, np.count_nonzero(new))])
    rewired = Graph.from_edges(
        np.concatenate([old.row[kept], source[new]]),
        np.concatenate([old.col[kept], target[new]]),
        weights=weights,
        directed=bool(graph.directed),
        features=np.zeros((graph.n_nodes, 1)),
    )
    features: Any = graph.features
    dense = features.toarray() if isinstance(features, csr_array) else features.copy()
    dense[~inside] = np.nan
    assert graph.labels is not None
    labels: Any = graph.labels.copy()
    labels[~inside] = ~labels[~inside] if graph.multilabel else (labels[~inside] + 1) % 3
    return Graph.trusted(
        indptr=rewired.indptr,
        indices=rewired.indices,
        weights=rewired.weights,
        features=csr_array(dense) if isinstance(features, csr_array) else dense,
        labels=labels,
        split=graph.split,
        class_names=graph.class_names,
        directed=graph.directed,
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_as_if_trained_on_the_training_nodes_alone(
    kind: dict[str, Any], settings: dict[str, Any]
) -> None:
    graph = communities(**kind)
    alone = fit(subgraph(graph, graph.split.train), quick(**settings))
    within = fit(with_only_training(poisoned(graph)), quick(**settings))
    assert weights_of(within.model) == weights_of(alone.model)
    assert np.isfinite([record["train_loss"] for record in within.history]).all()


@pytest.mark.parametrize("evaluation_graph", ["all", "joined"])
def test_validation_reads_the_poison_and_training_still_does_not(evaluation_graph: str) -> None:
    graph, settings = communities(), quick(evaluation_graph=evaluation_graph)
    alone = ready(subgraph(graph, graph.split.train), settings)
    within = ready(poisoned(graph), settings)
    for epoch in range(3):
        alone.train_epoch(epoch)
        within.train_epoch(epoch)
        scores = within.evaluate("val")
        assert scores is not None
        assert np.isnan(scores.loss), "validation must have met the poison"
    assert weights_of(within.model) == weights_of(alone.model)


def test_training_nodes_in_any_order() -> None:
    graph = communities()
    shuffled = graph.with_split(
        Split(train=np.random.default_rng(0).permutation(graph.split.train))
    )
    alone = fit(subgraph(shuffled, shuffled.split.train), quick())
    assert weights_of(fit(poisoned(shuffled), quick()).model) == weights_of(alone.model)


def test_transductive_training_sees_every_node() -> None:
    graph, settings = communities(), quick(inductive=False)
    trainer = ready(graph, settings)
    assert trainer.data.adjacency.n == graph.n_nodes
    np.testing.assert_array_equal(trainer.data.batch_nodes, graph.split.train)
    features: Any = np.array(graph.features)
    features[graph.split.test] += 1
    other = replace(graph, features=features)
    assert weights_of(fit(other, settings).model) != weights_of(fit(graph, settings).model)
    assert weights_of(fit(other, quick()).model) == weights_of(fit(graph, quick()).model)
