"""Blocks on the device, as the network takes them: sampled ones, and whole graphs."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from fastgcn.gpu.matrix import DeviceMatrix
from fastgcn.kernels.gpu.mix import mix_rows, unmix_rows
from fastgcn.kernels.gpu.scan import Room
from fastgcn.kernels.products import mixing_first_pays


@dataclass(frozen=True)
class GroupBlock:
    """The block of one of K batches, `current` (1,) saying which; shapes are those of the room."""

    room: Room
    rows: int
    current: Tensor
    mix_first_only: bool = False

    @property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.room.offsets, self.room.columns, self.room.entries

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        """As if there were as many entries as rows, most of which meet few of the drawn."""
        sources = self.room.sources.shape[1]
        return bool(mixing_first_pays(self.rows, self.rows, sources, n_in, n_out))

    def mix(self, h: Tensor) -> Tensor:
        return cast(Tensor, _Mix.apply(h, self))  # type: ignore[no-untyped-call]

    def own_rows(self, h: Tensor) -> Tensor:
        return h[: self.rows]


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, block: GroupBlock) -> Tensor:
        ctx.block, ctx.sources = block, len(h)
        return mix_rows(block.csr, block.current, block.rows, h)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        block: GroupBlock = ctx.block
        return unmix_rows(block.csr, block.current, gradients[0], ctx.sources), None


@dataclass(frozen=True)
class WholeBlock:
    """All rows of Â, or those of `nodes` with the columns of all."""

    matrix: DeviceMatrix
    columns: int
    nodes: Tensor | None
    mix_first_only: bool = False

    @classmethod
    def of(cls, matrix: DeviceMatrix, nodes: Tensor | None = None) -> "WholeBlock":
        return cls(matrix if nodes is None else matrix.some_rows(nodes), matrix.n, nodes)

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        entries = len(self.matrix.indices)
        return bool(mixing_first_pays(entries, self.matrix.n, self.columns, n_in, n_out))

    def mix(self, h: Tensor) -> Tensor:
        return self.matrix.times(h)

    def own_rows(self, h: Tensor) -> Tensor:
        return h if self.nodes is None else h[self.nodes]
