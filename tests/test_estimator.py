"""The scikit-learn face: conventions, both ways to name nodes, and real model selection."""

import inspect
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from fastgcn import (
    Graph,
    best_preset,
    embed,
    embed_new,
    evaluate,
    fit,
    load,
    paper_cora,
    predict,
    predict_new,
)
from fastgcn.config import SETTINGS
from fastgcn.errors import InputError
from fastgcn.estimator import FastGCNClassifier, FastGCNRegressor
from tests.communities import communities, quick, weights_of
from tests.regression import numbers
from tests.strategies import split_of


def quick_classifier(graph: Graph | None = None, **settings: Any) -> FastGCNClassifier:
    return FastGCNClassifier(graph, **(quick().to_dict() | settings))


def digits_classifier(digits: Graph) -> FastGCNClassifier:
    """Learns the digits in three epochs."""
    return FastGCNClassifier(
        digits, hidden=32, samples=100, epochs=3, batch_size=64, learning_rate=0.03, threads=1
    )


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load("digits")


def test_parameters_are_the_settings_and_are_documented_one_by_one() -> None:
    parameters = inspect.signature(FastGCNClassifier).parameters
    assert list(parameters) == ["graph", *SETTINGS]
    assert all(parameter.default is None for parameter in parameters.values())
    documentation = inspect.getdoc(FastGCNClassifier) or ""
    for name, each in SETTINGS.items():
        assert f"\n{name} : {each.expected()}, default=None\n    {each.help}\n" in documentation


def test_what_is_not_given_is_chosen_for_the_graph() -> None:
    graph = communities()
    automatic = best_preset(graph)
    assert FastGCNClassifier().fit(graph).run_.config == fit(graph).config
    quick = FastGCNClassifier(preset="fast").fit(graph).run_.config
    assert quick == automatic.replace(ensemble=1)
    assert FastGCNClassifier(epochs=2).fit(graph).run_.config == automatic.replace(epochs=2)
    paper = FastGCNClassifier(preset="paper", epochs=2, samples=20).fit(graph).run_.config
    assert paper == paper_cora().replace(epochs=2, samples=20)


def test_get_params_set_params_and_clone() -> None:
    graph = communities()
    classifier = quick_classifier(graph, bias=True)
    assert classifier.get_params()["graph"] is graph
    assert classifier.set_params(hidden=(4, 4), seed=7) is classifier
    classifier.fit(graph.split.train)
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params()
    assert copy.graph is graph, "a graph is never copied"
    assert not hasattr(copy, "run_")
    assert is_classifier(copy)
    assert repr(copy) == repr(classifier)


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match="learning_rat"):
        FastGCNClassifier(learning_rat=0.1)
    with pytest.raises(ValueError, match="Invalid parameter 'learning_rat'"):
        FastGCNClassifier().set_params(learning_rat=0.1)


def test_the_constructor_checks_nothing_and_fit_does() -> None:
    classifier = FastGCNClassifier(hidden=0)
    with pytest.raises(InputError, match="hidden must be at least 1, got 0"):
        classifier.fit(communities())


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score"])
def test_not_fitted(method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(FastGCNClassifier(), method)([0])


def test_it_is_a_thin_skin() -> None:
    graph = communities()
    run = fit(graph, quick())
    classifier = quick_classifier()
    assert classifier.fit(graph) is classifier
    assert weights_of(classifier.run_.model) == weights_of(run.model)
    assert classifier.n_features_in_ == 6
    assert classifier.classes_.tolist() == ["class-0", "class-1", "class-2"]
    np.testing.assert_array_equal(classifier.predict_proba(graph), predict(run, graph))
    np.testing.assert_array_equal(classifier.transform([3, 1]), embed(run, graph, [3, 1]))
    names = np.array(graph.class_names)[predict(run, graph, [5, 2, 5]).argmax(axis=1)]
    np.testing.assert_array_equal(classifier.predict([5, 2, 5]), names)
    assert classifier.score(graph) == evaluate(run, graph, "test").accuracy
    assert classifier.score([1, 2, 3]) == evaluate(run, graph, [1, 2, 3]).accuracy


def test_nodes_that_the_graph_does_not_have() -> None:
    graph = communities(class_names=["z", "y", "x"])  # the classifier's order is another
    classifier = quick_classifier().fit(graph)
    assert classifier.classes_.tolist() == ["x", "y", "z"]
    new: dict[str, Any] = {"features": np.eye(2, 6), "source": [60, 60, 61], "target": [0, 5, 7]}
    expected = predict_new(classifier.run_, graph, **new)
    np.testing.assert_array_equal(classifier.predict_proba_new(**new), expected[:, ::-1])
    names = np.array(graph.class_names)[expected.argmax(axis=1)]
    np.testing.assert_array_equal(classifier.predict_new(**new), names)
    rows = classifier.transform_new(**new)
    np.testing.assert_array_equal(rows, embed_new(classifier.run_, graph, **new))
    assert rows.shape == (2, 8)
    for method in ("predict_new", "predict_proba_new", "transform_new"):
        with pytest.raises(NotFittedError):
            getattr(FastGCNClassifier(), method)(**new)


def test_nodes_of_a_graph_train_and_the_rest_of_validation_chooses() -> None:
    graph = communities()
    nodes = np.concatenate([graph.split.train[:30], graph.split.val[:4]])
    classifier = quick_classifier(graph).fit(nodes)
    np.testing.assert_array_equal(classifier.graph_.split.train, nodes)
    np.testing.assert_array_equal(classifier.graph_.split.val, graph.split.val[4:])
    expected = fit(graph.with_split(split_of(nodes, graph.split.val[4:])), quick())  # type: ignore[arg-type]
    assert weights_of(classifier.run_.model) == weights_of(expected.model)
    other = communities(seed=5)
    np.testing.assert_array_equal(classifier.predict_proba(other), predict(expected, other))


def test_classes_without_names_are_numbers() -> None:
    graph = communities(class_names=None)
    classifier = quick_classifier().fit(graph)
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert set(classifier.predict(graph)) <= {0, 1, 2}


def test_classes_ascend_whatever_the_order_of_the_graphs_names() -> None:
    """scikit-learn's scorers take the columns of predict_proba to be in ascending order."""
    graph = communities(class_names=["zebra", "ant", "moth"])
    classifier = quick_classifier().fit(graph)
    assert classifier.classes_.tolist() == ["ant", "moth", "zebra"]
    plain = predict(classifier.run_, graph)
    np.testing.assert_array_equal(classifier.predict_proba(graph), plain[:, [1, 2, 0]])
    truth = np.array(graph.class_names)[graph.labels]
    assert accuracy_score(truth, classifier.predict(graph)) == classifier.score(range(60))
    assert log_loss(truth, classifier.predict_proba(graph)) == pytest.approx(
        evaluate(classifier.run_, graph, range(60)).loss, rel=1e-5
    )


def test_multilabel_predictions_are_label_sets() -> None:
    graph = communities(multilabel=True)
    classifier = quick_classifier(graph, epochs=10).fit(graph)
    labels = classifier.predict([4, 2])
    assert labels.dtype == bool
    np.testing.assert_array_equal(labels, predict(classifier.run_, graph, [4, 2]) > 0.5)
    assert graph.labels is not None
    right = (classifier.predict(graph) == graph.labels).all(axis=1)
    assert classifier.score(graph) == right[graph.split.test].mean()
    nodes = graph.split.test
    assert classifier.score(nodes, graph.labels[nodes]) == classifier.score(graph)
    again = clone(classifier).fit(graph.split.train, graph.labels[graph.split.train])
    np.testing.assert_array_equal(again.predict(nodes).shape, (len(nodes), 3))


@pytest.mark.parametrize("by_name", [True, False])
def test_y_that_the_graph_agrees_with_changes_nothing(by_name: bool) -> None:
    graph = communities()
    assert graph.labels is not None
    labels = np.array(graph.class_names)[graph.labels] if by_name else graph.labels
    train, test = graph.split.train, graph.split.test
    plain = quick_classifier(graph).fit(train)
    given = quick_classifier(graph).fit(train, labels[train])
    assert weights_of(given.run_.model) == weights_of(plain.run_.model)
    assert given.classes_.tolist() == (list(graph.class_names or ()) if by_name else [0, 1, 2])
    assert given.score(test, labels[test]) == plain.score(test)
    assert accuracy_score(labels[test], given.predict(test)) == plain.score(test)


def test_y_is_what_is_learnt() -> None:
    """Labels shifted by one class are learnt as they are given, also where there were none."""
    graph = communities()
    assert graph.labels is not None
    shifted = (graph.labels + 1) % 3
    nodes = graph.split.train
    with_labels = quick_classifier(graph, epochs=30).fit(nodes, shifted[nodes])
    assert with_labels.score(nodes, shifted[nodes]) > 0.9
    assert with_labels.score(nodes, graph.labels[nodes]) < 0.1
    bare = communities(labels=None, split=split_of(val=[3]))
    without = quick_classifier(bare, epochs=30).fit(nodes, shifted[nodes])
    assert without.score(graph.split.test, shifted[graph.split.test]) > 0.8
    assert not without.graph_.split.val.size


def test_grid_search_over_node_ids(digits: Graph) -> None:
    nodes = digits.split.train
    assert digits.labels is not None
    search = GridSearchCV(
        digits_classifier(digits),
        {"hidden": [2, 32], "learning_rate": np.array([1e-4, 0.03])},
        cv=2,
        error_score="raise",
    )
    search.fit(nodes, digits.labels[nodes])
    assert search.best_params_ == {"hidden": 32, "learning_rate": 0.03}
    assert search.best_score_ > 0.8
    assert search.score(digits.split.test, digits.labels[digits.split.test]) > 0.8
    assert search.best_estimator_.graph is digits


def test_cross_validation_with_and_without_y(digits: Graph) -> None:
    nodes = digits.split.train
    assert digits.labels is not None
    names = np.array(digits.class_names)[digits.labels]
    classifier = digits_classifier(digits)
    assert cross_val_score(classifier, nodes, cv=2).min() > 0.7
    by_name = cross_val_score(classifier, nodes, names[nodes], cv=2, scoring="f1_macro")
    by_number = cross_val_score(classifier, nodes, digits.labels[nodes], cv=2, scoring="f1_macro")
    np.testing.assert_allclose(by_name, by_number)
    assert by_name.min() > 0.7
    losses = cross_val_score(classifier, nodes, names[nodes], cv=2, scoring="neg_log_loss")
    assert losses.min() > -1, "chance is -log 10"


def test_embeddings_feed_a_pipeline(digits: Graph) -> None:
    assert digits.labels is not None
    train, test = digits.split.train, digits.split.test
    model = make_pipeline(
        digits_classifier(digits),
        LogisticRegression(max_iter=500),
    )
    model.fit(train, digits.labels[train])
    assert model.score(test, digits.labels[test]) > 0.8


def test_a_fitted_classifier_can_be_pickled() -> None:
    graph = communities()
    classifier = quick_classifier(dropout=0.1).fit(graph)
    again = pickle.loads(pickle.dumps(classifier))  # noqa: S301  (our own bytes)
    np.testing.assert_array_equal(again.predict_proba([1, 2]), classifier.predict_proba([1, 2]))


@pytest.mark.parametrize("kind", [FastGCNClassifier, FastGCNRegressor])
@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_scikit_learns_own_checks(kind: type[Any]) -> None:
    """All that hold for an estimator which does not take a matrix; the others fail by its refusal
    of a matrix, and by nothing else."""
    check_estimator(kind())  # by its tags, there is nothing else to check

    class OfMatrices(kind):  # type: ignore[misc]
        def __sklearn_tags__(self) -> Any:
            tags = super().__sklearn_tags__()
            tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
            tags.target_tags.required = True
            return tags

        __module__ = "fastgcn.estimator"

    found = check_estimator(OfMatrices(), on_fail=None, on_skip=None)
    failed = [each for each in found if each["status"] == "failed"]
    assert sum(each["status"] == "passed" for each in found) >= 17
    for each in failed:
        causes, error = [], each["exception"]
        while error is not None:
            causes.append(str(error))
            error = error.__cause__ or error.__context__
        refused = any("X must be a Graph, or node ids" in text for text in causes)
        # These are about the text of the error for a wrong matrix.
        assert refused or each["check_name"] in {
            "check_estimators_nan_inf", "check_classifiers_one_label",
            "check_estimator_sparse_tag",
        }, (each["check_name"], causes)  # fmt: skip


def test_calibration_and_pipelines_over_node_ids(digits: Graph) -> None:
    assert digits.labels is not None
    train, test = digits.split.train, digits.split.test
    calibrated = CalibratedClassifierCV(digits_classifier(digits), cv=2, method="sigmoid")
    calibrated.fit(train, digits.labels[train])
    chances = calibrated.predict_proba(test)
    assert chances.sum(axis=1) == pytest.approx(np.ones(len(test)))
    assert calibrated.score(test, digits.labels[test]) > 0.8
    # A step that looks node ids up, and the network last.
    places = {f"n{node}": node for node in range(digits.n_nodes)}
    look_up = FunctionTransformer(lambda names: np.array([places[name] for name in names]))
    model = make_pipeline(look_up, digits_classifier(digits))
    search = GridSearchCV(model, {"fastgcnclassifier__hidden": [32]}, cv=2, error_score="raise")
    search.fit([f"n{node}" for node in train], digits.labels[train])
    assert search.score([f"n{node}" for node in test], digits.labels[test]) > 0.8


def test_a_regressor_in_model_selection() -> None:
    graph = numbers()
    regressor = FastGCNRegressor(graph, preset="fast", epochs=40, threads=1)
    assert graph.labels is not None
    nodes = np.flatnonzero(np.isfinite(graph.labels))
    scores = cross_val_score(regressor, nodes, graph.labels[nodes], cv=2)
    assert scores.min() > 0.3
    search = GridSearchCV(regressor, {"epochs": [1, 40]}, cv=2, error_score="raise")
    assert search.fit(nodes, graph.labels[nodes]).best_params_ == {"epochs": 40}


GRAPH = communities()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.set_params(graph=None).fit([0, 1]), "X must be a Graph, or node ids if"),
        (lambda c: c.fit(GRAPH, GRAPH.labels), "y must be None if X is a Graph"),
        (lambda c: c.fit(GRAPH).score(GRAPH, GRAPH.labels), "y must be None if X is a Graph"),
        (lambda c: c.fit([0, 60], None), "X must lie in 0..59 for a graph of 60 nodes, got 60"),
        (lambda c: c.fit(GRAPH).predict([0.5]), "X must be integers"),
        (lambda c: c.fit([1, 1, 2]), "must name each node once, but has node 1 twice"),
        (lambda c: c.fit([0, 1], [0]), "y must have 2 labels, one per node of X, got 1"),
        (lambda c: c.fit([0, 1], ["class-1", "clas-2"]), "'clas-2', which is not among the"),
        (lambda c: c.fit([0, 1], [0, 3]), "labels must be below the number of classes, 3"),
        (lambda c: c.fit([0, 1], np.eye(2, 3)), "y must have the shape of communities's labels"),
    ],
)
def test_what_cannot_be_asked(call: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        call(quick_classifier(GRAPH))
    assert message in str(refused.value)
