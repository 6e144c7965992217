"""Random masks on the CPU: torch draws 64 bits an entry for them, one after the other."""

import numpy as np
from numba import njit

from fastgcn.kernels.mixing import STEP, mix
from fastgcn.types import FloatArray

# Shares of entries are multiples of 2^-16: a 64-bit draw decides four entries.
_GRAINS = 1 << 16


def dropout_mask(seed: int, rate: float, out: FloatArray) -> None:
    """Fill `out`, flat, with 0 for a share `rate` of its entries, 1/(1 - rate) for the others."""
    dropped = min(max(round(rate * _GRAINS), 1), _GRAINS - 1)
    _fill(np.uint64(seed), dropped, np.float32(_GRAINS / (_GRAINS - dropped)), out)


@njit(cache=True, nogil=True)
def _fill(seed: np.uint64, dropped: int, value: np.float32, out: FloatArray) -> None:
    for block in range((len(out) + 3) // 4):
        bits = mix(seed + STEP * np.uint64(block + 1))
        for part in range(min(4, len(out) - 4 * block)):
            grain = np.int64(bits >> np.uint64(16 * part)) & 0xFFFF
            out[4 * block + part] = value if grain >= dropped else np.float32(0)
