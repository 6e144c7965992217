"""Drawing vertices from q, and the weights that make Σ_u weight(u)·f(u) estimate Σ_u f(u)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.config import Distribution, Draws
from fastgcn.kernels.draws import (
    append_new,
    draw_folded,
    inclusion_probabilities,
    running_sums,
)

Rng = torch.Generator | np.random.Generator

_BELOW_ONE = np.nextafter(1.0, 0.0)
# Rounds of draws in which repeats are discarded, before another method draws the rest. The first
# round fills most places, and each next one most of the rest, unless nearly all of q is used up.
_ROUNDS = 16


def uniforms(count: int, rng: Rng) -> FloatArray:
    """(count,) float64 in [0, 1): the only way randomness enters a sampler.

    One call for `count` numbers gives the same numbers as `count` calls for one.
    """
    if isinstance(rng, np.random.Generator):
        return rng.random(count)
    return torch.rand(count, dtype=torch.float64, generator=rng).numpy()


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution over positions 0..n-1, ready to draw from.

    Attributes:
        q: (n,) float64, not necessarily normalised.
        cumulative: (n,) its running sums.
        guide: (slots,) int32, where in `cumulative` the search for a draw begins.
    """

    q: FloatArray
    cumulative: FloatArray
    guide: IntArray

    @classmethod
    def of(cls, q: FloatArray, draws: int | None = None) -> "Law":
        """For `draws` draws in all, or for any number if None, which takes longer to prepare."""
        slots = len(q) if draws is None else min(len(q), 2 * draws)
        return cls(q, *running_sums(q, slots))

    @property
    def total(self) -> float:
        return float(self.cumulative[-1]) if len(self.cumulative) else 0.0

    def at(self, points: FloatArray, place: IntArray) -> tuple[IntArray, IntArray]:
        """The distinct positions whose shares of [0, 1) the points fall into, and counts.

        They are in the order first drawn. `place` is work space, at least as long as q,
        filled with -1.
        """
        found: tuple[IntArray, IntArray] = draw_folded(self.cumulative, self.guide, points, place)
        return found


class Drawing(Protocol):
    """One way to draw about t positions from q (n,), prepared for repeated draws."""

    def draw(self, rng: Rng, place: IntArray) -> tuple[IntArray, FloatArray]:
        """Distinct positions and their weights: E Σ weight(u)·f(u) = Σ f(u) for every f."""
        ...


def make_drawing(
    kind: Draws, q: FloatArray, t: int, *, correct_weights: bool = True, once: bool = False
) -> Drawing:
    """Poisson or successive draws; q need not be normalised, and zeros are never drawn.

    With `once`, it is prepared for a single draw, which takes less time.
    Without `correct_weights`, successive draws have the weight 1/(t·q(u)), which is right only
    for independent draws from a q that sums to one.

    >>> everyone = make_drawing("poisson", np.array([0.5, 0.25, 0.25]), t=3)
    >>> drawn, weights = everyone.draw(np.random.default_rng(0), np.full(3, -1, np.int32))
    >>> drawn.tolist(), weights.tolist()
    ([0, 1, 2], [1.0, 1.0, 1.0])
    """
    if not q.any():
        return Nothing()
    draws = t if once else None
    if kind == "poisson":
        return Poisson.of(q, t, draws)
    return Successive(Law.of(q, draws), t, int(np.count_nonzero(q)), correct_weights)


class Nothing:
    """Draws nothing: the rows have no entries, so their convolution is exactly zero."""

    def draw(self, rng: Rng, place: IntArray) -> tuple[IntArray, FloatArray]:  # noqa: ARG002
        return np.empty(0, dtype=np.int64), np.empty(0)


def independent_points(batches: int, t: int, rng: Rng) -> FloatArray:
    """Uniform points."""
    return uniforms(batches * t, rng).reshape(batches, t)


def systematic_points(batches: int, t: int, rng: Rng) -> FloatArray:
    """One uniform start, then t - 1 steps of 1/t."""
    return _in_strata(uniforms(batches, rng)[:, None], t)


def stratified_points(batches: int, t: int, rng: Rng) -> FloatArray:
    """A uniform point in each of t equal strata."""
    return _in_strata(independent_points(batches, t, rng), t)


def _in_strata(points: FloatArray, t: int) -> FloatArray:
    return np.minimum((points + np.arange(t)) / t, _BELOW_ONE)


# Ways to choose t points in [0, 1) for each of some batches, (batches, t), each on average uniform.
# A point draws the vertex whose share it falls on. So the expected count of u is t·p(u), where p is
# q normalised, and the weight count/(t·p(u)) is unbiased even if points depend on each other.
# Independent points draw with replacement; the others spread along the order of the vertices.
POINTS: dict[Draws, Callable[[int, int, Rng], FloatArray]] = {
    "independent": independent_points,
    "systematic": systematic_points,
    "stratified": stratified_points,
}


@dataclass(frozen=True, slots=True)
class Successive:
    """t distinct vertices one after the other, each from q over those left; Des Raj's weights.

    If all `support` vertices of positive q are drawn, each has weight one.
    """

    law: Law
    t: int
    support: int
    correct_weights: bool = True

    def draw(self, rng: Rng, place: IntArray) -> tuple[IntArray, FloatArray]:
        if self.t >= self.support:
            drawn: IntArray = np.flatnonzero(self.law.q)
        else:
            drawn = draw_distinct(self.law, self.t, rng, place)
        q = self.law.q[drawn]
        if not self.correct_weights:
            return drawn, 1 / (self.t * q)
        everyone = len(drawn) == self.support
        return drawn, np.ones(len(q)) if everyone else raj_weights(q / self.law.total)


def draw_distinct(law: Law, count: int, rng: Rng, place: IntArray) -> IntArray:
    """`count` distinct positions in the order drawn, each from q over those left.

    Drawing from q and discarding repeats is drawing from q over those left. If there are too
    many repeats, exponential clocks with rates q are used instead: they ring in the same order.
    """
    drawn, known = np.empty(count, np.int64), 0
    for _ in range(_ROUNDS):
        if known == count:
            return drawn
        fresh, _ = law.at(uniforms(count - known, rng), place)
        known = append_new(drawn, known, fresh, place)
    left = law.q.copy()
    left[drawn[:known]] = 0
    drawn[known:] = _first_to_ring(left, count - known, rng)
    return drawn


def _first_to_ring(rates: FloatArray, count: int, rng: Rng) -> IntArray:
    waiting = -np.log1p(-uniforms(len(rates), rng))
    rings = np.divide(waiting, rates, out=np.full(len(rates), np.inf), where=rates > 0)
    first = np.argpartition(rings, count - 1)[:count] if count < len(rates) else np.argsort(rings)
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


@dataclass(frozen=True, slots=True)
class Poisson:
    """Each vertex is drawn independently with probability p(u); its weight is 1/p(u).

    Instead of tossing n coins, a Poisson process runs along the vertices, each of length
    −log(1 − p(u)), and hits u with probability p(u): the cost grows with the draws, not with n.

    Attributes:
        inclusion: (n,) p(u) = min(1, c·q(u)), c such that t vertices are expected.
        certain: (k,) those of p(u) = 1.
        rates: −log(1 − p(u)) of the others.
    """

    inclusion: FloatArray
    certain: IntArray
    rates: Law

    @classmethod
    def of(cls, q: FloatArray, t: int, draws: int | None = None) -> "Poisson":
        p = inclusion_probabilities(q, t)
        rates = np.zeros(len(p))
        np.log1p(-p, out=rates, where=p < 1)
        return cls(p, np.flatnonzero(p >= 1), Law.of(-rates, draws))

    def draw(self, rng: Rng, place: IntArray) -> tuple[IntArray, FloatArray]:
        drawn = self.certain
        if self.rates.total > 0:
            hits, _ = self.rates.at(process_points(self.rates.total, rng), place)
            drawn = np.concatenate([self.certain, hits])
        return drawn, 1 / self.inclusion[drawn]


def process_points(length: float, rng: Rng) -> FloatArray:
    """A Poisson process of rate one on [0, length), its points divided by the length."""
    points, end = [np.empty(0)], 0.0
    while end < length:
        count = int(length - end + 5 * np.sqrt(length - end)) + 8  # hardly ever too few
        gaps = -np.log1p(-uniforms(count, rng))
        points.append(end + np.cumsum(gaps))
        end = float(points[-1][-1])
    reached = np.concatenate(points) / length
    return reached[reached < 1]


Numbers = TypeVar("Numbers", FloatArray, Tensor)


def fixed_q(
    distribution: Distribution, norms: Numbers, power: float, row_norms: Numbers
) -> Numbers:
    """(n,) float64, summing to one; all zero if Â has no entry, so that nothing is drawn.

    `norms` (n,) are ‖Â(:,u)‖, `row_norms` (n,) the |x(u)| of `optimal`: both float64, both arrays
    or both tensors on one device.

    >>> fixed_q("flat", np.array([1.0, 3.0]), 2.0, np.ones(2))
    array([0.1, 0.9])
    """
    powers = {"uniform": 0.0, "importance": 2.0, "flat": power}
    if distribution in powers:
        weight = norms ** powers[distribution]
    else:
        weight = norms * row_norms
        # A vertex with x = 0 adds nothing now, but q must be positive wherever Â is, or the
        # estimate would be biased as soon as the weights change.
        weight = weight.clip(1e-6 * weight.max() * (norms > 0))
        if not weight.any():
            weight = norms
    total = weight.sum()
    return weight / total if total > 0 else weight
