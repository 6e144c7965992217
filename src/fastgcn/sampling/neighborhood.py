"""Blocks by neighbourhood: all neighbours (`FullSampler`), or k of each node (GraphSAGE)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fastgcn.graph.adjacency import AdjacencyRows
from fastgcn.graph.csr import CSR
from fastgcn.kernels.blocks import number_columns
from fastgcn.kernels.counter_random import sample_neighbors
from fastgcn.sampling.block import Block
from fastgcn.sampling.draws import Rng, uniforms


class FullSampler:
    """Whole neighbourhoods: `adj` holds the rows of Â themselves (GCN batched, and eq. 1)."""

    def __init__(self, adjacency: AdjacencyRows, layers: int) -> None:
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


class NeighborSampler:
    """The mean of k_l uniform neighbours of every row of layer l+1 (Hamilton et al., 2017).

    With `include_self`, the mean is over the node and its sampled neighbours (GraphSAGE-GCN);
    without, over the neighbours alone (GraphSAGE-mean, which adds the node separately). `src`
    always begins with `dst`, so that a layer finds a node's own row.

    `fanouts` are k_l from the input up: S1 = 25, S2 = 10 of its authors' program are `[25, 10]`,
    10 neighbours of every batch node, and 25 of each of those.
    """

    def __init__(self, csr: CSR, fanouts: Sequence[int], *, include_self: bool) -> None:
        self.csr, self.fanouts, self.include_self = csr, tuple(fanouts), include_self
        self._place = np.full(len(csr.indptr) - 1, -1, np.int32)

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        """The blocks of `batch`, from the input layer up."""
        blocks: list[Block] = []
        dst = batch
        for k in self.fanouts[::-1]:
            rows = dst.numpy()
            seed = int(uniforms(1, rng)[0] * 2**53)
            drawn = np.empty((len(rows), k), dtype=np.int64)
            sample_neighbors(self.csr.indptr, self.csr.indices, rows, k, seed, drawn)
            own = rows[:, None]
            if self.include_self:
                drawn = np.concatenate([own, drawn], axis=1)
            there = drawn >= 0  # -1 for a row without neighbours
            src, columns = number_columns(
                rows, np.where(there, drawn, own).reshape(-1), self._place
            )
            shares = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
            csr = (
                np.arange(0, drawn.size + 1, drawn.shape[1]),
                columns,
                shares.astype(np.float32).reshape(-1),
            )
            blocks.append(Block.of_csr(dst, torch.from_numpy(src), csr))
            dst = blocks[-1].src
        return blocks[::-1]
