"""q: how likely each vertex is to be drawn, where that does not depend on the batch."""

import numpy as np

from fastgcn.config import Distribution
from fastgcn.types import FloatArray


def fixed_q(
    distribution: Distribution, norms: FloatArray, power: float, row_norms: FloatArray
) -> FloatArray:
    """(n,) float64, summing to one; all zero where Â has no entry and nothing need be drawn.

    `norms` (n,) are ‖Â(:,u)‖, `row_norms` (n,) the |x(u)| of `optimal`.

    >>> fixed_q("flat", np.array([1.0, 3.0]), 2.0, np.ones(2))
    array([0.1, 0.9])
    """
    if distribution == "uniform":
        weight: FloatArray = np.ones(len(norms))
    elif distribution == "importance":
        weight = norms**2
    elif distribution == "flat":
        weight = norms**power
    else:
        weight = norms * np.asarray(row_norms, dtype=np.float64)
        # A vertex whose x is exactly zero adds nothing now, but q must stay positive where
        # Â is, or the estimate would be biased as soon as the model moves on.
        weight = np.maximum(weight, 1e-6 * weight.max() * (norms > 0))
        if not weight.any():
            weight = norms
    total = weight.sum()
    return weight / total if total > 0 else weight
