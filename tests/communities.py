"""Graphs of a few dozen nodes on which training has something to learn, and quick settings."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn import Graph, Split, TrainConfig

if TYPE_CHECKING:
    from torch import nn


def communities(
    *,
    n: int = 60,
    classes: int = 3,
    multilabel: bool = False,
    directed: bool = False,
    weighted: bool = False,
    sparse: bool = False,
    seed: int = 0,
    **fields: Any,
) -> Graph:
    """n nodes in `classes` groups with more edges inside than between; 6 features.

    The split is train, train, train, val, test over and over; `fields` are those of `Graph`.
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(classes, size=n)
    near = np.where(group[:, None] == group[None, :], 0.3, 0.03)
    source, target = np.nonzero(rng.random((n, n)) < near)
    features = rng.normal(size=(n, 6)) + 1.5 * np.eye(classes, 6)[group]
    features[features < (1.4 if sparse else 0.3)] = 0  # so that sparse features are sparse
    labels = group[:, None] <= np.arange(classes) if multilabel else group
    turn = np.arange(n) % 5
    given = {
        "labels": labels,
        "split": Split(*(np.flatnonzero(part) for part in (turn < 3, turn == 3, turn == 4))),
        "class_names": [f"class-{c}" for c in range(classes)],
        "name": "communities",
    }
    return Graph.from_edges(
        source,
        target,
        weights=rng.integers(1, 9, len(source)) / 4 if weighted else None,
        directed=directed,
        features=csr_array(features) if sparse else features,
        **(given | fields),
    )


def with_only_training(graph: Graph) -> Graph:
    """The same graph without validation and test parts."""
    return graph.with_split(Split(train=graph.split.train))


def few_to_train_on() -> Graph:
    """Ten of 5,000 nodes to train on, 2,000 for validation, which need nearly all of the others."""
    n, rng = 5_000, np.random.default_rng(0)
    source, target = rng.integers(n, size=(2, 20_000))
    return Graph.from_edges(
        source,
        target,
        features=rng.normal(size=(n, 300)),
        labels=rng.integers(3, size=n),
        split=Split(train=np.arange(10), val=np.arange(10, 2_010)),
    )


def quick(**settings: Any) -> TrainConfig:
    """Settings that train on such a graph in a moment."""
    base: dict[str, Any] = {"hidden": 8, "samples": 20, "batch_size": 16, "epochs": 3, "threads": 1}
    base["device"] = "cpu"  # where runs are the same bit for bit
    return TrainConfig(**(base | settings)).complete()


def weights_of(model: "nn.Module") -> dict[str, bytes]:
    """Every bit of a network."""
    return {name: t.numpy().tobytes() for name, t in model.state_dict().items()}


def without_times(values: dict[str, Any]) -> dict[str, Any]:
    """A record or a result without what the clock decides."""
    return {name: value for name, value in values.items() if "seconds" not in name}
