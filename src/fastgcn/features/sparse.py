"""Sparse input rows, such as bags of words, and their products with weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Self, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.counter_random import dropout_mask
from fastgcn.kernels.products import Transpose, nonzero_times_dense, sparse_times_dense
from fastgcn.kernels.rows import cut_rows


class SparseRows:
    """Sparse rows X (s, width), which a layer accepts instead of a tensor, on any device."""

    __slots__ = ()

    def __matmul__(self, weight: Tensor) -> Tensor:
        """(s, d): X W for W (width, d); differentiable by W."""
        raise NotImplementedError

    def times_both(self, block: Any, weight: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """X W, and X R of a block's own nodes for R = `own`."""
        raise NotImplementedError

    def first_columns(self, width: int) -> "SparseRows":
        """The first `width` columns."""
        raise NotImplementedError

    def dropped(self, dropout: Any, rate: float) -> "SparseRows":
        """Some stored entries zeroed by a network's `Dropout`; the others are zero already."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SparseMatrix(SparseRows):
    """An (s, width) matrix X in CSR form, which a layer accepts instead of a tensor.

    It is a `FeatureStore` too: `take` and `between` return matrices of some of its rows.

    Attributes:
        indptr: (s+1,) int64, from 0.
        columns: (m,) int32, ascending in each row.
        values: (m,) float32.
        transpose: shared by matrices that differ in their values alone.
        has_zeros: True if dropout zeroed some values, which a product leaves out.

    >>> rows = SparseMatrix.of(csr_array(np.array([[0, 2], [0, 0], [3, 4]], np.float32)))
    >>> rows.take(np.array([2, 0])) @ torch.tensor([[1.0], [10.0]])
    tensor([[43.],
            [20.]])
    """

    indptr: IntArray
    columns: IntArray
    values: FloatArray
    width: int
    transpose: Transpose = field(default_factory=Transpose, repr=False, compare=False)
    has_zeros: bool = field(default=False, repr=False, compare=False)

    @classmethod
    def of(cls, matrix: csr_array) -> Self:
        indptr = matrix.indptr.astype(np.int64)
        columns = matrix.indices.astype(np.int32, copy=False)
        values = matrix.data.astype(np.float32, copy=False)
        return cls(indptr, columns, values, int(matrix.shape[1]))

    @property
    def csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        return self.indptr, self.columns, self.values

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def on_disk(self) -> bool:
        return False

    def numel(self) -> int:
        """The number of stored entries, which a product multiplies."""
        return len(self.values)

    def take(self, ids: IntArray) -> "SparseMatrix":
        """The rows `ids`, in that order."""
        return SparseMatrix(*cut_rows(*self.csr, ids), self.width)

    def between(self, start: int, stop: int) -> "SparseMatrix":
        """The rows start..stop-1, as a view."""
        if start == 0 and stop == len(self):
            return self
        begin, end = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - begin
        return SparseMatrix(indptr, self.columns[begin:end], self.values[begin:end], self.width)

    def split(self, sizes: Sequence[int]) -> "list[SparseMatrix]":
        """Consecutive parts with these numbers of rows, as views."""
        return [self.between(*ends) for ends in pairwise(accumulate(sizes, initial=0))]

    def first_columns(self, width: int) -> "SparseMatrix":
        """The first `width` columns."""
        kept = self.columns < width
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        return SparseMatrix(indptr, self.columns[kept], self.values[kept], width)

    def dropped(self, dropout: Any, rate: float) -> "SparseMatrix":
        values = np.empty_like(self.values)
        dropout_mask(dropout.seed(), rate, values, self.values)
        return replace(self, values=values, has_zeros=True)

    def times_both(self, block: Any, weight: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        return self @ weight, self.between(0, block.dst.numel()) @ own

    def transposed_times(self, other: FloatArray) -> FloatArray:
        """(width, d): Xᵀ times `other` (s, d)."""
        return self.transpose.times(*self.csr, other, self.width)

    def dense(self) -> Tensor:
        """(s, width) float32."""
        shape = len(self), self.width
        matrix = csr_array((self.values, self.columns, self.indptr), shape=shape)
        return torch.from_numpy(matrix.toarray())

    def to(self, device: torch.device | str) -> "SparseMatrix | Tensor":
        """Itself on the CPU; a dense tensor on other devices, which have no sparse kernel here."""
        return self if torch.device(device).type == "cpu" else self.dense().to(device)

    def __matmul__(self, weight: Tensor) -> Tensor:
        """(s, d): X W for W (width, d); differentiable by W."""
        if torch.is_grad_enabled() and weight.requires_grad:
            return cast(Tensor, _Times.apply(weight, self))  # type: ignore[no-untyped-call]
        return torch.from_numpy(self.times(_array(weight)))

    def times(self, weight: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """(s, d): X W, in `out` if it is given."""
        if self.has_zeros:
            return nonzero_times_dense(*self.csr, weight, out=out)
        return sparse_times_dense(*self.csr, weight, out)


InputRows = Tensor | SparseMatrix


def dense(rows: InputRows) -> Tensor:
    """(s, width): the same rows as a tensor."""
    return rows.dense() if isinstance(rows, SparseMatrix) else rows


class _Times(torch.autograd.Function):
    """X W with the gradient by W."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: SparseMatrix) -> Tensor:
        ctx.rows = rows
        return rows @ weight.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        rows: SparseMatrix = ctx.rows
        return torch.from_numpy(rows.transposed_times(_array(gradients[0]))), None


def _array(tensor: Tensor) -> FloatArray:
    return cast(FloatArray, tensor.detach().contiguous().numpy())
