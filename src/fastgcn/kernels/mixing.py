"""Random bits from counters: any thread can make the numbers of its part by itself."""

from typing import Any

import numpy as np
from numba import njit

STEP = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True, inline="always")
def mix(x: Any) -> Any:
    """The output function of SplitMix64: 64 well-mixed bits of any 64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
