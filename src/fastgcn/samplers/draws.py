"""Drawing vertices from q, and the weights that make Σ_u weight(u)·f(u) estimate Σ_u f(u)."""

import numpy as np
import torch

from fastgcn.types import FloatArray, IntArray

Rng = torch.Generator | np.random.Generator


def uniforms(count: int, rng: Rng) -> FloatArray:
    """(count,) float64 in [0, 1): the only way randomness enters a sampler."""
    if isinstance(rng, np.random.Generator):
        return rng.random(count)
    return torch.rand(count, dtype=torch.float64, generator=rng).numpy()


def with_replacement(cumulative: FloatArray, count: int, rng: Rng) -> tuple[IntArray, IntArray]:
    """`count` independent draws from q, folded: distinct positions, ascending, and counts.

    `cumulative` (n,) holds the running sums of q, not necessarily normalised.
    """
    total = cumulative[-1]
    # A product that rounds up to the total would point past the last vertex that has a chance.
    points = np.minimum(uniforms(count, rng) * total, np.nextafter(total, 0))
    return np.unique(np.searchsorted(cumulative, points, side="right"), return_counts=True)


def without_replacement(q: FloatArray, count: int, rng: Rng) -> IntArray:
    """`count` distinct positions in the order drawn, each next one from q over those left.

    Exponential clocks with rates q ring in exactly that order, so the first `count` of them
    are one successive sample. q (n,) need not be normalised; zeros are never drawn.
    """
    waiting = -np.log1p(-uniforms(len(q), rng))
    rings = np.divide(waiting, q, out=np.full(len(q), np.inf), where=q > 0)
    first = np.argpartition(rings, count - 1)[:count] if count < len(q) else np.arange(len(q))
    return first[np.argsort(rings[first], kind="stable")]


def raj_weights(p: FloatArray) -> FloatArray:
    """Unbiased weights for a successive sample with probabilities p (t,), in the order drawn.

    After j-1 draws, Σ_{k<j} f(u_k) + f(u_j)·(1 - Σ_{k<j} p_k)/p_j estimates Σ f without bias;
    the mean of these over j = 1..t (Des Raj, 1956) does too, and gives u_j the weight
    ((1 - Σ_{k<j} p_k)/p_j + t - j) / t. Its variance is at most that of t draws with
    replacement.
    """
    t = len(p)
    remaining = 1.0 - (np.cumsum(p) - p)
    return (remaining / p + np.arange(t - 1, -1, -1)) / t
