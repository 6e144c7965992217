"""Array aliases used in signatures; `is_finite`; `forget`, which unmaps pages of a memory map."""

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    do not count as memory of this process; reading a large map row by row would fill it.

    >>> forget(np.zeros(3))
    """
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    # A map that may be written to could be private, and would lose what was written.
    if (
        isinstance(base.base, mmap.mmap)
        and not base.flags.writeable
        and hasattr(mmap.mmap, "madvise")
    ):
        base.base.madvise(mmap.MADV_DONTNEED)
