"""Memory maps: letting go of what has been read of one."""

import mmap

import numpy as np

from fastgcn.types import AnyArray


def forget(array: AnyArray) -> None:
    """Unmap the pages of a read-only memory map; nothing where `array` is none.

    They stay in the system's cache, and come back when they are read again; until then they do
    not count as memory of this process, which reading a large map row by row would fill.

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
