"""A store's arrays are trusted when it opens; what is read of them is checked here, as it is read.

Compiled code indexes memory by what the arrays hold, so a damaged file would end the process.
Whoever reads rows of a graph asks first; what it costs is little beside the reading.
"""

from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
from scipy.sparse import csr_array

from fastgcn.errors import FormatError
from fastgcn.mapped import forget
from fastgcn.types import AnyArray, IntArray

# Entries looked at together, few enough to stay in a cache and to add little to memory.
_AT_ONCE = 1 << 18

# Sparse matrices found whole, by identity: those who read a graph's features ask again and again.
_sound: "WeakValueDictionary[int, csr_array]" = WeakValueDictionary()


def check_rows(indptr: IntArray, indices: IntArray, nodes: IntArray | None = None) -> None:
    """The rows `nodes` of a CSR matrix, None: all, lie within its entries."""
    if nodes is None:
        for start in range(0, len(indptr) - 1, _AT_ONCE):
            ends = indptr[start : start + _AT_ONCE + 1]
            _check_ends(indptr, ends[:-1], ends[1:], len(indices))
    elif len(nodes):
        _check_ends(indptr, indptr[nodes], indptr[nodes + 1], len(indices))


def _check_ends(indptr: IntArray, starts: IntArray, stops: IntArray, entries: int) -> None:
    """Rows do not run backwards, and begin and end among the entries."""
    if int(starts.min()) < 0 or int(stops.max()) > entries or bool((stops < starts).any()):
        raise damaged(indptr, f"its rows do not lie in order within {entries:,} entries")


def check_columns(columns: IntArray, n: int, stored: IntArray, what: str = "column") -> None:
    """Numbers read of the array `stored` are among 0..n-1."""
    if _outside(columns, n):
        raise damaged(stored, f"it names a {what} outside of 0..{n - 1:,}")


def check_all(ids: IntArray, n: int, *, lowest: int = 0, what: str = "column") -> None:
    """All numbers of an array are among lowest..n-1; a memory map is let go as it is read."""
    for part in _pieces(ids):
        if _outside(part - lowest if lowest else part, n - lowest):
            raise damaged(ids, f"it names a {what} outside of {lowest}..{n - 1:,}")
        forget(ids)


def check_sparse(matrix: csr_array) -> None:
    """Rows and columns of a store's sparse matrix; what is in memory was checked on the way in."""
    file = _file_of(matrix.data)
    if file is None or _sound.get(id(matrix)) is matrix:
        return
    try:
        check_rows(matrix.indptr, matrix.indices)
        check_all(matrix.indices, int(matrix.shape[1]))
    except FormatError:
        # scipy may have copied either array, and then no longer knows which file it was.
        raise FormatError(
            f"{file.parent} is damaged: its sparse features are not rows of {matrix.shape[1]:,} "
            f"columns; run fastgcn info {file.parent} --verify"
        ) from None
    _sound[id(matrix)] = matrix


def damaged(array: AnyArray, how: str) -> FormatError:
    """The complaint about an array that came from a file, or should have."""
    file = _file_of(array)
    if file is None:
        return FormatError(f"an array of the graph is damaged: {how}")
    return FormatError(f"{file} is damaged: {how}; run fastgcn info {file.parent} --verify")


def _outside(ids: IntArray, n: int) -> bool:
    if not len(ids):
        return False
    # As numbers without sign, negative ones are large: one pass instead of two.
    return int(ids.view(np.dtype(f"u{ids.dtype.itemsize}")).max()) >= n


def _pieces(ids: IntArray) -> Iterator[IntArray]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]


def _file_of(array: AnyArray) -> Path | None:
    """The file behind a memory map, or behind a view of one."""
    base: AnyArray | None = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return None if base.filename is None else Path(base.filename)
        base = base.base
    return None
