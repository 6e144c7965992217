"""`FastGCNClassifier` and `FastGCNRegressor`: nodes predicted with scikit-learn's conventions."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.config import SETTINGS
from fastgcn.data.splits import with_split
from fastgcn.errors import InputError, nearest
from fastgcn.graph import checks
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import Labels, checked_labels, targets, task_of
from fastgcn.infer.new_nodes import embed_new, predict_new
from fastgcn.infer.predict import embed, evaluate, predict
from fastgcn.metrics import Metrics
from fastgcn.train.loop import fit
from fastgcn.train.run import Run

_NO_Y = "y must be None if X is a Graph, which has its own labels"


class _NodeEstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor have in common: parameters, `fit`, `transform`."""

    def __init__(self, graph: Graph | None = None, **settings: Any) -> None:
        for name in settings.keys() - SETTINGS.keys():
            kind = type(self).__name__
            raise TypeError(f"{kind}() got an unexpected keyword argument {name!r}")
        self.graph = graph
        for name in SETTINGS:
            setattr(self, name, settings.get(name))

    def __sklearn_tags__(self) -> Any:
        """X is a graph or a column of node ids, never a matrix; a graph has labels of its own."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = False, True
        tags.target_tags.required = False
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = True
        return tags

    def _labels(self, graph: Graph, y: Any, k: int) -> Labels:
        """The labels of k nodes as a graph has them."""
        raise NotImplementedError

    def _check_task(self, graph: Graph) -> None:
        """Refuse a graph whose labels are not of this estimator's kind."""
        raise NotImplementedError

    def _fit(self, X: Any, y: Any) -> Graph:
        """Train, and set the attributes that all estimators have."""
        graph = self._training_graph(X, y)
        self._check_task(graph)
        settings = {name: getattr(self, name) for name in SETTINGS}
        given = {name: value for name, value in settings.items() if value is not None}
        self.run_: Run = fit(graph, **given)
        self.graph_ = graph
        self.n_features_in_ = graph.n_features
        return graph

    def transform(self, X: Any) -> FloatArray:
        """(k, d) float32: the rows of the last hidden layer."""
        graph, nodes = self._asked(X)
        return embed(self.run_, graph, nodes)

    def transform_new(self, **new: Any) -> FloatArray:
        """`transform` for new nodes, which are given as for `predict_new`."""
        check_is_fitted(self, "run_")
        return embed_new(self.run_, self.graph_, **new)

    def _scores(self, X: Any, y: Any) -> Metrics:
        """On the test part of a graph X, or on nodes X against `y` or the graph's labels."""
        graph, nodes = self._asked(X)
        if y is not None:
            if nodes is None:
                raise InputError(_NO_Y)
            graph = _relabelled(graph, nodes, self._labels(graph, y, len(nodes)))
        return evaluate(self.run_, graph, "test" if nodes is None else nodes)

    def _training_graph(self, X: Any, y: Any) -> Graph:
        """The graph to train on: X, or `self.graph` with X as the training part of its split."""
        if isinstance(X, Graph):
            if y is not None:
                raise InputError(_NO_Y)
            return with_split(X)
        if self.graph is None:
            kind = type(self).__name__
            raise InputError(
                f"X must be a Graph, or node ids if the estimator has a graph: {kind}(graph=...); "
                "a matrix has no edges, fastgcn.Graph.from_edges(..., features=X, labels=y) has"
            )
        graph, nodes = self.graph, _nodes(self.graph, X)
        if y is not None:
            graph = _relabelled(graph, nodes, self._labels(graph, y, len(nodes)))
        return graph.with_split(Split(train=nodes, val=np.setdiff1d(graph.split.val, nodes)))

    def _asked(self, X: Any) -> tuple[Graph, IntArray | None]:
        check_is_fitted(self, "run_")
        return (X, None) if isinstance(X, Graph) else (self.graph_, _nodes(self.graph_, X))


class FastGCNClassifier(ClassifierMixin, _NodeEstimator):  # type: ignore[misc]
    """A FastGCN node classifier with scikit-learn's conventions.

    There are two ways to name the nodes:

    * `FastGCNClassifier().fit(graph)` trains on the training part of the graph's split;
    * `FastGCNClassifier(graph=graph).fit(node_ids)` trains on those nodes, which is what
      `cross_val_score`, `GridSearchCV` and `CalibratedClassifierCV` need: X is the array of node
      ids. The validation part of the graph's split, less those nodes, chooses the weights kept.

    A matrix of features is refused: it has no edges. The tags of scikit-learn say so
    (`input_tags.two_d_array` is False), so `check_estimator` leaves out what needs a matrix.

    `predict`, `predict_proba` and `transform` take node ids of the fitted graph, or a `Graph`,
    which means all of its nodes.

    The other parameters are the settings of `fastgcn.TrainConfig`. None means not given: the
    value is chosen for the graph, or by `preset`, as in `fastgcn.fit` and `fastgcn train`.

    Parameters
    ----------
    graph : Graph, default=None
        The graph whose nodes `fit` names by their ids.
    {settings}

    Attributes
    ----------
    run_ : Run
        The training run.
    graph_ : Graph
        The graph that was fitted.
    classes_ : array of shape (C,)
        The classes that `predict` returns, in the order of `predict_proba`'s columns: ascending
        as everywhere in scikit-learn, but in the graph's order for multi-label data.
    n_features_in_ : int
        F, the number of features of a node.

    Examples
    --------
    >>> import fastgcn
    >>> digits = fastgcn.load("digits")
    >>> classifier = FastGCNClassifier(samples=50, epochs=2).fit(digits)
    >>> classifier.predict([0, 1]).shape, classifier.transform([0, 1]).shape
    ((2,), (2, 128))
    """

    def fit(self, X: Any, y: Any = None) -> "FastGCNClassifier":
        """Train on the training part of a graph X, or on the nodes X of the graph `self.graph`.

        `y` labels the nodes X, by class name or class id, and `predict` then returns labels of
        the same kind. If `y` differs from the graph's own labels, there is no validation, and
        the last weights are kept.
        """
        graph = self._fit(X, y)
        by_id = graph.class_names is None or (y is not None and np.asarray(y).dtype.kind in "iub")
        names: AnyArray = np.arange(graph.n_classes) if by_id else np.array(graph.class_names)
        # scikit-learn's scorers rely on ascending classes.
        self._columns = np.arange(len(names)) if graph.multilabel else np.argsort(names)
        self.classes_ = names[self._columns]
        return self

    def predict(self, X: Any) -> AnyArray:
        """(k,) the class of each node; for multi-label data (k, C) bool, its labels.

        Of two classes, it is by the threshold that validation has chosen (`run_.model.decision`).
        """
        graph, nodes = self._asked(X)
        return self._classes(predict(self.run_, graph, nodes))

    def _classes(self, probabilities: FloatArray) -> AnyArray:
        """The classes of (k, C) probabilities, whose columns are in the model's order."""
        if self.run_.model.multilabel:
            return probabilities > 0.5
        place = np.argsort(self._columns)  # of each of the model's classes, in `classes_`
        chosen: AnyArray = self.classes_[place[self.run_.model.decision.classes(probabilities)]]
        return chosen

    def predict_proba(self, X: Any) -> FloatArray:
        """(k, C) float32: the probability of each of `classes_`."""
        graph, nodes = self._asked(X)
        return predict(self.run_, graph, nodes)[:, self._columns]

    def predict_new(self, **new: Any) -> AnyArray:
        """`predict` for nodes that the fitted graph does not have.

        They are given as for `fastgcn.predict_new`: by arrays (features, source, target, ...), or
        as two tables (nodes, edges).
        """
        check_is_fitted(self, "run_")
        return self._classes(predict_new(self.run_, self.graph_, **new))

    def predict_proba_new(self, **new: Any) -> FloatArray:
        """`predict_proba` for new nodes, which are given as for `predict_new`."""
        check_is_fitted(self, "run_")
        found: FloatArray = predict_new(self.run_, self.graph_, **new)[:, self._columns]
        return found

    def score(self, X: Any, y: Any = None) -> float:
        """The share of nodes whose class (or whose whole label set) is predicted correctly.

        A graph X is scored on the test part of its split. Without `y` the graph's labels are
        the truth, and nodes without one do not count.
        """
        return self._scores(X, y).accuracy

    def _labels(self, graph: Graph, y: Any, k: int) -> Labels:
        return _class_ids(graph, y, k)

    def _check_task(self, graph: Graph) -> None:
        if graph.regression:
            raise InputError(
                f"{graph.name} has a number to predict for each node; FastGCNRegressor does that"
            )


class FastGCNRegressor(RegressorMixin, _NodeEstimator):  # type: ignore[misc]
    """A FastGCN that predicts a number for each node, with scikit-learn's conventions.

    It is used like `FastGCNClassifier`: `FastGCNRegressor().fit(graph)` trains on the training
    part of the graph's split, and `FastGCNRegressor(graph=graph).fit(node_ids)` on those nodes.
    Targets are standardised in training; predictions are in the units of the targets.

    The other parameters are the settings of `fastgcn.TrainConfig`. None means not given: the
    value is chosen for the graph, or by `preset`, as in `fastgcn.fit` and `fastgcn train`.

    Parameters
    ----------
    graph : Graph, default=None
        The graph whose nodes `fit` names by their ids.
    {settings}

    Attributes
    ----------
    run_ : Run
        The training run.
    graph_ : Graph
        The graph that was fitted.
    n_features_in_ : int
        F, the number of features of a node.

    Examples
    --------
    >>> import numpy as np
    >>> import fastgcn
    >>> features = np.arange(40, dtype=np.float32).reshape(20, 2) / 40
    >>> graph = fastgcn.Graph.from_edges(
    ...     range(19), range(1, 20), features=features, labels=3.5 * features[:, 0]
    ... )
    >>> regressor = FastGCNRegressor(epochs=2).fit(fastgcn.random_split(graph))
    >>> regressor.predict([0, 1]).shape
    (2,)
    """

    def fit(self, X: Any, y: Any = None) -> "FastGCNRegressor":
        """Train on the training part of a graph X, or on the nodes X of the graph `self.graph`.

        `y` are the numbers of the nodes X. If they differ from the graph's own labels, there is no
        validation, and the last weights are kept.
        """
        self._fit(X, y)
        return self

    def predict(self, X: Any) -> FloatArray:
        """(k,) float64: the number of each node."""
        graph, nodes = self._asked(X)
        return predict(self.run_, graph, nodes)

    def predict_new(self, **new: Any) -> FloatArray:
        """`predict` for nodes that the fitted graph does not have, given as for
        `fastgcn.predict_new`."""
        check_is_fitted(self, "run_")
        found: FloatArray = predict_new(self.run_, self.graph_, **new)
        return found

    def score(self, X: Any, y: Any = None) -> float:
        """R², the share of the variance of the targets that is explained.

        A graph X is scored on the test part of its split. Without `y` the graph's labels are
        the truth, and nodes without one do not count.
        """
        return self._scores(X, y).r2

    def _labels(self, graph: Graph, y: Any, k: int) -> Labels:  # noqa: ARG002
        return targets(np.asarray(y), k)

    def _check_task(self, graph: Graph) -> None:
        if not graph.regression:
            raise InputError(
                f"{graph.name} has classes, which FastGCNClassifier predicts; "
                "Graph(..., task='regression') takes its labels for numbers"
            )


def _declare_parameters() -> None:
    """Give both classes a parameter for each setting: in the signature and the documentation."""
    init: Any = _NodeEstimator.__init__
    signature = inspect.signature(init)
    own = [signature.parameters[name] for name in ("self", "graph")]
    made = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in SETTINGS]
    init.__signature__ = signature.replace(parameters=[*own, *made])
    entries = [
        f"{name} : {setting.expected()}, default=None\n    {setting.help}"
        for name, setting in SETTINGS.items()
    ]
    for each in (FastGCNClassifier, FastGCNRegressor):
        # From Python 3.13 on, a docstring has lost the indentation of its source.
        documented = inspect.cleandoc(each.__doc__ or "")
        each.__doc__ = documented.replace("{settings}", "\n".join(entries))


_declare_parameters()


def _nodes(graph: Graph, X: Any) -> IntArray:
    nodes = checks.integers(X, "X").astype(np.int64, copy=False)
    checks.in_range(nodes, graph.n_nodes, "X")
    return nodes


def _class_ids(graph: Graph, y: Any, k: int) -> Labels:
    """(k,) class ids or (k, C) label sets of labels given as names, ids or label sets."""
    values = np.asarray(y)
    if len(values) != k:
        raise InputError(f"y must have {k} labels, one per node of X, got {len(values)}")
    if values.dtype.kind in "OUS":
        known = {name: number for number, name in enumerate(graph.class_names or ())}
        for value in values:
            if value not in known:
                raise InputError(
                    f"y has the label {str(value)!r}, which is not among the class_names of "
                    f"{graph.name}{nearest(str(value), known)}"
                )
        values = np.array([known[value] for value in values], dtype=np.int64)
    ids = checked_labels(values, k, graph.class_names, graph.task or "classification")
    assert ids is not None
    return ids


def _relabelled(graph: Graph, nodes: IntArray, labels: Labels) -> Graph:
    """The graph with `labels` for `nodes`, or the graph itself if it has these labels already.

    A changed graph has no split: the labels of its validation nodes may mean something else.
    """
    own = graph.labels
    if own is None:
        filler = {"classification": -1, "multilabel": False, "regression": np.nan}[task_of(labels)]
        own = np.full((graph.n_nodes, *labels.shape[1:]), filler, dtype=labels.dtype)
    elif own.shape[1:] != labels.shape[1:]:
        raise InputError(
            f"y must have the shape of {graph.name}'s labels, {(len(nodes), *own.shape[1:])}, "
            f"got {labels.shape}"
        )
    elif np.array_equal(own[nodes], labels):
        return graph
    if task_of(own) != task_of(labels):  # numbers for the nodes of a graph with classes
        own = np.full(graph.n_nodes, np.nan)
    changed: AnyArray = own.copy()
    changed[nodes] = labels
    task = task_of(labels)
    names = graph.class_names if task != "regression" else None
    return replace(
        graph, labels=changed, split=Split(), stored_fingerprint=None, source=None,
        task=task, class_names=names,
    )  # fmt: skip
