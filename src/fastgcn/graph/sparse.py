"""Sparse matrices of scipy, checked before scipy's compiled code reads them.

scipy's loops read wherever offsets and indices point. Its own check takes differences of offsets,
which wrap around for the largest 64-bit numbers, so it is not relied on.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from fastgcn.arrays import AnyArray
from fastgcn.errors import InputError

PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
}


def sparse_from(
    layout: str, sizes: tuple[int, int], parts: Mapping[str, AnyArray]
) -> csr_array | csc_array | coo_array:
    """The matrix of `PARTS[layout]`, all 1-D; `InputError` unless its indices are in range.

    Values are in a type that scipy computes in: float16 becomes float32. Entries behind the last
    row are left out.
    """
    for name in PARTS[layout]:
        kinds = "fiub" if name == "data" else "iu"
        if parts[name].ndim != 1 or parts[name].dtype.kind not in kinds:
            raise InputError(
                f"{name} must be a 1-D array of {'numbers' if name == 'data' else 'integers'}, "
                f"got {parts[name].dtype} of shape {parts[name].shape}"
            )
    if not all(0 <= size < 2**63 for size in sizes):
        raise InputError(f"its shape must be two numbers from 0, got {sizes}")
    data = _computable(parts["data"])
    if layout == "coo":
        _check_below(parts["row"], sizes[0], "a row")
        _check_below(parts["col"], sizes[1], "a column")
        if not len(data) == len(parts["row"]) == len(parts["col"]):
            raise InputError("its rows, columns and values must be equally many")
        ends = _signed(parts["row"]), _signed(parts["col"])
        return coo_array((data, ends), shape=sizes)
    major, minor = sizes if layout == "csr" else sizes[::-1]
    entries = _check_offsets(parts["indptr"], major, min(len(parts["indices"]), len(data)))
    columns = parts["indices"][:entries]
    _check_below(columns, minor, "an index")
    kind = csr_array if layout == "csr" else csc_array
    return kind((data[:entries], _signed(columns), _signed(parts["indptr"])), shape=sizes)


def checked(matrix: Any, what: str) -> Any:
    """A user's sparse matrix of any layout, sound and in a type that scipy computes in."""
    try:
        if matrix.format == "bsr":
            height, width = matrix.blocksize
            entries = min(len(matrix.indices), len(matrix.data))
            _check_offsets(matrix.indptr, matrix.shape[0] // height, entries)
            _check_below(matrix.indices, matrix.shape[1] // width, "a block")
        if matrix.format not in PARTS:
            matrix = matrix.tocoo()
        parts = {name: getattr(matrix, name) for name in PARTS[matrix.format]}
        rows, columns = matrix.shape
        return sparse_from(matrix.format, (int(rows), int(columns)), parts)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise InputError(f"{what} must be a sound sparse matrix: {error}") from None


def _computable(data: AnyArray) -> AnyArray:
    """The values in the machine's byte order and in a type that scipy has loops for."""
    if data.dtype.kind == "f" and data.dtype.itemsize not in (4, 8):
        return data.astype(np.float32 if data.dtype.itemsize == 2 else np.float64)
    return data.astype(data.dtype.newbyteorder("="), copy=False)


def _signed(ids: AnyArray) -> AnyArray:
    """Numbers below 2**63 as int32 or int64 in the machine's byte order."""
    return ids.astype(np.int32 if ids.dtype == np.int32 else np.int64, copy=False)


def _check_offsets(offsets: AnyArray, rows: int, entries: int) -> int:
    """Check that the offsets of `rows` rows lead from 0 on within the entries; the last one."""
    if len(offsets) != rows + 1:
        raise InputError(f"{rows} rows need {rows + 1} offsets, got {len(offsets)}")
    if int(offsets[0]) != 0 or bool(np.any(offsets[1:] < offsets[:-1])):
        raise InputError("its row offsets must begin with 0 and must not decrease")
    if int(offsets[-1]) > entries:
        raise InputError(f"its last row offset is {offsets[-1]}, but it has {entries} entries")
    return int(offsets[-1])


def _check_below(ids: AnyArray, n: int, what: str) -> None:
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        worst = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise InputError(f"{what} must lie in 0..{n - 1}, got {worst}")
