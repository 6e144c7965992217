"""Rows that go into the first layer and hold few entries, as bags of words do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Self, cast

import numpy as np
import torch
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.features.store import FeatureRows
from fastgcn.graph.adjacency import Rows
from fastgcn.kernels.products import sparse_times_dense, transposed_times_dense
from fastgcn.kernels.rows import cut_rows
from fastgcn.progress import progress


@dataclass(frozen=True, slots=True)
class SparseRows:
    """An (s, width) matrix X in CSR form, with what is asked of a tensor in its place.

    Attributes:
        indptr: (s+1,) int64, from 0.
        columns: (m,) int32, ascending in each row.
        values: (m,) float32.

    >>> rows = SparseRows.of(csr_array(np.array([[0, 2], [0, 0], [3, 4]], np.float32)))
    >>> rows.take(np.array([2, 0])) @ torch.tensor([[1.0], [10.0]])
    tensor([[43.],
            [20.]])
    """

    indptr: IntArray
    columns: IntArray
    values: FloatArray
    width: int

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

    def numel(self) -> int:
        """The entries stored: those that a product multiplies."""
        return len(self.values)

    def take(self, ids: IntArray) -> "SparseRows":
        """The rows under these numbers."""
        return SparseRows(*cut_rows(*self.csr, ids), self.width)

    def split(self, sizes: Sequence[int]) -> "list[SparseRows]":
        """So many rows after each other, as views."""
        parts = []
        for first, last in pairwise(accumulate(sizes, initial=0)):
            begin, end = self.indptr[first], self.indptr[last]
            indptr = self.indptr[first : last + 1] - begin
            parts.append(
                SparseRows(indptr, self.columns[begin:end], self.values[begin:end], self.width)
            )
        return parts

    def scaled(self, factors: FloatArray) -> "SparseRows":
        """Each entry stored times its factor (m,)."""
        return replace(self, values=self.values * factors)

    def dense(self) -> Tensor:
        """(s, width) float32."""
        shape = len(self), self.width
        matrix = csr_array((self.values, self.columns, self.indptr), shape=shape)
        return torch.from_numpy(matrix.toarray())

    def to(self, device: torch.device | str) -> "SparseRows | Tensor":
        """Themselves on the CPU, and dense on any other device, which has no kernel for them."""
        return self if torch.device(device).type == "cpu" else self.dense().to(device)

    def __matmul__(self, weight: Tensor) -> Tensor:
        """(s, d): X W for W (width, d), of which a gradient can be asked."""
        if torch.is_grad_enabled() and weight.requires_grad:
            return cast(Tensor, _Times.apply(weight, self))  # type: ignore[no-untyped-call]
        return torch.from_numpy(sparse_times_dense(*self.csr, _array(weight)))


InputRows = Tensor | SparseRows


class _Times(torch.autograd.Function):
    """X W where the gradient of W is wanted."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: SparseRows) -> Tensor:
        ctx.rows = rows
        return rows @ weight.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        rows: SparseRows = ctx.rows
        back = transposed_times_dense(*rows.csr, _array(gradients[0]), rows.width)
        return torch.from_numpy(back), None


def _array(tensor: Tensor) -> FloatArray:
    return cast(FloatArray, tensor.detach().contiguous().numpy())


# Share of entries of ÂX that are not zero, up to which they are kept alone: a dense
# product takes a fifth of the time a multiplication.
_DENSEST = 0.2

_TRIED = 256  # rows of ÂX from which that share is told
_ROWS_AT_ONCE = 1 << 15  # between two signs of progress
_ENTRY_BYTES = 8  # an int32 and a float32


def sparse_inputs(
    rows: Rows, features: FeatureRows, own: IntArray | None, fits: Callable[[int], bool]
) -> SparseRows | None:
    """(s, F): some rows of Â times X; None where it would not be sparse, or `fits` refuses it.

    With `own` (s,), (s, 2F): the rows of X under these ids to the right of that. `fits` is asked
    about a number of bytes.
    """
    if not features.sparse:
        return None
    needed, columns = np.arange(features.n), rows.indices
    if len(columns) < features.n:
        needed, columns = np.unique(columns, return_inverse=True)
    x = features.sparse_rows(needed)
    n = len(rows.indptr) - 1
    mix = csr_array((rows.values, columns, rows.indptr), shape=(n, len(needed)))
    tried = mix[:: max(n // _TRIED, 1)] @ x
    density = tried.nnz / max(tried.shape[0] * features.width, 1)
    n_bytes = int(density * n * features.width + (0 if own is None else x.nnz)) * _ENTRY_BYTES
    if density > _DENSEST or not fits(n_bytes):
        return None
    mixed = _product(mix, x)
    if own is not None:
        mixed = csr_array(hstack([mixed, features.sparse_rows(own)], format="csr"))
    mixed.sort_indices()
    return SparseRows.of(mixed)


def _product(mix: csr_array, x: csr_array) -> csr_array:
    parts = []
    n = mix.shape[0]
    with progress("Precomputing ÂX", n, "rows") as advance:
        for start in range(0, max(n, 1), _ROWS_AT_ONCE):
            parts.append(mix[start : start + _ROWS_AT_ONCE] @ x)
            advance(parts[-1].shape[0])
    return csr_array(vstack(parts, format="csr"))
