"""ÂX, once: in memory, or in row chunks to a memory map where it does not fit."""

import os
from pathlib import Path
from typing import IO

import numpy as np

from fastgcn.adjacency import RowSource
from fastgcn.data.store import reserve
from fastgcn.features import FeatureRows
from fastgcn.progress import progress
from fastgcn.types import FloatArray

# Bytes of a chunk of ÂX: large enough to be efficient, small enough not to be noticed.
_CHUNK_BYTES = 1 << 26


def propagate(
    adjacency: RowSource, features: FeatureRows, *, out: IO[bytes] | None = None
) -> FloatArray:
    """(n, F) float32: the rows of ÂX, computed in row chunks.

    With `out`, the result is a memory map over that open file (raw float32), of any size.
    """
    shape = (adjacency.n, features.width)
    result: FloatArray
    if out is None:
        result = np.empty(shape, dtype=np.float32)
    else:
        reserve(out, 4 * shape[0] * shape[1])
        result = np.memmap(out, np.float32, "r+", shape=shape)
    step = max(1, _CHUNK_BYTES // max(4 * features.width, 1))
    with progress("Precomputing ÂX", adjacency.n, "nodes") as advance:
        for start in range(0, adjacency.n, step):
            nodes = np.arange(start, min(start + step, adjacency.n))
            result[nodes] = features.convolve(adjacency.rows(nodes))
            advance(len(nodes))
    return result


def fits_in_memory(n_bytes: int) -> bool:
    """Whether an array of this size can be held with as much again to spare."""
    return 2 * n_bytes < available_memory()


def available_memory() -> int:
    """Bytes that could be allocated now without swapping; all of it where that is not told."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
