"""Skip paths, norms and jumping: one network, however it is computed, kept whole with its run."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import block_diag, csr_array

import fastgcn.backends.exact
from fastgcn import (
    GCN,
    FullSampler,
    Graph,
    Run,
    embed,
    evaluate,
    fit,
    normalize,
    predict,
    predict_new,
)
from fastgcn.arrays import FloatArray
from fastgcn.machine import thread_count
from fastgcn.model import as_gcn
from tests.communities import communities, quick, weights_of

NORMALIZATIONS: Any = ("symmetric", "row", "neighbors")
NETWORKS = [
    {"skip": skip, "norm": norm, "jumping": jumping, "depth": depth}
    for skip, norm, jumping, depth in itertools.product(
        [False, True], ["none", "layer", "batch"], ["none", "concat", "max"], [1, 2, 3]
    )
]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Products of a few rows are not worth the threads, least of all on a busy machine."""
    with thread_count(1):
        yield


def network(depth: int, normalization: str = "symmetric", **choices: Any) -> GCN:
    """A network for six features and three classes in which no number is zero or one."""
    rng = torch.Generator().manual_seed(depth)
    model = GCN(
        [6, *[5] * (depth - 1), 3],
        bias=True, dropout=0.5, normalization=normalization, rng=rng, **choices,
    )  # fmt: skip
    for name, tensor in model.state_dict().items():
        if name.endswith("bias") or (name.startswith("norms.") and tensor.is_floating_point()):
            tensor.uniform_(0.5, 1.5, generator=rng)
    return model.eval()


def textbook(model: GCN, graph: Graph, norm: str) -> list[FloatArray]:
    """H(1), ..., H(M-1) and the logits of all nodes: the equations of `GCN` in float64."""
    weights = {name: t.double().numpy() for name, t in model.state_dict().items()}
    adjacency = normalize(graph, model.normalization).to_scipy().toarray().astype(np.float64)  # type: ignore[arg-type]
    rows: list[FloatArray] = [np.asarray(graph.features, dtype=np.float64)]
    depth = len(model.layers)
    for number in range(depth):
        out = adjacency @ rows[-1] @ weights[f"layers.{number}.weight"]
        out = out + weights[f"layers.{number}.bias"]
        own = rows[-1]
        if number == depth - 1 and model.jumping == "concat":
            own = np.concatenate([np.empty((graph.n_nodes, 0)), *rows[1:]], axis=1)
        elif number == depth - 1 and model.jumping == "max" and depth > 1:
            own = np.max(rows[1:], axis=0)
        if number > 0 and (model.skip or (number == depth - 1 and model.jumping != "none")):
            out = out + own @ weights[f"layers.{number}.own_weight"]
        if number < depth - 1:
            of = {name: weights.get(f"norms.{number}.{name}") for name in ("weight", "bias")}
            if norm == "layer":
                centred = out - out.mean(axis=1, keepdims=True)
                out = centred / np.sqrt(out.var(axis=1, keepdims=True) + 1e-5)
            elif norm == "batch":
                mean = weights[f"norms.{number}.running_mean"]
                out = (out - mean) / np.sqrt(weights[f"norms.{number}.running_var"] + 1e-5)
            if norm != "none":
                out = out * of["weight"] + of["bias"]
            out = np.maximum(out, 0)
        rows.append(out)
    return rows[1:]


@pytest.mark.parametrize("choices", NETWORKS, ids=str)
def test_blocks_and_chunks_compute_the_textbook_network(
    choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastgcn.backends.exact, "_NODES_AT_ONCE", 7)
    graph, depth, nodes = communities(directed=True), choices["depth"], [5, 0, 17]
    for normalization in NORMALIZATIONS:
        model = network(normalization=normalization, **choices)
        expected = textbook(model, graph, choices["norm"])
        features = torch.from_numpy(np.asarray(graph.features))
        adjacency = normalize(graph, normalization)
        mixed = torch.from_numpy(adjacency.to_scipy() @ np.asarray(graph.features))
        for precomputed, x in ((0, features), (1, mixed)):
            blocks = FullSampler(adjacency, depth - precomputed).sample(torch.tensor(nodes))
            with torch.no_grad():
                logits = model(blocks, x[blocks[0].src if blocks else torch.tensor(nodes)])
            np.testing.assert_allclose(logits, expected[-1][nodes], rtol=1e-4, atol=1e-4)
        for layer in range(1, depth + 1):
            got = embed(model, graph, [17, 5, 17], layer=layer)
            np.testing.assert_allclose(got, expected[layer - 1][[17, 5, 17]], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("choices", [n for n in NETWORKS if n["depth"] == 3], ids=str)
def test_new_nodes_are_predicted_as_on_the_enlarged_graph(choices: dict[str, Any]) -> None:
    graph, model = communities(), network(**choices)
    features, ends = np.ones((2, 6)), ([60, 61, 61], [3, 60, 7])
    got = predict_new(model, graph, features=features, source=ends[0], target=ends[1])
    old = block_diag([graph.to_scipy(), csr_array((2, 2))]).tocoo()
    enlarged = Graph.from_edges(
        np.concatenate([old.row, ends[0]]),
        np.concatenate([old.col, ends[1]]),
        features=np.concatenate([graph.features, features]),
    )
    expected = predict(model, enlarged, [60, 61])
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


def test_a_plain_network_has_the_weights_it_always_had() -> None:
    """Runs of earlier versions load: no new tensor has come in, and no draw in between."""
    plain = GCN([6, 5, 3])
    assert list(plain.state_dict()) == ["layers.0.weight", "layers.1.weight"]
    first = GCN([6, 5, 3], skip=True, norm="batch", jumping="max").convolutions[0]
    assert torch.equal(first.weight, plain.convolutions[0].weight)


def test_with_one_hidden_layer_jumping_is_a_skip_path() -> None:
    graph = communities()
    skip = predict(GCN([6, 5, 3], skip=True), graph)
    for jumping in ("concat", "max"):
        np.testing.assert_array_equal(predict(GCN([6, 5, 3], jumping=jumping), graph), skip)
    assert not np.allclose(predict(GCN([6, 5, 3]), graph), skip)


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_networks_learn_and_are_kept(norm: str, tmp_path: Path) -> None:
    graph = communities()
    settings = quick(
        method="gcn-batched", hidden=(8, 8), skip=True, norm=norm, jumping="concat",
        dropout=(0, 0.1, 0.2), epochs=30, learning_rate=0.02,
    )  # fmt: skip
    run = fit(graph, settings, run_dir=tmp_path / "run")
    assert run.metrics["val_micro_f1"] > 0.7, "three equal classes give a third by chance"
    again = Run.load(tmp_path / "run")
    assert weights_of(again.model) == weights_of(run.model)
    np.testing.assert_array_equal(predict(again, graph), predict(run, graph))


def test_batch_norm_judges_by_running_figures() -> None:
    """A node is predicted alike alone and among others, and training has moved the figures."""
    graph = communities()
    run = fit(graph, quick(method="gcn-batched", norm="batch"))
    assert run.model.state_dict()["norms.0.num_batches_tracked"] > 0
    assert not torch.equal(run.model.state_dict()["norms.0.running_mean"], torch.zeros(8))
    np.testing.assert_allclose(predict(run, graph, [4]), predict(run, graph)[[4]], rtol=1e-5)


def test_batch_norm_takes_a_lone_row() -> None:
    model = GCN([6, 5, 3], norm="batch").train()
    lonely = Graph.from_edges([], [], features=np.ones((3, 6)))
    blocks = FullSampler(normalize(lonely), 1).sample(torch.tensor([1]))
    assert torch.isfinite(model(blocks, torch.ones(1, 6))).all()
    assert torch.equal(model.state_dict()["norms.0.running_mean"], torch.zeros(5))


def test_each_layer_has_its_dropout() -> None:
    """A rate of almost one on the output layer's input leaves nothing of a node but zeros."""
    model = GCN([6, 5, 3], dropout=[0, 1 - 1e-9]).train()
    blocks = FullSampler(normalize(communities()), 1).sample(torch.arange(60))
    x = torch.ones(60, 6)
    assert not model(blocks, x).any()
    assert model.eval()(blocks, x).any()
    assert GCN([6, 5, 3], dropout=0.5).dropout.rates == (0.5, 0.5)


@pytest.mark.parametrize("choices", [{"skip": True}, {"jumping": "max"}], ids=str)
def test_sampled_prediction_sees_a_nodes_own_rows(choices: dict[str, Any]) -> None:
    """With many samples the estimate comes near the full network, as it would not without."""
    model, graph = network(2, **choices), communities()
    full, sampled = predict(model, graph), predict(model, graph, samples=50_000)
    assert np.abs(full - sampled).max() < 0.1


@pytest.mark.parametrize("precompute", [True, False])
@pytest.mark.parametrize("method", ["fastgcn", "gcn-batched"])
def test_a_first_layer_with_the_nodes_own_features(precompute: bool, method: str) -> None:
    """Training sees the network that prediction does: the judge's scores are evaluate's."""
    graph = communities()
    config = quick(
        method=method, precompute=precompute, input_skip=True, skip=True, samples=30, epochs=20
    )
    run = fit(graph, config)
    first = as_gcn(run.model).convolutions[0]
    assert first.own_weight is not None
    assert first.own_weight.shape == first.weight.shape
    found = evaluate(run, graph, "val")
    assert run.metrics["val_micro_f1"] == pytest.approx(found.micro_f1)
    assert run.metrics["val_loss"] == pytest.approx(found.loss, rel=1e-4)
    weights = first.own_weight.detach().clone()
    first.own_weight.data.zero_()
    assert evaluate(run, graph, "val").loss != pytest.approx(found.loss, rel=1e-4)
    assert weights.any()
