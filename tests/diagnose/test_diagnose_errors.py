"""What `diagnose` measures: closed forms against their definitions and against draws."""

from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Graph, TrainConfig
from fastgcn.backends.data import make_loss, prepare
from fastgcn.backends.exact import full_forward
from fastgcn.diagnose.convolutions import (
    Convolution,
    ExactNetwork,
    convolve,
    draw_batches,
    rows_below,
)
from fastgcn.diagnose.diagnosis import DISTRIBUTIONS, DRAWS, choices, family, name_of
from fastgcn.diagnose.gauge import Estimate, Gauge, SamplerCache, least_samples, relative_error
from fastgcn.diagnose.session import GradientGauge, Session
from fastgcn.model import as_gcn, build_model
from fastgcn.sampling import layer_sampler, variance
from tests.communities import communities, quick

T = 12


def network_of(graph: Graph, config: TrainConfig, *, prepared: bool = True) -> ExactNetwork:
    data = prepare(graph, config if prepared else config.replace(precompute=False, samples=1), None)
    sizes = [graph.n_features, *config.hidden_sizes, graph.n_classes]
    assert graph.task is not None
    model = build_model(config, sizes, graph.task)
    return ExactNetwork(as_gcn(model), data, config)


def all_rows(network: ExactNetwork, layer: int) -> list[Convolution]:
    """Two batches that hold all training nodes."""
    half = (len(network.data.batch_nodes) + 1) // 2
    batches = [batch.numpy() for batch in draw_batches(network.data, half, 2, seed=0)]
    return convolve(network, layer, batches, np.random.default_rng(0))


GRAPH = communities(n=120, weighted=True)
NETWORK = network_of(GRAPH, quick(samples=T))
CONVOLUTIONS = all_rows(NETWORK, 0)


def member(**settings: Any) -> TrainConfig:
    return NETWORK.config.replace(**settings)


def gauge(chosen: TrainConfig) -> Gauge:
    return Gauge(chosen, SamplerCache(NETWORK), 0, CONVOLUTIONS)


@pytest.mark.parametrize("self_term", ["sampled", "exact"])
@pytest.mark.parametrize("draws", ["independent", "poisson", "stratified"])
@pytest.mark.parametrize(("distribution", "power"), DISTRIBUTIONS)
def test_closed_forms_are_those_of_the_theory(
    distribution: str, power: float | None, draws: str, self_term: str
) -> None:
    """`fastgcn.sampling.variance` of the whole graph equals that of the columns reached."""
    chosen = gauge(member(distribution=distribution, power=power, draws=draws, self_term=self_term))
    matrix = NETWORK.data.adjacency.to_scipy()
    sampled = variance.off_diagonal(matrix) if self_term == "exact" else matrix
    x = NETWORK.rows(0, np.arange(NETWORK.data.adjacency.n))
    squares = []
    for convolution in CONVOLUTIONS:
        rows = convolution.rows
        q = {
            "uniform": variance.uniform_q(len(x)),
            "importance": variance.importance_q(sampled),
            "flat": variance.flat_q(sampled),
            "ladies": variance.ladies_q(sampled, rows, power or 2.0),
        }[distribution]
        along = {}
        if draws == "stratified" and distribution == "ladies":
            along = {"along": variance.along_entries(sampled, rows, power or 2.0)}
        squares.append(variance.ROW_VARIANCE[draws](sampled, x, q, T, rows, **along))  # type: ignore[index]
    exact = matrix @ x
    expected = np.sqrt(sum(squares) / np.square(exact).sum())
    closed = chosen.closed(T)
    assert closed is not None
    assert closed.value == pytest.approx(expected, rel=1e-5)
    assert closed.margin == 0, "all training nodes were looked at"


@pytest.mark.parametrize("chosen", family(NETWORK.config), ids=name_of)
def test_draws_have_the_error_of_the_closed_form(chosen: TrainConfig) -> None:
    """99.99 % intervals (about 2 times those of 95 %) of 30 members: one false alarm in 330 seeds.

    Where there is no closed form, that of independent draws is a bound.
    """
    measured = gauge(chosen)
    drawn = measured.drawn(T, repeats=200).error
    assert drawn.margin is not None
    if measured.has_closed_form:
        closed = measured.closed(T)
        assert closed is not None
        assert abs(drawn.value - closed.value) < 2 * drawn.margin
    else:
        bound = gauge(chosen.replace(draws="independent")).closed(T)
        assert bound is not None
        assert drawn.value < bound.value + 2 * drawn.margin


def test_some_rows_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With four rows a batch the truth lies within thrice the 95 % interval; and it is wide."""
    monkeypatch.setattr("fastgcn.diagnose.convolutions._WORK", 1)
    few = all_rows(NETWORK, 0)
    assert [len(convolution.chosen) for convolution in few] == [4, 4]
    for settings in ({}, {"distribution": "ladies", "draws": "stratified"}):
        chosen = member(**settings)
        truth, estimate = (
            gauge(chosen).closed(T),
            Gauge(chosen, SamplerCache(NETWORK), 0, few).closed(T),
        )
        assert truth is not None
        assert estimate is not None
        assert estimate.margin is not None
        assert estimate.margin > 0
        assert abs(estimate.value - truth.value) < 3 * estimate.margin


@pytest.mark.parametrize(
    "settings",
    [{}, {"hidden": (8, 4)}, {"input_skip": True}, {"feature_scaling": "standard"}],
    ids=["two layers", "three layers", "own rows", "standardised"],
)
def test_rows_are_the_same_by_whichever_product_comes_first(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Â(XW) where many rows are wanted, (ÂX)W where few are."""
    config, ids = NETWORK.config.replace(**({"hidden": 4} | settings)), np.arange(5)
    top = len(config.hidden_sizes) - 1
    mixed_first = network_of(GRAPH, config, prepared=False).rows(top, ids)
    monkeypatch.setattr("fastgcn.diagnose.convolutions._DENSE_GAIN", 1e9)
    weighing = network_of(GRAPH, config, prepared=False)
    weighed_first = weighing.rows(top, ids)
    assert ("_weighed" in vars(weighing)) == (config.hidden_sizes[0] < GRAPH.n_features)
    np.testing.assert_allclose(weighed_first, mixed_first, rtol=1e-5, atol=1e-6)


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of 400 intervals at 95 %, fewer than 90 % or more than 99.5 % hold it once in 10^4 seeds."""
    rng = np.random.default_rng(0)
    truth, held = np.sqrt(2.0), 0
    for _ in range(400):
        totals = rng.uniform(0.5, 1.5, size=12)
        squares = 2 * totals[:, None] * rng.uniform(0.7, 1.3, size=(12, 4))
        value, margin = relative_error(squares, totals, covered=0.01)
        assert margin is not None
        held += abs(value - truth) < margin
    assert 360 <= held <= 398


def test_an_estimate_without_spread() -> None:
    assert relative_error(np.zeros((2, 3)), np.ones(2), 0.5) == (0.0, 0.0)
    assert relative_error(np.zeros((2, 1)), np.zeros(2), 1.0) == (0.0, None)
    assert relative_error(np.ones((1, 1)), np.ones(1), 0.5) == (1.0, None)


@pytest.mark.parametrize("prepared", [True, False], ids=["ÂX", "X"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"hidden": (8, 8)}, {"hidden": (8, 8), "skip": True, "norm": "layer", "jumping": "max"}],
    ids=["plain", "deep", "with paths"],
)
def test_exact_rows_are_those_of_the_full_network(settings: Any, prepared: bool) -> None:
    graph, config = GRAPH, quick(samples=T, **settings)
    network = network_of(graph, config, prepared=prepared)
    data = prepare(graph, config.replace(precompute=False, samples=1), None)
    ids = np.array([5, 2, 40])
    for layer in range(network.layers):
        number = layer + 1
        hidden = full_forward(network.model, data.adjacency, data.features, ids, layers=number)
        expected = (hidden @ network.model.convolutions[number].weight).detach().numpy()
        np.testing.assert_allclose(network.rows(layer, ids), expected, rtol=1e-4, atol=1e-5)


def test_rows_below_are_those_drawn_above() -> None:
    config = quick(samples=T, hidden=(8, 8), self_term="exact")
    network = network_of(GRAPH, config)
    rows = [np.array([3, 9])]
    (below,) = rows_below(config, network, 1, T, rows)
    assert below[:2].tolist() == [3, 9]
    assert len(set(below)) == len(below) <= 2 + T


@pytest.mark.parametrize("draws", DRAWS)
def test_gradients_of_all_vertices_are_exact(draws: str) -> None:
    """Drawing everyone for certain leaves no error; independent draws keep some."""
    batches = draw_batches(NETWORK.data, 16, 2, seed=0)
    measured = GradientGauge(NETWORK, make_loss(NETWORK.data, GRAPH, NETWORK.config), batches)
    n = NETWORK.data.adjacency.n
    chosen = member(draws=draws, distribution="uniform")
    sampler = layer_sampler(chosen, NETWORK.data.adjacency, [n], own_rows=False)
    error = measured.error(sampler)
    assert (error.value < 1e-4) == (draws != "independent")


def test_gradient_errors_are_of_the_gradient() -> None:
    """By hand: one batch, one sampler, the loss by autograd."""
    batches = draw_batches(NETWORK.data, 16, 1, seed=0)
    loss = make_loss(NETWORK.data, GRAPH, NETWORK.config)
    measured = GradientGauge(NETWORK, loss, batches)
    blocks = layer_sampler(NETWORK.config, NETWORK.data.adjacency, [T], own_rows=False).sample(
        batches[0], torch.Generator().manual_seed(1)
    )
    model = NETWORK.model
    model.zero_grad()
    loss(
        model(blocks, NETWORK.data.rows(blocks[0].src)), NETWORK.data.labels[batches[0]]
    ).backward()
    grads = [p.grad for p in model.parameters()]
    expected = torch.cat([g.reshape(-1) for g in grads if g is not None])
    torch.testing.assert_close(measured.gradient(blocks, batches[0]), expected)


@pytest.mark.parametrize("target", [0.02, 0.1, 0.5, 2.0])
@pytest.mark.parametrize(
    "error",
    [lambda t: 3 / t**0.5, lambda t: 9 / t, lambda t: (max(1 / t - 1 / 500, 0)) ** 0.5 * 3],
    ids=["1/√t", "1/t", "to zero"],
)
def test_the_least_t_is_found(error: Any, target: float) -> None:
    t, there = least_samples(lambda t: Estimate(error(t), None), target, 10**6)
    assert there.value == error(t)
    assert there.value <= 1.01 * target
    assert t == 1 or error(max(int(t / 1.03) - 1, 1)) > target


def test_too_few_vertices_are_all_taken() -> None:
    falling = least_samples(lambda t: Estimate(3 / t**0.5, 0.1), 0.1, 30)
    assert falling == (30, Estimate(3 / 30**0.5, 0.1))
    assert least_samples(lambda _: Estimate(0.0, 0.0), 0.1, 30)[0] == 1
    assert least_samples(lambda _: Estimate(5.0, None), 0.1, 1) == (1, Estimate(5.0, None))


def test_the_family_is_told_apart() -> None:
    members = family(NETWORK.config.replace(power=0.5, distribution="flat", history=True))
    assert len(members) == 1 + len(DISTRIBUTIONS) * len(DRAWS) * 2
    assert len({name_of(one) for one in members}) == len(members)
    assert members[0].power == 0.5
    assert not any(one.history for one in members)
    assert len(family(NETWORK.config)) == len(members) - 1, "the settings' own is one of them"
    assert choices(family(NETWORK.config)[0]) == choices(NETWORK.config)


def test_large_neighbourhoods_have_fewer_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = communities()
    config = TrainConfig(hidden=4, samples=20, batch_size=8)
    for large, expected in ((1 << 22, (4, 4)), (1, (2, 2))):
        monkeypatch.setattr("fastgcn.diagnose.session._LARGE", large)
        session = Session(graph, config, None)
        gauge = session._gradients
        assert gauge is not None
        assert (len(gauge.batches), gauge.repeats) == expected
        error = session.gradient_error(config, [20])
        assert error is not None
        assert error.value > 0
        assert error.margin is not None
