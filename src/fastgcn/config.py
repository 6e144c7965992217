"""`TrainConfig`: everything that decides a training run, frozen; presets return one."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fastgcn.adjacency import Normalization
from fastgcn.checks import plain
from fastgcn.errors import InputError, nearest

Distribution = Literal["importance", "uniform", "flat", "optimal"]
Method = Literal["fastgcn", "gcn", "gcn-batched", "graphsage-gcn", "graphsage-mean"]
EarlyStopping = Literal["none", "authors", "patience"]
FeatureScaling = Literal["none", "row"]

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
    dropout: float = 0.0
    normalization: Normalization = "symmetric"
    feature_scaling: FeatureScaling = "none"  # row: every node's features sum to one
    precompute: bool = True  # ÂX once, so the first layer is exact (Table 2)

    # Sampling (Alg. 1 and 2): one size for all sampled layers, or one each from the input up.
    samples: int | tuple[int, ...] = 400
    distribution: Distribution = "importance"
    replacement: bool = True
    neighbors_only: bool = False  # draw among the neighbours of the layer above alone
    correct_weights: bool = True  # False: the authors' factor, which is biased
    fanouts: tuple[int, ...] = (10, 25)  # GraphSAGE: neighbours a row, from the input up

    # Optimisation.
    batch_size: int = 256
    epochs: int = 400
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    weight_decay_on: Literal["first", "all"] = "first"
    class_weight: Literal["none", "balanced"] = "none"
    drop_last: bool = False
    early_stopping: EarlyStopping = "patience"
    patience: int = 100

    # Which graph is seen when.
    inductive: bool = True
    evaluation_graph: Literal["all", "joined"] = "all"  # joined: training nodes + those asked for

    # Machine.
    seed: int = 0
    device: str = "auto"
    threads: int = 0  # 0: what the machine has

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _plain(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            _check_type(field.name, value, field.type)
        for name in ("batch_size", "epochs", "patience"):
            _at_least(name, getattr(self, name), 1)
        for name in ("threads", "weight_decay", "seed"):
            _at_least(name, getattr(self, name), 0)
        if self.seed > _LARGEST_SEED:
            raise InputError(f"seed must be at most {_LARGEST_SEED}, got {self.seed}")
        for size in self.hidden_sizes:
            _at_least("hidden", size, 1)
        for size in (self.samples,) if isinstance(self.samples, int) else self.samples:
            _at_least("samples", size, 1)
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be above 0, got {self.learning_rate}")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise InputError(f"device must be auto, cpu or cuda[:N], got {self.device!r}")
        _require(isinstance(self.fanouts, tuple), "fanouts", "a list of numbers", self.fanouts)
        for size in self.fanouts:
            _at_least("fanouts", size, 1)
        if self.neighbor_sampling:
            self._check_graphsage()
        if not isinstance(self.samples, int) and len(self.samples) != self.sampled_layers:
            raise InputError(
                f"samples must be one number or {self.sampled_layers}, one for each sampled layer "
                f"from the input up, got {len(self.samples)}"
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
    def sampled_layers(self) -> int:
        """How many convolutions are sampled: all but the precomputed one."""
        return self.layers - self.precompute

    @property
    def layer_samples(self) -> tuple[int, ...]:
        """t_l for each sampled layer, from the input up; none where no vertices are drawn."""
        if self.method != "fastgcn":
            return ()
        if isinstance(self.samples, int):
            return (self.samples,) * self.sampled_layers
        return self.samples

    def replace(self, **changes: Any) -> "TrainConfig":
        """A copy with some fields changed; unknown names are refused."""
        return TrainConfig.from_dict(self.to_dict() | changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: tuples as lists, ready for JSON or TOML."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """From plain data; an unknown key is refused with the nearest right one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise InputError(
                    f"unknown setting {key!r}{nearest(key, known)}"
                    if nearest(key, known)
                    else f"unknown setting {key!r}; the settings are {', '.join(known)}"
                )
        return cls(**values)


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
        replacement=False,
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


def _at_least(name: str, value: float, least: int) -> None:
    if not value >= least:
        raise InputError(f"{name} must be at least {least}, got {value}")


def _plain(value: Any) -> Any:
    """Lists as tuples, and numpy's numbers, which parameter searches draw, as Python's."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return plain(value)


def _check_type(name: str, value: Any, annotation: Any) -> None:
    """The value is of the annotated kind: a choice, a switch, a number or a list of numbers."""
    choices = get_args(annotation) if getattr(annotation, "__origin__", None) is Literal else ()
    if choices:
        if value not in choices:
            raise InputError(
                f"{name} must be one of {', '.join(choices)}, got {value!r}"
                + nearest(str(value), choices)
            )
    elif annotation is bool:
        _require(isinstance(value, bool), name, "true or false", value)
    elif annotation is int:
        _require(_is_int(value), name, "a whole number", value)
    elif annotation is float:
        good = _is_int(value) or (isinstance(value, float) and math.isfinite(value))
        _require(good, name, "a finite number", value)
    elif annotation is str:
        _require(isinstance(value, str), name, "text", value)
    else:
        good = _is_int(value) or (isinstance(value, tuple) and all(map(_is_int, value)))
        _require(good, name, "a whole number or a list of them", value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require(condition: bool, name: str, expected: str, value: Any) -> None:
    if not condition:
        raise InputError(f"{name} must be {expected}, got {value!r}")
