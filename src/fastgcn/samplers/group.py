"""The blocks of several batches, drawn in one compiled call and kept as one."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fastgcn.kernels.together import Blocks
from fastgcn.samplers.block import Block
from fastgcn.sparse_rows import InputRows


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """One block for each of some batches of equal size.

    Attributes:
        dst: (b, s) int64, the batches.
        arrays: CSR arrays and sources of all blocks, one behind the other.
    """

    dst: Tensor
    arrays: Blocks

    def __len__(self) -> int:
        return self.dst.shape[0]

    @property
    def src(self) -> Tensor:
        """The sources of all blocks, one's behind the other's."""
        *_, sources, starts = self.arrays
        return torch.from_numpy(sources[: starts[1, -1]])

    @property
    def empty_rows(self) -> int:
        """Rows of the first batch that met no vertex."""
        return int(np.count_nonzero(np.diff(self.arrays[0][0]) == 0))

    def blocks(self) -> list[Block]:
        """Each by itself, as views."""
        offsets, columns, values, sources, starts = self.arrays
        ranges = zip(*(pairwise(part) for part in starts.tolist()), strict=True)
        return [
            Block.of_csr(
                dst, torch.from_numpy(sources[k:m]), (offsets[b], columns[e:f], values[e:f])
            )
            for b, (dst, ((e, f), (k, m))) in enumerate(zip(self.dst, ranges, strict=True))
        ]

    def each(self, x: InputRows, labels: Tensor) -> Iterator[tuple[list[Block], InputRows, Tensor]]:
        """What a step needs of each batch, given the rows of `src` and the labels of `dst`."""
        rows = x.split(np.diff(self.arrays[-1][1]).tolist())
        for block, mine, known in zip(
            self.blocks(), rows, torch.split(labels, self.dst.shape[1]), strict=True
        ):
            yield [block], mine, known
