"""Edges of a degree-corrected planted partition, drawn without duplicates in bounded memory.

Let θ be the wanted degrees and Θ their sum over a community. Nodes u and v of one community
are joined with probability proportional to θ(u)·θ(v) / Θ, and nodes of two communities with
probability proportional to θ(u)·θ(v), as long as these probabilities are small.

Edges drawn one by one would repeat. Instead, nodes are ordered by rising θ; each node gets a
number of neighbours among the nodes after it, and draws that many distinct ones by weight. A
pair can then occur in one row of the matrix only, so the number of edges is exact and no
memory is needed between rows. A node of small degree comes early and draws most of its edges
itself, so it does not end up without any.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
from numpy.lib.format import open_memmap

from fastgcn.ahead import in_order, usable_cores
from fastgcn.arrays import BoolArray, FloatArray, IntArray
from fastgcn.data.generate_config import (
    PRESETS,
    GenerateConfig,
    class_sizes,
    inside_edges,
    silent_sizes,
)
from fastgcn.data.store import StoreWriter
from fastgcn.errors import InputError
from fastgcn.graph.csr import Cleaning, index_dtype
from fastgcn.memory import check_room
from fastgcn.progress import progress


@dataclass(frozen=True, slots=True)
class DrawOrder:
    """The nodes in the order in which they draw their edges; see `kernels.generate.draw_rows`.

    `order`, `group`, `counts`, `ends` have shape (n,), `cumulative` (n+1,).
    """

    order: IntArray
    group: IntArray
    counts: IntArray
    ends: IntArray
    cumulative: FloatArray
    between: bool
    seed: np.uint64

    def batches(self, edges: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows with together at most `edges` edges, or of a single row."""
        total = np.cumsum(self.counts)
        first, done = 0, 0
        while done < total[-1]:
            last = max(first + 1, int(np.searchsorted(total, done + edges, side="right")))
            yield first, last
            first, done = last, int(total[last - 1])

    def draw(self, batch: tuple[int, int]) -> tuple[IntArray, IntArray]:
        """Both ends of the edges of the rows of a batch."""
        from fastgcn.kernels.generate import draw_rows

        first, last = batch
        m = int(self.counts[first:last].sum())
        dtype = index_dtype(len(self.order))
        source, target = np.empty(m, dtype), np.empty(m, dtype)
        draw_rows(
            first,
            last,
            self.counts,
            self.ends,
            self.cumulative,
            self.group,
            self.between,
            self.order,
            self.seed,
            source,
            target,
        )
        return source, target


def wanted_degrees(config: GenerateConfig) -> FloatArray:
    """(n,) ascending quantiles of the density d^-γ whose mean is that of the graph's degrees."""
    mean, high = config.mean_degree, float(config.top_degree)
    below, above = 0.0, mean
    for _ in range(100):  # halvings; the mean rises with the lower end
        low = (below + above) / 2
        if _truncated_mean(low, high, config.degree_exponent) < mean:
            below = low
        else:
            above = low
    power = 1 - config.degree_exponent
    quantile = (np.arange(config.nodes) + 0.5) / config.nodes
    return np.asarray((above**power - quantile * (above**power - high**power)) ** (1 / power))


def _truncated_mean(low: float, high: float, exponent: float) -> float:
    """Mean of the density proportional to d^-exponent on low..high."""

    def integral(power: float) -> float:
        if abs(power + 1) < 1e-9:
            return float(np.log(high / low))
        # Relative to `high`, so that a much smaller `low` does not overflow.
        return float(1 - (low / high) ** (power + 1)) / (power + 1)

    return high * integral(1 - exponent) / integral(-exponent)


def rows_inside(
    config: GenerateConfig,
    degrees: FloatArray,
    community: IntArray,
    silent: BoolArray | None,
    seed: np.uint64,
) -> DrawOrder:
    """The edges inside the communities: rows end where their community does.

    If some nodes are `silent` (n,), these edges join a silent node and one that is not.
    """
    order = np.lexsort((degrees, community))
    group, weight = community[order], degrees[order]
    cumulative = _prefix_sums(weight)
    starts = np.searchsorted(group, np.arange(config.classes + 1))
    ends = starts[group + 1]
    after = cumulative[ends] - cumulative[1:]
    whole = cumulative[ends] - cumulative[starts[group]]
    others = ends - np.arange(1, config.nodes + 1)
    if silent is not None:
        side = 2 * group + silent[order]
        own_weight, own_count = _same_group_after(side, weight, 2 * config.classes)
        after, others, group = np.maximum(after - own_weight, 0), others - own_count, side
    counts = _row_counts(weight * after / whole, others // 2, inside_edges(config))
    return DrawOrder(order, group, counts, ends, cumulative, silent is not None, seed)


def rows_between(
    config: GenerateConfig, degrees: FloatArray, community: IntArray, seed: np.uint64
) -> DrawOrder:
    """The edges between communities: all rows end at the last node and skip their own community."""
    n = config.nodes
    order = np.argsort(degrees, kind="stable")
    group, weight = community[order], degrees[order]
    cumulative = _prefix_sums(weight)
    own_weight, own_count = _same_group_after(group, weight, config.classes)
    after = np.maximum(cumulative[-1] - cumulative[1:] - own_weight, 0)
    room = (np.arange(n - 1, -1, -1) - own_count) // 2
    counts = _row_counts(weight * after, room, config.edges - inside_edges(config))
    return DrawOrder(order, group, counts, np.full(n, n), cumulative, True, seed)


def _same_group_after(
    group: IntArray, weight: FloatArray, groups: int
) -> tuple[FloatArray, IntArray]:
    """(n,) and (n,): the weight and the number of nodes after each one in its own group."""
    own_weight, own_count = np.empty(len(group)), np.empty(len(group), np.int64)
    for number in range(groups):
        mine = np.flatnonzero(group == number)
        own_weight[mine] = weight[mine].sum() - np.cumsum(weight[mine])
        own_count[mine] = np.arange(len(mine) - 1, -1, -1)
    return own_weight, own_count


def _prefix_sums(weight: FloatArray) -> FloatArray:
    return np.concatenate(([0.0], np.cumsum(weight)))


def _row_counts(share: FloatArray, room: IntArray, total: int) -> IntArray:
    """Whole numbers that sum to `total`, proportional to `share` but at most `room`.

    If `room` is too small for a row, the other rows get more. `GenerateConfig` has checked that
    there is room for all.
    """
    share = np.where(room > 0, share, 0)
    low, high = 0.0, 1.0 / max(float(share.max()), 1e-300)
    while float(np.minimum(high * share, room).sum()) < total:
        low, high = high, 2 * high
    for _ in range(60):  # halvings
        middle = (low + high) / 2
        if float(np.minimum(middle * share, room).sum()) < total:
            low = middle
        else:
            high = middle
    exact = np.minimum(high * share, room)
    counts: IntArray = np.floor(exact).astype(np.int64)
    # Systematic rounding: a row rounds up with the probability of its fraction. The points lie
    # half a unit from both ends of the running sum, so rounding errors cannot lose or add an edge.
    points = np.arange(total - int(counts.sum())) + 0.5
    counts[np.searchsorted(np.cumsum(exact - counts), points, side="right")] += 1
    return counts


__all__ = ["PRESETS", "GenerateConfig", "generate"]

# Each stage draws from its own random stream, so a change to one does not affect the others.
_LABELS, _STRAYS, _SPLIT, _DEGREES, _MEANS, _NOISE, _INSIDE, _BETWEEN, _SILENT = range(9)

# Features are drawn in blocks of about this many numbers, each from its own stream: small
# enough for the cache, and fixed, because another size would give other features.
_BLOCK = 1 << 20

_NODE_BYTES = 200  # of a node, beside its edges and features
_LEAST_MEMORY = 1 << 24


def generate(
    config: GenerateConfig,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    memory: int = 1 << 30,
    threads: int | None = None,
) -> None:
    """Write the graph that `config` describes to the store folder `out`.

    The same config gives the same bytes for all values of `memory` and `threads`, as long as
    numpy does not change its random streams.

    Args:
        config: sizes and structure of the graph; `PRESETS` has three.
        out: the store's folder; must not exist unless `force` is given.
        force: replace an existing store.
        memory: bytes for edges and features at a time, in addition to about 200 bytes per node.
        threads: how many cores to use; None means all.
    """
    if memory < _LEAST_MEMORY:
        raise InputError(f"memory must be at least {_LEAST_MEMORY:,} bytes, got {memory:,}")
    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    check_room(
        _NODE_BYTES * config.nodes + 4 * (config.classes + 1) * config.features,
        f"generating {config.nodes:,} nodes of {config.features:,} features",
        "use fewer nodes, classes or features",
    )
    workers = threads or usable_cores()
    with StoreWriter(out, force=force) as writer:
        labels = _write_labels(writer, config)
        _write_split(writer, config)
        community = _communities(config, labels)
        silent = _silent_nodes(config, community)
        with ThreadPoolExecutor(workers) as pool:
            _write_features(writer, config, labels, silent, pool, workers)
            _write_edges(writer, config, community, silent, pool, workers, memory)
        writer.finish(
            name=config.name,
            directed=False,
            n_features=config.features,
            n_classes=config.classes,
            provenance={"generated": asdict(config)},
        )


def _stream(config: GenerateConfig, stage: int, block: int = 0) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(stage, block)))


def _write_labels(writer: StoreWriter, config: GenerateConfig) -> IntArray:
    labels = np.repeat(np.arange(config.classes), class_sizes(config))
    _stream(config, _LABELS).shuffle(labels)
    writer.put("labels", labels)
    return labels


def _write_split(writer: StoreWriter, config: GenerateConfig) -> None:
    nodes = _stream(config, _SPLIT).permutation(config.nodes)
    ends = np.cumsum(config.split)
    for name, part in zip(("train", "val", "test"), np.split(nodes, ends), strict=False):
        writer.put(name, np.sort(part))


def _write_features(
    writer: StoreWriter,
    config: GenerateConfig,
    labels: IntArray,
    silent: BoolArray | None,
    pool: ThreadPoolExecutor,
    workers: int,
) -> None:
    """Row v is signal·μ(class of v) + noise, with |μ| about 1 and standard normal noise.

    Rows of silent nodes are zero.
    """
    shape = (config.nodes, config.features)
    writer.create("features", shape, np.float32)
    means = _stream(config, _MEANS).standard_normal((config.classes, config.features), np.float32)
    means *= np.float32(config.feature_signal / np.sqrt(config.features))
    step = max(1, _BLOCK // config.features)

    def fill(block: int) -> int:
        mine = slice(block * step, min((block + 1) * step, config.nodes))
        rows: FloatArray = means[labels[mine]]
        rows += _stream(config, _NOISE, block).standard_normal(rows.shape, np.float32)
        if silent is not None:
            rows[silent[mine]] = 0
        # Mapped again for each block, because pages of an open map count as process memory.
        open_memmap(writer.path("features"), mode="r+")[mine] = rows
        return len(rows)

    with progress("Drawing features", config.nodes, "nodes") as advance:
        for done in in_order(pool, fill, range(-(-config.nodes // step)), workers):
            advance(done)


def _write_edges(
    writer: StoreWriter,
    config: GenerateConfig,
    community: IntArray,
    silent: BoolArray | None,
    pool: ThreadPoolExecutor,
    workers: int,
    memory: int,
) -> None:
    from fastgcn.data.edge_sorter import EdgeSorter  # loads numba

    degrees = wanted_degrees(config)
    _stream(config, _DEGREES).shuffle(degrees)
    sorter = EdgeSorter(writer, config.nodes, directed=False, weighted=False, memory=memory // 2)
    batch = memory // 2 // (32 * (workers + 1))
    with progress("Drawing edges", config.edges, "edges") as advance:
        inside, between = (
            _stream(config, stage).integers(1 << 64, dtype=np.uint64)
            for stage in (_INSIDE, _BETWEEN)
        )
        for rows in (
            rows_inside(config, degrees, community, silent, inside),
            rows_between(config, degrees, community, between),
        ):
            for source, target in in_order(pool, rows.draw, rows.batches(batch), workers):
                sorter.add(source, target, None)
                advance(len(source))
    cleaned = sorter.finish()
    assert cleaned == Cleaning(), "an edge was drawn twice"


def _communities(config: GenerateConfig, labels: IntArray) -> IntArray:
    """(n,) the class whose edges a node has: its own; stray nodes swap theirs at random."""
    random = _stream(config, _STRAYS)
    strays = random.permutation(config.nodes)[: round(config.stray * config.nodes)]
    community = labels.copy()
    community[strays] = labels[random.permutation(strays)]
    return community


def _silent_nodes(config: GenerateConfig, community: IntArray) -> BoolArray | None:
    """(n,) True for the nodes without features, the same share of each community; None if no
    node is silent."""
    if config.silent == 0:
        return None
    order = _stream(config, _SILENT).permutation(config.nodes)
    order = order[np.argsort(community[order], kind="stable")]
    sizes = class_sizes(config)
    chosen = np.zeros(config.nodes, np.bool_)
    for end, size, count in zip(np.cumsum(sizes), sizes, silent_sizes(config), strict=True):
        chosen[order[end - size : end - size + count]] = True
    return chosen
