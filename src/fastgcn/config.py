"""`TrainConfig`: the one declaration of every setting of a training run.

`python -m fastgcn.config` prints the table of settings that docs/training.md contains.
"""

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fastgcn.errors import InputError, nearest
from fastgcn.memory import memory_bytes
from fastgcn.settings import Setting, as_plain, markdown_table, schema, setting

Preset = Literal["auto", "fast", "paper"]
Method = Literal[
    "fastgcn", "gcn", "gcn-batched", "graphsage-gcn", "graphsage-mean",
    "fastgcn-uniform", "fastgcn-transductive", "authors-code",
]  # fmt: skip
Distribution = Literal["importance", "uniform", "flat", "optimal", "ladies"]
Draws = Literal["independent", "successive", "poisson", "systematic", "stratified"]
SelfTerm = Literal["sampled", "exact"]
EarlyStopping = Literal["none", "authors", "patience"]
FeatureScaling = Literal["none", "row", "standard"]
Norm = Literal["none", "layer", "batch"]
Jumping = Literal["none", "concat", "max"]
InputsDtype = Literal["float32", "float16", "bfloat16"]
FeaturesPlace = Literal["auto", "device", "host"]
Products = Literal["tf32", "float32"]
# As in `fastgcn.graph.adjacency`, which loads numpy; the type checker compares the two.
Normalization = Literal["symmetric", "row", "neighbors", "sum"]
Aggregator = Literal["convolution", "mean", "sum", "max", "attention"]

# These methods are names for settings of method "fastgcn"; `resolve` replaces them.
VARIANTS: tuple[Method, ...] = ("fastgcn-uniform", "fastgcn-transductive", "authors-code")

# `power` if none is given: that of the authors' program, and of LADIES as published.
OWN_POWERS: dict[Distribution, float] = {"flat": 1.0, "ladies": 2.0}

# With a larger power, small entries of Â underflow to zero and would never be drawn.
LARGEST_POWER = 16

# Settings that complete settings of earlier versions lack: these have the defaults then, which is
# the behaviour they had.
_ADDED = frozenset({"pair", "metric", "calibrate", "loss", "aggregator", "heads", "ensemble"})

# The generators are seeded with seed, seed + 1 and seed + 2, which must fit in 64 bits.
_LARGEST_SEED = 2**63 - 1


def _check_device(device: str) -> None:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"device must be auto, cpu or cuda[:N], got {device!r}")


def _check_memory(memory: str) -> None:
    if memory != "auto":
        memory_bytes(memory)


# What validation can select by, beside recall@K and recall@P%; those of predicted numbers are last.
NUMBER_METRICS = ("r2", "mae", "rmse")
METRICS = (
    "micro_f1", "macro_f1", "accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision",
    "loss", "calibration_error", *NUMBER_METRICS,
)  # fmt: skip


def _check_metric(name: str) -> None:
    found = re.fullmatch(r"recall@([0-9]{1,9}|[0-9]{1,2}(?:\.[0-9]{1,4})?%|100%)", name)
    if name not in ("auto", *METRICS) and (found is None or not float(found[1].rstrip("%"))):
        raise InputError(
            f"metric must be auto, {', '.join(METRICS)}, recall@K or recall@P%, "
            f"got {name!r}{nearest(name, METRICS)}"
        )


_general = partial(setting, group="General")
_network = partial(setting, group="Network")
_sampling = partial(setting, group="Sampling")
_training = partial(setting, group="Training")
_machine = partial(setting, group="Machine")


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainConfig:
    """Settings of a training run: those that are given, and a preset for all others.

    `TrainConfig()` leaves every setting to the automatic choice, which `fit` makes for the
    graph; `TrainConfig(preset="paper")` uses the paper's. A given setting always takes precedence.
    A config is complete when every setting is given. Presets and finished runs have complete
    ones. In a config that is not complete, a setting that was not given reads as the default of
    its declaration, and `fit` chooses its value if the signature says `<automatic>`.

    >>> config = TrainConfig(hidden=16, samples=100).replace(seed=3)
    >>> config, config.layers
    (TrainConfig(seed=3, hidden=16, samples=100), 2)
    >>> TrainConfig(batch_size=0)
    Traceback (most recent call last):
    fastgcn.errors.InputError: batch_size must be at least 1, got 0
    """

    # A table: the default, one sentence of help, then bounds and the like.
    # fmt: off
    preset: Preset = _general("auto",
        "Where settings that are not given come from: auto races a few candidates on the graph's "
        "validation nodes, fast takes the first of them, paper has the paper's.")
    method: Method = _general("fastgcn",
        "System to train: fastgcn, gcn, gcn-batched, graphsage-gcn, graphsage-mean; or variants: "
        "fastgcn-uniform, fastgcn-transductive, authors-code.", automatic=True)
    seed: int = _general(0, "Seed of everything random.", at_least=0, at_most=_LARGEST_SEED)
    epochs: int = _general(
        400, "Passes over the training nodes, at most.", automatic=True, at_least=1)

    hidden: int | tuple[int, ...] = _network(
        128, "Widths of the hidden layers, such as 128 or 64,64.", automatic=True, at_least=1)
    bias: bool = _network(False, "Add a bias in each layer.", automatic=True)
    dropout: float | tuple[float, ...] = _network(0.0,
        "Share of entries set to zero in training: one rate; two, for features and for hidden "
        "rows; or one per layer.", automatic=True, at_least=0, below=1)
    skip: bool = _network(False,
        "Add a node's own row with weights of its own above the first layer: ÂHW + HR + b.",
        automatic=True)
    input_skip: bool = _network(
        False, "Add a node's own row in the first layer too: ÂXW + XR + b.", automatic=True)
    norm: Norm = _network("none",
        "Normalise after each hidden convolution, before ReLU: none, layer or batch.",
        automatic=True)
    jumping: Jumping = _network("none",
        "What the output layer sees of all hidden layers: none, concat (side by side) or max "
        "(largest entries).", automatic=True)
    pair: bool = _network(False,
        "Train two networks in one, with and without own rows: each has half of the hidden widths "
        "and its own loss, and the model is their mean.", automatic=True)
    aggregator: Aggregator = _network("convolution",
        "How a layer combines a node's neighbours: convolution (a product with Â, the paper's), "
        "mean, sum, max (largest entries) or attention (GATv2).")
    heads: int = _network(4, "attention: heads of a hidden layer.", at_least=1)
    normalization: Normalization = _network("symmetric",
        "Â: symmetric (the paper's), row (mean with the node), neighbors (mean without it) or sum "
        "(of the neighbours).", automatic=True)
    feature_scaling: FeatureScaling = _network("none",
        "Scale features: none, row (magnitudes of a node sum to 1) or standard (z-scores of each "
        "column).", automatic=True)
    precompute: bool = _network(
        True, "Compute ÂX once, so that the first layer is exact (Table 2).", automatic=True)

    samples: int | tuple[int, ...] | Literal["auto"] = _sampling(400,
        "Vertices drawn for a sampled layer, such as 400, or 400,200 from the input up; auto "
        "chooses by target_error.", automatic=True, at_least=1)
    target_error: float = _sampling(
        0.1, "Relative error of a sampled convolution that samples = auto aims at.", above=0)
    distribution: Distribution = _sampling("importance",
        "Draw by importance (Alg. 2), uniform (Alg. 1), flat, optimal (Thm 3) or ladies (from the "
        "rows of the layer above).", automatic=True)
    power: float | None = _sampling(None,
        "flat: q(u) ∝ ‖Â(:,u)‖^power; ladies: q(u) ∝ Σ_v |Â(v,u)|^power over the rows v above; "
        "published powers: 1 and 2.", automatic=True, at_least=0, at_most=LARGEST_POWER)
    draws: Draws = _sampling("independent",
        "Draw independent (with replacement), successive (without, Des Raj's weights), poisson, "
        "systematic or stratified.", automatic=True)
    self_term: SelfTerm = _sampling("sampled",
        "A node's own term Â(v,v)·H(v): sampled like the others, or exact.", automatic=True)
    history: bool = _sampling(
        False, "Sample only the change of hidden rows since they were last computed in full.")
    history_every: int = _sampling(
        1, "Epochs between two computations of all hidden rows for history.", at_least=1)
    neighbors_only: bool = _sampling(
        False, "Draw only among the neighbours of the layer above, correctly reweighted.")
    correct_weights: bool = _sampling(
        True, "Weight draws without bias; false has the factor of the authors' program.")
    fanouts: tuple[int, ...] = _sampling(
        (25, 10), "GraphSAGE: neighbours drawn a node, from the input up.", at_least=1)

    batch_size: int = _training(256, "Training nodes a step.", automatic=True, at_least=1)
    learning_rate: float = _training(0.01, "Adam's step size.", automatic=True, above=0)
    weight_decay: float = _training(0.0, "L2 penalty on weights.", automatic=True, at_least=0)
    weight_decay_on: Literal["first", "all"] = _training(
        "first", "Layers with the L2 penalty: first or all.", automatic=True)
    averaging: float = _training(0.0,
        "Evaluate and keep mean weights, W̄ = averaging·W̄ + (1 − averaging)·W after each epoch.",
        automatic=True, at_least=0, below=1)
    ensemble: int = _training(1,
        "Networks to train, each from another seed; the model is the mean of their outputs.",
        automatic=True, at_least=1, at_most=100)
    class_weight: Literal["none", "balanced"] = _training(
        "none", "Weight of a class in the loss: none (equal) or balanced (1/frequency).")
    loss: Literal["auto", "mse", "huber"] = _training("auto",
        "Regression: the loss of standardised targets, mse, or huber, which counts outliers less; "
        "auto: mse.")
    metric: str = _training("auto",
        "What validation selects by: micro_f1, macro_f1, accuracy, balanced_accuracy, f1, roc_auc, "
        "average_precision, loss, calibration_error, recall@K or recall@P%; auto: micro_f1, or "
        "average_precision for two classes of which one is rare. Of numbers: r2, mae, rmse or "
        "loss; auto: r2.", check_text=_check_metric)
    calibrate: bool = _training(True,
        "Divide outputs by a temperature fitted on validation nodes, if that lowers their loss.")
    drop_last: bool = _training(False, "Leave out a last batch that is not full.")
    early_stopping: EarlyStopping = _training(
        "patience", "Stopping rule: none, authors (their program's) or patience.")
    patience: int = _training(100,
        "Epochs without a better validation score before training stops.",
        automatic=True, at_least=1)
    validate_every: int | Literal["auto"] = _training("auto",
        "Epochs between validations; auto makes training at least as much work as validation.",
        at_least=1)
    inductive: bool = _training(True,
        "Train without the other nodes, or with their features and edges.",
        automatic=True, flag="--inductive/--transductive")
    evaluation_graph: Literal["all", "joined"] = _training(
        "all", "Nodes in the graph of an evaluation: all, or joined (training and asked nodes).")

    device: str = _machine(
        "auto", "Where to train: auto, cpu, cuda or cuda:N.", check_text=_check_device)
    threads: int = _machine(0, "CPU threads; 0 means all.", at_least=0, at_most=4096)
    memory: str = _machine("auto",
        "Memory that the process may use, such as 4GB; auto means all. What does not fit stays on "
        "disk.", check_text=_check_memory)
    inputs_dtype: InputsDtype = _machine(
        "float32", "Type in which a dense ÂX is kept: float32, float16 or bfloat16.")
    features: FeaturesPlace = _machine(
        "auto", "On a GPU, where the features are kept: auto, device or host.")
    products: Products = _machine(
        "tf32", "On a GPU, precision of a training step's matrix products: tf32 or float32.")
    # fmt: on

    def __post_init__(self) -> None:
        values = {name: as_plain(getattr(self, name)) for name in SETTINGS}
        given = frozenset(k for k, value in values.items() if not isinstance(value, Setting))
        if given >= SETTINGS.keys() - {"preset", *_ADDED}:  # complete: the preset decides nothing
            values |= {n: SETTINGS[n].default for n in _ADDED - given} | {"preset": "auto"}
            given = frozenset(SETTINGS)
        object.__setattr__(self, "_given", given)
        for name, value in values.items():
            if name in given:
                SETTINGS[name].check(value)
            object.__setattr__(self, name, value if name in given else SETTINGS[name].default)
        for names, check in _RELATIONS:
            if given.issuperset(names):
                check(self)

    @property
    def given(self) -> frozenset[str]:
        """The names of the settings that were given; all others are left to the preset."""
        names: frozenset[str] = self.__dict__["_given"]
        return names

    @property
    def is_complete(self) -> bool:
        """True if every setting was given."""
        return len(self.given) == len(SETTINGS)

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self._given_values().items())
        return f"TrainConfig({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainConfig) and vars(self) == vars(other)

    @property
    def neighbor_sampling(self) -> bool:
        return self.method in ("graphsage-gcn", "graphsage-mean")

    @property
    def is_linear(self) -> bool:
        """True if a layer combines neighbours by a product with a matrix."""
        return self.aggregator in ("convolution", "mean", "sum")

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        return (self.hidden,) if isinstance(self.hidden, int) else self.hidden

    @property
    def layers(self) -> int:
        """M, the number of weight matrices."""
        return len(self.hidden_sizes) + 1

    @property
    def dropout_rates(self) -> tuple[float, ...]:
        """The rate for the input of each layer.

        >>> TrainConfig(hidden=(64, 64), dropout=(0.2, 0.5)).dropout_rates
        (0.2, 0.5, 0.5)
        """
        if not isinstance(self.dropout, tuple):
            return (self.dropout,) * self.layers
        if len(self.dropout) == self.layers:
            return self.dropout
        features, hidden = self.dropout
        return (features, *(hidden,) * (self.layers - 1))

    @property
    def needs_own_rows(self) -> bool:
        """True if a layer reads its nodes' own rows, so that `src` of a block must hold `dst`."""
        if not self.is_linear:
            return True
        above = self.layers > 1 and (self.skip or self.jumping != "none")
        first = self.method == "graphsage-mean" or (self.input_skip and not self.precompute)
        return above or first

    @property
    def sampled_layers(self) -> int:
        """The number of sampled convolutions: all but the precomputed one."""
        return self.layers - self.precompute

    @property
    def layer_samples(self) -> tuple[int, ...]:
        """t_l for each sampled layer, from the input up; empty if the method draws no vertices."""
        if self.method != "fastgcn":
            return ()
        if self.samples == "auto":
            raise InputError(
                "samples = 'auto' has not been replaced by numbers yet; do it with "
                "config.replace(samples=...)"
            )
        if isinstance(self.samples, int):
            return (self.samples,) * self.sampled_layers
        return self.samples

    def replace(self, **changes: Any) -> "TrainConfig":
        """A copy with some settings changed; an unknown name is an error.

        With another distribution, `power` becomes that distribution's default unless it is
        given too.
        """
        kept = self.to_dict()
        if changes.get("distribution", self.distribution) != self.distribution:
            kept |= {"power": None} if {"distribution", "power"} <= self.given else {}
        return TrainConfig.from_dict(kept | changes)

    def complete(self) -> "TrainConfig":
        """A copy in which all other settings count as given, with their declared defaults.

        The preset then decides nothing.

        >>> TrainConfig(hidden=16).complete().is_complete
        True
        """
        return TrainConfig(**{n: getattr(self, n) for n in SETTINGS if n != "preset"})

    def to_dict(self) -> dict[str, Any]:
        """The settings that were given, as plain data for JSON or TOML: tuples as lists."""
        return json.loads(json.dumps(self._given_values()))  # type: ignore[no-any-return]

    def _given_values(self) -> dict[str, Any]:
        """The given settings; without the preset if the config is complete."""
        names = self.given - {"preset"} if self.is_complete else self.given
        return {name: getattr(self, name) for name in SETTINGS if name in names}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """From plain data; the error for an unknown name suggests the nearest right one.

        Names of earlier versions are accepted: `replacement`, which `draws` has replaced, and
        the preset `best`, which is called `auto` now.
        """
        values = dict(values)
        if "replacement" in values:
            old = values.pop("replacement")
            if not isinstance(old, bool):
                raise InputError(f"replacement must be true or false, got {old!r}")
            values["draws"] = "independent" if old else "successive"
        if values.get("preset") == "best":
            values["preset"] = "auto"
        for key in values:
            if key not in SETTINGS:
                raise InputError(
                    f"unknown setting {key!r}{nearest(key, SETTINGS)}"
                    if nearest(key, SETTINGS)
                    else f"unknown setting {key!r}; the settings are {', '.join(SETTINGS)}"
                )
        return cls(**values)

    @staticmethod
    def schema() -> dict[str, Any]:
        """A JSON schema of the settings, with which editors check TOML and JSON files."""
        return schema(SETTINGS, "Settings of fastgcn train")


# Every setting by its name, in the order of the declaration.
SETTINGS: dict[str, Setting] = {
    field.name: field.default  # type: ignore[misc]
    for field in dataclasses.fields(TrainConfig)
}


def _check_method(config: TrainConfig) -> None:
    if config.method in VARIANTS:
        raise InputError(
            f"method = {config.method!r} stands for several settings, and these are all given "
            "already; set method = 'fastgcn'"
        )


def _check_jumping(config: TrainConfig) -> None:
    if config.jumping == "max" and len(set(config.hidden_sizes)) > 1:
        raise InputError(
            "jumping = 'max' compares the hidden layers entry by entry, so they must have one "
            f"width, got hidden = {list(config.hidden_sizes)}"
        )


def _check_pair(config: TrainConfig) -> None:
    if not config.pair:
        return
    needs = {
        "skip = true": config.skip,
        "input_skip = true": config.input_skip,
        "norm = 'none'": config.norm == "none",
        "jumping = 'none'": config.jumping == "none",
        "even hidden widths": bool(config.hidden_sizes)
        and all(width % 2 == 0 for width in config.hidden_sizes),
    }
    for need, met in needs.items():
        if not met:
            raise InputError(f"pair = true, two networks in one, needs {need}")


def _check_ensemble(config: TrainConfig) -> None:
    if config.ensemble > 1 and (config.jumping == "concat" or not config.is_linear):
        raise InputError(
            f"ensemble = {config.ensemble} needs jumping = 'none' or 'max', and aggregator = "
            f"'convolution', 'mean' or 'sum', got {config.jumping!r} and {config.aggregator!r}"
        )


# What Â must be for an aggregator. The first is chosen if none is given.
AGGREGATOR_NORMALIZATIONS: dict[Aggregator, tuple[Normalization, ...]] = {
    "convolution": ("symmetric", "row", "neighbors", "sum"),
    "mean": ("neighbors", "row"),
    "sum": ("sum",),
    "max": ("neighbors", "row"),
    "attention": ("row",),
}


def _check_aggregator(config: TrainConfig) -> None:
    name, kinds = config.aggregator, AGGREGATOR_NORMALIZATIONS[config.aggregator]
    if config.normalization not in kinds:
        raise InputError(
            f"aggregator = {name!r} needs normalization = {' or '.join(map(repr, kinds))}, got "
            f"{config.normalization!r}"
        )
    if config.is_linear:
        return
    needs = {
        "method = 'fastgcn', 'gcn' or 'gcn-batched'": not config.neighbor_sampling,
        "precompute = false": not config.precompute,
        "pair = false": not config.pair,
        "jumping = 'none'": config.jumping == "none",
        "norm = 'none' or 'layer'": config.norm != "batch",
        "history = false": not config.history,
        "another distribution than 'optimal'": config.distribution != "optimal",
        f"hidden widths that heads = {config.heads} divides": name == "max"
        or all(width % config.heads == 0 for width in config.hidden_sizes),
    }
    for need, met in needs.items():
        if not met:
            raise InputError(f"aggregator = {name!r} needs {need}")


def _check_dropout(config: TrainConfig) -> None:
    if isinstance(config.dropout, tuple) and len(config.dropout) not in (2, config.layers):
        raise InputError(
            "dropout must be one number, two (for the features and for hidden rows), or one "
            f"for the input of each of {config.layers} layers, got {len(config.dropout)}"
        )


def _check_history_of_rows(config: TrainConfig) -> None:
    if config.history and config.distribution == "optimal":
        raise InputError(
            "distribution = 'optimal' is for hidden rows, but history = true samples only "
            "their changes; choose one of the two"
        )


def _check_history_of_method(config: TrainConfig) -> None:
    if config.history and config.method not in ("fastgcn", *VARIANTS):
        raise InputError(f"history = true is for method = 'fastgcn', got {config.method!r}")


def _check_samples(config: TrainConfig) -> None:
    if isinstance(config.samples, tuple) and len(config.samples) != config.sampled_layers:
        raise InputError(
            "samples must be one number, or one for each sampled layer from the input up, "
            f"{config.sampled_layers} here, got {len(config.samples)}"
        )


def _check_power(config: TrainConfig) -> None:
    if config.power is None:
        return
    # Settings of earlier versions have power 1 for a distribution without a power.
    if config.power == OWN_POWERS.get(config.distribution, 1.0):
        object.__setattr__(config, "power", None)
    elif config.distribution not in OWN_POWERS:
        raise InputError(
            f"power is for distribution = {' or '.join(map(repr, OWN_POWERS))}; leave it out "
            f"with distribution = {config.distribution!r}, got {config.power:g}"
        )


def _check_weights(config: TrainConfig) -> None:
    if not config.correct_weights and config.draws not in ("independent", "successive"):
        raise InputError(
            "correct_weights = false, the authors' factor, is for draws = 'independent' or "
            f"'successive', got draws = {config.draws!r}"
        )


def _check_graphsage(config: TrainConfig) -> None:
    """GraphSAGE averages sampled neighbours in every layer, so it precomputes nothing."""
    kind = "row" if config.method == "graphsage-gcn" else "neighbors"
    if config.neighbor_sampling and (config.precompute or config.normalization != kind):
        raise InputError(
            f"method {config.method} needs precompute = false and normalization = {kind!r}"
        )


def _check_fanouts(config: TrainConfig) -> None:
    if config.neighbor_sampling and len(config.fanouts) != config.layers:
        raise InputError(
            f"fanouts must be {config.layers} numbers, one per layer, got {len(config.fanouts)}"
        )


# Settings that must fit each other. Each check runs once all of its settings are given.
_RELATIONS: tuple[tuple[tuple[str, ...], Callable[[TrainConfig], None]], ...] = (
    (tuple(SETTINGS), _check_method),
    (("jumping", "hidden"), _check_jumping),
    (("pair", "skip", "input_skip", "norm", "jumping", "hidden"), _check_pair),
    (("ensemble", "jumping", "aggregator"), _check_ensemble),
    (tuple(SETTINGS), _check_aggregator),
    (("dropout", "hidden"), _check_dropout),
    (("history", "distribution"), _check_history_of_rows),
    (("history", "method"), _check_history_of_method),
    (("samples", "hidden", "precompute"), _check_samples),
    (("power", "distribution"), _check_power),
    (("correct_weights", "draws"), _check_weights),
    (("method", "precompute", "normalization"), _check_graphsage),
    (("method", "fanouts", "hidden"), _check_fanouts),
)


# From Python 3.13 on, a docstring has lost the indentation of its source.
TrainConfig.__doc__ = (
    inspect.cleandoc(TrainConfig.__doc__ or "")
    + "\n\nAttributes:\n"
    + "".join(f"    {name}: {each.help}\n" for name, each in SETTINGS.items())
)

if __name__ == "__main__":
    print(markdown_table(SETTINGS))
