"""Array aliases used in signatures; `is_finite`; memory maps: pages, files that were cut off."""

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastgcn.errors import FormatError

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]


def is_finite(array: FloatArray) -> bool:
    """True if no entry is NaN or infinite.

    The sum is looked at first, in a tenth of the time: it is finite only if all entries are.

    >>> is_finite(np.ones(3)), is_finite(np.array([np.inf, -np.inf]))
    (True, False)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        total = float(array.sum())
    return math.isfinite(total) or bool(np.isfinite(array).all())


def forget(array: AnyArray) -> None:
    """Unmap the pages of a read-only memory map; does nothing for any other array.

    The pages stay in the system's cache and are mapped again when they are read. Until then they
    do not count as memory of this process; reading a large map row by row would fill it. Raises
    if the file was cut off meanwhile (`check_whole`), because every long pass calls this.

    >>> forget(np.zeros(3))
    """
    base = _base(array)
    # A map that may be written to could be private, and would lose what was written.
    if (
        isinstance(base.base, mmap.mmap)
        and not base.flags.writeable
        and hasattr(mmap.mmap, "madvise")
    ):
        base.base.madvise(mmap.MADV_DONTNEED)
        check_whole(array)


def check_whole(array: AnyArray) -> None:
    """Raise a `FormatError` if the file of a memory map was cut off; for use before it is read.

    The system ends a process (SIGBUS) that reads a page which its file no longer has.
    """
    base = _base(array)
    if not isinstance(base.base, mmap.mmap):
        return
    # A map begins at a whole page, at or before the array.
    begin = int(getattr(base, "offset", 0)) // mmap.ALLOCATIONGRANULARITY
    try:
        size = base.base.size()
    except OSError:  # memory without a file
        return
    if size < begin * mmap.ALLOCATIONGRANULARITY + len(base.base):
        name = getattr(base, "filename", None) or "a file"
        raise FormatError(f"{name} was cut off while it was read; nothing of it can be used")


def _base(array: AnyArray) -> AnyArray:
    """The array that an array is a view of, directly or not."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
