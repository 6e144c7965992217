"""The golden runs: on which graph, with which settings, and how each is run.

Only what `import fastgcn` and the command offer is used, so that these stay as they are when
modules move. `BASE` states every setting: a new default changes no case.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

import fastgcn
from fastgcn import GenerateConfig, Graph, Split, TrainConfig

Settings = dict[str, Any]

BASE: Settings = {
    "method": "fastgcn",
    "hidden": 8,
    "bias": False,
    "dropout": 0.0,
    "skip": False,
    "input_skip": False,
    "norm": "none",
    "jumping": "none",
    "normalization": "symmetric",
    "feature_scaling": "none",
    "precompute": True,
    "samples": 60,
    "target_error": 0.1,
    "distribution": "importance",
    "power": None,
    "draws": "independent",
    "self_term": "sampled",
    "history": False,
    "history_every": 1,
    "neighbors_only": False,
    "correct_weights": True,
    "fanouts": [25, 10],
    "batch_size": 64,
    "epochs": 4,
    "learning_rate": 0.02,
    "weight_decay": 0.0,
    "weight_decay_on": "first",
    "averaging": 0.0,
    "class_weight": "none",
    "drop_last": False,
    "early_stopping": "patience",
    "patience": 100,
    "validate_every": "auto",
    "inductive": True,
    "evaluation_graph": "all",
    "seed": 3,
    "device": "cpu",
    "threads": 1,
    "memory": "auto",
    "inputs_dtype": "float32",
    "features": "auto",
    "products": "tf32",
}


@dataclass(frozen=True)
class Case:
    """One golden run.

    Attributes:
        graph: its name in `GRAPHS`.
        changes: settings that differ from `BASE`, or from those of `preset`.
        preset: settings to start from, asked for when the case is recorded.
        how: by `fit`; interrupted and resumed; with what fits on disk there; by the command; by
            the command in two processes.
        command: what the command is given beside the graph.
        default_preset: what it does follows from defaults, which may change on purpose; it is
            then recorded again.
        exact: whether scores are equal to the last bit, or to rounding only.
    """

    graph: str
    changes: Settings = field(default_factory=dict)
    preset: Callable[[Graph], TrainConfig] | None = None
    how: Literal["fit", "resumed", "disk", "command", "ranks"] = "fit"
    command: tuple[str, ...] = ()
    default_preset: bool = False
    exact: bool = True


def communities(
    *,
    multilabel: bool = False,
    directed: bool = False,
    weighted: bool = False,
    sparse: bool = False,
    unlabelled: bool = False,
) -> Graph:
    """400 nodes in four groups with more edges inside than between, and 12 features."""
    n, classes = 400, 4
    rng = np.random.default_rng(11)
    group = rng.integers(classes, size=n)
    near = np.where(group[:, None] == group[None, :], 0.06, 0.008)
    source, target = np.nonzero(rng.random((n, n)) < near)
    features = rng.normal(size=(n, 12)) + 1.2 * np.eye(classes, 12)[group]
    features[features < 0.3] = 0  # so that sparse features are sparse
    turn = np.arange(n) % 5
    if unlabelled:  # a third belongs to no part and has no label
        turn[::3] = 9
    labels = group[:, None] <= np.arange(classes) if multilabel else group
    if unlabelled:
        labels = np.where(turn == 9, -1, labels)
    return Graph.from_edges(
        source,
        target,
        weights=rng.integers(1, 9, len(source)) / 4 if weighted else None,
        directed=directed,
        features=csr_array(features) if sparse else features,
        labels=labels,
        split=Split(*(np.flatnonzero(part) for part in (turn < 3, turn == 3, turn == 4))),
        name="communities",
    )


def generated(folder: Path, **sizes: int) -> Graph:
    """A graph that the generator writes into `folder`, mapped."""
    fastgcn.generate(GenerateConfig(seed=5, **sizes), folder)  # type: ignore[arg-type]
    return fastgcn.open_store(folder)


# How each graph is made; the folder is an empty one to keep it in.
GRAPHS: dict[str, Callable[[Path], Graph]] = {
    "plain": lambda _: communities(),
    "sparse": lambda _: communities(sparse=True),
    "directed": lambda _: communities(directed=True),
    "weighted": lambda _: communities(weighted=True),
    "directed weighted sparse": lambda _: communities(directed=True, weighted=True, sparse=True),
    "multilabel": lambda _: communities(multilabel=True),
    "unlabelled": lambda _: communities(unlabelled=True),
    "generated": lambda folder: generated(
        folder, nodes=3_000, edges=12_000, features=24, classes=5
    ),
    # Its ÂX, 29 MB, is what a tight budget has no room for.
    "wide": lambda folder: generated(folder, nodes=12_000, edges=24_000, features=1_000, classes=3),
    "digits": lambda _: fastgcn.load("digits"),
    "cora": lambda _: fastgcn.load("cora"),
    "pubmed": lambda _: fastgcn.load("pubmed"),
}
PUBLISHED = ("cora", "pubmed")  # files that `FASTGCN_DATA` must lead to


@cache
def has_published() -> bool:
    """Whether the published graphs are here."""
    folder = os.environ.get("FASTGCN_DATA")
    return bool(folder) and (Path(folder or "") / "planetoid").is_dir()


def _paper(graph: Graph) -> TrainConfig:
    named = {"cora": fastgcn.paper_cora, "pubmed": fastgcn.paper_pubmed}
    return named.get(graph.name, fastgcn.paper_reddit)()


BEST_SAMPLER: Settings = {
    "distribution": "ladies",
    "power": 1.0,
    "draws": "stratified",
    "self_term": "exact",
}
# Where runs by preset are cut short.
SHORT: Settings = {"device": "cpu", "threads": 1, "epochs": 3, "seed": 1}
QUIET = ("--threads", "1", "--device", "cpu")

CASES: dict[str, Case] = {
    # Distributions and draws.
    "importance, independent": Case("plain"),
    "uniform, successive": Case("plain", {"distribution": "uniform", "draws": "successive"}),
    "flat, poisson": Case("plain", {"distribution": "flat", "power": 0.5, "draws": "poisson"}),
    "flat, own power": Case("plain", {"distribution": "flat"}),
    "importance, systematic": Case("plain", {"draws": "systematic"}),
    "importance, stratified": Case("plain", {"draws": "stratified"}),
    "importance, poisson, exact": Case("plain", {"draws": "poisson", "self_term": "exact"}),
    "optimal": Case("plain", {"distribution": "optimal"}),
    "optimal, stratified, exact": Case(
        "plain", {"distribution": "optimal", "draws": "stratified", "self_term": "exact"}
    ),
    "ladies": Case("plain", {"distribution": "ladies"}),
    "ladies, systematic": Case("plain", {"distribution": "ladies", "draws": "systematic"}),
    "ladies, stratified, exact": Case("plain", {**BEST_SAMPLER, "hidden": [8, 6]}),
    "neighbours only": Case("plain", {"neighbors_only": True, "draws": "successive"}),
    "neighbours only, independent": Case(
        "plain", {"neighbors_only": True, "distribution": "uniform", "precompute": False}
    ),
    "neighbours only, stratified": Case(
        "plain", {"neighbors_only": True, "draws": "stratified", "self_term": "exact"}
    ),
    "neighbours only, poisson": Case("plain", {"neighbors_only": True, "draws": "poisson"}),
    "ladies, successive": Case("plain", {"distribution": "ladies", "draws": "successive"}),
    "ladies, poisson, exact": Case(
        "plain", {"distribution": "ladies", "draws": "poisson", "self_term": "exact"}
    ),
    "authors' factor, independent": Case("plain", {"correct_weights": False}),
    "optimal, successive": Case("plain", {"distribution": "optimal", "draws": "successive"}),
    "optimal, poisson": Case("plain", {"distribution": "optimal", "draws": "poisson"}),
    "exact self term, independent": Case("plain", {"self_term": "exact", "hidden": [8, 6]}),
    "history": Case("plain", {"history": True, "validate_every": 1}),
    "history, every second epoch": Case(
        "plain", {**BEST_SAMPLER, "history": True, "history_every": 2, "hidden": [8, 6]}
    ),
    "automatic sizes": Case("plain", {"samples": "auto", "target_error": 0.4}),
    # Methods.
    "authors' code": Case(
        "plain",
        {
            "distribution": "flat",
            "draws": "successive",
            "neighbors_only": True,
            "correct_weights": False,
            "drop_last": True,
            "weight_decay": 5e-4,
            "evaluation_graph": "joined",
            "early_stopping": "authors",
            "feature_scaling": "row",
        },
    ),
    "gcn": Case(
        "sparse",
        {
            "method": "gcn",
            "dropout": 0.5,
            "precompute": False,
            "feature_scaling": "row",
            "weight_decay": 5e-4,
            "inductive": False,
            "early_stopping": "none",
            "epochs": 8,
        },
    ),
    "gcn, precomputed": Case("plain", {"method": "gcn", "hidden": [8, 6], "bias": True}),
    "gcn-batched": Case("plain", {"method": "gcn-batched", "precompute": False, "dropout": 0.3}),
    "gcn-batched, precomputed": Case("plain", {"method": "gcn-batched", "hidden": [8, 6]}),
    "graphsage-gcn": Case(
        "plain",
        {
            "method": "graphsage-gcn",
            "normalization": "row",
            "precompute": False,
            "fanouts": [3, 5],
        },
    ),
    "graphsage-mean": Case(
        "plain",
        {
            "method": "graphsage-mean",
            "normalization": "neighbors",
            "precompute": False,
            "fanouts": [3, 5],
            "dropout": 0.2,
        },
    ),
    "graphsage-mean, three layers, sparse": Case(
        "sparse",
        {
            "method": "graphsage-mean",
            "normalization": "neighbors",
            "precompute": False,
            "hidden": [8, 6],
            "fanouts": [2, 3, 5],
        },
    ),
    # Networks and optimisation.
    "one layer": Case("plain", {"hidden": []}),
    "nothing precomputed": Case("plain", {"precompute": False, "samples": [80, 40]}),
    "nothing precomputed, sparse": Case(
        "sparse", {"precompute": False, "hidden": [8, 6], "input_skip": True, "dropout": 0.2}
    ),
    "skip, concat, layer norm": Case(
        "plain",
        {"hidden": [8, 6], "skip": True, "jumping": "concat", "norm": "layer", "bias": True},
    ),
    "input skip, max, batch norm": Case(
        "plain",
        {"hidden": [8, 8], "input_skip": True, "jumping": "max", "norm": "batch"},
    ),
    "dropout, decay, averaging": Case(
        "plain",
        {
            "bias": True,
            "dropout": [0.2, 0.5],
            "weight_decay": 1e-3,
            "weight_decay_on": "all",
            "averaging": 0.85,
            "normalization": "row",
            "patience": 2,
            "learning_rate": 0.3,
            "epochs": 12,
        },
    ),
    "standardised, balanced": Case(
        "plain", {"feature_scaling": "standard", "class_weight": "balanced", "input_skip": True}
    ),
    "row scaling, sparse": Case("sparse", {"feature_scaling": "row", "drop_last": True}),
    # Graphs.
    "directed": Case("directed", {"hidden": [8, 6]}),
    "weighted": Case("weighted", {**BEST_SAMPLER, "skip": True}),
    "directed, weighted, sparse": Case("directed weighted sparse", {"normalization": "row"}),
    "multilabel": Case("multilabel", {**BEST_SAMPLER, "dropout": 0.2}),
    "multilabel, optimal": Case("multilabel", {"distribution": "optimal", "bias": True}),
    "unlabelled": Case("unlabelled", {"inductive": False}),
    "transductive, rare validation": Case(
        "plain", {"inductive": False, "validate_every": 3, "epochs": 5, "hidden": [8, 6]}
    ),
    # Machine.
    "two threads": Case("digits", {"hidden": 64, "samples": 300, "threads": 2, "epochs": 2}),
    "float16": Case("plain", {"inputs_dtype": "float16"}),
    "bfloat16": Case("plain", {"inputs_dtype": "bfloat16", "input_skip": True}),
    "resumed": Case("plain", {"dropout": 0.3, "epochs": 6, "averaging": 0.5}, how="resumed"),
    "resumed, optimal": Case(
        "plain", {"distribution": "optimal", "epochs": 5, "hidden": [8, 6]}, how="resumed"
    ),
    "resumed, history": Case(
        "plain", {"history": True, "history_every": 3, "epochs": 6}, how="resumed"
    ),
    # How large the pieces are that scores are computed in follows from what memory is left.
    "on disk": Case(
        "wide", {"epochs": 1, "batch_size": 512, "samples": 1_500}, how="disk", exact=False
    ),
    "on disk, float16": Case(
        "wide",
        {
            **BEST_SAMPLER,
            "inputs_dtype": "float16",
            "epochs": 1,
            "batch_size": 512,
            "samples": 1_500,
        },
        how="disk",
        exact=False,
    ),
    "two ranks": Case(
        "generated",
        {"hidden": [16, 8], "samples": 200, "batch_size": 256, "epochs": 2},
        how="ranks",
        exact=False,
    ),
    # Presets.
    "paper, cora": Case("cora", SHORT, _paper),
    "paper, pubmed": Case("pubmed", SHORT | {"epochs": 2}, _paper),
    "paper, digits": Case("digits", SHORT, _paper),
    "paper, generated": Case("generated", SHORT, _paper),
    "best, cora": Case("cora", SHORT, fastgcn.best_preset),
    "best, pubmed": Case("pubmed", SHORT | {"epochs": 1, "hidden": [64, 64]}, fastgcn.best_preset),
    "best, digits": Case("digits", SHORT, fastgcn.best_preset),
    "best, generated": Case("generated", SHORT, fastgcn.best_preset),
    "command, paper, cora": Case(
        "cora",
        how="command",
        command=("--preset", "paper", "--epochs", "3", "--seed", "1", *QUIET),
    ),
    "command, digits": Case(
        "digits", how="command", command=("--epochs", "4", *QUIET), default_preset=True
    ),
    "command, graphsage-mean, digits": Case(
        "digits",
        how="command",
        command=("--method", "graphsage-mean", "--epochs", "1", *QUIET),
    ),
}

# Presets as settings.
PRESETS: dict[str, Callable[[], TrainConfig]] = {
    "paper_cora": lambda: fastgcn.paper_cora(),
    "paper_pubmed": lambda: fastgcn.paper_pubmed(),
    "paper_reddit": lambda: fastgcn.paper_reddit(),
    "authors_code": lambda: fastgcn.authors_code(fastgcn.paper_cora()),
    "kipf_gcn": lambda: fastgcn.kipf_gcn(),
    "graphsage, gcn": lambda: fastgcn.graphsage("gcn", fastgcn.paper_reddit()),
    "graphsage, mean": lambda: fastgcn.graphsage("mean", fastgcn.paper_reddit()),
}
