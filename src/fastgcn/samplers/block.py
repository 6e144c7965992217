"""`Block`, one convolution as a small matrix, and what every sampler must do."""

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fastgcn.samplers.draws import Rng
from fastgcn.types import FloatArray, IntArray

# Entries up to which a block is a dense matrix: its product is then one small GEMM, and the
# zeros cost less than a sparse product's bookkeeping. 2^22 floats are 16 MB.
DENSE_ENTRIES = 1 << 22


@dataclass(frozen=True, slots=True)
class Block:
    """H_dst ≈ adj @ H_src (eq. 10).

    Attributes:
        dst: (s,) int64, node ids of layer l+1.
        src: (t,) int64, distinct node ids of layer l.
        adj: (s, t) float32, sparse CSR or dense: count(u)·Â(v,u) / (t·q(u)) where vertices
            are drawn, Â(v,u) where none are left out.
    """

    dst: Tensor
    src: Tensor
    adj: Tensor

    def to(self, device: torch.device | str) -> "Block":
        return Block(self.dst.to(device), self.src.to(device), self.adj.to(device))

    @property
    def empty_rows(self) -> int:
        """Rows of `dst` that met no vertex of `src`: their convolution is estimated as zero."""
        if self.adj.layout == torch.sparse_csr:
            return int((self.adj.crow_indices().diff() == 0).sum())
        return int((self.adj == 0).all(dim=1).sum())


class Sampler(Protocol):
    """Makes the blocks of a batch, from the input layer up; `blocks[-1].dst` is the batch."""

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]: ...


def sparse_matrix(
    indptr: IntArray, columns: IntArray, values: FloatArray, n_columns: int
) -> Tensor:
    """An (s, n_columns) sparse CSR tensor over the arrays given."""
    with warnings.catch_warnings():
        # Once a process torch calls its CSR layout a beta feature, and some versions remark on
        # unchecked invariants though told not to check; the product we use is tested.
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(np.ascontiguousarray(indptr, dtype=np.int64)),
            torch.from_numpy(np.ascontiguousarray(columns, dtype=np.int64)),
            torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)),
            size=(len(indptr) - 1, n_columns),
            check_invariants=False,  # rows and columns come from a checked graph
        )


def distinct(ids: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """The distinct values of `ids`, ascending, and for each id its place among them.

    Sorting costs little for few ids; for many, a table over all n nodes is cheaper.
    """
    if 16 * len(ids) < n:
        found, place = np.unique(ids, return_inverse=True)
        return found, place
    table = np.zeros(n, dtype=np.int64)
    table[ids] = 1
    found = np.flatnonzero(table)
    table[found] = np.arange(len(found))
    return found, table[ids]
