"""What is put where before training: Â, ÂX and labels, on the device or on the host."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Graph, Split
from fastgcn.backends.cpu import ready
from fastgcn.backends.data import SharedData, prepare
from fastgcn.backends.gpu import forward as norms_of_rows
from fastgcn.backends.gpu.data import features_fit, prepare_on_device
from fastgcn.backends.gpu.forward import row_norms
from fastgcn.errors import InputError
from fastgcn.kernels.gpu.products import empty_rows
from fastgcn.model import as_gcn
from tests.backends.gpu.on_device import SETTINGS, place, training
from tests.backends.gpu.small import DEVICE
from tests.communities import communities


@pytest.mark.parametrize("features", ["device", "host"])
def test_a_split_may_be_in_any_order(features: str) -> None:
    plain = communities(weighted=True)
    mixed = np.random.default_rng(0).permutation(plain.split.train)
    graph = plain.with_split(Split(mixed, plain.split.val, plain.split.test))
    _, there = prepare_on_device(graph, SETTINGS.replace(features=features), DEVICE)
    here = prepare(plain, SETTINGS, None)
    want = here.rows(torch.arange(here.adjacency.n))
    torch.testing.assert_close(there.dense_inputs.cpu(), want, rtol=1e-5, atol=1e-5)
    assert torch.equal(there.labels.cpu(), here.labels)


def test_features_that_do_not_fit_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("fastgcn.backends.gpu.data.note", said.append)
    graph, cuda = communities(), torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10_000, 10_000))
    assert not features_fit(graph, SETTINGS, cuda)
    assert said[0].startswith("the features stay in the host's memory")
    assert features_fit(graph, SETTINGS.replace(features="device"), cuda)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 40, 1 << 40))
    assert features_fit(graph, SETTINGS, cuda)
    assert said[1].startswith("the features are on the device")
    assert not features_fit(graph, SETTINGS.replace(features="host"), cuda)


def test_a_bound_on_the_hosts_memory_is_kept() -> None:
    graph = dataclasses.replace(communities(), features=np.ones((60, 5_000), np.float32))
    config = SETTINGS.replace(features="host", memory="1MB")
    # X of 36 training nodes takes 0.7 MB, and ÂX as much.
    there, _ = prepare_on_device(graph, config.replace(precompute=False), DEVICE)
    assert there.features is None
    with pytest.raises(InputError, match="take 1 MB of the host's memory .* --device cpu"):
        prepare_on_device(graph, config, DEVICE)


def test_a_host_without_the_memory_is_said() -> None:
    with pytest.raises(InputError, match=r"the host has no .* GB of memory to pin"):
        empty_rows(1 << 45, 100, torch.float32, None)


def half(features: str, **changes: Any) -> Any:
    return SETTINGS.replace(inputs_dtype="float16", features=features, **changes)


@pytest.mark.parametrize("features", ["device", "host"])
def test_numbers_that_half_precision_lacks_are_refused(features: str) -> None:
    graph = communities()
    large = dataclasses.replace(graph, features=graph.features * 1e6)
    with pytest.raises(InputError, match="holds numbers up to 65,504"):
        training(large, half(features))


def with_one_large_number() -> Graph:
    graph = communities()
    features = np.array(graph.features)
    features[0, 0] = 1.2e5  # of which its row of ÂX has a part
    return dataclasses.replace(graph, features=features)


def test_own_rows_that_half_precision_lacks_are_refused() -> None:
    graph = with_one_large_number()
    prepare_on_device(graph, half("device"), DEVICE)
    with pytest.raises(InputError, match="holds numbers up to 65,504"):
        prepare_on_device(graph, half("device", input_skip=True), DEVICE)


@pytest.mark.parametrize("features", ["device", "host"])
def test_only_what_is_precomputed_is_in_half_precision(features: str) -> None:
    _, kept = prepare_on_device(communities(), half(features), DEVICE)
    assert kept.dense_inputs.dtype == torch.float16
    _, as_it_is = prepare_on_device(communities(), half(features, precompute=False), DEVICE)
    assert as_it_is.dense_inputs.dtype == torch.float32


@pytest.mark.parametrize("changes", [{}, {"input_skip": True}, {"precompute": False}])
def test_row_norms_do_not_depend_on_where_the_features_are(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(norms_of_rows, "_CHUNK_BYTES", 200)  # a few rows
    graph, found = communities(), []
    config = SETTINGS.replace(distribution="optimal", hidden=(8, 5), **changes)
    for features in ("device", "host"):
        there = place(training(graph, config.replace(features=features)))
        found.append(row_norms(as_gcn(there.model), config, there.on_device, there.training.data))
    assert [len(each) for each in found[0]] == [36] * config.sampled_layers
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)
    want = [torch.from_numpy(each.norms()) for each in ready(graph, config).layer_rows()]
    torch.testing.assert_close([each.cpu() for each in found[0]], want, rtol=1e-5, atol=1e-6)


def test_standardised_features_are_those_of_the_cpu() -> None:
    graph = communities()
    features = np.array(graph.features)
    features[:, 2], features[:, 3] = 7.0, features[:, 3] * 1e4 + 3e5
    graph = dataclasses.replace(graph, features=features)
    config = SETTINGS.replace(feature_scaling="standard")
    there, data = prepare_on_device(graph, config, DEVICE)
    here = prepare(graph, config, None)
    assert there.host_features.statistics is not None
    assert here.statistics is not None
    for found, want in zip(there.host_features.statistics, here.statistics, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6)
    rows = here.rows(torch.arange(here.adjacency.n))
    torch.testing.assert_close(data.dense_inputs.cpu(), rows, rtol=1e-4, atol=1e-4)


def test_trainings_share_what_they_have_in_common() -> None:
    graph, shared = communities(), SharedData()
    one, first = prepare_on_device(graph, SETTINGS, DEVICE, shared)
    _, again = prepare_on_device(graph, SETTINGS.replace(hidden=4), DEVICE, shared)
    assert first is again
    scaled, other = prepare_on_device(
        graph, SETTINGS.replace(feature_scaling="row"), DEVICE, shared
    )
    assert other is not first
    assert scaled.edges is one.edges
