"""The feature farthest from zero: it explains losses and predictions that are not finite."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, forget
from fastgcn.graph import checks

# Numbers that are read together; bounds the temporaries.
_AT_ONCE = 1 << 22

# Features beyond the first bound train badly as they are. Those beyond the second overflow a
# float32 when a few of them are multiplied.
LARGE, OVERFLOWING = 1e4, 1e15


class Extreme(NamedTuple):
    """A feature: its value, and its node and column."""

    value: float
    node: int
    column: int

    @property
    def size(self) -> float:
        """The magnitude; infinite for NaN."""
        return math.inf if math.isnan(self.value) else abs(self.value)

    def shown(
        self, node_ids: Sequence[Any] | None, feature_names: Sequence[str] | None, first: int = 0
    ) -> str:
        """The feature in words; its node is numbered from `first`.

        >>> Extreme(1e30, 0, 1).shown(["x", "y"], None)
        "feature 1 of node 'x' is 1e+30"
        """
        column = self.column if feature_names is None else repr(feature_names[self.column])
        node = checks.named(self.node if node_ids is not None else self.node + first, node_ids)
        return f"feature {column} of {node} is {self.value:g}"


def extreme(features: FloatArray | csr_array) -> Extreme:
    """The entry of (n, F) features farthest from zero; NaN counts as infinite. Reads all of them.

    >>> extreme(np.array([[1.0, 2.0], [-3.0, 0.0]], np.float32))
    Extreme(value=-3.0, node=1, column=0)
    """
    sparse = isinstance(features, csr_array)
    width = features.shape[1]
    found = Extreme(0.0, 0, 0)
    values = features.data if isinstance(features, csr_array) else features
    step = max(1, _AT_ONCE if sparse else _AT_ONCE // max(width, 1))
    for start in range(0, len(values), step):
        some = np.asarray(values[start : start + step]).reshape(-1)
        if not len(some):
            break
        at = int(np.argmax(np.abs(some)))  # NaN counts as the largest
        if Extreme(float(some[at]), 0, 0).size > found.size:
            place = start + at if sparse else start * width + at
            if isinstance(features, csr_array):
                node = int(np.searchsorted(features.indptr, place, side="right")) - 1
                found = Extreme(float(some[at]), node, int(features.indices[place]))
            else:
                found = Extreme(float(some[at]), *divmod(place, width))
        forget(values)
        if math.isinf(found.size):
            break
    return found
