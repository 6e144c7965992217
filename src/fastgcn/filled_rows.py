"""Rows of a layer, filled chunk by chunk and then read: in memory or, without room, in a file."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fastgcn.kernels.products import add_part_product, sorted_times_dense
from fastgcn.scratch import Room, Scratch
from fastgcn.types import FloatArray, IntArray

_PART_BYTES = 1 << 26  # of rows in a file that are read at a time


class FilledRows:
    """A tensor of n rows that is filled from chunks; its width is that of the first.

    Where it has no room in memory, it is in a file.
    """

    def __init__(self, n: int, room: Room | None) -> None:
        self.n, self.room, self.rows = n, room, torch.empty(0, 0)
        self._file: Scratch | None = None
        self._made = False

    @classmethod
    def with_rows(cls, rows: Tensor) -> "FilledRows":
        filled = cls(len(rows), None)
        filled.rows = rows
        return filled

    def put(self, start: int, chunk: Tensor) -> None:
        if not self._made:
            self._make(chunk)
        if self._file is None:
            self.rows[start : start + len(chunk)] = chunk
        else:
            self._file.put(start, chunk.numpy())

    def _make(self, chunk: Tensor) -> None:
        shape, self._made = (self.n, chunk.shape[1]), True
        place = None if self.room is None else self.room.place(4 * self.n * chunk.shape[1])
        if place is None:
            self.rows = chunk.new_empty(shape)
        else:
            self._file = Scratch(shape, np.float32, place)
            self.rows = torch.from_numpy(self._file.array)

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def mixed(self, csr: tuple[IntArray, IntArray, FloatArray]) -> FloatArray:
        """The product of some rows of a matrix, whose columns ascend in each row, with the rows."""
        z = self.rows.numpy()
        if not self.on_disk:
            return sorted_times_dense(*csr, z)
        # In the order of the file: a graph's neighbours lie all over it.
        out = np.empty((len(csr[0]) - 1, z.shape[1]), np.float32)
        step = max(1, _PART_BYTES // (4 * z.shape[1]))
        for first in range(0, len(z), step):
            add_part_product(*csr, z[first : first + step], first, out)
            self.forget()
        return out

    def forget(self) -> None:
        """Let go of the pages of a file."""
        if self._file is not None:
            self._file.forget()


@dataclass(frozen=True, slots=True)
class RowsById:
    """Computed rows (k, d) of `nodes` (k,), ascending, read by node id; all are not copied."""

    nodes: IntArray
    filled: FilledRows

    def __call__(self, ids: IntArray) -> Tensor:
        found = self.among(self.nodes, self.filled.rows, ids)
        self.filled.forget()
        return found

    @staticmethod
    def among(nodes: IntArray, rows: Tensor, ids: IntArray) -> Tensor:
        """Of `rows`, those of `nodes` (ascending), the ones of `ids`; all are not copied."""
        if np.array_equal(ids, nodes):
            return rows
        places = torch.from_numpy(np.searchsorted(nodes, ids)).to(rows.device)
        return rows.index_select(0, places)
