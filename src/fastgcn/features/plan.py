"""The memory plan: what training holds in memory and what on disk, decided from sizes alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.memory import (
    available_memory,
    check_room,
    memory_bytes,
    resident_memory,
    shown_bytes,
)

# For kernels not loaded yet, chunks of rows in use, and memory that allocators keep.
_WORKING_BYTES = 256 << 20

# Bytes per node of the training graph: row offsets, labels, the order of batches (twice), work
# space of the sampler, squared norms; and for each sampled layer q, its running sums and guide.
_NODE_BYTES = 88
_LAYER_BYTES = 28

# Bytes per node of the whole graph: node sets of an evaluation, factors of Â, positions.
_WHOLE_NODE_BYTES = 40

# Groups of batches in memory at the same time: ready, being made, or in use. The batches of a
# group: enough to make Python's overhead negligible, few enough to be ready soon. And the most
# bytes of a group's input rows, unless a single batch has more.
_GROUPS_AHEAD = 5
BATCHES_TOGETHER = 16
GROUP_BYTES = 1 << 25


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that the process may use: the user's limit `asked`, or None for the machine's."""

    asked: int | None

    @classmethod
    def of(cls, memory: str) -> "Budget":
        return cls(None if memory == "auto" else memory_bytes(memory))

    def left(self) -> int:
        """Bytes that may be allocated now, without the working memory of every process.

        If the user set no limit, half of the available memory, because others need some.
        """
        if self.asked is None:
            return available_memory() // 2
        return self.asked - resident_memory() - _WORKING_BYTES

    def room(self) -> int:
        """`left`, at least 0; raises if the user's limit is used up before a graph is read."""
        left = self.left()
        if left < 0 and self.asked is not None:
            raise InputError(
                f"memory = {shown_bytes(self.asked)} is not enough: with all that can be on disk "
                f"there, it takes {_least(self.asked, left)}; allow that much"
            )
        return max(left, 0)


class Item(NamedTuple):
    """Something that must be in memory: its bytes, its name, and how to make it smaller."""

    n_bytes: int
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.remedy}: {self.what} take {shown_bytes(self.n_bytes)}"


class Demand(NamedTuple):
    """Bytes that training needs.

    Attributes:
        fixed: must be in memory; the others can be on disk.
        matrix: of Â.
        inputs: of ÂX, if it is precomputed.
        features: of X, if it is mapped and read by every batch instead.
        evaluation: of the rows of a layer.
        items: what `fixed` consists of.
    """

    fixed: int
    matrix: int
    inputs: int
    features: int
    evaluation: int
    items: tuple[Item, ...] = ()

    @property
    def remedy(self) -> str:
        """How to make the largest of the `items` smaller."""
        if not self.items:
            return "ask for smaller batches or fewer samples"
        return str(max(self.items))


def training_demand(graph: Graph, config: TrainConfig, n: int, entries: int) -> Demand:
    """The demand of training on a graph of n nodes whose Â has `entries` entries."""
    classes = graph.n_outputs
    widths = [*config.hidden_sizes, classes]
    row = graph.n_features * (2 if config.input_skip else 1)
    wide = "lower hidden"
    if max(config.hidden_sizes, default=0) < classes:
        wide = f"use fewer than {classes:,} classes"
    every_epoch = config.method == "gcn" or config.history or config.distribution == "optimal"
    items = (
        Item(
            n * (_NODE_BYTES + _LAYER_BYTES * max(config.sampled_layers, 1))
            + graph.n_nodes * _WHOLE_NODE_BYTES,
            "the nodes",
            "train on a part of the graph, or in several processes",
        ),
        Item(4 * n * classes if graph.multilabel else 0, "the labels", "keep fewer label columns"),
        Item(
            _WEIGHT_COPIES * weight_bytes([graph.n_features, *widths], config),
            "the network's weights and their moments",
            wide,
        ),
        Item(
            _batch_bytes(config, n, row, max(widths)),
            "the batches",
            "lower fanouts or batch_size" if config.neighbor_sampling
            else f"{wide}, or lower samples or batch_size",
        ),
        Item(
            8 * n * sum(widths) if every_epoch else 0,  # all hidden rows, twice
            "the rows of all nodes",
            f"{wide}, or draw by importance without history",
        ),
    )  # fmt: skip
    return Demand(
        fixed=sum(item.n_bytes for item in items),
        matrix=8 * entries,
        inputs=n * row * _itemsize(config.inputs_dtype) if config.precompute else 0,
        features=_mapped_bytes(graph) if not config.precompute else 0,
        evaluation=4 * graph.n_nodes * max(widths),
        items=items,
    )


# Weights, gradients, two moments, the best weights, and those being copied or averaged.
_WEIGHT_COPIES = 6

# Bytes of a drawn neighbour: its id, its number, its share, and copies of them.
_NEIGHBOR_BYTES = 48


def weight_bytes(sizes: Sequence[int], config: TrainConfig) -> int:
    """Bytes of the weights of a network with these widths, float32."""
    own = config.method == "graphsage-mean"
    total = 0
    for number, (n_in, n_out) in enumerate(pairwise(sizes)):
        skips = own or (config.skip if number else config.input_skip)
        total += n_in * n_out * (2 if skips else 1)
    if config.jumping == "concat":
        total += sum(sizes[1:-1]) * sizes[-1]
    return 4 * total


def _batch_bytes(config: TrainConfig, n: int, row: int, width: int) -> int:
    """Bytes of the groups of batches in use; a row has `row` inputs and at most `width` outputs."""
    size = min(config.batch_size, n)
    own = size if config.needs_own_rows or config.self_term == "exact" else 0
    sizes = () if config.samples == "auto" else config.layer_samples
    drawn, neighbors = sum(sizes) + own if config.method == "fastgcn" else n, 0
    if config.neighbor_sampling:
        drawn = size
        for fanout in config.fanouts[::-1]:
            neighbors += min(drawn, n) * fanout
            drawn = min(drawn, n) * (fanout + 1)
    batch = 4 * min(drawn, n) * (row + width)
    groups = _GROUPS_AHEAD if config.method == "fastgcn" else 1
    batches = groups * max(batch, min(BATCHES_TOGETHER * batch, GROUP_BYTES))
    return batches + _NEIGHBOR_BYTES * neighbors


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where Â and the inputs, the rows of ÂX, are held.

    Attributes:
        matrix_in_memory: Â of the training graph; else its rows are read from a file.
        inputs_in_memory: ÂX; else its rows are read from a file.
        features_in_memory: X may stay in memory as its rows are read.
        hot_bytes: memory for the most drawn rows of inputs that lie in a file.
        chunk_bytes: of rows of ÂX that may be computed together.
    """

    budget: Budget
    demand: Demand
    matrix_in_memory: bool
    inputs_in_memory: bool
    features_in_memory: bool
    hot_bytes: int
    chunk_bytes: int

    @property
    def worth_saying(self) -> bool:
        everything = self.matrix_in_memory and self.inputs_in_memory
        return self.budget.asked is not None or not everything

    def __str__(self) -> str:
        demand = self.demand
        places = {True: "in memory", False: "on disk"}
        parts = [f"Â {shown_bytes(demand.matrix)} {places[self.matrix_in_memory]}"]
        if demand.inputs:
            parts.append(f"ÂX {shown_bytes(demand.inputs)} {places[self.inputs_in_memory]}")
        if not self.inputs_in_memory:
            parts[-1] += f", {shown_bytes(self.hot_bytes)} of its rows drawn most in memory"
        asked = self.budget.asked
        head = "Memory" if asked is None else f"Memory {shown_bytes(asked)}"
        fixed = shown_bytes(demand.fixed + _WORKING_BYTES)
        return f"{head}: {'; '.join(parts)}; {fixed} for nodes and batches"


def plan_memory(demand: Demand, budget: Budget, name: str) -> MemoryPlan:
    """Put Â into memory first, because every batch reads most of it, then the inputs; a third of
    the rest is for evaluation.

    Raises if the user's limit, or the machine, has too little; `name` is that of the graph.
    """
    left = budget.left() - demand.fixed
    if left < 0 and budget.asked is not None:
        raise InputError(
            f"memory = {shown_bytes(budget.asked)} is not enough to train on {name}: with all that "
            f"can be on disk there, it takes {_least(budget.asked, left)}; allow that much, or "
            f"{demand.remedy}"
        )
    if budget.asked is None:
        check_room(demand.fixed, f"training on {name}", demand.remedy)
    left = max(left, 0)
    matrix_in_memory = demand.matrix <= left
    left -= demand.matrix if matrix_in_memory else 0
    for_inputs = left - min(demand.evaluation, left // 3)
    inputs_in_memory = demand.inputs <= for_inputs
    return MemoryPlan(
        budget,
        demand,
        matrix_in_memory,
        inputs_in_memory,
        features_in_memory=demand.features <= for_inputs,
        hot_bytes=0 if inputs_in_memory else for_inputs,
        chunk_bytes=left,
    )


def check_memory(graph: Graph, config: TrainConfig, shares: int = 1, here: int = 1) -> None:
    """Raise before any work if `plan_memory` would refuse: the bytes that cannot be on disk follow
    from sizes alone.

    If several processes train, each has one of `shares` of the nodes, and `here` of them share
    this machine's memory.
    """
    n = len(graph.split.train) if config.inductive else graph.n_nodes
    demand = training_demand(graph, config, -(-n // shares), 0)
    if here > 1:
        check_room(here * demand.fixed, f"training on {graph.name}", demand.remedy)
    else:
        plan_memory(demand, Budget.of(config.memory), graph.name)


def check_device_memory(graph: Graph, config: TrainConfig, free: int) -> None:
    """Raise if a GPU with `free` bytes cannot hold what must be on it to train: weights, labels
    and batches. What else is there, such as features, may stay in the host's memory."""
    n = len(graph.split.train) if config.inductive else graph.n_nodes
    _, *items, _ = training_demand(graph, config, n, 0).items
    needed = sum(item.n_bytes for item in items)
    if needed > free:
        raise InputError(
            f"training on {graph.name} takes {shown_bytes(needed)} of the GPU's memory, and "
            f"{shown_bytes(free)} are free there; {max(items)}"
        )


def _least(asked: int, left: int) -> str:
    """The memory that would be enough, if `left` is negative."""
    return f"{math.ceil((asked - left) / 1e8) / 10:.1f} GB"


def _mapped_bytes(graph: Graph) -> int:
    return graph.features.nbytes if isinstance(graph.features, np.memmap) else 0


def _itemsize(dtype: str) -> int:
    return 4 if dtype == "float32" else 2
