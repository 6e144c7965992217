"""No sampling: every neighbour of every row, layer after layer."""

import numpy as np
import torch
from torch import Tensor

from fastgcn.adjacency import RowSource
from fastgcn.kernels.blocks import number_columns
from fastgcn.samplers.block import Block
from fastgcn.samplers.draws import Rng


class FullSampler:
    """Whole neighbourhoods: `adj` holds the rows of Â themselves (GCN batched, and eq. 1)."""

    def __init__(self, adjacency: RowSource, layers: int) -> None:
        self.adjacency, self.layers = adjacency, layers
        self._place = np.full(adjacency.n, -1, np.int32)

    def sample(self, batch: Tensor, rng: Rng | None = None) -> list[Block]:  # noqa: ARG002
        """Blocks of `batch` (distinct); nothing is drawn, so `rng` is not used."""
        blocks: list[Block] = []
        dst = batch
        for _ in range(self.layers):
            nodes = dst.cpu().numpy()
            rows = self.adjacency.rows(nodes)
            src, columns = number_columns(nodes, rows.indices, self._place)
            csr = rows.indptr, columns, rows.values
            blocks.append(Block.of_csr(dst, torch.from_numpy(src), csr))
            dst = blocks[-1].src
        return blocks[::-1]
