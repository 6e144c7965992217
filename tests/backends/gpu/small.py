"""A small matrix with what is awkward in it, on the device there is."""

import torch
from torch import Tensor

from fastgcn.backends.gpu.matrix import DeviceMatrix

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def matrix(n: int = 60, degree: float = 6.0) -> tuple[Tensor, DeviceMatrix]:
    """Â (n, n), dense and by rows: a hub of n entries, and a row without any."""
    rng = torch.Generator().manual_seed(0)
    there = torch.rand((n, n), generator=rng) < degree / n
    there |= there.T.clone()
    there.fill_diagonal_(True)
    there[3], there[7] = True, False
    dense = there * (0.1 + torch.rand((n, n), generator=rng))
    row, column = there.nonzero(as_tuple=True)
    indptr = torch.zeros(n + 1, dtype=torch.int64)
    indptr[1:] = there.sum(1).cumsum(0)
    found = DeviceMatrix(
        indptr.to(DEVICE), column.int().to(DEVICE), dense[row, column].to(DEVICE),
        row.int().to(DEVICE), n,
    )  # fmt: skip
    return dense.to(DEVICE), found


def batches(count: int, size: int, n: int) -> Tensor:
    """(count, size) int32: the hub in the first batch, and a batch that is not full."""
    rng = torch.Generator().manual_seed(1)
    rows = torch.stack([torch.randperm(n, generator=rng)[:size] for _ in range(count)]).int()
    rows[0, :2] = torch.tensor([3, 7])
    rows[-1, size // 2 :] = -1
    return rows.to(DEVICE)
