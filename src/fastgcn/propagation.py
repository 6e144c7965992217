"""ÂX, once: in memory, or in row chunks to a memory map where it does not fit."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
from scipy.sparse import csr_array

from fastgcn.adjacency import Rows, RowSource
from fastgcn.data.store import reserve
from fastgcn.features import FeatureRows
from fastgcn.progress import progress
from fastgcn.types import FloatArray

# Bytes of the rows of ÂX that one reading of the features goes into, where the result is a file.
_CHUNK_BYTES = 3 << 24

# Bytes of the features that are read at once. Few enough to add little to what the result takes;
# a row of the result is read and written once for each part, so that smaller ones cost time.
_PART_BYTES = 1 << 25

_ROWS_AT_ONCE = 1 << 15  # between two signs of progress


def propagate(
    adjacency: RowSource, features: FeatureRows, *, out: IO[bytes] | None = None
) -> FloatArray:
    """(n, F) float32: the rows of ÂX, from features read part after part.

    With `out`, the result is a memory map over that open file (raw float32), of any size, which
    can be read only.
    """
    n, width = adjacency.n, features.width
    at_once = n if out is None else min(n, max(1, _CHUNK_BYTES // max(4 * width, 1)))
    rows: FloatArray = np.empty((at_once, width), dtype=np.float32)
    if out is not None:
        reserve(out, 4 * n * width)
        out.seek(0)
    with progress("Precomputing ÂX", n * features.n, "pairs of nodes") as advance:
        for start in range(0, n, max(at_once, 1)):
            nodes = np.arange(start, min(start + at_once, n))
            rows = rows[: len(nodes)]
            _multiply(adjacency.rows(nodes), features, rows, advance)
            if out is not None:
                out.write(rows.data)
    if out is None:
        return rows
    out.flush()
    return np.memmap(out, np.float32, "r", shape=(n, width))


def _multiply(
    matrix: Rows, features: FeatureRows, out: FloatArray, advance: Callable[[int], None]
) -> None:
    """out (s, F) = some rows of Â times X."""
    for first, part in features.parts(_PART_BYTES):
        for start in range(0, len(out), _ROWS_AT_ONCE):
            rows = matrix._replace(indptr=matrix.indptr[start : start + _ROWS_AT_ONCE + 1])
            into = out[start : start + _ROWS_AT_ONCE]
            _add_product(rows, part, first, into)
            advance(len(into) * int(part.shape[0]))


def _add_product(rows: Rows, part: FloatArray | csr_array, first: int, out: FloatArray) -> None:
    from fastgcn.kernels.products import add_part_product, sparse_times_sparse  # loads numba

    if isinstance(part, csr_array):
        sparse_times_sparse(*rows, part.indptr, part.indices, part.data, out)
    else:
        add_part_product(*rows, np.asarray(part), first, out)


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
