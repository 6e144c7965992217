"""Settings by name: the paper's, its rivals', and the best found here, each a `TrainConfig`."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fastgcn.config import TrainConfig
from fastgcn.errors import FormatError, InputError, MissingFileError, nearest
from fastgcn.graph.graph import Graph


def paper_cora() -> TrainConfig:
    """The paper's settings for Cora. What it does not mention (weight decay, scaling of features)
    is not done; of its three learning rates, the one that validation prefers."""
    return TrainConfig(hidden=16, samples=400, batch_size=256, learning_rate=0.01)


def paper_pubmed() -> TrainConfig:
    """The paper's settings for Pubmed, chosen as for Cora."""
    return TrainConfig(hidden=16, samples=100, batch_size=1024, learning_rate=0.001)


def paper_reddit() -> TrainConfig:
    """The paper's settings for Reddit (hidden 128, batch 256, t = 400)."""
    return TrainConfig(hidden=128, samples=400, batch_size=256, learning_rate=0.001)


def authors_code(base: TrainConfig | None = None) -> TrainConfig:
    """What the authors' published program does, where it departs from the paper.

    q ∝ ‖Â(:,u)‖ and not its square; drawn without replacement, among the neighbours of the
    batch; divided by t·q(u) with q normalised over all vertices, so that the estimate is
    scaled up; a partial last batch is dropped; L2 on the first layer only (5e-4; 1e-4 on
    Reddit), no biases; rows of features sum to one; the test graph is that of training and
    test nodes; their stopping rule. Load Planetoid data with `split="authors"`.
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
    return TrainConfig(
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
    """The paper's settings for a data set by name; Reddit's for one that it does not have."""
    if data_name in ("cora", "citeseer"):
        return paper_cora()
    return paper_pubmed() if data_name == "pubmed" else paper_reddit()


# Few vertices, well spent: drawn from the rows of the layer above by the sizes of their entries, in
# strata, the nodes themselves in full. Of the family, the lowest error of the gradient at a given
# t (docs/estimators.md).
_BEST_SAMPLER: dict[str, Any] = {
    "distribution": "ladies",
    "power": 1.0,
    "draws": "stratified",
    "self_term": "exact",
}

# Below this share of labelled training nodes, the graph between them is too thin to learn from.
_FEW_TRAINING_NODES = 0.1


def best_cora() -> TrainConfig:
    """For word counts of few nodes: a plain network, much dropout, means over neighbours.

    Chosen by cross validation over training and validation nodes (docs/LOG.md).
    """
    return TrainConfig(
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
    """For Pubmed's tf-idf rows: deep, with paths for each node's own rows; chosen as for Cora."""
    return TrainConfig(
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
    """The best settings known for a graph: by its name, or else by what it is like.

    Real-valued features are standardised. A batch is an eighth of the training nodes, within
    32..1,024. Where training nodes are few among many, all nodes' features and edges are used
    (transductive), as the training nodes alone have hardly an edge between them.

    >>> import fastgcn
    >>> best_preset(fastgcn.load("digits")).distribution
    'ladies'
    """
    n_train = len(graph.split.train)
    inductive = n_train >= _FEW_TRAINING_NODES * graph.n_nodes
    if graph.name in ("cora", "citeseer", "pubmed") and inductive:
        known = best_pubmed() if graph.name == "pubmed" else best_cora()
        return known if max(known.layer_samples) <= n_train else known.replace(samples=n_train)
    return TrainConfig(
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


# Each method as a change to the settings that the preset gives.
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
PRESETS: dict[str, Callable[[Graph], TrainConfig]] = {
    "best": best_preset,
    "paper": lambda graph: paper_preset(graph.name),
}


def settle(
    graph: Graph,
    *,
    preset: str | None = None,
    method: str = "fastgcn",
    file: Path | None = None,
    flags: Mapping[str, Any],
    assignments: Sequence[str] = (),
) -> TrainConfig:
    """The settings for a run on a graph: preset, then method, then file, then flags.

    Without a preset: the best settings, or the paper's where a method of its comparison is named.
    `flags` that are None were not given. `assignments` are texts KEY=VALUE in TOML's syntax.
    """
    if preset is None:
        preset = "best" if method == "fastgcn" else "paper"
    if preset not in PRESETS:
        raise InputError(
            f"preset must be one of {', '.join(PRESETS)}, got {preset!r}" + nearest(preset, PRESETS)
        )
    if method not in METHODS:
        raise InputError(
            f"method must be one of {', '.join(METHODS)}, got {method!r}" + nearest(method, METHODS)
        )
    config = METHODS[method](PRESETS[preset](graph))
    given = {key: value for key, value in flags.items() if value is not None}
    values = (read_toml(file) if file else {}) | _assigned(assignments) | given
    return config.replace(**values)


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise MissingFileError(f"there is no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not valid TOML: {error}") from None


def _assigned(assignments: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes KEY=VALUE, got {text!r}")
        try:
            values[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            values[key.strip()] = value.strip()  # a word without quotes
    return values


def sample_sizes(text: str | None) -> int | list[int] | str | None:
    """The flag `--samples`: numbers, or `auto`."""
    if text is not None and text.isalpha() and text != "auto":
        raise InputError(f"--samples must be whole numbers or auto, got {text!r}")
    return text if text == "auto" else whole_numbers(text, "--samples")


def whole_numbers(text: str | None, name: str) -> int | list[int] | None:
    """A flag such as `--samples 400` or `--samples 400,200`."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(
            f"{name} must be a whole number or several with commas, got {text!r}"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers
