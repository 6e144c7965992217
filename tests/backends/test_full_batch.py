"""With every vertex drawn once, training is full-batch training of eq. 1, done here densely."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fastgcn import Graph, TrainConfig, fit, normalize, subgraph
from fastgcn.backends.data import label_tensor
from fastgcn.machine import thread_count
from fastgcn.model import as_gcn, build_model
from tests.communities import communities, quick, with_only_training


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Products of a few rows are not worth the threads, least of all on a busy machine."""
    with thread_count(1):
        yield


def dense_training(graph: Graph, settings: TrainConfig) -> dict[str, Tensor]:
    """Full-batch training of eq. 1 with a dense Â on the training subgraph: no sampling at all."""
    part = subgraph(graph, graph.split.train)
    adj = torch.from_numpy(normalize(part, settings.normalization).to_scipy().toarray())
    x = torch.from_numpy(np.asarray(part.features))
    if settings.feature_scaling == "row":
        x = nn.functional.normalize(x, p=1)
    assert part.labels is not None
    labels = label_tensor(part.labels)
    sizes = [graph.n_features, *settings.hidden_sizes, graph.n_classes]
    assert graph.task is not None
    model = build_model(settings, sizes, graph.task)
    first, *others = (layer.weight for layer in as_gcn(model).convolutions)
    biases = [layer.bias for layer in as_gcn(model).convolutions if layer.bias is not None]
    decay = settings.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": [first], "weight_decay": decay},
        {"params": others, "weight_decay": decay * (settings.weight_decay_on == "all")},
        {"params": biases},
    ]
    optimizer = torch.optim.Adam(groups, lr=settings.learning_rate)
    counts = labels.sum(dim=0) if graph.multilabel else torch.bincount(labels, minlength=3)
    balanced = settings.class_weight == "balanced"
    loss: nn.Module
    if graph.multilabel:
        loss = nn.BCEWithLogitsLoss(
            pos_weight=(len(labels) - counts).clamp(min=1) / counts if balanced else None
        )
    else:
        loss = nn.CrossEntropyLoss(weight=len(labels) / (3 * counts) if balanced else None)
    for _ in range(settings.epochs):
        h = x
        for number, layer in enumerate(as_gcn(model).convolutions):
            h = adj @ h @ layer.weight + (0 if layer.bias is None else layer.bias)
            h = torch.relu(h) if number < len(settings.hidden_sizes) else h
        optimizer.zero_grad()
        loss(h, labels).backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("precompute", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": ()},
        {"hidden": 8},
        {"hidden": (4, 8), "bias": True},
        {"weight_decay": 0.5},
        {"weight_decay": 0.5, "weight_decay_on": "all", "bias": True},
        {"class_weight": "balanced"},
        {"normalization": "row", "feature_scaling": "row", "learning_rate": 0.1},
        {"multilabel": True},
        {"multilabel": True, "class_weight": "balanced"},
    ],
    ids=str,
)
def test_drawing_every_vertex_once_is_full_batch_training(
    settings: dict[str, Any], precompute: bool
) -> None:
    """All n vertices without replacement weigh one each, so nothing of sampling is left."""
    settings = dict(settings)
    graph = with_only_training(communities(multilabel=settings.pop("multilabel", False)))
    exact = quick(
        samples=len(graph.split.train),
        draws="successive",
        batch_size=99,
        epochs=4,
        precompute=precompute,
        **settings,
    )
    run = fit(graph, exact)
    expected = dense_training(graph, exact)
    assert run.model.state_dict().keys() == expected.keys()
    for name, weight in run.model.state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-3, atol=1e-4)
