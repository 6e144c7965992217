"""A graph on the device: edges and features uploaded in pinned chunks, and the training data."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, forget
from fastgcn.backends.data import SharedData, check_trainable, label_tensor, target_of
from fastgcn.backends.gpu.matrix import DeviceEdges, DeviceMatrix, DeviceSparse
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.encoded import DTYPES, check_range
from fastgcn.features.plan import Budget
from fastgcn.features.store import (
    ColumnMoments,
    NodeFeatures,
    Statistics,
    column_statistics,
    statistics_of,
)
from fastgcn.graph.csr import CSR, damaged
from fastgcn.graph.graph import Graph
from fastgcn.kernels.gpu.products import aligned, empty_rows, gather, row_stride
from fastgcn.memory import shown_bytes
from fastgcn.metrics import Target
from fastgcn.progress import note, progress

# Bytes of a chunk, and chunks in progress: threads read some while others are copied. Pinning takes
# as long as reading, so buffers are small.
_CHUNK_BYTES, _BUFFERS = 1 << 23, 10
# The share of the device's free memory that rows of features or of a network may take.
FREE_SHARE = 0.7
# Bytes of X on the device at once, if it stays on the host.
_COLUMN_BYTES = 1 << 30


def upload(array: AnyArray, device: torch.device) -> Tensor:
    """A 1-D array on the device."""
    out = torch.empty(len(array), dtype=_torch_type(array.dtype), device=device)
    _stream(lambda first, stop: array[first:stop], array.itemsize, out)
    forget(array)
    return out


def upload_rows(features: NodeFeatures, out: Tensor) -> Tensor:
    """out (n, F), on the device or pinned = all rows of the features, scaled, in order."""
    if isinstance(features.features, csr_array):
        for first, part in features.parts(_CHUNK_BYTES):
            _scatter(part, out[first : first + part.shape[0]])
        return out
    plain = features.scaling == "none" and features.nodes is None

    def rows(first: int, stop: int) -> FloatArray:
        if plain and isinstance(features.features, np.ndarray):
            return features.features[first:stop]
        return features.between(first, stop).numpy()

    _stream(rows, 4 * features.width, out)
    features.forget()
    return out


def _scatter(part: "FloatArray | csr_array", out: Tensor) -> None:
    if not isinstance(part, csr_array):
        out.copy_(torch.from_numpy(np.ascontiguousarray(part)))
        return
    out.zero_()
    row = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
    where = [
        torch.from_numpy(np.asarray(ids, np.int64)).to(out.device) for ids in (row, part.indices)
    ]
    values = torch.from_numpy(np.asarray(part.data, np.float32)).to(out.device, out.dtype)
    out.index_put_((where[0], where[1]), values)


def _stream(read: Callable[[int, int], AnyArray], row_bytes: int, out: Tensor) -> None:
    """out = read(0, len(out)), in chunks: threads read into pinned memory, copies go from there."""
    step = max(1, _CHUNK_BYTES // max(row_bytes, 1))
    chunks = [(first, min(first + step, len(out))) for first in range(0, len(out), step)]
    on_device = out.device.type == "cuda"
    buffers: list[Tensor | None] = [None] * _BUFFERS
    sent: list[torch.cuda.Event | None] = [None] * _BUFFERS

    def fill(number: int) -> Tensor:
        rows = np.asarray(read(*chunks[number]))
        if not on_device:
            return torch.from_numpy(rows.copy())
        slot = number % _BUFFERS
        if (event := sent[slot]) is not None:
            event.synchronize()
        buffer = buffers[slot]
        if buffer is None:
            shape = (min(step, len(out)), *rows.shape[1:])
            buffer = torch.empty(shape, dtype=_torch_type(rows.dtype), pin_memory=True)
            buffers[slot] = buffer
        np.copyto(buffer[: len(rows)].numpy(), rows)
        return buffer[: len(rows)]

    with (
        ThreadPoolExecutor(_BUFFERS - 2) as pool,
        progress("Moving to the device", len(out), "rows") as advance,
    ):
        waiting = [pool.submit(fill, number) for number in range(min(_BUFFERS - 1, len(chunks)))]
        for number, (first, stop) in enumerate(chunks):
            rows = waiting[number].result()
            out[first:stop].copy_(rows, non_blocking=True)
            if on_device:
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
                sent[number % _BUFFERS] = event
            # The chunk that uses this buffer next can be read only after the event is recorded.
            if len(waiting) < len(chunks):
                waiting.append(pool.submit(fill, len(waiting)))
            advance(stop - first)
    if on_device:
        torch.cuda.current_stream(out.device).synchronize()


def _torch_type(dtype: "np.dtype[np.generic]") -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def upload_edges(csr: CSR, device: torch.device) -> DeviceEdges:
    """The edges on the device; raises if they are damaged on disk."""
    indptr = upload(csr.indptr, device).to(torch.int64)
    indices = upload(csr.indices, device)
    n = len(indptr) - 1
    if n and bool((indptr[1:] < indptr[:-1]).any()):
        raise damaged(csr.indptr, "its rows are not in order")
    if len(indices) and bool(((indices < 0) | (indices >= n)).any()):
        raise damaged(csr.indices, f"it names a column outside of 0..{n - 1:,}")
    weights = None if csr.weights is None else upload(csr.weights, device).to(torch.float32)
    return DeviceEdges(indptr, indices.to(torch.int32), weights)


@dataclass(frozen=True)
class DeviceGraph:
    """A whole graph, its edges on the device.

    Attributes:
        host_features: rows of X (N, F) on the host, scaled when they are read.
        features: X (N, F) on the device, scaled; None if it stays on the host.
    """

    edges: DeviceEdges
    host_features: NodeFeatures
    features: Tensor | DeviceSparse | None

    @property
    def device(self) -> torch.device:
        return self.edges.indptr.device

    def x(self, nodes: Tensor | None) -> Tensor | DeviceSparse | NodeFeatures:
        """Rows of X of `nodes` or of all: as they are on the device, else for reading."""
        if self.features is not None:
            if nodes is None:
                return self.features
            if isinstance(self.features, DeviceSparse):
                return DeviceSparse(self.features.matrix.some_rows(nodes))
            n, width = len(nodes), self.features.shape[1]
            return gather(self.features, nodes, empty_rows(n, width, torch.float32, self.device))
        rows = self.host_features
        ids = None if nodes is None else nodes.cpu().numpy()
        return NodeFeatures(rows.features, rows.scaling, ids, rows.statistics)


@dataclass(frozen=True)
class DeviceTrainingData:
    """The training graph on the device, and what only training needs of it.

    Attributes:
        matrix: Â of the training graph.
        nodes: (n,) int64, the ids of its nodes, ascending; None if it is the whole graph.
        inputs: (n, F) rows of ÂX, or of X if nothing is precomputed; on the device, or in
            pinned memory of the host. Full passes have (n, 2F) if the first layer takes both.
        beside: (n, F) rows of X, if the first layer takes both, unless `inputs` hold them.
        batch_nodes: (k,) int32, the nodes that batches are made of.
        labels: (n,) int64; (n, C) float32; or (n, 1) float32, standardised numbers.
        precomputed: True if `inputs` hold ÂX, so that the first layer needs no block.
        target: what numbers are standardised by; None for classes.
    """

    matrix: DeviceMatrix
    nodes: Tensor | None
    inputs: Tensor | DeviceSparse
    beside: Tensor | None
    batch_nodes: Tensor
    labels: Tensor
    precomputed: bool
    target: Target | None = None

    @property
    def dense_inputs(self) -> Tensor:
        """`inputs` of sampled batches, which are never sparse."""
        assert isinstance(self.inputs, Tensor)
        return self.inputs

    def input_chunks(self, n_bytes: int) -> Iterator[Tensor]:
        """(k, F) or (k, 2F) float32 on the device: all input rows in order, in chunks."""
        inputs = self.dense_inputs
        parts = [inputs] if self.beside is None else [inputs, self.beside]
        device = self.matrix.indices.device
        step = max(1, n_bytes // (4 * len(parts) * inputs.shape[1]))
        for start in range(0, len(inputs), step):
            yield torch.cat([part[start : start + step].to(device).float() for part in parts], 1)


def prepare_on_device(
    graph: Graph, config: TrainConfig, device: torch.device, shared: SharedData | None = None
) -> tuple[DeviceGraph, DeviceTrainingData]:
    """The graph and its training data, made as `backends.data.prepare` makes them.

    Training data hold nothing of nodes outside the training graph. `shared` holds what several
    trainings have in common.
    """
    check_trainable(graph, config)
    shared = SharedData() if shared is None else shared
    stored = config.method == "gcn" and not config.precompute  # sparse features stay sparse
    key = config.feature_scaling, config.features, stored
    there = shared.get(("graph", *key), lambda: _upload(graph, config, device, shared))
    more = config.normalization, config.inductive, config.method == "gcn"
    inputs = config.precompute, config.input_skip, config.inputs_dtype
    whole = ("training", *key, *more, *inputs)
    data = shared.get(whole, lambda: _training_data(graph, config, there))
    return there, data


def _upload(
    graph: Graph, config: TrainConfig, device: torch.device, shared: SharedData
) -> DeviceGraph:
    edges = shared.get("edges", lambda: upload_edges(graph.csr, device))
    scaling, dense = config.feature_scaling, isinstance(graph.features, np.ndarray)
    sparse = config.method == "gcn" and not config.precompute and not dense
    fit = sparse or features_fit(graph, config, device)
    if scaling == "standard" and dense and fit:
        rows = NodeFeatures(graph.features)
        x = upload_rows(rows, empty_rows(len(rows), rows.width, torch.float32, device))
        train = torch.from_numpy(np.array(graph.split.train, np.int64)).to(device)
        statistics = standardise(x, train)
        return DeviceGraph(edges, NodeFeatures(graph.features, scaling, None, statistics), x)
    known = column_statistics(graph.features, graph.split.train) if scaling == "standard" else None
    rows = NodeFeatures(graph.features, scaling, None, known)
    if sparse and rows.sparse:
        return DeviceGraph(edges, rows, upload_sparse(rows, device))
    if not fit:
        return DeviceGraph(edges, rows, None)
    x = upload_rows(rows, empty_rows(len(rows), rows.width, torch.float32, device))
    return DeviceGraph(edges, rows, x)


def upload_sparse(rows: NodeFeatures, device: torch.device) -> DeviceSparse:
    """Sparse features on the device, as they are stored."""
    csr = rows.sparse_rows(np.arange(len(rows)))
    indptr = upload(np.asarray(csr.indptr, np.int64), device)
    indices = upload(np.asarray(csr.indices, np.int32), device)
    edges = DeviceEdges(indptr, indices, None)
    values = upload(np.asarray(csr.data, np.float32), device)
    return DeviceSparse(DeviceMatrix(indptr, indices, values, edges.rows, rows.width))


def standardise(x: Tensor, train: Tensor) -> Statistics:
    """Standardise the columns of x (N, F) in place by the rows `train`, as `column_statistics`
    does: in two passes of float64, some rows at a time."""
    step = max(1, _COLUMN_BYTES // (8 * x.shape[1]))
    chunks = [train[first : first + step] for first in range(0, len(train), step)]
    n = len(train)
    mean = sum((x[ids].double().sum(0) for ids in chunks), torch.zeros(())) / n
    squares = sum(((x[ids] - mean).square().sum(0) for ids in chunks), torch.zeros(()))
    moments = ColumnMoments(n, n * len(mean), mean.cpu().numpy(), squares.cpu().numpy())
    statistics = statistics_of(moments, sparse=False)
    shift, scale = (torch.from_numpy(part).to(x.device) for part in statistics)
    x.sub_(shift).mul_(scale)
    return statistics


def _training_data(graph: Graph, config: TrainConfig, there: DeviceGraph) -> DeviceTrainingData:
    device, edges = there.device, there.edges
    # A split may be in any order; renumbering needs ascending ids.
    trained = np.sort(graph.split.train)
    train = torch.from_numpy(trained).to(device)
    nodes = train if config.inductive else None
    matrix = (edges if nodes is None else edges.induced(nodes)).normalized(config.normalization)
    x = there.x(nodes)
    inputs: Tensor | DeviceSparse
    if isinstance(x, Tensor):
        inputs, beside = _inputs_on_device(matrix, x, config)
    elif isinstance(x, DeviceSparse):
        inputs, beside = x, None
    elif config.method == "gcn":
        raise InputError(
            f"full passes need the features of {graph.name} on the GPU, where they have no room; "
            "use --device cpu, or sampled batches (--method fastgcn)"
        )
    else:
        inputs, beside = _inputs_on_host(matrix, x, config)
    assert graph.labels is not None
    target = target_of(graph.labels[trained], config) if graph.regression else None
    labels = label_tensor(graph.labels if nodes is None else graph.labels[trained], target)
    batch_nodes = train if nodes is None else torch.arange(matrix.n, device=device)
    return DeviceTrainingData(
        matrix, nodes, inputs, beside, batch_nodes.int(), labels.to(device), config.precompute,
        target,
    )  # fmt: skip


def features_fit(graph: Graph, config: TrainConfig, device: torch.device) -> bool:
    """True if X and ÂX go to the device; prints a note that says where they are."""
    if config.features != "auto":
        return config.features == "device"
    if device.type != "cuda":
        return True
    trained = len(graph.split.train) if config.inductive else graph.n_nodes
    needed = row_stride(graph.n_features, torch.float32) * 4 * (2 * graph.n_nodes + 2 * trained)
    free = torch.cuda.mem_get_info(device)[0]
    sizes = f"with ÂX they take {needed / 1e9:.1f} GB, and it has {free / 1e9:.1f} GB free"
    if needed <= FREE_SHARE * free:
        note(f"the features are on the device: {sizes}")
        return True
    note(f"the features stay in the host's memory, not the device's: {sizes}")
    return False


def _input_dtype(config: TrainConfig) -> torch.dtype:
    """Only precomputed rows may be kept in half precision."""
    return DTYPES[config.inputs_dtype] if config.precompute else torch.float32


def _inputs_on_device(
    matrix: DeviceMatrix, x: Tensor, config: TrainConfig
) -> tuple[Tensor, Tensor | None]:
    """`inputs` and `beside` of the training data."""

    def kept(rows: Tensor) -> Tensor:
        rounded = aligned(rows, _input_dtype(config))
        check_range(rows, rounded)
        return rounded

    if not config.precompute:
        return kept(x), None
    mixed, own = kept(matrix.times(x)), kept(x) if config.input_skip else None
    if config.method == "gcn" and own is not None:
        return torch.cat([mixed, own], 1), None
    return mixed, own


def _inputs_on_host(
    matrix: DeviceMatrix, rows: NodeFeatures, config: TrainConfig
) -> tuple[Tensor, Tensor | None]:
    """The same in pinned memory, which kernels read row by row; ÂX is made column by column."""
    n, width, dtype = len(rows), rows.width, _input_dtype(config)
    kept = [torch.float32, dtype] if config.precompute else [torch.float32]
    _check_memory(sum(n * row_stride(width, each) * each.itemsize for each in kept), config)
    x = upload_rows(rows, empty_rows(n, width, torch.float32, None))
    if not config.precompute:
        return x, None
    mixed = empty_rows(n, width, dtype, None)
    step = max(16, _COLUMN_BYTES // max(4 * n, 1))
    for first in range(0, width, step):
        columns = slice(first, min(first + step, width))
        product = matrix.times(x[:, columns].to(matrix.indices.device).contiguous())
        rounded = product.to(dtype)
        check_range(product, rounded)
        mixed[:, columns] = rounded.cpu()
    return mixed, x if config.input_skip else None


def _check_memory(needed: int, config: TrainConfig) -> None:
    """Refuse to hold more on the host than the settings allow."""
    asked = Budget.of(config.memory).asked
    if asked is not None and needed > asked:
        raise InputError(
            f"memory = {shown_bytes(asked)} is not enough for the features, which take "
            f"{shown_bytes(needed)} of the host's memory where they are not on the GPU; allow that "
            "much, or use --device cpu, which can keep them on disk"
        )
