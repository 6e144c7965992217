"""`RowBuffer`: rows of one layer, filled chunk by chunk, in memory or in a file."""

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.products import add_part_product, sorted_times_dense
from fastgcn.scratch import Room, Scratch

_PART_BYTES = 1 << 26  # of rows in a file that are read at a time


class RowBuffer:
    """A row for each of `nodes` (k,), ascending, filled chunk by chunk and read by node id.

    Its width is that of the first chunk. Where there is no `room` in memory, it is in a file.

    >>> buffer = RowBuffer(np.array([3, 5, 8]))
    >>> buffer.put(0, torch.tensor([[1.0], [2.0]]))
    >>> buffer.put(2, torch.tensor([[3.0]]))
    >>> buffer.take(np.array([8, 3]))
    tensor([[3.],
            [1.]])
    """

    def __init__(self, nodes: IntArray, room: Room | None = None) -> None:
        self.nodes, self.room, self.rows = nodes, room, torch.empty(0, 0)
        self._file: Scratch | None = None
        self._made = False

    @classmethod
    def of(cls, nodes: IntArray, rows: Tensor) -> "RowBuffer":
        """A buffer that is full, over the same rows."""
        buffer = cls(nodes)
        buffer.rows, buffer._made = rows, True
        return buffer

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def put(self, start: int, chunk: Tensor) -> None:
        """Fill the rows of nodes[start:], as many as the chunk has."""
        if not self._made:
            self._make(chunk)
        if self._file is None:
            self.rows[start : start + len(chunk)] = chunk
        else:
            self._file.put(start, chunk.numpy())

    def _make(self, chunk: Tensor) -> None:
        shape, self._made = (len(self.nodes), chunk.shape[1]), True
        place = None if self.room is None else self.room.place(4 * shape[0] * shape[1])
        if place is None:
            self.rows = chunk.new_empty(shape)
        else:
            self._file = Scratch(shape, np.float32, place)
            self.rows = torch.from_numpy(self._file.array)

    def take(self, ids: IntArray) -> Tensor:
        """(len(ids), d): the rows of these nodes; all of them, in order, are not copied."""
        found = rows_of(ids, self.nodes, self.rows)
        self._forget()
        return found

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
            self._forget()
        return out

    def _forget(self) -> None:
        if self._file is not None:
            self._file.forget()


def rows_of(ids: IntArray, nodes: IntArray, rows: Tensor) -> Tensor:
    """(len(ids), d): of `rows` (k, d), those of `nodes` (k,), ascending, the ones of `ids`."""
    if np.array_equal(ids, nodes):
        return rows
    places = torch.from_numpy(np.searchsorted(nodes, ids)).to(rows.device)
    return rows.index_select(0, places)
