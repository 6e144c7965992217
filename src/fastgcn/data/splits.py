"""Random splits, for data without a split."""

import math
from itertools import pairwise

import numpy as np

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.errors import InputError
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import Task, checked_labels, has_label, task_of
from fastgcn.progress import note

# The options of a random split, and what they are if they are not given.
SHARES = {"train": 0.6, "val": 0.2, "test": 0.2, "seed": 0}


def stratified_split(
    labels: AnyArray,
    *,
    train: float = 0.6,
    val: float = 0.2,
    test: float = 0.2,
    seed: int = 0,
    task: Task | None = None,
) -> Split:
    """A random split in which every class has the same shares.

    Args:
        labels: (n,) class ids, -1 = unlabelled and in no part; or (n, C) multi-label, which is
            split at random without regard to the labels; or (n,) numbers to predict, NaN =
            unlabelled and in no part, which are split at random too.
        train: share of training nodes.
        val: share of validation nodes.
        test: share of test nodes. If the three sum to less than one, the rest of the nodes is in
            no part.
        seed: the same seed gives the same split.
        task: what the labels are; by default what they look like, as in `Graph`.

    Counts are rounded by the largest remainder, class by class. A class of three or more nodes
    has at least one node in every part whose share is not zero.

    >>> import numpy as np
    >>> split = stratified_split(np.array([0] * 10 + [1] * 5), seed=1)
    >>> [(part, len(ids)) for part, ids in split.items()]
    [('train', 9), ('val', 3), ('test', 3)]
    """
    shares = _shares(train, val, test)
    rng = _generator(seed)
    labels = np.asarray(labels)
    checked = checked_labels(labels, len(labels) if labels.ndim else 0, None, task)
    parts: list[list[IntArray]] = [[], [], []]
    for members in _strata(checked):
        ends = np.cumsum(_counts(len(members), shares))
        pieces = np.split(rng.permutation(members), ends)
        for part, piece in zip(parts, pieces[:3], strict=True):
            part.append(piece)
    return Split(*(np.sort(np.concatenate(part)) for part in parts))


def random_split(
    graph: Graph, *, train: float = 0.6, val: float = 0.2, test: float = 0.2, seed: int = 0
) -> Graph:
    """The same graph under a new split of its labelled nodes, as `stratified_split` draws it.

    Its `source` has the options with which `fastgcn.load` draws the same split.

    >>> import fastgcn
    >>> graph = fastgcn.random_split(fastgcn.load("digits"), train=0.5, seed=1)
    >>> len(graph.split.train)
    899
    """
    if graph.labels is None:
        raise InputError(f"{graph.name} has no labels, and a random split needs them")
    shares = {"train": train, "val": val, "test": test}
    split = stratified_split(graph.labels, **shares, seed=seed, task=graph.task)
    given = shares | {"seed": seed}
    options = {name: given[name] for name, usual in SHARES.items() if given[name] != usual}
    source = {**(graph.source or {}), "split": "random", **options}
    return graph.with_split(split).with_source(source)


def with_split(graph: Graph) -> Graph:
    """The graph; a labelled one without any split gets that of `random_split`, and this is said.

    The same labels always have the same one.
    """
    split = any(len(nodes) for _, nodes in graph.split.items())
    if split or graph.labels is None or not has_label(graph.labels).any():
        return graph
    note(said(graph.task, without=graph.name))
    return random_split(graph)


def said(task: Task | None, seed: int = 0, without: str = "") -> str:
    """What is said of a drawn split; `without` is what had none, if nobody asked for one."""
    kinds = {"classification": "of each class", "regression": "of the nodes with a target"}
    drawn = (
        f"60, 20 and 20 % {kinds.get(task or '', 'of the nodes')} are training, validation and "
        f"test nodes, drawn with seed {seed}"
    )
    if not without:
        return drawn
    return (
        f"{without} has no split: {drawn}; --split random --split-seed N draws others (--seed N "
        "in import, fastgcn.random_split in Python)"
    )


def _shares(train: float, val: float, test: float) -> list[float]:
    """The three shares, and the share of the nodes in no part."""
    named = {"train": train, "val": val, "test": test}
    for name, share in named.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InputError(f"{name} must be a share between 0 and 1, got {share!r}")
    total = math.fsum(named.values())
    if not 0 < total <= 1 + 1e-9:
        raise InputError(
            f"train, val and test are shares of the labelled nodes and must add up to more than 0 "
            f"and at most 1, got {train} + {val} + {test} = {total:g}"
        )
    return [*named.values(), max(0.0, 1 - total)]


def _generator(seed: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, got {seed!r}")
    return np.random.default_rng(int(seed))


def _strata(labels: AnyArray | None) -> list[IntArray]:
    """The nodes of each class in ascending order; at least one list, which may be empty."""
    if labels is None or labels.ndim == 2:
        return [np.arange(0 if labels is None else len(labels))]
    if task_of(labels) == "regression":
        return [np.flatnonzero(has_label(labels))]
    classes = np.unique(labels[labels >= 0])
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], [*classes, labels.max(initial=-1) + 1])
    return [order[a:b] for a, b in pairwise(starts)] or [order[:0]]


def _counts(n: int, shares: list[float]) -> list[int]:
    """How many of n nodes go to train, val and test; the rest is in no part."""
    quotas = [share * n for share in shares]
    counts = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(4), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: n - sum(counts)]:
        counts[i] += 1
    if n >= 3:
        for i in range(3):
            if shares[i] > 0 and counts[i] == 0:
                giver = 3 if counts[3] else counts.index(max(counts))
                counts[giver] -= 1
                counts[i] += 1
    return counts[:3]
