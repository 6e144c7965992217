"""`FastGCNClassifier`: the scikit-learn face over `fit`, `predict`, `embed` and `evaluate`."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastgcn.arrays import AnyArray, BoolArray, FloatArray, IntArray
from fastgcn.config import (
    Distribution,
    Draws,
    EarlyStopping,
    FeatureScaling,
    Jumping,
    Norm,
    SelfTerm,
    TrainConfig,
)
from fastgcn.errors import InputError, nearest
from fastgcn.graph import checks
from fastgcn.graph.adjacency import Normalization
from fastgcn.graph.graph import Graph, Split
from fastgcn.infer.predict import embed, evaluate, predict
from fastgcn.train.loop import fit
from fastgcn.train.run import Run

_DEFAULTS = TrainConfig()
_NO_Y = "y must be None where X is a Graph, which has its own labels"


class FastGCNClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A FastGCN node classifier with scikit-learn's conventions.

    There are two ways to name the nodes:

    * `FastGCNClassifier().fit(graph)` trains on the training part of the graph's split;
    * `FastGCNClassifier(graph=graph).fit(node_ids)` trains on those nodes, which is what
      `cross_val_score` and `GridSearchCV` need: X is the array of node ids. The validation
      part of the graph's split, less those nodes, chooses the weights kept.

    `predict`, `predict_proba` and `transform` take node ids of the graph that was fitted, or a
    `Graph`, all of whose nodes are meant. The other parameters are those of `TrainConfig`.

    >>> import fastgcn
    >>> digits = fastgcn.load("digits")
    >>> classifier = FastGCNClassifier(samples=50, epochs=2).fit(digits)
    >>> classifier.predict([0, 1]).shape, classifier.transform([0, 1]).shape
    ((2,), (2, 128))

    Attributes:
        run_: the training run, a `fastgcn.Run`.
        graph_: the graph that was fitted.
        classes_: (C,) what `predict` answers with, in the order of `predict_proba`'s columns:
            ascending as everywhere in scikit-learn, but the graph's order for multi-label data.
        n_features_in_: F, the number of features of a node.
    """

    def __init__(
        self,
        graph: Graph | None = None,
        *,
        hidden: int | tuple[int, ...] = _DEFAULTS.hidden,
        skip: bool = _DEFAULTS.skip,
        input_skip: bool = _DEFAULTS.input_skip,
        norm: Norm = _DEFAULTS.norm,
        jumping: Jumping = _DEFAULTS.jumping,
        samples: int | tuple[int, ...] | Literal["auto"] = _DEFAULTS.samples,
        target_error: float = _DEFAULTS.target_error,
        distribution: Distribution = _DEFAULTS.distribution,
        power: float | None = _DEFAULTS.power,
        draws: Draws = _DEFAULTS.draws,
        self_term: SelfTerm = _DEFAULTS.self_term,
        history: bool = _DEFAULTS.history,
        history_every: int = _DEFAULTS.history_every,
        precompute: bool = _DEFAULTS.precompute,
        batch_size: int = _DEFAULTS.batch_size,
        epochs: int = _DEFAULTS.epochs,
        learning_rate: float = _DEFAULTS.learning_rate,
        weight_decay: float = _DEFAULTS.weight_decay,
        dropout: float | tuple[float, ...] = _DEFAULTS.dropout,
        bias: bool = _DEFAULTS.bias,
        early_stopping: EarlyStopping = _DEFAULTS.early_stopping,
        patience: int = _DEFAULTS.patience,
        inductive: bool = _DEFAULTS.inductive,
        normalization: Normalization = _DEFAULTS.normalization,
        feature_scaling: FeatureScaling = _DEFAULTS.feature_scaling,
        class_weight: Literal["none", "balanced"] = _DEFAULTS.class_weight,
        seed: int = _DEFAULTS.seed,
        device: str = _DEFAULTS.device,
        threads: int = _DEFAULTS.threads,
    ) -> None:
        self.graph = graph
        self.hidden = hidden
        self.skip = skip
        self.input_skip = input_skip
        self.norm = norm
        self.jumping = jumping
        self.samples = samples
        self.target_error = target_error
        self.distribution = distribution
        self.power = power
        self.draws = draws
        self.self_term = self_term
        self.history = history
        self.history_every = history_every
        self.precompute = precompute
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.bias = bias
        self.early_stopping = early_stopping
        self.patience = patience
        self.inductive = inductive
        self.normalization = normalization
        self.feature_scaling = feature_scaling
        self.class_weight = class_weight
        self.seed = seed
        self.device = device
        self.threads = threads

    def fit(self, X: Any, y: Any = None) -> "FastGCNClassifier":
        """Train on the training part of a graph X, or on the nodes X of the graph `self.graph`.

        `y` labels the nodes X, by class name or class id, and `predict` then answers in the
        terms of `y`. Where it differs from the graph's own labels there is no validation, and
        the last weights are kept.
        """
        graph = self._training_graph(X, y)
        settings = self.get_params(deep=False)
        del settings["graph"]
        self.run_: Run = fit(graph, TrainConfig.from_dict(settings))
        self.graph_ = graph
        self.n_features_in_ = graph.n_features
        by_id = graph.class_names is None or (y is not None and np.asarray(y).dtype.kind in "iub")
        names: AnyArray = np.arange(graph.n_classes) if by_id else np.array(graph.class_names)
        # scikit-learn's scorers count on classes in ascending order.
        self._columns = np.arange(len(names)) if graph.multilabel else np.argsort(names)
        self.classes_ = names[self._columns]
        return self

    def predict(self, X: Any) -> AnyArray:
        """(k,) the class of each node; for multi-label data (k, C) bool, its labels."""
        probabilities = self.predict_proba(X)
        if self.run_.model.multilabel:
            return probabilities > 0.5
        chosen: AnyArray = self.classes_[probabilities.argmax(axis=1)]
        return chosen

    def predict_proba(self, X: Any) -> FloatArray:
        """(k, C) float32: the probability of each of `classes_`."""
        graph, nodes = self._asked(X)
        return predict(self.run_, graph, nodes)[:, self._columns]

    def transform(self, X: Any) -> FloatArray:
        """(k, d) float32: the rows of the last hidden layer."""
        graph, nodes = self._asked(X)
        return embed(self.run_, graph, nodes)

    def score(self, X: Any, y: Any = None) -> float:
        """The share of nodes whose class (or whose whole label set) is predicted rightly.

        A graph X is scored on the test part of its split. Without `y` the graph's labels are
        the truth, and nodes without one do not count.
        """
        graph, nodes = self._asked(X)
        if y is not None:
            if nodes is None:
                raise InputError(_NO_Y)
            graph = _relabelled(graph, nodes, _class_ids(graph, y, len(nodes)))
        return evaluate(self.run_, graph, "test" if nodes is None else nodes).accuracy

    def _training_graph(self, X: Any, y: Any) -> Graph:
        """The graph to train on: X, or `self.graph` with X as the training part of its split."""
        if isinstance(X, Graph):
            if y is not None:
                raise InputError(_NO_Y)
            return X
        if self.graph is None:
            raise InputError(
                "X must be a Graph, or node ids where the classifier was given one: "
                "FastGCNClassifier(graph=...)"
            )
        graph, nodes = self.graph, _nodes(self.graph, X)
        if y is not None:
            graph = _relabelled(graph, nodes, _class_ids(graph, y, len(nodes)))
        return graph.with_split(Split(train=nodes, val=np.setdiff1d(graph.split.val, nodes)))

    def _asked(self, X: Any) -> tuple[Graph, IntArray | None]:
        check_is_fitted(self, "run_")
        return (X, None) if isinstance(X, Graph) else (self.graph_, _nodes(self.graph_, X))


def _nodes(graph: Graph, X: Any) -> IntArray:
    nodes = checks.integers(X, "X").astype(np.int64, copy=False)
    checks.in_range(nodes, graph.n_nodes, "X")
    return nodes


def _class_ids(graph: Graph, y: Any, k: int) -> IntArray | BoolArray:
    """(k,) class ids or (k, C) label sets of labels given as names, ids or label sets."""
    values = np.asarray(y)
    if len(values) != k:
        raise InputError(f"y must have {k} labels, one a node of X, got {len(values)}")
    if values.dtype.kind in "OUS":
        known = {name: number for number, name in enumerate(graph.class_names or ())}
        for value in values:
            if value not in known:
                raise InputError(
                    f"y has the label {str(value)!r}, which is not among the class_names of "
                    f"{graph.name}{nearest(str(value), known)}"
                )
        values = np.array([known[value] for value in values], dtype=np.int64)
    ids = checks.labels(values, k, graph.class_names)
    assert ids is not None
    return ids


def _relabelled(graph: Graph, nodes: IntArray, labels: IntArray | BoolArray) -> Graph:
    """The graph with `labels` for `nodes`; itself where they are what it has.

    Otherwise without a split: the labels of its validation nodes may mean something else.
    """
    own = graph.labels
    if own is None:
        filler = -1 if labels.ndim == 1 else False
        own = np.full((graph.n_nodes, *labels.shape[1:]), filler, dtype=labels.dtype)
    elif own.shape[1:] != labels.shape[1:]:
        raise InputError(
            f"y must have the shape of {graph.name}'s labels, {(len(nodes), *own.shape[1:])}, "
            f"got {labels.shape}"
        )
    elif np.array_equal(own[nodes], labels):
        return graph
    changed = own.copy()
    changed[nodes] = labels
    return replace(graph, labels=changed, split=Split(), stored_fingerprint=None, source=None)
