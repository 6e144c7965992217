"""Random graphs of any size with communities, hubs and features, written straight to a store.

They stand in for data that cannot be had, and are honest about edges: a learner without them
does clearly worse than one with.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import TypeVar

import numpy as np
from numpy.lib.format import open_memmap

from fastgcn.csr import Cleaning
from fastgcn.data.generate_config import PRESETS, GenerateConfig, class_sizes
from fastgcn.data.generate_edges import rows_between, rows_inside, wanted_degrees
from fastgcn.data.store import StoreWriter
from fastgcn.errors import InputError
from fastgcn.progress import progress
from fastgcn.types import FloatArray, IntArray

__all__ = ["PRESETS", "GenerateConfig", "generate"]

# Each stage draws from its own stream, so that a change to one leaves the others as they are.
_LABELS, _STRAYS, _SPLIT, _DEGREES, _MEANS, _NOISE, _INSIDE, _BETWEEN = range(8)

# Features are drawn in blocks of about this many numbers with a stream each: small enough for
# the cache, and fixed, because another cut would give other features.
_BLOCK = 1 << 20

_LEAST_MEMORY = 1 << 24

Task = TypeVar("Task")
Result = TypeVar("Result")


def generate(
    config: GenerateConfig,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    memory: int = 1 << 30,
    threads: int | None = None,
) -> None:
    """Write the graph that `config` describes to the store folder `out`.

    The same config gives the same bytes, whatever `memory` and `threads` are, as long as
    numpy's random streams stay as they are.

    Args:
        config: what the graph shall be like; `PRESETS` has two.
        out: the store's folder; must not exist unless `force` is given.
        force: replace a store that is there.
        memory: bytes that edges and features may take at a time, beside some 200 bytes a node.
        threads: how many cores to use; None means all.
    """
    if memory < _LEAST_MEMORY:
        raise InputError(f"memory must be at least {_LEAST_MEMORY:,} bytes, got {memory:,}")
    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    workers = threads or os.cpu_count() or 1
    with StoreWriter(out, force=force) as writer:
        labels = _write_labels(writer, config)
        _write_split(writer, config)
        with ThreadPoolExecutor(workers) as pool:
            _write_features(writer, config, labels, pool, workers)
            _write_edges(writer, config, labels, pool, workers, memory)
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
    pool: ThreadPoolExecutor,
    workers: int,
) -> None:
    """Row v is signal·μ(class of v) + noise, with |μ| about 1 and noise of standard normals."""
    shape = (config.nodes, config.features)
    writer.create("features", shape, np.float32)
    means = _stream(config, _MEANS).standard_normal((config.classes, config.features), np.float32)
    means *= np.float32(config.feature_signal / np.sqrt(config.features))
    step = max(1, _BLOCK // config.features)

    def fill(block: int) -> int:
        mine = slice(block * step, min((block + 1) * step, config.nodes))
        rows: FloatArray = means[labels[mine]]
        rows += _stream(config, _NOISE, block).standard_normal(rows.shape, np.float32)
        # Mapped anew for each block: the pages of a map that stays open count as ours.
        open_memmap(writer.path("features"), mode="r+")[mine] = rows
        return len(rows)

    with progress("Drawing features", config.nodes, "nodes") as advance:
        for done in _in_order(pool, fill, range(-(-config.nodes // step)), workers):
            advance(done)


def _write_edges(
    writer: StoreWriter,
    config: GenerateConfig,
    labels: IntArray,
    pool: ThreadPoolExecutor,
    workers: int,
    memory: int,
) -> None:
    from fastgcn.data.edge_sorter import EdgeSorter  # loads numba

    community = _communities(config, labels)
    degrees = wanted_degrees(config)
    _stream(config, _DEGREES).shuffle(degrees)
    sorter = EdgeSorter(writer, config.nodes, directed=False, weighted=False, memory=memory // 2)
    batch = memory // 2 // (32 * (workers + 1))
    with progress("Drawing edges", config.edges, "edges") as advance:
        for stage, kind in ((_INSIDE, rows_inside), (_BETWEEN, rows_between)):
            seed = _stream(config, stage).integers(1 << 64, dtype=np.uint64)
            rows = kind(config, degrees, community, seed)
            for source, target in _in_order(pool, rows.draw, rows.batches(batch), workers):
                sorter.add(source, target, None)
                advance(len(source))
    cleaned = sorter.finish()
    assert cleaned == Cleaning(), "an edge was drawn twice"


def _communities(config: GenerateConfig, labels: IntArray) -> IntArray:
    """(n,) the class whose edges a node has: its own, but strays swap among themselves."""
    random = _stream(config, _STRAYS)
    strays = random.permutation(config.nodes)[: round(config.stray * config.nodes)]
    community = labels.copy()
    community[strays] = labels[random.permutation(strays)]
    return community


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[Task], Result], tasks: Iterable[Task], ahead: int
) -> Iterator[Result]:
    """`pool.map`, but only `ahead` results wait for their turn: what bounds the memory."""
    waiting: deque[Future[Result]] = deque()
    for task in tasks:
        waiting.append(pool.submit(work, task))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
