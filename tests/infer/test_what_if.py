"""`what_if`: the same as a prediction on a graph that really has the changes."""

from typing import Any

import numpy as np
import pytest

from fastgcn import Graph, fit, predict
from fastgcn.errors import InputError
from fastgcn.infer.what_if import what_if
from fastgcn.progress import collected_notes
from tests.communities import communities, quick
from tests.customers import customers


@pytest.mark.parametrize("kind", ["plain", "weighted", "directed", "sparse"])
@pytest.mark.parametrize("normalization", ["symmetric", "neighbors"])
def test_equals_a_prediction_on_the_changed_graph(kind: str, normalization: str) -> None:
    graph = communities(**({} if kind == "plain" else {kind: True}))
    run = fit(graph, quick(epochs=1, normalization=normalization))
    near = graph.indices[graph.indptr[4] : graph.indptr[5]]
    gone, new = int(near[0]), int(np.setdiff1d(np.arange(5, 60), near)[0])
    found = what_if(run, graph, 4, features={"2": 3.5}, add=[new], remove=[gone], weight=2.0)
    matrix = graph.to_scipy().tolil()
    stored: Any = graph.features
    features = stored.toarray() if kind == "sparse" else stored.copy()
    features[4, 2] = 3.5
    for a, b in ((4, gone), (gone, 4)):
        if not (graph.directed and a == gone):
            matrix[a, b] = 0
    for a, b in ((4, new), (new, 4)):
        if not (graph.directed and a == new):
            matrix[a, b] = 2.0 if graph.weights is not None else 1.0
    other = Graph.from_scipy(
        matrix.tocsr(), features=features, directed=graph.directed, labels=graph.labels,
        class_names=graph.class_names,
    )  # fmt: skip
    if graph.weights is None:
        other = Graph(
            indptr=other.indptr, indices=other.indices, weights=None, features=other.features,
            labels=graph.labels, class_names=graph.class_names, directed=graph.directed,
        )  # fmt: skip
    np.testing.assert_allclose(found, predict(run, other, [4]), rtol=1e-5, atol=1e-6)
    assert np.abs(found - predict(run, graph, [4])).max() > 1e-4


def test_columns_of_tables_and_degrees_change() -> None:
    bank = customers(200, 800)
    options: dict[str, Any] = {
        "id": "customer", "label": "status", "source": "payer", "target": "payee",
    }  # fmt: skip
    graph = Graph.from_tables(bank.nodes, bank.edges, **options)
    run = fit(graph, quick(epochs=1))
    place = list(graph.feature_names or ()).index("degree")
    own, other = "C0000003", "C0000100"
    found = what_if(run, graph, own, features={"age": 80, "segment": "private"}, add=[other])
    features = np.array(graph.features)
    names = list(graph.feature_names or ())
    features[3, [i for i, name in enumerate(names) if name.startswith("segment=")]] = 0
    features[3, names.index("segment=private")] = 1
    for node in (3, 100):
        features[node, place] = np.log1p(np.diff(graph.indptr)[node] + 1)
    spec = next(s for s in (graph.imported or {})["encoders"] if s["column"] == "age")
    features[3, names.index("age")] = (80 - spec["mean"]) / spec["deviation"]
    matrix = graph.to_scipy().tolil()
    matrix[3, 100] = matrix[100, 3] = 1
    csr = matrix.tocsr()
    changed = Graph(
        indptr=csr.indptr.astype(np.int64), indices=csr.indices, weights=None, features=features,
        feature_names=graph.feature_names, labels=graph.labels, class_names=graph.class_names,
    )  # fmt: skip
    np.testing.assert_allclose(found, predict(run, changed, [3]), rtol=1e-5, atol=1e-6)
    with collected_notes() as notes:
        what_if(run, graph, own, features={"segment": "royal"})
    assert notes == ["Note: no training node has this value of 'segment'; it counts as unknown."]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": {"9": 1.0}}, "the graph has no column '9'"),
        ({"features": {"1": "red"}}, "'1' must be a number, got 'red'"),
        ({"features": {"1": 1e300}}, "'1' must be a finite number"),
        ({"add": [4]}, "a node cannot be its own neighbour"),
        ({"add": ["x"]}, "communities has no node 'x'"),
        ({"remove": ["59"]}, "4 and 59 are no neighbours"),
        ({"add": [5], "weight": -1.0}, "weight must be a positive number, got -1.0"),
    ],
)
def test_a_mistake_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    graph = communities()
    graph = Graph.from_edges([4, 4], [1, 2], features=graph.features, labels=graph.labels,
                             split=graph.split, name="communities")  # fmt: skip
    run = fit(graph, quick(epochs=1))
    with pytest.raises(InputError, match=message):
        what_if(run, graph, 4, **changes)
