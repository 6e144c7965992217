"""Norms of the rows that a layer mixes, by which `optimal` draws, on the device."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.gpu.block import WholeBlock
from fastgcn.gpu.data import DeviceData
from fastgcn.gpu.forward import HostRows, forward
from fastgcn.models import GCN

# Bytes of input rows that are on the device together, where they are not there anyway.
_CHUNK_BYTES = 1 << 28


@torch.no_grad()
def row_norms(
    model: GCN, config: TrainConfig, data: DeviceData, features: HostRows
) -> list[Tensor]:
    """|x(u)| = ‖H(u)W‖ of every sampled layer under the current weights (Thm 3).

    `features` are the training graph's, for where nothing is precomputed and X is on the host.
    """
    device, whole = data.matrix.indices.device, WholeBlock.of(data.matrix)
    bare = int(config.precompute)
    below: Tensor | HostRows = features
    if bare:
        below = torch.cat([forward(model, [], rows, 1) for rows in _inputs(data, device)])
    elif data.features is not None:
        below = data.inputs
    norms = []
    for number in range(bare, config.layers):
        weight = model.convolutions[number].weight
        if number == 0 and isinstance(below, HostRows):
            mixed = below.times(model, device)[:, : weight.shape[1]]
        else:
            blocks = [whole] * (number - bare)
            mixed = forward(model, blocks, below, number, first=bare) @ weight
        norms.append(mixed.norm(dim=1))
    return norms


def _inputs(data: DeviceData, device: torch.device) -> Iterator[Tensor]:
    """Rows of ÂX, with those of X to their right where a layer wants both, in order."""
    parts = [data.inputs] if data.beside is None else [data.inputs, data.beside]
    step = max(1, _CHUNK_BYTES // (4 * len(parts) * data.inputs.shape[1]))
    for start in range(0, len(data.inputs), step):
        yield torch.cat([part[start : start + step].to(device).float() for part in parts], 1)
