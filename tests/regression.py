"""A graph whose numbers are a known function of a node's own and its neighbours' features."""

from typing import Any

import numpy as np

from fastgcn import Graph, random_split
from fastgcn.arrays import FloatArray


def numbers(*, n: int = 400, degree: int = 6, seed: int = 0, **fields: Any) -> Graph:
    """y = 1000 + 50·(x₀ + 3·mean of neighbours' x₁ − 3·mean of neighbours' x₂) + noise.

    A tenth of the nodes have no target. Own features alone explain less than half of the variance;
    the noise, of deviation 5, less than a hundredth.
    """
    rng = np.random.default_rng(seed)
    ends = rng.integers(n, size=(2, n * degree // 2))
    x = rng.normal(size=(n, 5)).astype(np.float32)
    mean = neighbour_means(ends, x)
    y = 1000 + 50 * (x[:, 0] + 3 * mean[:, 1] - 3 * mean[:, 2]) + 5 * rng.normal(size=n)
    y[::10] = np.nan
    given: dict[str, Any] = {"labels": y, "name": "numbers"} | fields
    return random_split(Graph.from_edges(*ends, features=x, **given))


def neighbour_means(ends: Any, x: FloatArray) -> FloatArray:
    """(n, F): the mean of each node's neighbours, zero if it has none; edges go both ways."""
    joined = np.zeros((len(x), len(x)))
    joined[ends[0], ends[1]] = joined[ends[1], ends[0]] = 1
    np.fill_diagonal(joined, 0)
    found: FloatArray = joined @ x / np.maximum(joined.sum(1, keepdims=True), 1)
    return found
