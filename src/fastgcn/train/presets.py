"""Presets: the paper's settings, those of the systems it compares, and the automatic choice.

Each preset is a complete `TrainConfig`. `resolve` completes the settings that a user gives.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from fastgcn.config import VARIANTS, Preset, TrainConfig
from fastgcn.graph.graph import Graph


def _complete(**settings: Any) -> TrainConfig:
    """These settings, and the declared defaults for all others."""
    return TrainConfig(**settings).complete()


def paper_cora() -> TrainConfig:
    """The paper's settings for Cora.

    What the paper does not mention (weight decay, scaling of features) is not done. Of its three
    learning rates, this is the one with the best validation score.
    """
    return _complete(hidden=16, samples=400, batch_size=256, learning_rate=0.01)


def paper_pubmed() -> TrainConfig:
    """The paper's settings for Pubmed, chosen as for Cora."""
    return _complete(hidden=16, samples=100, batch_size=1024, learning_rate=0.001)


def paper_reddit() -> TrainConfig:
    """The paper's settings for Reddit (hidden 128, batch 256, t = 400)."""
    return _complete(hidden=128, samples=400, batch_size=256, learning_rate=0.001)


def authors_code(base: TrainConfig | None = None) -> TrainConfig:
    """`base` changed to what the authors' published program does, which departs from the paper.

    It draws with q ∝ ‖Â(:,u)‖, not its square, without replacement, among the neighbours of the
    batch. It divides by t·q(u) with q normalised over all vertices, which makes the estimate too
    large. It drops a partial last batch, has L2 on the first layer only (5e-4; 1e-4 on Reddit)
    and no biases, and scales rows of features to sum 1. It tests on the graph of training and
    test nodes, and has its own stopping rule. Load Planetoid data with `split="authors"`.
    """
    base = base or paper_cora()
    return base.replace(
        distribution="flat",
        draws="successive",
        neighbors_only=True,
        correct_weights=False,
        drop_last=True,
        bias=False,
        weight_decay=1e-4 if base.hidden == 128 else 5e-4,
        weight_decay_on="first",
        evaluation_graph="joined",
        early_stopping="authors",
        epochs=200,
        feature_scaling="row",
    )


def kipf_gcn() -> TrainConfig:
    """The original GCN as Kipf and Welling train it on the citation graphs: full batch."""
    return _complete(
        method="gcn",
        hidden=16,
        dropout=0.5,
        precompute=False,
        feature_scaling="row",
        weight_decay=5e-4,
        learning_rate=0.01,
        inductive=False,
        epochs=200,
        early_stopping="none",
    )


def graphsage(aggregator: Literal["gcn", "mean"], base: TrainConfig | None = None) -> TrainConfig:
    """GraphSAGE as the paper compares it: hidden 128, S1 = 25, S2 = 10, no precomputation."""
    base = base or paper_reddit()
    return base.replace(
        method=f"graphsage-{aggregator}",
        normalization="row" if aggregator == "gcn" else "neighbors",
        precompute=False,
        hidden=128,
        fanouts=(10, 25),
    )


def paper_preset(data_name: str) -> TrainConfig:
    """The paper's settings for a data set by name; Reddit's for any other data set."""
    if data_name in ("cora", "citeseer"):
        return paper_cora()
    return paper_pubmed() if data_name == "pubmed" else paper_reddit()


# Draw entries of the rows above in proportion to their sizes, stratified, with each node's own
# term exact. Of all samplers here, this has the lowest error of the gradient at a given t
# (docs/estimators.md).
_BEST_SAMPLER: dict[str, Any] = {
    "distribution": "ladies",
    "power": 1.0,
    "draws": "stratified",
    "self_term": "exact",
}

# Below this share of training nodes, too few edges join two of them to learn from.
_FEW_TRAINING_NODES = 0.1


def best_cora() -> TrainConfig:
    """For word counts of few nodes: the plain network, high dropout, means over neighbours.

    Chosen by cross validation over training and validation nodes (docs/LOG.md).
    """
    return _complete(
        **_BEST_SAMPLER,
        hidden=64,
        bias=True,
        normalization="row",
        dropout=0.7,
        weight_decay=5e-4,
        averaging=0.85,
        samples=800,
        batch_size=1024,
        learning_rate=0.01,
        epochs=250,
        patience=60,
    )


def best_pubmed() -> TrainConfig:
    """For Pubmed's tf-idf rows: deep, with skips for a node's own rows; chosen as for Cora."""
    return _complete(
        **_BEST_SAMPLER,
        hidden=(256, 256),
        norm="layer",
        skip=True,
        input_skip=True,
        jumping="max",
        dropout=(0.3, 0.5),
        weight_decay=1e-4,
        averaging=0.85,
        samples=2000,
        batch_size=1024,
        learning_rate=0.002,
        epochs=200,
        patience=30,
    )


def best_in_paper_budget(data_name: str) -> TrainConfig:
    """Hidden 16, two layers and the paper's t, with the better estimator; chosen as for Cora."""
    if data_name == "pubmed":
        return paper_pubmed().replace(
            **_BEST_SAMPLER,
            bias=True,
            norm="layer",
            skip=True,
            input_skip=True,
            dropout=0.3,
            weight_decay=1e-4,
            weight_decay_on="all",
            averaging=0.85,
            batch_size=4096,
            learning_rate=0.01,
            epochs=200,
            patience=40,
        )
    return paper_preset(data_name).replace(**_BEST_SAMPLER)


def best_preset(graph: Graph) -> TrainConfig:
    """The automatic choice: the best settings known for a graph, by its name or by its kind.

    Dense features are standardised. A batch is an eighth of the training nodes, within 32..1,024.
    If few of the nodes are training nodes, hardly any edge joins two of them, so training uses
    the features and edges of all nodes (transductive).

    >>> import fastgcn
    >>> best_preset(fastgcn.load("digits")).distribution
    'ladies'
    """
    n_train = len(graph.split.train)
    inductive = n_train >= _FEW_TRAINING_NODES * graph.n_nodes
    if graph.name in ("cora", "citeseer", "pubmed") and inductive:
        known = best_pubmed() if graph.name == "pubmed" else best_cora()
        return known if max(known.layer_samples) <= n_train else known.replace(samples=n_train)
    return _complete(
        **_BEST_SAMPLER,
        hidden=128,
        bias=True,
        norm="layer",
        skip=True,
        input_skip=True,
        dropout=(0.2, 0.5),
        feature_scaling="standard" if isinstance(graph.features, np.ndarray) else "none",
        samples=max(1, min(2000, n_train if inductive else graph.n_nodes)),
        batch_size=min(1024, max(32, n_train // 8)),
        learning_rate=0.005,
        epochs=100,
        patience=20,
        inductive=inductive,
    )


# What each method changes in the settings of a preset.
METHODS: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "fastgcn": lambda config: config,
    "fastgcn-uniform": lambda config: config.replace(distribution="uniform"),
    "fastgcn-transductive": lambda config: config.replace(inductive=False),
    "authors-code": authors_code,
    "gcn": lambda _: kipf_gcn(),
    "gcn-batched": lambda config: config.replace(method="gcn-batched"),
    "graphsage-gcn": lambda config: graphsage("gcn", config),
    "graphsage-mean": lambda config: graphsage("mean", config),
}
PRESETS: dict[Preset, Callable[[Graph], TrainConfig]] = {
    "auto": best_preset,
    "paper": lambda graph: paper_preset(graph.name),
}


def resolve(
    graph: Graph,
    config: TrainConfig | None = None,
    settings: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """The complete settings of a run: those that the user gave, and the preset's for the rest.

    `settings` override those of `config`. The preset is the automatic choice, or the paper's if
    the user names another method than FastGCN. A method may change the preset's settings, never
    the user's. Every way to train calls this, so all have the same defaults.

    >>> import fastgcn
    >>> digits = fastgcn.load("digits")
    >>> resolve(digits, TrainConfig(epochs=20)) == best_preset(digits).replace(epochs=20)
    True
    """
    given = (config or TrainConfig()).replace(**(settings or {}))
    if given.is_complete:
        return given
    preset: Preset = given.preset
    if "preset" not in given.given and given.method != "fastgcn":
        preset = "paper"
    start = METHODS[given.method](PRESETS[preset](graph))
    own = {k: v for k, v in given.to_dict().items() if k != "preset"}
    if given.method in VARIANTS:
        del own["method"]
    chosen = start.replace(**own)
    if preset == "auto" and "samples" not in own and isinstance(chosen.samples, int):
        # The user may have chosen a smaller training graph than the preset's.
        n = len(graph.split.train) if chosen.inductive else graph.n_nodes
        chosen = chosen.replace(samples=max(1, min(chosen.samples, n)))
    return chosen
