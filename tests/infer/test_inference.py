"""Full inference is a dense textbook GCN; sampled inference comes close to it."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import fastgcn.backends.exact
import fastgcn.infer.predict
from fastgcn import (
    GCN,
    Graph,
    embed,
    evaluate,
    fit,
    load,
    paper_cora,
    predict,
)
from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.exact import full_forward
from fastgcn.errors import InputError
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.adjacency import NormalizedRows
from fastgcn.graph.edges import GraphEdges, Rows
from fastgcn.machine import thread_count
from fastgcn.model import as_gcn
from tests.communities import communities, quick
from tests.strategies import dense_adjacency, graphs, split_of


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Products of a few rows are not worth the threads, least of all on a busy machine."""
    with thread_count(1):
        yield


def textbook(model: GCN, graph: Graph) -> list[FloatArray]:
    """H^(0), ..., H^(M) of all nodes: eq. 1 with dense matrices in float64."""
    a = dense_adjacency(graph)
    if model.normalization != "neighbors":
        a = a + np.eye(graph.n_nodes)
    d = np.where(a.any(axis=1), a.sum(axis=1), 1)
    rows_only = model.normalization != "symmetric"
    adjacency = a / d[:, None] if rows_only else a / np.sqrt(np.outer(d, d))
    features: Any = graph.features
    h = np.asarray(features.toarray() if isinstance(features, csr_array) else features, np.float64)
    if model.feature_scaling == "row":
        sums = np.abs(h).sum(axis=1, keepdims=True)
        h = h / np.where(sums > 0, sums, 1)
    layers: list[FloatArray] = [h]
    for number, layer in enumerate(model.convolutions, start=1):
        h = adjacency @ h @ layer.weight.detach().numpy().astype(np.float64)
        if layer.bias is not None:
            h = h + layer.bias.detach().numpy()
        if number < len(model.layers):
            h = np.maximum(h, 0)
        layers.append(h)
    return layers


def softmax(logits: FloatArray) -> FloatArray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def sigmoid(logits: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-logits)))


def assert_close(got: FloatArray, expected: FloatArray) -> None:
    """Equal to what float32 can hold after a few products."""
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@st.composite
def networks(draw: st.DrawFn, width: int = 3) -> GCN:
    """Networks of one to three layers that widen or narrow, with weights of any sign."""
    model = GCN(
        [width, *draw(st.lists(st.integers(1, 6), max_size=2)), draw(st.integers(2, 4))],
        bias=draw(st.booleans()),
        dropout=0.5,  # must not matter
        multilabel=draw(st.booleans()),
        normalization=draw(st.sampled_from(["symmetric", "row", "neighbors"])),
        feature_scaling=draw(st.sampled_from(["none", "row"])),
        rng=torch.Generator().manual_seed(draw(st.integers(0, 99))),
    )
    for layer in model.convolutions:
        if layer.bias is not None:
            torch.nn.init.uniform_(
                layer.bias, -1, 1, generator=torch.Generator().manual_seed(len(layer.bias))
            )
    return model


def node_lists(graph: Graph) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, graph.n_nodes - 1), min_size=1, max_size=10)


@settings(max_examples=80, deadline=None)
@given(graphs(), networks(), st.booleans(), st.sampled_from([1, 3, 1 << 14]), st.data())
def test_full_inference_is_the_textbook_network(
    graph: Graph, model: GCN, sparse: bool, chunk: int, data: st.DataObject
) -> None:
    if sparse:
        graph = Graph.trusted(
            indptr=graph.indptr,
            indices=graph.indices,
            weights=graph.weights,
            features=csr_array(graph.features),
            directed=graph.directed,
        )
    expected = textbook(model, graph)
    depth = len(model.layers)
    nodes = data.draw(node_lists(graph), label="nodes")
    layer = data.draw(st.integers(-depth, depth), label="layer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastgcn.backends.exact, "_NODES_AT_ONCE", chunk)
        patch.setattr(fastgcn.backends.exact, "_ROWS_AT_ONCE", chunk)
        probabilities = predict(model, graph, nodes)
        everyone = predict(model, graph)
        hidden = embed(model, graph, nodes, layer=layer)
    squash = sigmoid if model.multilabel else softmax
    assert_close(probabilities, squash(expected[-1])[nodes])
    assert_close(everyone, squash(expected[-1]))
    assert_close(hidden, expected[layer % depth if layer < 0 else layer][nodes])


def test_the_default_embedding_is_the_last_hidden_layer() -> None:
    graph, model = communities(), GCN([6, 5, 4, 3])
    np.testing.assert_array_equal(embed(model, graph), embed(model, graph, layer=2))
    assert embed(model, graph).shape == (60, 4)


class CountingFeatures(NodeFeatures):
    def __init__(self, features: FloatArray) -> None:
        super().__init__(features)
        self.read = set[int]()

    def take(self, ids: IntArray) -> torch.Tensor:
        self.read |= set(ids.tolist())
        return super().take(ids)


class Counting:
    """Rows of Â and of X that remember which of them were asked for."""

    def __init__(self, graph: Graph, features: FloatArray) -> None:
        self.source, self.asked = NormalizedRows(GraphEdges(graph.csr), "symmetric"), set[int]()
        self.features = CountingFeatures(features)

    @property
    def n(self) -> int:
        return self.source.n

    def rows(self, nodes: IntArray) -> Rows:
        self.asked |= set(nodes.tolist())
        return self.source.rows(nodes)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_only_what_the_nodes_need_is_computed(layers: int) -> None:
    """On a path 0-1-...-19, M layers need rows up to M-1 hops and features up to M hops away."""
    path = Graph.from_edges(range(19), range(1, 20), features=np.ones((20, 2)))
    model = GCN([2, *[3] * (layers - 1), 2])
    features = np.full((20, 2), np.nan, dtype=np.float32)
    features[10 - layers : 10 + layers + 1] = 1
    counting = Counting(path, features)
    got = full_forward(model, counting, counting.features, np.array([10]))
    assert torch.isfinite(got).all()
    assert counting.asked == set(range(10 - layers + 1, 10 + layers))
    assert counting.features.read == set(range(10 - layers, 10 + layers + 1))
    features[10 - layers] = np.nan
    poisoned = full_forward(model, counting, counting.features, np.array([10]))
    assert torch.isnan(poisoned).all(), "the features M hops away must be read"


def test_a_network_is_left_in_the_mode_it_was_in() -> None:
    graph, model = communities(), GCN([6, 4, 3], dropout=0.9)
    for training, samples in itertools.product([True, False], [None, 20]):
        model.train(training)
        first = predict(model, graph, samples=samples)
        assert model.training is training
        np.testing.assert_array_equal(predict(model, graph, samples=samples), first)


def test_evaluate_ignores_nodes_without_a_label() -> None:
    graph = communities()
    assert graph.labels is not None
    labels = graph.labels.copy()
    labels[graph.split.test[::2]] = -1
    partly = communities(labels=labels)
    model = GCN([6, 4, 3])
    got = evaluate(model, partly, "test")
    assert got == evaluate(model, graph, graph.split.test[1::2])
    assert got.n_nodes == len(graph.split.test) // 2
    right = predict(model, graph, graph.split.test[1::2]).argmax(axis=1)
    assert got.accuracy == np.mean(right == graph.labels[graph.split.test[1::2]])


@pytest.mark.parametrize("distribution", ["importance", "uniform", "flat"])
def test_many_samples_come_close_to_the_full_network(distribution: Any) -> None:
    """Both layers from 30,000 draws: errors of a few percent; 20 draws miss by far more."""
    graph = communities()
    config = quick(distribution=distribution, batch_size=256, epochs=5)
    run = fit(graph, config)
    full = predict(run, graph)
    close = predict(run, graph, samples=30_000)
    assert np.abs(close - full).max() < 0.05
    assert np.abs(predict(run, graph, samples=20) - full).max() > 0.1


def test_all_vertices_without_replacement_are_the_full_network() -> None:
    graph = communities()
    run = fit(graph, quick(draws="successive", batch_size=256, epochs=2))
    np.testing.assert_allclose(
        predict(run, graph, samples=60), predict(run, graph), rtol=1e-4, atol=1e-6
    )


def test_sampled_prediction_is_decided_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, model = communities(), GCN([6, 4, 3])
    monkeypatch.setattr(fastgcn.infer.predict, "_SAMPLED_AT_ONCE", 7)
    first = predict(model, graph, [5, 1, 5], samples=(10, 20), seed=3)
    assert first.shape == (3, 3)
    sizes: Any = np.array([10, 20])
    again = predict(model, graph, [5, 1, 5], samples=sizes, seed=3)
    np.testing.assert_array_equal(again, first)
    assert not np.array_equal(predict(model, graph, [5, 1, 5], samples=(10, 20), seed=4), first)


def test_node_ids_may_be_read_only() -> None:
    """Those of a store are."""
    graph, model = communities(), GCN([6, 4, 3])
    nodes = np.array([3, 4])
    nodes.flags.writeable = False
    assert predict(model, graph, nodes, samples=10).shape == (2, 3)
    assert predict(model, graph, nodes).shape == (2, 3)


GRAPH, MULTI, MODEL = communities(), communities(multilabel=True), GCN([6, 4, 3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict(MODEL, GRAPH, []), "nodes must name at least one node, got none"),
        (lambda: predict(MODEL, GRAPH, [60]), "nodes must lie in 0..59 for a graph of 60 nodes"),
        (lambda: predict(MODEL, GRAPH, [-1]), "nodes must lie in 0..59"),
        (
            lambda: predict(MODEL, GRAPH, ["a"]),
            "nodes must be numbers 0, 1, ...; give your own ids as ids=[...]",
        ),
        (lambda: predict(MODEL, GRAPH, [0.5]), "nodes must be integers"),
        (lambda: predict(MODEL, GRAPH, samples=0), "samples must be at least 1, got 0"),
        (lambda: predict(MODEL, GRAPH, samples=[5]), "samples must be one number or 2"),
        (lambda: predict(MODEL, GRAPH, samples="many"), "samples must be integers"),  # type: ignore[arg-type]
        (lambda: embed(MODEL, GRAPH, layer=3), "layer must lie in -2..2 for this network, got 3"),
        (lambda: embed(MODEL, GRAPH, layer=-3), "layer must lie in -2..2 for this network, got -3"),
        (
            lambda: predict(GCN([5, 3]), GRAPH),
            "the model was trained on 5 features, communities has 6",
        ),
        (
            lambda: embed(GCN([5, 3]), GRAPH),
            "the model was trained on 5 features, communities has 6",
        ),
        (
            lambda: evaluate(GCN([6, 2]), GRAPH, "test"),
            "the model knows 2 classes, communities has 3",
        ),
        (
            lambda: evaluate(GCN([6, 4], multilabel=True), MULTI, "test"),
            "the model knows 4 classes, communities has 3",
        ),
        (
            lambda: evaluate(MODEL, MULTI, "test"),
            "the model predicts one class per node, communities has several labels per node",
        ),
        (
            lambda: evaluate(MODEL, GRAPH, "tset"),
            "nodes must be ids or one of train, val, test, got 'tset'; did you mean 'test'?",
        ),
        (
            lambda: evaluate(MODEL, GRAPH.with_split(split_of()), "test"),
            "the test part of communities's split is empty",
        ),
        (
            lambda: evaluate(MODEL, communities(labels=None, split=split_of()), [0]),
            "communities has no labels to evaluate against",
        ),
        (
            lambda: evaluate(MODEL, communities(labels=np.full(60, -1), split=split_of()), [0, 1]),
            "there is no labelled node among those to evaluate",
        ),
    ],
)
def test_what_cannot_be_asked(call: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        call()
    assert message in str(refused.value)


def test_fewer_classes_than_the_network_knows_can_be_evaluated() -> None:
    assert evaluate(GCN([6, 5]), communities(class_names=None), "test").support[3:] == (0, 0)


def test_features_are_compared_where_both_sides_name_them() -> None:
    names = [f"f{i}" for i in range(6)]
    run = fit(communities(feature_names=names), quick(epochs=1))
    for apply in (predict, embed, lambda run, graph: evaluate(run, graph, "test")):
        apply(run, communities(feature_names=names))
        apply(run, communities())
        apply(run.model, communities(feature_names=names[::-1]))
        apply(fit(communities(), quick(epochs=1)), communities(feature_names=names))
        with pytest.raises(InputError) as refused:
            apply(run, communities(feature_names=["f0", "f2", "f1", "f3", "f4", "f5"]))
        assert str(refused.value) == (
            "the run's features are not those of communities: "
            "feature 1 is 'f1' in the run and 'f2' in the graph"
        )


def test_cora(real_data: Any) -> None:
    """Real sparse features: a short run gets well above chance and predicts as the textbook."""
    graph = load(real_data / "planetoid", name="cora", split="full")
    run = fit(graph, paper_cora().replace(epochs=15, threads=1))
    assert run.metrics["test_micro_f1"] > 0.75
    expected = softmax(textbook(as_gcn(run.model), graph)[-1] / run.model.decision.temperature)
    nodes = graph.split.test[::-7]
    np.testing.assert_allclose(predict(run, graph, nodes), expected[nodes], rtol=1e-3, atol=1e-5)
