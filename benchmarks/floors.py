"""The floor of a training step: the time that this machine's memory, arithmetic and launches need.

A floor is bytes / measured bandwidth + operations / measured peak + launches · measured launch.
`work` counts what a step cannot do without; `rates` measures the machine in the same run. Left out
are drawing, dropout, norms and whatever a faster program might leave out, so a step takes longer.
"""

import time
from collections.abc import Callable
from itertools import islice, pairwise

import numpy as np
import torch

from benchmarks.results import Record
from fastgcn.backends.data import training_graph
from fastgcn.config import TrainConfig
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.sampling import make_sampler

_LOOKS = 7  # times that a rate is taken, of which the best counts
_SECONDS = 0.02  # of work in each
_GPU_COPY = 1 << 24  # bytes: smaller copies measure launches
_MOST = 1 << 30  # bytes of an array whose bandwidth is measured
_LAUNCHES = 500


def work(graph: Graph, config: TrainConfig, *, batches: int = 8) -> Record:
    """What a step needs at least, as means over some batches.

    * `input_bytes`: the rows of the first layer's input, read once;
    * `other_bytes`: the entries of the blocks, and Adam's reading and writing of the weights and
      their two moments;
    * `operations`: of the matrix products, forward and back, in the cheaper order, and of mixing;
    * `launches`: kernels that wait for each other on a GPU: products, mixing, the loss and Adam.
    """
    trained = training_graph(graph, config)
    sampler = make_sampler(config, trained.adjacency, trained.csr)
    rng = torch.Generator().manual_seed(config.seed)
    nodes = trained.batch_nodes(graph)
    order = nodes[torch.randperm(len(nodes), generator=rng)]
    parts = [nodes] if config.method == "gcn" else torch.split(order, config.batch_size)
    found = [
        _of_step(graph, config, [(len(b.src), _entries(b.adj)) for b in blocks], len(part))
        for part in islice(parts, batches)
        for blocks in [sampler.sample(part, rng)]
    ]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def _entries(adj: torch.Tensor) -> int:
    return int(adj.values().numel()) if adj.layout == torch.sparse_csr else adj.numel()


def _of_step(
    graph: Graph, config: TrainConfig, blocks: list[tuple[int, int]], batch: int
) -> Record:
    """The work of one step, from the rows that each block reads and its entries."""
    pairs = list(pairwise([graph.n_features, *config.hidden_sizes, graph.n_classes]))
    precomputed = len(pairs) - len(blocks)  # layers whose input is mixed before the step
    rows = [blocks[0][0] if blocks else batch] * precomputed + [read for read, _ in blocks]
    rows.append(batch)
    density = 1.0 if config.precompute else _density(graph)  # of the first layer's input
    operations = weights = 0.0
    for layer, (wide, narrow) in enumerate(pairs):
        own = (config.skip if layer else config.input_skip) and not config.pair
        times = 3 if layer else 2  # forward, back to the weights, and back to the rows
        product = 2 * wide * narrow * times * (1.0 if layer else density)
        operations += product * min(rows[layer : layer + 2]) + own * product * rows[layer + 1]
        weights += wide * narrow * (1 + own)
        if layer >= precomputed:
            operations += 4 * blocks[layer - precomputed][1] * min(wide, narrow)
    entries = sum(count for _, count in blocks)
    return {
        "input_bytes": 4 * rows[0] * graph.n_features * min(1.0, 2 * density),  # and their columns
        "other_bytes": 8 * entries + 6 * 4 * weights,
        "operations": operations,
        "launches": 3 * len(pairs) - 1 + 2 * len(blocks) + 2,
    }


def _density(graph: Graph) -> float:
    """The share of the features that are stored."""
    if isinstance(graph.features, np.ndarray):
        return 1.0
    return float(graph.features.nnz / (graph.n_nodes * graph.n_features))


def rates(graph: Graph, needed: Record, device: str) -> Record:
    """Bytes and operations a second and seconds a launch, the best of some looks.

    Input rows lie in an array as large as the features; what else a step needs may stay in a cache.
    """
    stored = 4 * graph.n_nodes * graph.n_features * min(1.0, 2 * _density(graph))
    features = min(round(stored), _MOST)
    return {
        "input_bandwidth": _bandwidth(features, device),
        "other_bandwidth": _bandwidth(int(needed["other_bytes"]), device),
        "peak": _peak(device),
        "launch": _launch() if device == "cuda" else 0.0,
    }


def floor_seconds(needed: Record, machine: Record) -> float:
    """Seconds below which a step cannot come.

    >>> needed = {"input_bytes": 2e9, "other_bytes": 0, "operations": 1e9, "launches": 10}
    >>> machine = {"input_bandwidth": 1e9, "other_bandwidth": 1e9, "peak": 1e9, "launch": 0.1}
    >>> floor_seconds(needed, machine)
    4.0
    """
    seconds = sum(needed[f"{of}_bytes"] / machine[f"{of}_bandwidth"] for of in ("input", "other"))
    seconds += needed["operations"] / machine["peak"] + needed["launches"] * machine["launch"]
    return float(seconds)


def _bandwidth(size: int, device: str) -> float:
    """Bytes a second, by reading an array of so many bytes or by copying it."""
    length = max(size, _GPU_COPY if device == "cuda" else 1 << 12) // 4
    one = torch.ones(length, device=device)
    other = torch.empty_like(one)
    copied = 8 * length / _seconds(lambda: other.copy_(one), device)
    return max(copied, 4 * length / _seconds(lambda: one.sum(), device))


def _peak(device: str) -> float:
    """Operations a second of a matrix product; on a GPU in TF32, which is the default there."""
    width = 8192 if device == "cuda" else 1024
    a = torch.ones(width, width, device=device)
    out = torch.empty_like(a)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return 2 * width**3 / _seconds(lambda: torch.mm(a, a, out=out), device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _launch() -> float:
    """Seconds of the smallest kernel in a recording of many that wait for each other."""
    one = torch.zeros(1, device="cuda")
    one.add_(1)
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for _ in range(_LAUNCHES):
            one.add_(1)
    return _seconds(recorded.replay, "cuda") / _LAUNCHES


def _seconds(call: Callable[[], object], device: str) -> float:
    """Seconds of a call, the least of some looks at many calls, on one thread or on all."""
    return min(_seconds_on(threads, call, device) for threads in (1, 0))


def _seconds_on(threads: int, call: Callable[[], object], device: str) -> float:
    def timed(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    with thread_count(threads):
        timed(1)
        count = max(1, round(_SECONDS / max(timed(1), 1e-6)))
        return min(timed(count) / count for _ in range(_LOOKS))
