"""Arrays and features from memory or a memory map to the device, in pinned chunks."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fastgcn.backends.data import check_trainable, label_tensor
from fastgcn.backends.gpu.matrix import (
    DeviceEdges,
    DeviceMatrix,
    aligned,
    empty_rows,
    row_stride,
    upload_rows,
)
from fastgcn.config import TrainConfig
from fastgcn.errors import InputError
from fastgcn.features.encoded import DTYPES, check_range
from fastgcn.features.plan import Budget
from fastgcn.features.scaling import Statistics, column_statistics
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.graph import Graph
from fastgcn.memory import shown_bytes
from fastgcn.progress import note

# Of the device's free memory, what features may take; the rest is for products and blocks.
_SHARE = 0.7


@dataclass(frozen=True)
class DeviceData:
    """The training graph on the device.

    Attributes:
        edges: those of the whole graph.
        matrix: Â of the training graph.
        nodes: (n,) int64, ids of its nodes; None where it is the whole graph.
        features: X (N, F) of the whole graph on the device; None where it stays on the host.
        inputs: (n, F) rows of ÂX, or of X where nothing is precomputed; on the device, or in
            pinned memory of the host.
        beside: (n, F) rows of X, for a first layer that wants both.
        batch_nodes: (k,) int32.
        labels: (n,) int64 or (n, C) float32.
    """

    edges: DeviceEdges
    matrix: DeviceMatrix
    nodes: Tensor | None
    features: Tensor | None
    inputs: Tensor
    beside: Tensor | None
    batch_nodes: Tensor
    labels: Tensor
    statistics: Statistics | None


def prepare_on_device(graph: Graph, config: TrainConfig, device: torch.device) -> DeviceData:
    """As `training_data.prepare`; nothing of other nodes goes into what is trained on."""
    check_trainable(graph, config)
    statistics = None
    if config.feature_scaling == "standard":
        statistics = column_statistics(graph.features, graph.split.train)
    edges = DeviceEdges.of(graph.csr, device)
    # A split may be in any order, and rows and columns that are renumbered must be in one.
    trained = np.sort(graph.split.train)
    train = torch.from_numpy(trained).to(device)
    matrix = (edges.induced(train) if config.inductive else edges).normalized(config.normalization)
    rows = NodeFeatures(graph.features, config.feature_scaling, None, statistics)
    dtype = DTYPES[config.inputs_dtype] if config.precompute else torch.float32
    on_device = features_fit(graph, config, device)
    features = None
    nodes = train if config.inductive else None
    if on_device:
        features = empty_rows(len(rows), rows.width, torch.float32, device)
        upload_rows(rows, features)
        own = features
        if nodes is not None:
            from fastgcn.kernels.gpu.mix import gather

            own = gather(
                features, nodes, empty_rows(len(nodes), rows.width, features.dtype, device)
            )
        rows_in = matrix.times(own) if config.precompute else own
        inputs = aligned(rows_in, dtype)
        check_range(rows_in, inputs)
        beside = None
        if config.precompute and config.input_skip:
            beside = aligned(own, dtype)
            check_range(own, beside)
    else:
        ids = None if nodes is None else trained
        own_rows = NodeFeatures(graph.features, config.feature_scaling, ids, statistics)
        inputs, beside = _on_host(matrix, own_rows, config, dtype)
    assert graph.labels is not None
    labels = label_tensor(graph.labels if nodes is None else graph.labels[trained])
    batch_nodes = torch.arange(matrix.n, device=device) if nodes is not None else train
    return DeviceData(
        edges,
        matrix,
        nodes,
        features,
        inputs,
        beside,
        batch_nodes.int(),
        labels.to(device),
        statistics,
    )


def features_fit(graph: Graph, config: TrainConfig, device: torch.device) -> bool:
    """Whether X and what is made of it go to the device; said where it is not so."""
    if config.features != "auto":
        return config.features == "device"
    if device.type != "cuda":
        return True
    trained = len(graph.split.train) if config.inductive else graph.n_nodes
    needed = row_stride(graph.n_features, torch.float32) * 4 * (2 * graph.n_nodes + 2 * trained)
    free = torch.cuda.mem_get_info(device)[0]
    sizes = f"with ÂX they take {needed / 1e9:.1f} GB, and it has {free / 1e9:.1f} GB free"
    if needed <= _SHARE * free:
        note(f"the features are on the device: {sizes}")
        return True
    note(f"the features stay in the host's memory, not the device's: {sizes}")
    return False


# Bytes of X that are on the device at once, where it stays on the host.
_COLUMN_BYTES = 1 << 30


def _on_host(
    matrix: DeviceMatrix, rows: NodeFeatures, config: TrainConfig, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """ÂX and X in pinned memory, which kernels read row by row; ÂX some columns at a time."""
    n, width = len(rows), rows.width
    kept = [torch.float32, dtype] if config.precompute else [torch.float32]
    _check_memory(sum(n * row_stride(width, each) * each.itemsize for each in kept), config)
    x = empty_rows(n, width, torch.float32, None)
    upload_rows(rows, x)
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
    """Refuse to hold more on the host than was asked for."""
    asked = Budget.of(config.memory).asked
    if asked is not None and needed > asked:
        raise InputError(
            f"memory = {shown_bytes(asked)} is not enough for the features, which take "
            f"{shown_bytes(needed)} of the host's memory where they are not on the GPU; allow that "
            "much, or use --device cpu, which can keep them on disk"
        )
