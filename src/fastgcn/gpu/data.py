"""What training on the device sees: Â, ÂX or X, and labels; on the device, or on the host."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.features import FeatureRows, Statistics, column_statistics
from fastgcn.gpu.matrix import DeviceEdges, DeviceMatrix
from fastgcn.gpu.upload import aligned, empty_rows, row_stride, upload_rows
from fastgcn.graph import Graph
from fastgcn.progress import note
from fastgcn.stored_rows import DTYPES, check_range
from fastgcn.training_data import check_trainable, label_tensor

# Of the device's free memory, what features may take; the rest is for products and blocks.
_SHARE = 0.7


@dataclass(frozen=True)
class DeviceData:
    """The training graph on the device.

    Attributes:
        edges: those of the whole graph.
        matrix: Â of the training graph.
        features: X (N, F) of the whole graph on the device; None where it stays on the host.
        inputs: (n, F) rows of ÂX, or of X where nothing is precomputed; on the device, or in
            pinned memory of the host.
        beside: (n, F) rows of X, for a first layer that wants both.
        batch_nodes: (k,) int32.
        labels: (n,) int64 or (n, C) float32.
    """

    edges: DeviceEdges
    matrix: DeviceMatrix
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
    train = torch.from_numpy(np.array(graph.split.train, np.int64)).to(device)
    matrix = (edges.induced(train) if config.inductive else edges).normalized(config.normalization)
    rows = FeatureRows(graph.features, config.feature_scaling, None, statistics)
    dtype = DTYPES[config.inputs_dtype]
    on_device = features_fit(graph, config, device)
    features = None
    nodes = train if config.inductive else None
    if on_device:
        features = empty_rows(rows.n, rows.width, torch.float32, device)
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
        beside = aligned(own, dtype) if config.precompute and config.input_skip else None
    else:
        own_rows = FeatureRows(graph.features, config.feature_scaling, _ids(nodes), statistics)
        inputs, beside = _on_host(matrix, own_rows, config, dtype)
    assert graph.labels is not None
    labels = label_tensor(graph.labels if nodes is None else graph.labels[graph.split.train])
    batch_nodes = torch.arange(matrix.n, device=device) if nodes is not None else train
    return DeviceData(
        edges, matrix, features, inputs, beside, batch_nodes.int(), labels.to(device), statistics
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


def _ids(nodes: Tensor | None) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
    return None if nodes is None else nodes.cpu().numpy()


# Bytes of X that are on the device at once, where it stays on the host.
_COLUMN_BYTES = 1 << 30


def _on_host(
    matrix: DeviceMatrix, rows: FeatureRows, config: TrainConfig, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """ÂX and X in pinned memory, which kernels read row by row; ÂX some columns at a time."""
    n, width = rows.n, rows.width
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
