"""Â on the device, made there from a graph's edges, and its products, whole or in blocks."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from fastgcn.features.sparse import SparseRows
from fastgcn.graph.adjacency import Normalization, has_loops
from fastgcn.kernels.gpu.blocks import BlockBuffers
from fastgcn.kernels.gpu.products import (
    Segments,
    aligned,
    mix_rows,
    multiply,
    segments,
    unmix_rows,
)
from fastgcn.kernels.products import mixing_first_pays


@dataclass(frozen=True)
class DeviceEdges:
    """A graph's edges by rows: (n+1,) int64, (m,) int32, (m,) float32; `weights` None if all 1."""

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def rows(self) -> Tensor:
        """(m,) int32: the row of each entry."""
        ids = torch.arange(self.n, dtype=torch.int32, device=self.indptr.device)
        return torch.repeat_interleave(ids, self.indptr.diff(), output_size=len(self.indices))

    def induced(self, nodes: Tensor) -> "DeviceEdges":
        """The edges among `nodes`, which are ascending, renumbered 0..k-1."""
        number = torch.full((self.n,), -1, dtype=torch.int32, device=nodes.device)
        number[nodes] = torch.arange(len(nodes), dtype=torch.int32, device=nodes.device)
        row, column = number[self.rows], number[self.indices]
        kept = (row >= 0) & (column >= 0)
        lengths = torch.bincount(row[kept], minlength=len(nodes))
        return DeviceEdges(
            _offsets(lengths), column[kept], None if self.weights is None else self.weights[kept]
        )

    def normalized(self, kind: Normalization) -> "DeviceMatrix":
        """Â, as `graph.adjacency.normalize` makes it; a row's self loop is its first entry."""
        indptr, indices, weights = self.indptr, self.indices, self.weights
        if weights is None:
            weights = torch.ones(len(indices), device=indices.device)
        row = self.rows
        if has_loops(kind):
            n = self.n
            ids = torch.arange(n, dtype=torch.int32, device=row.device)
            place = torch.arange(len(indices), device=row.device) + row + 1
            with_loops = torch.empty(len(indices) + n, dtype=torch.int32, device=row.device)
            loop_at = indptr[:-1] + ids
            with_loops[place], with_loops[loop_at] = indices, ids
            values = torch.ones(len(with_loops), device=row.device)
            values[place] = weights
            rows = torch.empty_like(with_loops)
            rows[place], rows[loop_at] = row, ids
            indptr = indptr + torch.arange(n + 1, device=row.device)
            indices, weights, row = with_loops, values, rows
        sums = torch.zeros(self.n, dtype=torch.float64, device=row.device)
        sums.index_add_(0, row, weights.double())
        factors = torch.where(sums > 0, sums.rsqrt() if kind == "symmetric" else 1 / sums, 0.0)
        if kind == "sum":
            factors.fill_(1.0)
        scaled = factors[row] * weights
        if kind == "symmetric":
            scaled *= factors[indices]
        return DeviceMatrix(indptr, indices, scaled.float(), row, self.n)


@dataclass(frozen=True)
class DeviceMatrix:
    """An (s, columns) sparse matrix by rows; `row` (m,) int32 is the row of each entry."""

    indptr: Tensor
    indices: Tensor
    values: Tensor
    row: Tensor
    columns: int

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.indptr, self.indices, self.values

    def magnitudes(self, power: float, *, diagonal: bool) -> Tensor:
        """(m,) float64: |Â(v,u)|^power of each entry; without `diagonal`, zero where u = v."""
        powers = self.values.double().abs() ** power
        return powers if diagonal else powers * (self.indices != self.row)

    def largest_rows(self, count: int) -> int:
        """The most entries that `count` different rows can have together."""
        lengths = self.indptr.diff()
        return int(torch.topk(lengths, min(count, len(lengths))).values.sum())

    @cached_property
    def _pieces(self) -> Segments:
        return segments(self.indptr, len(self.indices))

    @cached_property
    def _by_columns(self) -> "tuple[DeviceMatrix, Tensor]":
        """The transpose, with `columns` rows, and the place here of each of its entries."""
        column, order = torch.sort(self.indices, stable=True)
        lengths = torch.zeros(self.columns, dtype=torch.int64, device=column.device)
        lengths.index_add_(0, column, torch.ones_like(column, dtype=torch.int64))
        rows = self.row[order]
        found = DeviceMatrix(_offsets(lengths), rows, self.values[order], column, self.n)
        return found, order

    @property
    def transposed(self) -> "DeviceMatrix":
        return self._by_columns[0]

    def with_values(self, values: Tensor) -> "DeviceMatrix":
        """The same entries with other values (m,). Nothing here makes the host wait, once a matrix
        of these entries and its transpose have multiplied rows."""
        turned, order = self._by_columns
        new, back = (
            replace(old, values=each) for old, each in ((self, values), (turned, values[order]))
        )
        back.__dict__["_pieces"] = turned._pieces
        new.__dict__.update(_pieces=self._pieces, _by_columns=(back, order))
        return new

    def times(self, h: Tensor, out: Tensor | None = None) -> Tensor:
        """(s, d) float32: the product with rows h (n, d)."""
        if h.stride(1) != 1 or h.stride(0) * h.element_size() % 16:
            h = aligned(h, h.dtype)
        if out is None:
            out = torch.empty((self.n, h.shape[1]), dtype=torch.float32, device=h.device)
        multiply(self._pieces, self.indices, self.values, h, out)
        return out

    def some_rows(self, nodes: Tensor) -> "DeviceMatrix":
        """The rows of `nodes`; columns keep their numbers."""
        lengths = self.indptr.diff()[nodes]
        indptr = _offsets(lengths)
        row = torch.repeat_interleave(
            torch.arange(len(nodes), device=nodes.device), lengths, output_size=int(indptr[-1])
        )
        place = torch.arange(len(row), device=nodes.device) - indptr[row]
        entry = self.indptr[nodes][row] + place
        return DeviceMatrix(
            indptr, self.indices[entry], self.values[entry], row.int(), self.columns
        )


def _offsets(lengths: Tensor) -> Tensor:
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets


@dataclass(frozen=True)
class WholeBlock:
    """All rows of Â, or those of `nodes` with the columns of all. A block as the network takes it.

    `mix_first_only` is False as in `sampling.block.Block`.
    """

    matrix: DeviceMatrix
    nodes: Tensor | None
    mix_first_only: bool = False

    @classmethod
    def of(cls, matrix: DeviceMatrix, nodes: Tensor | None = None) -> "WholeBlock":
        return cls(matrix if nodes is None else matrix.some_rows(nodes), nodes)

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        """Compares bytes, because a device multiplies faster than it reads: each entry reads a row,
        and HW of all columns is read and written."""
        matrix = self.matrix
        entries, columns = len(matrix.indices), matrix.columns
        first = entries * n_in + matrix.n * (2 * n_in + n_out)
        return first < columns * (n_in + 2 * n_out) + entries * n_out

    def mix(self, h: Tensor) -> Tensor:
        return cast(Tensor, _Product.apply(h, self.matrix))  # type: ignore[no-untyped-call]

    def own_rows(self, h: Tensor) -> Tensor:
        return h if self.nodes is None else h[self.nodes]


class _Product(torch.autograd.Function):
    """A sparse matrix times rows, with the gradient by the rows."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, matrix: DeviceMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.times(h)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix.transposed.times(gradients[0]), None


@dataclass(frozen=True)
class DeviceSparse(SparseRows):
    """Sparse rows X (n, F) on the device, in the place of a tensor."""

    matrix: DeviceMatrix

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.n, self.matrix.columns

    def __matmul__(self, weight: Tensor) -> Tensor:
        return cast(Tensor, _Product.apply(weight, self.matrix))  # type: ignore[no-untyped-call]

    def times_both(self, block: Any, weight: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        d = weight.shape[1]
        both = self @ torch.cat([weight, own], 1)
        return both[:, :d], block.own_rows(both[:, d:])

    def dropped(self, dropout: Any, rate: float) -> "DeviceSparse":
        return DeviceSparse(self.matrix.with_values(dropout.by(self.matrix.values, rate)))


@dataclass(frozen=True)
class SampledBlock:
    """The block of one of K batches; `current` (1,) says which. A block as the network takes it.

    Its shape is that of the buffers, whatever was drawn, so that a step can be recorded.
    """

    buffers: BlockBuffers
    rows: int
    current: Tensor
    mix_first_only: bool = False

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        """Counts one entry a row, because most rows have edges to few drawn vertices."""
        sources = self.buffers.sources.shape[1]
        return bool(mixing_first_pays(self.rows, self.rows, sources, n_in, n_out))

    def mix(self, h: Tensor) -> Tensor:
        return cast(Tensor, _MixSampled.apply(h, self))  # type: ignore[no-untyped-call]

    def own_rows(self, h: Tensor) -> Tensor:
        return h[: self.rows]


class _MixSampled(torch.autograd.Function):
    """`SampledBlock.mix` and its gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, block: SampledBlock) -> Tensor:
        ctx.block, ctx.sources = block, len(h)
        return mix_rows(block.buffers.csr, block.current, block.rows, h)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        block: SampledBlock = ctx.block
        return unmix_rows(block.buffers.csr, block.current, gradients[0], ctx.sources), None
