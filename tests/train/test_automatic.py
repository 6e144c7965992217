"""Which candidates a graph has: by its sizes, and not by its name."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from fastgcn import Graph
from fastgcn.train import automatic
from fastgcn.train.automatic import candidates, seconds_on_gpu
from tests.communities import communities


def graph_of(
    nodes: int, entries: int, features: int, classes: int, train: int, val: int, stored: int = 0
) -> Graph:
    """Sizes alone; with `stored`, features are sparse and have so many entries."""
    one = np.zeros(1, np.float32)
    dense = np.lib.stride_tricks.as_strided(one, (nodes, features), (0, 0))
    return cast(
        Graph,
        SimpleNamespace(
            n_nodes=nodes,
            n_features=features,
            n_classes=classes,
            n_outputs=classes,
            regression=False,
            features=SimpleNamespace(size=stored) if stored else dense,
            csr=SimpleNamespace(indices=range(entries)),
            split=SimpleNamespace(train=range(train), val=range(val)),
        ),
    )


WORDNET = graph_of(117_659, 367_578, 2_000, 45, 70_595, 23_532, 687_346)
REDDIT = graph_of(232_965, 23_213_838, 602, 41, 152_410, 23_699)
PRODUCTS = graph_of(2_449_029, 123_718_280, 100, 47, 196_615, 39_323)
CORA = graph_of(2_708, 10_556, 1_433, 7, 1_208, 500, 49_216)
BLOGCATALOG = graph_of(5_196, 343_486, 8_189, 6, 3_117, 1_039, 369_435)
PUBMED = graph_of(19_717, 88_651, 500, 3, 11_830, 3_943, 988_031)
PHOTO = graph_of(7_650, 238_163, 745, 8, 4_590, 1_530, 1_979_745)


@pytest.fixture
def _on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "choose_device", lambda _: torch.device("cuda"))


@pytest.mark.usefixtures("_on_gpu")
@pytest.mark.parametrize(
    ("graph", "method", "inductive"),
    [
        (WORDNET, "gcn", False),  # training on its part would keep 1.9 of 3.1 edges a node
        (REDDIT, "fastgcn", True),
        (PRODUCTS, "fastgcn", False),
        (CORA, "gcn", False),
    ],
)
def test_sizes_decide(graph: Graph, method: str, inductive: bool) -> None:
    found = candidates(graph)
    assert {each.config.method for each in found} == {method}
    assert {each.config.inductive for each in found} == {inductive}
    means = [each for each in found if each.config.normalization == "neighbors"]
    assert len(means) == (1 if graph is CORA else len(found))
    assert all(each.config.skip and each.config.input_skip for each in found)


def test_a_large_graph_has_other_candidates_on_the_cpu() -> None:
    names = [each.name for each in candidates(REDDIT, device="cpu")]
    assert names != ["mean of neighbours", "mean of neighbours, L2"]
    small = [each.name for each in candidates(communities(), device="cpu")]
    assert "with and without own rows" in small


@pytest.mark.parametrize(
    ("graph", "deep"),
    [
        (CORA, None),  # small
        (BLOGCATALOG, "scaled rows, three layers"),
        (PUBMED, "mean of neighbours, three layers"),  # 4.5 neighbours a node
        (PHOTO, "mean of neighbours, three layers"),  # nearly dense features
        (WORDNET, "mean of neighbours, three layers"),  # sampled
        (REDDIT, None),  # sampled, 100 neighbours a node
    ],
)
def test_a_third_layer_is_tried_where_it_may_see_more(graph: Graph, deep: str | None) -> None:
    found = candidates(graph, device="cpu")
    three = [each.name for each in found if each.config.layers == 3]
    assert three == ([deep] if deep else [])
    assert {each.config.layers for each in found} <= {2, 3}


@pytest.mark.parametrize(
    ("n_train", "first"), [(140, "without own rows"), (1_208, "with and without own rows")]
)
def test_few_labels_want_a_network_without_own_rows(n_train: int, first: str) -> None:
    graph = graph_of(2_708, 10_556, 1_433, 7, n_train, 500, 49_216)
    found = candidates(graph, device="cpu")
    assert found[0].name == first
    config = found[0].config
    assert (config.skip or config.input_skip) == (n_train == 1_208)
    assert len(found) == 4


@pytest.mark.parametrize(
    ("graph", "networks"),
    [(CORA, 3), (BLOGCATALOG, 3), (PUBMED, 1), (PHOTO, 1), (WORDNET, 1), (REDDIT, 1)],
)
def test_several_networks_are_trained_where_a_full_pass_is_cheap(
    graph: Graph, networks: int
) -> None:
    assert {each.config.ensemble for each in candidates(graph, device="cpu")} == {networks}
    assert {each.config.ensemble for each in candidates(graph, sampled=True)} == {1}


@pytest.mark.usefixtures("_on_gpu")
@pytest.mark.parametrize("graph", [CORA, PUBMED, WORDNET])
def test_a_gpu_trains_several_of_larger_graphs(graph: Graph) -> None:
    assert {each.config.ensemble for each in candidates(graph)} == {3}


@pytest.mark.usefixtures("_on_gpu")
@pytest.mark.parametrize("graph", [WORDNET, REDDIT, PRODUCTS])
def test_large_graphs_on_a_gpu_try_it_if_a_node_has_few_neighbours(graph: Graph) -> None:
    assert any(each.config.layers == 3 for each in candidates(graph)) == (graph is WORDNET)


@pytest.mark.usefixtures("_on_gpu")
@pytest.mark.parametrize(
    ("graph", "changes", "measured"),
    [
        (WORDNET, {"sampled": False}, 3.3e-3),
        (REDDIT, {"sampled": False}, 6.7e-3),
        (PRODUCTS, {"sampled": False}, 31e-3),
        (REDDIT, {"sampled": True}, 17.8e-3),
        (PRODUCTS, {"sampled": True}, 23.6e-3),
    ],
)
def test_the_cost_model_is_within_a_factor_of_two(
    graph: Graph, changes: dict[str, Any], measured: float
) -> None:
    """Of epochs of the networks with layer norm and hidden 128 on an H200 (docs/LOG.md)."""
    config = candidates(graph, **changes)[0].config.replace(hidden=128)
    assert measured / 2 < seconds_on_gpu(graph, config) < 2 * measured
