"""Array aliases used in signatures; shapes are stated where the names are used."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]
