"""`GenerateConfig`, the checked description of a generated graph, and its presets."""

import math
import operator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError, nearest
from fastgcn.memory import check_room

_WHOLE_AT_LEAST = {
    "nodes": 2,
    "edges": 1,
    "features": 1,
    "classes": 1,
    "train": 0,
    "val": 0,
    "test": 0,
    "max_degree": 1,
    "seed": 0,
}

_ROUNDING = 1e-9  # more than the rounding error of sums of shares


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateConfig:
    """A graph with communities, hubs, and features that only partly determine the class.

    >>> config = GenerateConfig(nodes=1000, edges=5000, features=16, classes=4)
    >>> config.split
    (600, 200, 200)

    Attributes:
        name: the graph's name in messages and reports.
        nodes: n.
        edges: exact number of undirected edges, without duplicates and self loops.
        features: F, columns of the dense float32 feature matrix.
        classes: C; each has at least one node.
        train, val, test: sizes of the split; None means 60 %, 20 % and the rest.
        homophily: share of the edges that join two nodes of one class, in expectation
            (exactly, up to rounding, if `stray` is 0).
        feature_signal: length of a class's mean feature vector; the noise of each feature has
            standard deviation 1. Its effect does not depend on F.
        degree_exponent: γ of the density of degrees, proportional to d^-γ between its two ends.
        max_degree: upper end of that density; None means a tenth of the nodes, and at least
            three times the mean. The lower end follows from `edges`. In a dense graph the top
            degrees are smaller, because two hubs can be joined only once.
        class_skew: class sizes fall as rank^-skew; 0 makes them equal.
        stray: share of nodes that have the edges of a random class, but the features of their
            own. It limits how well the edges alone determine the class.
        silent: share of nodes whose features are all zero. If it is not 0, edges inside a class
            join a silent node and one that is not. So a node with features finds others of its
            class two hops away, and none among its direct neighbours. (Noise in place of zeros
            would not do: it names a node, and a linear model learns a class's hubs by name.)
        seed: the same seed gives the same graph.
    """

    name: str = "generated"
    nodes: int
    edges: int
    features: int
    classes: int
    train: int | None = None
    val: int | None = None
    test: int | None = None
    homophily: float = 0.8
    feature_signal: float = 2.0
    degree_exponent: float = 2.5
    max_degree: int | None = None
    class_skew: float = 0.0
    stray: float = 0.05
    silent: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"name must be a text that is not empty, got {self.name!r}")
        optional = {f.name for f in fields(self) if f.default is None}
        for name, least in _WHOLE_AT_LEAST.items():
            value = getattr(self, name)
            if value is not None or name not in optional:
                self._set(name, _whole(value, name, least))
        self._set("homophily", _number(self.homophily, "homophily", 0, 1))
        self._set("feature_signal", _number(self.feature_signal, "feature_signal", 0))
        self._set("degree_exponent", _number(self.degree_exponent, "degree_exponent", 1.01, 10))
        self._set("class_skew", _number(self.class_skew, "class_skew", 0, 5))
        self._set("stray", _number(self.stray, "stray", 0, 1))
        self._set("silent", _number(self.silent, "silent", 0, 0.9))
        if self.classes > self.nodes:
            raise InputError(
                f"classes must be at most nodes, {self.nodes:,}, so that each has one, "
                f"got {self.classes:,}"
            )
        if min(self.split) < 0 or sum(self.split) > self.nodes:
            raise InputError(
                f"train + val + test must be at most nodes, {self.nodes:,}, got "
                f"{self.split[0]:,} + {self.split[1]:,} + {max(self.split[2], 0):,}; "
                "give all three, or smaller ones"
            )
        if self.top_degree <= self.mean_degree:
            raise InputError(
                f"max_degree must be above the mean degree 2·edges/nodes = {self.mean_degree:.1f}, "
                f"got {self.top_degree:,}"
            )
        # Chances that nodes of two classes share one are found for all pairs of classes.
        check_room(32 * self.classes**2, f"a graph of {self.classes:,} classes", "use fewer")
        self._check_room()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def split(self) -> tuple[int, int, int]:
        """The numbers of training, validation and test nodes."""
        train = self.nodes * 3 // 5 if self.train is None else self.train
        val = self.nodes // 5 if self.val is None else self.val
        return train, val, self.nodes - train - val if self.test is None else self.test

    @property
    def mean_degree(self) -> float:
        return 2 * self.edges / self.nodes

    @property
    def top_degree(self) -> int:
        """`max_degree`, or its default if it is None."""
        if self.max_degree is None:
            return max(self.nodes // 10, math.ceil(3 * self.mean_degree))
        return self.max_degree

    def _check_room(self) -> None:
        """Check that both kinds of edges take at most half of their pairs: drawing is fast then."""
        if self.classes == 1 and self.homophily < 1:
            raise InputError(f"homophily must be 1 if there is one class, got {self.homophily:g}")
        inside = inside_edges(self)
        sizes = class_sizes(self).astype(float)
        pairs = {"of one class": (sizes * (sizes - 1)).sum() / 2}
        pairs["of two classes"] = self.nodes * (self.nodes - 1) / 2 - pairs["of one class"]
        if self.silent:
            silent = silent_sizes(self)
            pairs["of one class"] = float((silent * (sizes - silent)).sum())
        for (kind, count), asked in zip(pairs.items(), (inside, self.edges - inside), strict=True):
            room = max(0, (count - self.nodes) // 2)
            if asked > room:
                raise InputError(
                    f"edges = {self.edges:,} at homophily {self.homophily:g} needs {asked:,} "
                    f"between nodes {kind}, where there is room for {room:,.0f}; "
                    "choose fewer edges, more nodes or another homophily"
                )


def _whole(value: Any, name: str, least: int) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        whole = None
    bits = 128 if name == "seed" else 60
    if whole is not None and whole >= 1 << bits:
        raise InputError(f"{name} must be below 2^{bits}, got {value}")
    if whole is None or isinstance(value, bool) or whole < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return whole


def _number(value: Any, name: str, least: float, most: float = math.inf) -> float:
    numeric = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or not numeric or not least <= value <= most or math.isinf(value):
        upper = "" if math.isinf(most) else f" and at most {most:g}"
        raise InputError(f"{name} must be a number of at least {least:g}{upper}, got {value!r}")
    return float(value)


def class_sizes(config: GenerateConfig) -> IntArray:
    """(C,) nodes of each class: n·rank^-skew, scaled and rounded to whole numbers of at least 1."""
    share = np.arange(1, config.classes + 1, dtype=float) ** -config.class_skew
    wanted = share / share.sum() * (config.nodes - config.classes)
    sizes: IntArray = np.floor(wanted).astype(np.int64) + 1
    largest_rest = np.argsort(sizes - wanted, kind="stable")
    sizes[largest_rest[: config.nodes - int(sizes.sum())]] += 1
    return sizes


def silent_sizes(config: GenerateConfig) -> IntArray:
    """(C,) silent nodes of each community, which is as large as its class."""
    sizes = class_sizes(config)
    return np.minimum(np.round(config.silent * sizes).astype(np.int64), sizes)


def inside_edges(config: GenerateConfig) -> int:
    """The number of edges inside communities that gives the classes this `homophily`.

    Stray nodes reduce it. Let `P(k | c)` be the share of class k in community c, and `a`, `b`
    the probabilities that an edge inside a community, or between two, joins nodes of one class.
    Then `homophily = s·a + (1 - s)·b` is solved for the share s of edges inside.
    """
    share: FloatArray = class_sizes(config) / config.nodes
    blur = (1 - config.stray) * np.eye(config.classes) + config.stray * share
    same = blur @ blur.T  # (C, C): chance that nodes of communities c and d share a class
    a = float(share @ same.diagonal())
    apart = 1 - float(share @ share)
    b = float(share @ same @ share - share**2 @ same.diagonal()) / apart if apart > 0 else 0.0
    if not b - _ROUNDING <= config.homophily <= a + _ROUNDING:
        raise InputError(
            f"homophily must lie between {abs(b):.3f} and {a:.3f} where a share of "
            f"{config.stray:g} of the nodes is stray, got {config.homophily:g}; "
            "lower stray or change homophily"
        )
    share_inside = (config.homophily - b) / (a - b) if a - b > _ROUNDING else 1.0
    return round(config.edges * min(max(share_inside, 0.0), 1.0))


# The sizes and split of Reddit; class skew, homophily and top degree are close to Reddit's.
_REDDIT = GenerateConfig(
    name="reddit-sim",
    nodes=232_965,
    edges=11_606_919,
    features=602,
    classes=41,
    train=152_410,
    val=23_699,
    test=55_334,
    homophily=0.76,
    feature_signal=2.9,
    degree_exponent=2.0,
    max_degree=60_000,
    class_skew=0.7,
    stray=0.05,
)

PRESETS: dict[str, GenerateConfig] = {
    "reddit-sim": _REDDIT,
    # The same sizes, but half of the nodes have no features, and a node with features finds others
    # of its class two hops away. A linear model of ÂX falls far behind (docs/data.md).
    "two-hop-sim": replace(
        _REDDIT, name="two-hop-sim", homophily=0.4, feature_signal=1.5, silent=0.5
    ),
    # Sizes and split of ogbn-products; its split is random, the original's is by sales rank.
    "products-sim": GenerateConfig(
        name="products-sim",
        nodes=2_449_029,
        edges=61_859_140,
        features=100,
        classes=47,
        train=196_615,
        val=39_323,
        test=2_213_091,
        homophily=0.8,
        feature_signal=2.2,
        degree_exponent=2.3,
        max_degree=20_000,
        class_skew=0.9,
        stray=0.1,
    ),
}


def config_from(preset: str | None = None, **changes: Any) -> GenerateConfig:
    """The named preset with some fields changed, or a config of `changes` alone.

    If `nodes` changes, the edges, the split and the top degree change in proportion unless they
    are given, so that a preset has smaller copies.

    >>> config_from("reddit-sim", nodes=20_000).split
    (13084, 2034, 4750)
    """
    unknown = sorted(set(changes) - {f.name for f in fields(GenerateConfig)})
    if unknown:
        known = [f.name for f in fields(GenerateConfig)]
        raise InputError(f"a generated graph has no {unknown[0]!r}{nearest(unknown[0], known)}")
    if preset is None:
        missing = [f for f in ("nodes", "edges", "features", "classes") if f not in changes]
        if missing:
            raise InputError(
                f"{missing[0]} must be given to generate a graph without a preset; "
                f"presets are {', '.join(PRESETS)}"
            )
        return GenerateConfig(**changes)
    if preset not in PRESETS:
        raise InputError(
            f"preset must be one of {', '.join(PRESETS)}, got {preset!r}{nearest(preset, PRESETS)}"
        )
    base = PRESETS[preset]
    nodes = _whole(changes.get("nodes", base.nodes), "nodes", 2)
    scaled = {
        name: getattr(base, name) * nodes // base.nodes
        for name in ("edges", "train", "val", "test", "max_degree")
    }
    return replace(base, **(scaled | changes))
