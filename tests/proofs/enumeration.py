"""Every possible draw of a `LayerSampler`, to be run through its own code.

Randomness enters a sampler by `fastgcn.sampling.draws.uniforms` alone, which asks a numpy
generator for `random(count)`. `fastgcn.sampling.check.Scripted` answers with chosen
points, and `Member.outcomes` lists the points that lead to each possible draw, with its
probability worked out here, from a dense Â, without any of the sampler's code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, pairwise, permutations, product
from typing import Any

import numpy as np
import torch

from fastgcn import Adjacency, Block, LayerSampler
from fastgcn.arrays import FloatArray, IntArray
from fastgcn.sampling.check import Outcome, Points, Scripted
from fastgcn.sampling.draws import Rng

DISTRIBUTIONS = ("uniform", "importance", "flat", "optimal")
BY_POINTS = ("independent", "systematic", "stratified")
DRAWS = ("independent", "successive", "poisson", "systematic", "stratified")


def dense(adjacency: Adjacency) -> FloatArray:
    """Â, entry by entry, float64."""
    matrix = np.zeros((adjacency.n, adjacency.n))
    for v in range(adjacency.n):
        for entry in range(adjacency.indptr[v], adjacency.indptr[v + 1]):
            matrix[v, adjacency.indices[entry]] = adjacency.values[entry]
    return matrix


def reference_q(
    matrix: FloatArray, distribution: str, row_norms: FloatArray, power: float = 1.0
) -> FloatArray:
    """q as the paper defines it, with the sampler's floor where |x(u)| is zero."""
    norms = np.linalg.norm(matrix, axis=0)
    weight = {
        "uniform": np.ones(matrix.shape[1]),
        "importance": norms**2,
        "flat": norms**power,
        "optimal": norms * row_norms,
    }[distribution]
    if distribution == "optimal":
        weight = np.maximum(weight, 1e-6 * weight.max() * (norms > 0))
    return np.asarray(weight / weight.sum())


@dataclass(frozen=True)
class Draw:
    """One possible draw: its probability, the points that lead to it, what is drawn."""

    probability: float
    points: tuple[Points, ...]  # what each call for random numbers is answered with
    drawn: IntArray  # in the order drawn, with repeats


def points_of(q: FloatArray, drawn: Sequence[int] | IntArray) -> FloatArray:
    """Points in the middle of each drawn vertex's share of [0, 1)."""
    return np.asarray((np.cumsum(q) - q / 2)[np.asarray(drawn)])


def independent(q: FloatArray, t: int) -> Iterator[Draw]:
    """All (up to n^t) ordered draws from q."""
    for drawn in product(np.flatnonzero(q).tolist(), repeat=t):
        chance = float(np.prod(q[list(drawn)]))
        yield Draw(chance, (points_of(q, drawn),), np.array(drawn))


def successive(q: FloatArray, t: int) -> Iterator[Draw]:
    """All ordered draws of distinct vertices, each next one from q over those left.

    The points lead to them without a repeat that would be thrown away.
    """
    everyone = np.flatnonzero(q)
    if t >= len(everyone):
        yield Draw(1.0, (), everyone)
        return
    for drawn in permutations(everyone.tolist(), t):
        taken = q[list(drawn)]
        never = np.delete(q, drawn).sum()
        left = never + np.cumsum(taken[::-1])[::-1]  # adding from the end loses no digits
        yield Draw(float(np.prod(taken / left)), (points_of(q, drawn),), np.array(drawn))


def clock_points(q: FloatArray, drawn: Sequence[int]) -> FloatArray:
    """Points under which exponential clocks of rates q ring in this order, all others later.

    The clock of vertex u rings at r where its point is 1 − exp(−q(u)·r).
    """
    rings = np.full(len(q), len(drawn) + 1.0)
    rings[list(drawn)] = np.arange(1, len(drawn) + 1)
    return np.asarray(1 - np.exp(-q * rings))


def inclusion(q: FloatArray, t: int) -> FloatArray:
    """p(u) = min(1, c·q(u)) that sum to t: the largest certain, one more until the rest fit."""
    p = (q > 0).astype(float)
    if t >= p.sum():
        return p
    order = np.argsort(-q)
    for certain in range(t):
        rest = order[certain:]
        p[rest] = q[rest] * (t - certain) / q[rest].sum()
        if p[rest].max() <= 1:
            return np.where(p > 1 - 1e-9, 1.0, p)
    raise AssertionError("no such p")


def poisson(q: FloatArray, t: int) -> Iterator[Draw]:
    """All subsets of the vertices that are not certain, along with those that are."""
    p = inclusion(q, t)
    certain, open_to_chance = np.flatnonzero(p >= 1), np.flatnonzero((p > 0) & (p < 1))
    rates = np.zeros(len(p))
    rates[open_to_chance] = -np.log1p(-p[open_to_chance])
    sizes = range(len(open_to_chance) + 1)
    subsets = chain.from_iterable(combinations(open_to_chance.tolist(), k) for k in sizes)
    for hit in subsets:
        missed = np.setdiff1d(open_to_chance, hit)
        chance = float(np.prod(p[list(hit)]) * np.prod(1 - p[missed]))
        points = (_process_through(rates, hit),) if len(open_to_chance) else ()
        yield Draw(chance, points, np.concatenate([certain, np.array(hit, dtype=np.int64)]))


def _process_through(rates: FloatArray, hit: Sequence[int]) -> Callable[[int], FloatArray]:
    """Uniform numbers whose gaps put one point into the middle of each of these, and no other."""
    stops = np.append((np.cumsum(rates) - rates / 2)[list(hit)], rates.sum() + 1)

    def points(count: int) -> FloatArray:
        gaps = np.concatenate([np.diff(stops, prepend=0.0), np.ones(count - len(stops))])
        return np.asarray(1 - np.exp(-gaps))

    return points


def systematic(q: FloatArray, t: int) -> Iterator[Draw]:
    """Between starts at which a point passes from one vertex to the next nothing changes."""
    ends = np.cumsum(q)
    cuts = np.unique(np.concatenate([[0.0], (ends[:-1] * t) % 1.0, [1.0]]))
    for low, high in pairwise(cuts):
        start = (low + high) / 2
        drawn = np.searchsorted(ends, (start + np.arange(t)) / t, side="right")
        yield Draw(high - low, (np.array([start]),), np.minimum(drawn, len(q) - 1))


def stratified(q: FloatArray, t: int) -> Iterator[Draw]:
    """All choices of one vertex from each stratum."""
    strata = [_inside(q, j / t, (j + 1) / t) for j in range(t)]
    for pieces in product(*strata):
        chance = float(np.prod([length * t for _, _, length in pieces]))
        points = np.array([middle * t - j for j, (_, middle, _) in enumerate(pieces)])
        yield Draw(chance, (points,), np.array([u for u, _, _ in pieces]))


def _inside(q: FloatArray, low: float, high: float) -> list[tuple[int, float, float]]:
    """Vertices with a share of [low, high), its middle, and its length."""
    ends = np.cumsum(q)
    found = []
    for u, (start, end) in enumerate(zip(ends - q, ends, strict=True)):
        left, right = max(start, low), min(end, high)
        if right - left > 1e-12:
            found.append((u, (left + right) / 2, right - left))
    return found


ALL_DRAWS: dict[str, Callable[[FloatArray, int], Iterator[Draw]]] = {
    "independent": independent,
    "successive": successive,
    "poisson": poisson,
    "systematic": systematic,
    "stratified": stratified,
}


def order_of(matrix: FloatArray, rows: IntArray) -> IntArray:
    """The columns of these rows, as row after row meets them."""
    met: dict[int, None] = {}
    for v in rows:
        met |= dict.fromkeys(np.flatnonzero(matrix[v]).tolist())
    return np.array(list(met), dtype=np.int64)


@dataclass(frozen=True)
class Member:
    """One member of the family: the options of its sampler, and what follows from them."""

    options: dict[str, Any] = field(default_factory=dict)
    row_norms: FloatArray | None = None  # |x(u)| for `optimal`

    def make(self, adjacency: Adjacency, samples: Sequence[int]) -> LayerSampler:
        sampler = LayerSampler(adjacency, samples, **self.options)
        if self.row_norms is not None:
            sampler.set_row_norms([self.row_norms] * len(samples))
        return sampler

    @property
    def exact_self(self) -> bool:
        return self.options.get("self_term") == "exact"

    def sampled(self, matrix: FloatArray) -> FloatArray:
        """The part of Â that is sampled."""
        return matrix * (1 - np.eye(len(matrix))) if self.exact_self else matrix

    def law(self, matrix: FloatArray, rows: IntArray) -> tuple[IntArray, FloatArray]:
        """The vertices that can be drawn for these rows, in order, and their q, which sums to
        one over them or, where that is nothing, to zero.

        For `ladies` by points a vertex comes once for each row that has it.
        """
        part, distribution = self.sampled(matrix), self.options.get("distribution", "importance")
        power = self.options.get("power", 2.0 if distribution == "ladies" else 1.0)
        reached = order_of(part, rows)
        if distribution == "ladies" and self.options.get("draws", "independent") in BY_POINTS:
            places = [(v, u) for v in rows for u in np.flatnonzero(part[v])]
            reached = np.array([u for _, u in places], dtype=np.int64)
            weight = np.array([abs(part[place]) ** power for place in places])
        elif distribution == "ladies":
            weight = (abs(part[rows][:, reached]) ** power).sum(axis=0)
        else:
            norms = np.ones(len(matrix)) if self.row_norms is None else self.row_norms
            weight = reference_q(part, distribution, norms, power)
            if self.options.get("neighbors_only"):
                weight = weight[reached]
            else:
                reached = np.arange(len(matrix))
        return reached, np.asarray(weight / weight.sum() if weight.any() else weight)

    def q(self, matrix: FloatArray, rows: IntArray) -> FloatArray:
        """(n,): the same, by vertex."""
        vertices, law = self.law(matrix, rows)
        q = np.zeros(len(matrix))
        np.add.at(q, vertices, law)
        return q

    def draws(self, matrix: FloatArray, rows: IntArray, t: int) -> Iterator[Draw]:
        """All draws for a block of these rows, vertices numbered as in Â."""
        vertices, q = self.law(matrix, rows)
        if not q.any():
            yield Draw(1.0, (), np.empty(0, np.int64))
            return
        for draw in ALL_DRAWS[self.options.get("draws", "independent")](q, t):
            yield Draw(draw.probability, draw.points, vertices[draw.drawn])

    def outcomes(
        self, matrix: FloatArray, samples: Sequence[int], rows: Sequence[int] | IntArray
    ) -> Iterator[Outcome]:
        """Probability and points of every outcome of all layers, the top one drawn first."""
        if not samples:
            yield Outcome(1.0, [])
            return
        rows = np.asarray(rows)
        for draw in self.draws(matrix, rows, samples[-1]):
            met = order_of(self.sampled(matrix), rows)
            src = met[np.isin(met, draw.drawn)]
            if self.exact_self or self.options.get("own_rows"):
                src = np.concatenate([rows, src[~np.isin(src, rows)]])
            for below in self.outcomes(matrix, samples[:-1], src):
                yield Outcome(draw.probability * below.probability, [*draw.points, *below.points])


def replay(sampler: Any, batch: Any, points: Sequence[Points]) -> list[Block]:
    """The blocks that follow from these points, which are all used up."""
    rng: Rng = Scripted(points)
    blocks: list[Block] = sampler.sample(torch.as_tensor(batch), rng)
    assert isinstance(rng, Scripted)
    assert not rng.left
    return blocks


def scattered(block: Block, n: int) -> FloatArray:
    """(s, n) float64: the block with its columns where they belong in Â."""
    matrix = np.zeros((len(block.dst), n))
    matrix[:, block.src.numpy()] = block.adj.to_dense().numpy()
    return matrix


def expectation(
    member: Member,
    adjacency: Adjacency,
    samples: Sequence[int],
    batch: Sequence[int],
    of: Callable[[list[Block]], FloatArray],
) -> FloatArray:
    """E[of(blocks)] over all outcomes of the member's draws, every one of them run."""
    sampler, total, mean = member.make(adjacency, samples), 0.0, np.zeros(())
    for probability, points in member.outcomes(dense(adjacency), samples, batch):
        mean = mean + probability * of(replay(sampler, batch, points))
        total += probability
    np.testing.assert_allclose(total, 1, rtol=1e-12, err_msg="not all outcomes were listed")
    return mean
