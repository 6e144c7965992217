"""The search space: which settings are tried for a graph, around the automatic choice.

A trial has flat parameters, which Optuna draws (`space`); `settings_of` turns them into settings.
Full passes or samples, what is precomputed and whether training is inductive stay as the automatic
choice has them: they follow from the sizes of the graph.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.train.automatic import has_dense_features

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

# The settings that each parameter decides; a parameter is left out if the user gave one of them.
DECIDES: dict[str, tuple[str, ...]] = {
    "network": ("skip", "input_skip", "pair"),
    "layers": ("hidden",),
    "hidden": ("hidden",),
    "normalization": ("normalization",),
    "norm": ("norm",),
    "feature_scaling": ("feature_scaling",),
    "input_dropout": ("dropout",),
    "hidden_dropout": ("dropout",),
    "weight_decay": ("weight_decay",),
    "learning_rate": ("learning_rate",),
    "samples": ("samples",),
    "batch_size": ("batch_size",),
    "class_weight": ("class_weight",),
    "loss": ("loss",),
}

# How a layer treats a node's own row: with weights of its own, two networks in one with and without
# that, or like a neighbour's.
_NETWORKS: dict[str, dict[str, bool]] = {
    "own rows": {"skip": True, "input_skip": True, "pair": False},
    "pair": {"skip": True, "input_skip": True, "pair": True},
    "no own rows": {"skip": False, "input_skip": False, "pair": False},
}

# Metrics that count all nodes alike; weights of classes do not raise them.
_COUNT_ALL = ("micro_f1", "accuracy", "loss", "calibration_error")

_WIDTH_STEP = 8  # hidden widths are multiples of it


def space(
    graph: Graph, base: TrainConfig, given: Collection[str], metric: str
) -> "dict[str, BaseDistribution]":
    """The parameters to try for a graph, each with its range; `base` is the automatic choice."""
    from optuna.distributions import CategoricalDistribution as OneOf
    from optuna.distributions import FloatDistribution as Number
    from optuna.distributions import IntDistribution as Whole

    wide = 4 * max(base.hidden_sizes, default=64)
    rate = base.learning_rate
    found: dict[str, BaseDistribution] = {
        "network": OneOf(_networks(base, given)),
        "layers": Whole(2, max(3, base.layers)),
        "hidden": Whole(16, max(64, wide), log=True),
        "normalization": OneOf(("symmetric", "row", "neighbors")),
        "norm": OneOf(("none", "layer", "batch")),
        "feature_scaling": OneOf(
            ("none", "standard") if has_dense_features(graph) else ("none", "row")
        ),
        "input_dropout": Number(0.0, 0.9, step=0.05),
        "hidden_dropout": Number(0.0, 0.9, step=0.05),
        "weight_decay": Number(1e-6, 1e-2, log=True),
        "learning_rate": Number(rate / 10, rate * 5, log=True),
    }
    if base.method == "fastgcn" and isinstance(base.samples, int):
        nodes = len(graph.split.train) if base.inductive else graph.n_nodes
        most = max(1, min(4 * base.samples, nodes))
        found["samples"] = Whole(max(1, min(50, most // 4)), most, log=True)
    if base.method != "gcn":
        most = max(1, min(4 * base.batch_size, len(graph.split.train)))
        found["batch_size"] = Whole(max(1, min(32, most // 4)), most, log=True)
    if not graph.regression and metric not in _COUNT_ALL:
        found["class_weight"] = OneOf(("none", "balanced"))
    if graph.regression:
        found["loss"] = OneOf(("mse", "huber"))
    if base.neighbor_sampling:  # GraphSAGE fixes these
        del found["normalization"], found["network"], found["layers"]
    if base.aggregator != "convolution":  # so do other aggregators
        del found["normalization"], found["network"]
        found["norm"] = OneOf(("none", "layer"))
    return {name: each for name, each in found.items() if not set(DECIDES[name]) & set(given)}


def _networks(base: TrainConfig, given: Collection[str]) -> tuple[str, ...]:
    """The networks that settings which the user gave allow."""
    fits_pair = ("norm" not in given or base.norm == "none") and base.jumping == "none"
    even = "hidden" not in given or all(width % 2 == 0 for width in base.hidden_sizes)
    return tuple(name for name in _NETWORKS if name != "pair" or (fits_pair and even))


def settings_of(params: Mapping[str, Any], base: TrainConfig) -> dict[str, Any]:
    """The settings that the parameters of a trial stand for.

    >>> base = TrainConfig(hidden=64).complete()
    >>> settings_of({"hidden": 100, "layers": 3, "norm": "layer"}, base)
    {'hidden': (96, 96), 'norm': 'layer'}
    """
    found = {n: _rounded(v) for n, v in params.items() if DECIDES[n] == (n,)}
    if "network" in params:
        found |= _NETWORKS[params["network"]]
        if params["network"] == "pair" and "norm" in params:
            found["norm"] = "none"
    if "hidden" in params:
        width = max(_WIDTH_STEP, round(params["hidden"] / _WIDTH_STEP) * _WIDTH_STEP)
        layers = params.get("layers", base.layers)
        found["hidden"] = width if layers == 2 else (width,) * (layers - 1)
    if "hidden_dropout" in params:
        found["dropout"] = tuple(_rounded(params[f"{n}_dropout"]) for n in ("input", "hidden"))
    if "weight_decay" in params and base.weight_decay == 0:
        found["weight_decay_on"] = "all"
    return found


def _rounded(value: Any) -> Any:
    """Three digits of a number are enough, and can be read."""
    return float(f"{value:.3g}") if isinstance(value, float) else value


def params_of(config: TrainConfig, found: "Mapping[str, BaseDistribution]") -> dict[str, Any]:
    """The parameters nearest to complete settings; each lies in its range."""
    dropout = config.dropout_rates
    own = {**_NETWORKS["own rows"], "skip": config.skip, "pair": config.pair}
    named = {
        "network": next((n for n, each in _NETWORKS.items() if each == own), "no own rows"),
        "layers": config.layers,
        "hidden": max(config.hidden_sizes, default=64),
        "input_dropout": dropout[0],
        "hidden_dropout": dropout[-1],
        "loss": "huber" if config.loss == "huber" else "mse",
    }
    values = {name: named.get(name, getattr(config, name, None)) for name in found}
    return {name: _nearest(value, found[name]) for name, value in values.items()}


def _nearest(value: Any, within: "BaseDistribution") -> Any:
    choices = getattr(within, "choices", None)
    if choices is not None:
        return value if value in choices else choices[0]
    return min(max(value, within.low), within.high)  # type: ignore[attr-defined]
