"""Settings by name: what each preset starts from, and that a graph of any kind can be trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.accuracy import best_cases, random_cases
from benchmarks.settings import best_cora, best_in_paper_budget, best_pubmed, paper_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fastgcn import Graph, Split, TrainConfig, fit
from fastgcn.config import SETTINGS, Preset
from fastgcn.errors import InputError
from fastgcn.model import as_gcn
from fastgcn.train.automatic import candidates
from fastgcn.train.presets import (
    best_preset,
    entrants,
    paper_cora,
    paper_preset,
    paper_pubmed,
    paper_reddit,
    resolve,
)
from tests.communities import communities

GRAPH = communities(n=200)
FEW = GRAPH.with_split(Split(train=np.arange(10), val=np.arange(10, 60)))


def test_the_papers_settings_go_by_the_size_of_the_graph() -> None:
    for n, expected in ((2_708, paper_cora()), (19_717, paper_pubmed()), (232_965, paper_reddit())):
        graph = Graph.from_edges([0], [1], features=np.ones((n, 1)))
        assert paper_preset(graph) == expected


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "reddit", "digits"])
def test_no_name_of_a_data_set_decides_anything(name: str) -> None:
    """A user's own graph may be called anything."""
    named = communities(n=200, name=name)
    for asked in ({}, {"preset": "paper"}, {"method": "graphsage-mean"}):
        assert entrants(named, None, asked) == entrants(GRAPH, None, asked)


def test_there_is_one_default() -> None:
    """Every way to train chooses for the graph whatever is not given, and what is given wins."""
    automatic = best_preset(GRAPH)
    assert automatic != TrainConfig().complete()
    assert resolve(GRAPH) == resolve(GRAPH, TrainConfig()) == automatic
    assert resolve(GRAPH, None, {"preset": "best"}) == automatic, "the old name of auto"
    assert fit(GRAPH, epochs=1).config == automatic.replace(epochs=1)
    assert fit(GRAPH, TrainConfig(epochs=1)).config == automatic.replace(epochs=1)
    assert fit(GRAPH, TrainConfig(epochs=9, seed=4), epochs=1).config == automatic.replace(
        epochs=1, seed=4
    )


def test_the_papers_settings_are_asked_for_by_name() -> None:
    assert resolve(GRAPH, TrainConfig(preset="paper")) == paper_cora()
    assert resolve(GRAPH, TrainConfig(preset="paper", hidden=64)) == paper_cora().replace(hidden=64)
    assert resolve(GRAPH, None, {"method": "fastgcn-uniform"}) == paper_cora().replace(
        distribution="uniform"
    )
    both = {"method": "fastgcn-uniform", "preset": "auto"}
    sampled = candidates(GRAPH, sampled=True)[0].config
    assert resolve(GRAPH, None, both) == sampled.replace(distribution="uniform")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "hidden": st.sampled_from([128, 6, (8, 8)]),
            "distribution": st.sampled_from(["importance", "ladies", "flat"]),
            "power": st.sampled_from([1.0, 0.5]),
            "bias": st.booleans(),
            "inductive": st.booleans(),
            "epochs": st.sampled_from([400, 3]),
            "precompute": st.booleans(),
        },
    ).filter(lambda each: "power" not in each or each.get("distribution") != "importance"),
    st.sampled_from([None, "auto", "paper"]),
)
@settings(max_examples=60, deadline=None)
def test_settings_that_are_given_win_and_the_preset_gives_the_rest(
    chosen: dict[str, Any], preset: Preset | None
) -> None:
    """Also where a value that is given happens to be the one of the declaration."""
    named: dict[str, Any] = {} if preset is None else {"preset": preset}
    if preset == "paper" and "distribution" not in chosen:
        chosen.pop("power", None)  # the paper's distribution has none
    found = resolve(GRAPH, TrainConfig(**named, **chosen))
    sampled = bool({"distribution", "power"} & chosen.keys()) or None
    automatic = candidates(GRAPH, sampled=sampled)[0].config
    rest = paper_cora() if preset == "paper" else automatic
    assert found == rest.replace(**chosen)
    assert found.is_complete
    assert found == resolve(GRAPH, None, named | chosen) == resolve(communities(), found)


def test_automatic_samples_fit_the_training_graph_that_is_given() -> None:
    """Few training nodes are trained with all others unless the user says otherwise."""
    assert resolve(FEW, sampled=True).samples == 200
    assert resolve(FEW, TrainConfig(inductive=True), sampled=True).samples == 10
    assert resolve(FEW, TrainConfig(inductive=True, samples=7)).samples == 7
    assert fit(FEW, inductive=True, epochs=1).config.inductive


def test_what_a_complete_config_says_is_done() -> None:
    """As that of an old run, which knows of no preset."""
    for config in (paper_cora(), best_pubmed(), TrainConfig().complete()):
        stored = config.to_dict()
        assert "preset" not in stored
        assert resolve(GRAPH, TrainConfig.from_dict(stored)) == config
        assert resolve(GRAPH, config, {"preset": "auto"}) == config


def test_the_automatic_choice_decides_only_what_is_declared_automatic() -> None:
    """The declaration says `auto` for these; for all others it says their one default."""
    plain = TrainConfig().complete().to_dict()
    decided: set[str] = set()
    sparse = communities(n=200, sparse=True)
    automatic = [
        each.config
        for graph in (GRAPH, FEW, sparse)
        for sampled in (False, True)
        for each in candidates(graph, sampled=sampled)
    ]
    for config in (best_cora(), best_pubmed(), *automatic):
        decided |= {name for name, value in config.to_dict().items() if value != plain[name]}
    assert decided == {name for name, each in SETTINGS.items() if each.automatic}


def test_a_variant_needs_settings_to_vary() -> None:
    with pytest.raises(InputError, match="'authors-code' stands for several settings"):
        resolve(GRAPH, paper_cora(), {"method": "authors-code"})


@pytest.mark.parametrize("data", ["cora", "pubmed"])
def test_the_papers_budget_is_kept(data: str) -> None:
    config, paper = best_in_paper_budget(data), paper_settings(data)
    for name in ("hidden", "samples", "layers", "precompute", "inductive"):
        assert getattr(config, name) == getattr(paper, name)
    assert config.distribution == "ladies"


def test_settings_fit_the_size_of_the_graph() -> None:
    config = candidates(GRAPH, sampled=True)[0].config
    assert config.samples == len(GRAPH.split.train) == 120
    assert config.batch_size == 32
    large = GRAPH.with_split(Split(train=np.arange(200)))
    assert candidates(large, sampled=True)[0].config.samples == 200


@pytest.mark.parametrize(
    ("sparse", "few_labels", "scaling"),
    [
        (False, 0, "standard"),
        (False, 1000, "standard"),
        (True, 0, "none"),
        (True, 1000, "row"),
    ],
)
def test_dense_features_are_standardised(
    sparse: bool, few_labels: int, scaling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastgcn.train.automatic._FEW_LABELS", few_labels)
    assert best_preset(communities(sparse=sparse)).feature_scaling == scaling


def test_sparse_features_with_many_entries_are_treated_as_dense_ones() -> None:
    dense = communities()
    counts = replace(dense, features=csr_array(dense.features))
    assert best_preset(counts) == best_preset(dense)
    losses = [fit(graph, epochs=3, preset="fast").metrics["val_loss"] for graph in (counts, dense)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_few_training_nodes_among_many_are_trained_with_all_edges() -> None:
    assert not best_preset(FEW).inductive
    run = fit(FEW, best_preset(FEW).replace(epochs=2))
    assert run.metrics["epochs"] == 2


@pytest.mark.parametrize("hidden", [[], [8], [8, 8], [8, 8, 8]])
def test_the_network_can_be_changed(hidden: list[int]) -> None:
    assert len(as_gcn(fit(GRAPH, hidden=hidden, epochs=1).model).dropout.rates) == len(hidden) + 1


@pytest.mark.parametrize(
    "graph",
    [
        communities(sparse=True),
        communities(multilabel=True),
        communities(directed=True, weighted=True),
        communities(n=6),
        communities().with_split(Split(train=np.arange(30))),
    ],
    ids=["sparse", "multilabel", "directed", "tiny", "no validation"],
)
def test_any_graph_trains(graph: Graph) -> None:
    assert len(fit(graph, best_preset(graph).replace(epochs=2)).history) == 2


def test_features_that_do_not_vary_train() -> None:
    graph = Graph.from_edges(
        [0, 1, 2],
        [1, 2, 3],
        features=csr_array(np.ones((4, 2))),
        labels=[0, 1, 0, 1],
        split=Split(train=np.arange(4)),
    )
    assert np.isfinite(fit(graph).history[-1]["train_loss"])


def test_cases_of_the_best(real_data: Path) -> None:  # noqa: ARG001
    names = [(case.data, case.label, case.seeds) for case in best_cases(10)]
    assert ("cora", "the paper's budget", 10) in names
    assert ("pubmed", "best settings", 10) in names
    assert {case.split for case in random_cases(10)} == {"random"}


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(InputError, match="preset must be one of auto, fast, paper, got 'atuo'"):
        fit(GRAPH, preset="atuo")
