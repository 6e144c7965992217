"""ÂX kept sparse, where X is sparse and Â mixes few of its rows."""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from fastgcn.adjacency import Rows
from fastgcn.features import FeatureRows
from fastgcn.progress import progress
from fastgcn.sparse_rows import SparseRows
from fastgcn.types import IntArray

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
