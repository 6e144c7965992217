"""No sampling: every neighbour of every row, layer after layer."""

import numpy as np
import torch
from torch import Tensor

from fastgcn.adjacency import RowSource
from fastgcn.samplers.block import Block, distinct, sparse_matrix
from fastgcn.samplers.draws import Rng


class FullSampler:
    """Whole neighbourhoods: `adj` holds the rows of Â themselves (GCN batched, and eq. 1)."""

    def __init__(self, adjacency: RowSource, layers: int) -> None:
        self.adjacency, self.layers = adjacency, layers

    def sample(self, batch: Tensor, rng: Rng | None = None) -> list[Block]:  # noqa: ARG002
        """Blocks of `batch`; nothing is drawn, so `rng` is not used."""
        blocks: list[Block] = []
        dst = batch
        for _ in range(self.layers):
            nodes = dst.cpu().numpy()
            rows = self.adjacency.rows(nodes)
            # Behind the columns the rows themselves, so that `src` holds `dst` without loops too.
            src, place = distinct(np.concatenate([rows.indices, nodes]), self.adjacency.n)
            adj = sparse_matrix(rows.indptr, place[: len(rows.indices)], rows.values, len(src))
            blocks.append(Block(dst, torch.from_numpy(src.astype(np.int64, copy=False)), adj))
            dst = blocks[-1].src
        return blocks[::-1]
