"""A setting's value against the annotation of its field, and against its bounds."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from fastgcn.errors import InputError, nearest
from fastgcn.graph.adjacency import Normalization
from fastgcn.graph.checks import plain
from fastgcn.memory import memory_bytes


def as_plain(value: Any) -> Any:
    """Lists as tuples, and numpy's numbers, which parameter searches draw, as Python's."""
    if isinstance(value, list | tuple):
        return tuple(map(as_plain, value))
    return plain(value)


def check_kind(name: str, value: Any, annotation: Any) -> None:
    """The value is of the annotated kind: a choice, a switch, text, a number or several, or None.

    >>> check_kind("samples", "all", int | tuple[int, ...] | Literal["auto"])
    Traceback (most recent call last):
    fastgcn.errors.InputError: samples must be a whole number, a list of them or 'auto', got 'all'
    """
    if value is None and type(None) in get_args(annotation):
        return
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        if value not in choices:
            raise InputError(
                f"{name} must be one of {', '.join(choices)}, got {value!r}"
                + nearest(str(value), choices)
            )
    elif annotation is bool:
        require(isinstance(value, bool), name, "true or false", value)
    elif annotation is int:
        require(_is_int(value), name, "a whole number", value)
    elif annotation is float or annotation == float | None:
        require(_is_number(value), name, "a finite number", value)
    elif annotation is str:
        require(isinstance(value, str), name, "text", value)
    else:
        _check_several(name, value, get_args(annotation))


def _check_several(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """A number, or a list of numbers or one of the words that stand beside it."""
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    is_one, one = (_is_number, "finite") if float in kinds else (_is_int, "whole")
    lists = any(kind is ... or get_origin(kind) is tuple for kind in kinds)
    listed = lists and isinstance(value, tuple) and all(map(is_one, value))
    expected = [f"a {one} number", *(["a list of them"] if lists else []), *map(repr, words)]
    text = f"{', '.join(expected[:-1])} or {expected[-1]}"
    require(is_one(value) or value in words or listed, name, text, value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def require(condition: bool, name: str, expected: str, value: Any) -> None:
    if not condition:
        raise InputError(f"{name} must be {expected}, got {value!r}")


def at_least(name: str, value: float, least: int) -> None:
    if not value >= least:
        raise InputError(f"{name} must be at least {least}, got {value}")


Distribution = Literal["importance", "uniform", "flat", "optimal", "ladies"]
Draws = Literal["independent", "successive", "poisson", "systematic", "stratified"]
SelfTerm = Literal["sampled", "exact"]
Method = Literal["fastgcn", "gcn", "gcn-batched", "graphsage-gcn", "graphsage-mean"]
EarlyStopping = Literal["none", "authors", "patience"]
FeatureScaling = Literal["none", "row", "standard"]
Norm = Literal["none", "layer", "batch"]
Jumping = Literal["none", "concat", "max"]
InputsDtype = Literal["float32", "float16", "bfloat16"]
FeaturesPlace = Literal["auto", "device", "host"]
Products = Literal["tf32", "float32"]

# What `power` is where none is given: the authors' program's q, and LADIES as published.
OWN_POWERS: dict[Distribution, float] = {"flat": 1.0, "ladies": 2.0}

# Small entries of Â to a larger power are too small for a number, and would never be drawn.
LARGEST_POWER = 16

# The generators are seeded with seed, seed + 1 and seed + 2, which must fit in 64 bits.
_LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """The settings of one training run; every field can be set in a TOML file or by a flag.

    >>> TrainConfig(hidden=16, samples=100).replace(seed=3).layers
    2
    >>> TrainConfig(batch_size=0)
    Traceback (most recent call last):
    fastgcn.errors.InputError: batch_size must be at least 1, got 0
    """

    # The system of the paper's comparison: who makes the blocks, and the layer they feed.
    method: Method = "fastgcn"

    # Network: M = len(hidden) + 1 layers (eq. 1).
    hidden: int | tuple[int, ...] = 128
    bias: bool = False
    # One rate; two, of the features and of hidden rows; or one for the input of each layer.
    dropout: float | tuple[float, ...] = 0.0
    skip: bool = False  # H' = ÂHW + HR + b above the first layer
    input_skip: bool = False  # and in the first: ÂXW + XR + b
    norm: Norm = "none"  # after each hidden convolution, before ReLU
    jumping: Jumping = "none"  # the output layer sees a node's rows of all hidden layers
    normalization: Normalization = "symmetric"
    feature_scaling: FeatureScaling = "none"  # row: a node's sum to one; standard: z-scores
    precompute: bool = True  # ÂX once, so the first layer is exact (Table 2)

    # Sampling (Alg. 1 and 2): one size for all sampled layers, or one each from the input up.
    # "auto": as many as bring the relative error of a sampled convolution to `target_error`.
    samples: int | tuple[int, ...] | Literal["auto"] = 400
    target_error: float = 0.1
    distribution: Distribution = "importance"
    # flat: q(u) ∝ ‖Â(:,u)‖^power; ladies: Σ_v |Â(v,u)|^power over the rows above. None: its own.
    power: float | None = None
    draws: Draws = "independent"
    self_term: SelfTerm = "sampled"  # exact: Â(v,v)·H(v) in full, the rest of the row sampled
    history: bool = False  # sample only what has changed since rows were last computed in full
    history_every: int = 1  # epochs between refreshes of those rows
    neighbors_only: bool = False  # draw among the neighbours of the layer above alone
    correct_weights: bool = True  # False: the authors' factor, which is biased
    fanouts: tuple[int, ...] = (10, 25)  # GraphSAGE: neighbours a row, from the input up

    # Optimisation.
    batch_size: int = 256
    epochs: int = 400
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    weight_decay_on: Literal["first", "all"] = "first"
    averaging: float = 0.0  # weights judged and kept: W̄ = averaging·W̄ + (1 − averaging)·W an epoch
    class_weight: Literal["none", "balanced"] = "none"
    drop_last: bool = False
    early_stopping: EarlyStopping = "patience"
    patience: int = 100
    # Epochs between validations; "auto": as few as leave training as much work as these.
    validate_every: int | Literal["auto"] = "auto"

    # Which graph is seen when.
    inductive: bool = True
    evaluation_graph: Literal["all", "joined"] = "all"  # joined: training nodes + those asked for

    # Machine.
    seed: int = 0
    device: str = "auto"
    threads: int = 0  # 0: what the machine has
    memory: str = "auto"  # what the process may take, such as 4GB; what does not fit is on disk
    inputs_dtype: InputsDtype = "float32"  # what ÂX is kept in
    features: FeaturesPlace = "auto"  # on a GPU: whether X and ÂX are there, or on the host
    products: Products = "tf32"  # on a GPU: what a training step's matrix products round to

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = as_plain(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            check_kind(field.name, value, field.type)
        for name in ("batch_size", "epochs", "patience", "history_every"):
            at_least(name, getattr(self, name), 1)
        if self.validate_every != "auto":
            at_least("validate_every", self.validate_every, 1)
        for name in ("threads", "weight_decay", "seed"):
            at_least(name, getattr(self, name), 0)
        for name in ("learning_rate", "target_error"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.averaging < 1:
            raise InputError(f"averaging must be at least 0 and below 1, got {self.averaging}")
        if self.seed > _LARGEST_SEED:
            raise InputError(f"seed must be at most {_LARGEST_SEED}, got {self.seed}")
        if self.memory != "auto":
            memory_bytes(self.memory)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise InputError(f"device must be auto, cpu or cuda[:N], got {self.device!r}")
        self._check_network()
        self._check_sampling()
        if self.neighbor_sampling:
            self._check_graphsage()

    def _check_network(self) -> None:
        for size in self.hidden_sizes:
            at_least("hidden", size, 1)
        if self.jumping == "max" and len(set(self.hidden_sizes)) > 1:
            raise InputError(
                "jumping = 'max' compares the hidden layers entry by entry, and so needs them of "
                f"one width, got hidden = {list(self.hidden_sizes)}"
            )
        for rate in self.dropout if isinstance(self.dropout, tuple) else (self.dropout,):
            if not 0 <= rate < 1:
                raise InputError(f"dropout must be at least 0 and below 1, got {rate}")
        if isinstance(self.dropout, tuple) and len(self.dropout) not in (2, self.layers):
            raise InputError(
                "dropout must be one number, two (for the features and for hidden rows), or one "
                f"for the input of each of {self.layers} layers, got {len(self.dropout)}"
            )

    def _check_sampling(self) -> None:
        if self.history and self.distribution == "optimal":
            raise InputError(
                "distribution = 'optimal' is for hidden rows, and history = true samples only "
                "their changes; choose one of the two"
            )
        if self.history and self.method != "fastgcn":
            raise InputError(f"history = true is for method = 'fastgcn', got {self.method!r}")
        if self.samples != "auto":
            for size in (self.samples,) if isinstance(self.samples, int) else self.samples:
                at_least("samples", size, 1)
        if isinstance(self.samples, tuple) and len(self.samples) != self.sampled_layers:
            raise InputError(
                "samples must be one number, or one for each sampled layer from the input up, "
                f"{self.sampled_layers} here, got {len(self.samples)}"
            )
        require(isinstance(self.fanouts, tuple), "fanouts", "a list of numbers", self.fanouts)
        for size in self.fanouts:
            at_least("fanouts", size, 1)
        self._check_power()
        if not self.correct_weights and self.draws not in ("independent", "successive"):
            raise InputError(
                "correct_weights = false, the authors' factor, is for draws = 'independent' or "
                f"'successive', got draws = {self.draws!r}"
            )

    def _check_power(self) -> None:
        if self.power is None:
            return
        at_least("power", self.power, 0)
        if self.power > LARGEST_POWER:
            raise InputError(f"power must be at most {LARGEST_POWER}, got {self.power:g}")
        own = OWN_POWERS.get(self.distribution, 1.0)  # 1: what settings without one used to have
        if self.power == own:
            object.__setattr__(self, "power", None)
        elif self.distribution not in OWN_POWERS:
            raise InputError(
                f"power is for distribution = {' or '.join(map(repr, OWN_POWERS))}; leave it out "
                f"with distribution = {self.distribution!r}, got {self.power:g}"
            )

    def _check_graphsage(self) -> None:
        """GraphSAGE averages, samples neighbours in every layer, and so precomputes nothing."""
        kind = "row" if self.method == "graphsage-gcn" else "neighbors"
        if self.precompute or self.normalization != kind:
            raise InputError(
                f"method {self.method} needs precompute = false and normalization = {kind!r}"
            )
        if len(self.fanouts) != self.layers:
            raise InputError(
                f"fanouts must be {self.layers} numbers, one a layer, got {len(self.fanouts)}"
            )

    @property
    def neighbor_sampling(self) -> bool:
        return self.method in ("graphsage-gcn", "graphsage-mean")

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
        """Whether a layer sees its nodes' own rows, so that `src` of a block must hold `dst`."""
        above = self.layers > 1 and (self.skip or self.jumping != "none")
        first = self.method == "graphsage-mean" or (self.input_skip and not self.precompute)
        return above or first

    @property
    def sampled_layers(self) -> int:
        """How many convolutions are sampled: all but the precomputed one."""
        return self.layers - self.precompute

    @property
    def layer_samples(self) -> tuple[int, ...]:
        """t_l for each sampled layer, from the input up; none where no vertices are drawn."""
        if self.method != "fastgcn":
            return ()
        if self.samples == "auto":
            raise InputError(
                "samples = 'auto' has not been turned into numbers yet; do so with "
                "config.replace(samples=...)"
            )
        if isinstance(self.samples, int):
            return (self.samples,) * self.sampled_layers
        return self.samples

    def replace(self, **changes: Any) -> "TrainConfig":
        """A copy with some fields changed; unknown names are refused.

        Another distribution has its own power, unless one is given.
        """
        if changes.get("distribution", self.distribution) != self.distribution:
            changes = {"power": None} | changes
        return TrainConfig.from_dict(self.to_dict() | changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: tuples as lists, ready for JSON or TOML."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """From plain data; an unknown key is refused with the nearest right one.

        `replacement`, which settings of earlier versions have, is read as what `draws` says now.
        """
        if "replacement" in values:
            values = dict(values)
            old = values.pop("replacement")
            check_kind("replacement", old, bool)
            values["draws"] = "independent" if old else "successive"
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise InputError(
                    f"unknown setting {key!r}{nearest(key, known)}"
                    if nearest(key, known)
                    else f"unknown setting {key!r}; the settings are {', '.join(known)}"
                )
        return cls(**values)
