"""Â on the device: made there from a graph's edges, and multiplied there."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fastgcn.adjacency import Normalization
from fastgcn.csr import CSR
from fastgcn.damage import damaged
from fastgcn.gpu.upload import aligned, upload

if TYPE_CHECKING:
    from fastgcn.kernels.gpu.mix import Segments


@dataclass(frozen=True)
class DeviceEdges:
    """A graph's CSR on the device; `weights` None where all are one."""

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None

    @classmethod
    def of(cls, csr: CSR, device: torch.device) -> "DeviceEdges":
        indptr = upload(csr.indptr, device).to(torch.int64)
        indices = upload(csr.indices, device).to(torch.int32)
        n = len(indptr) - 1
        if n and bool((indptr.diff() < 0).any()):
            raise damaged(csr.indptr, "its rows are not in order")
        if len(indices) and bool(((indices < 0) | (indices >= n)).any()):
            raise damaged(csr.indices, f"it names a column outside of 0..{n - 1:,}")
        weights = None if csr.weights is None else upload(csr.weights, device).to(torch.float32)
        return cls(indptr, indices, weights)

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def rows(self) -> Tensor:
        """(m,) int32: the row of each entry."""
        ids = torch.arange(self.n, dtype=torch.int32, device=self.indptr.device)
        return torch.repeat_interleave(ids, self.indptr.diff(), output_size=len(self.indices))

    def induced(self, nodes: Tensor) -> "DeviceEdges":
        """The edges among `nodes`, ascending, renumbered 0..k-1."""
        number = torch.full((self.n,), -1, dtype=torch.int32, device=nodes.device)
        number[nodes] = torch.arange(len(nodes), dtype=torch.int32, device=nodes.device)
        row, column = number[self.rows], number[self.indices]
        kept = (row >= 0) & (column >= 0)
        lengths = torch.bincount(row[kept], minlength=len(nodes))
        return DeviceEdges(
            _offsets(lengths), column[kept], None if self.weights is None else self.weights[kept]
        )

    def normalized(self, kind: Normalization) -> "DeviceMatrix":
        """Â, as `adjacency.normalize` makes it; a row's loop is its first entry."""
        indptr, indices, weights = self.indptr, self.indices, self.weights
        if weights is None:
            weights = torch.ones(len(indices), device=indices.device)
        row = self.rows
        if kind != "neighbors":
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
        scaled = factors[row] * weights
        if kind == "symmetric":
            scaled *= factors[indices]
        return DeviceMatrix(indptr, indices, scaled.float(), row)


@dataclass(frozen=True)
class DeviceMatrix:
    """An (s, n) sparse matrix by rows; `row` (m,) int32 is the row of each entry."""

    indptr: Tensor
    indices: Tensor
    values: Tensor
    row: Tensor

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.indptr, self.indices, self.values

    def magnitudes(self, power: float, *, diagonal: bool) -> Tensor:
        """(m,) float64: |Â(v,u)|^power of each entry, zero on the diagonal unless wanted."""
        powers = self.values.double().abs() ** power
        return powers if diagonal else powers * (self.indices != self.row)

    def largest_rows(self, count: int) -> int:
        """The most entries that so many rows can have together."""
        lengths = self.indptr.diff()
        return int(torch.topk(lengths, min(count, len(lengths))).values.sum())

    @cached_property
    def _pieces(self) -> "Segments":
        from fastgcn.kernels.gpu.mix import segments

        return segments(self.indptr)

    def times(self, h: Tensor, out: Tensor | None = None) -> Tensor:
        """(s, d) float32: the product with rows h (n, d)."""
        from fastgcn.kernels.gpu.mix import multiply

        if h.stride(1) != 1 or h.stride(0) * h.element_size() % 16:
            h = aligned(h, h.dtype)
        if out is None:
            out = torch.empty((self.n, h.shape[1]), dtype=torch.float32, device=h.device)
        multiply(self._pieces, self.indices, self.values, h, out)
        return out

    def some_rows(self, nodes: Tensor) -> "DeviceMatrix":
        """The rows of `nodes`, columns as they are."""
        lengths = self.indptr.diff()[nodes]
        indptr = _offsets(lengths)
        row = torch.repeat_interleave(
            torch.arange(len(nodes), device=nodes.device), lengths, output_size=int(indptr[-1])
        )
        place = torch.arange(len(row), device=nodes.device) - indptr[row]
        entry = self.indptr[nodes][row] + place
        return DeviceMatrix(indptr, self.indices[entry], self.values[entry], row.int())


def _offsets(lengths: Tensor) -> Tensor:
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets
