"""Every possible draw of a `LayerSampler`, run through its own code.

Randomness enters a sampler by `fastgcn.samplers.draws.uniforms` alone. `scripted` puts a list
of chosen points there, and `all_scripts` lists the points that lead to each possible draw,
with its probability worked out here, from a dense Â, without any of the sampler's code.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from fastgcn import Adjacency, Block, Graph, LayerSampler, normalize
from fastgcn.samplers import draws
from fastgcn.types import FloatArray, IntArray

ANY_RNG = Generator()  # handed to samplers whose randomness is scripted

DISTRIBUTIONS = ("uniform", "importance", "flat", "optimal")


def tiny_graphs() -> dict[str, Adjacency]:
    """Four vertices each: undirected, directed and weighted, and without loops."""
    features = np.zeros((4, 1))
    undirected = Graph.from_edges([0, 0], [1, 2], features=features)  # 3 is isolated
    weighted = Graph.from_edges(
        [0, 1, 2, 2],
        [1, 2, 0, 3],
        weights=[0.5, 2, 1, 3],
        directed=True,
        features=features,
    )
    # Nothing points to 0, and 3 points to nothing: a zero column and an empty row of Â.
    without = Graph.from_edges([0, 0, 1, 2], [1, 2, 3, 1], directed=True, features=features)
    return {
        "undirected": normalize(undirected),
        "weighted": normalize(weighted, "row"),
        "no loops": normalize(without, self_loops=False),
    }


def dense(adjacency: Adjacency) -> FloatArray:
    """Â, entry by entry, float64."""
    matrix = np.zeros((adjacency.n, adjacency.n))
    for v in range(adjacency.n):
        for entry in range(adjacency.indptr[v], adjacency.indptr[v + 1]):
            matrix[v, adjacency.indices[entry]] = adjacency.values[entry]
    return matrix


def reference_q(matrix: FloatArray, distribution: str, row_norms: FloatArray) -> FloatArray:
    """q as the paper defines it, with the sampler's floor where |x(u)| is zero."""
    norms = np.linalg.norm(matrix, axis=0)
    weight = {
        "uniform": np.ones(len(matrix)),
        "importance": norms**2,
        "flat": norms,
        "optimal": norms * row_norms,
    }[distribution]
    if distribution == "optimal":
        weight = np.maximum(weight, 1e-6 * weight.max() * (norms > 0))
    return np.asarray(weight / weight.sum())


@dataclass
class Script:
    """Stands in for `draws.uniforms` and hands out the points it was given, in order."""

    points: list[FloatArray] = field(default_factory=list)

    def __call__(self, count: int, rng: Generator) -> FloatArray:  # noqa: ARG002
        points = self.points.pop(0)
        assert len(points) == count, "the sampler asks for another number of points"
        return points

    def run(self, sampler: LayerSampler, batch: Any, points: Sequence[FloatArray]) -> list[Block]:
        """The blocks that follow from these points, which are all used up."""
        self.points = list(points)
        blocks = sampler.sample(torch.as_tensor(batch), ANY_RNG)
        assert not self.points
        return blocks


@contextmanager
def scripted() -> Iterator[Script]:
    with pytest.MonkeyPatch.context() as patch:
        script = Script()
        patch.setattr(draws, "uniforms", script)
        yield script


@dataclass(frozen=True)
class Draw:
    """One possible outcome: its probability, the points that lead to it, what is drawn."""

    probability: float
    points: FloatArray
    drawn: IntArray  # in the order drawn, with repeats


def points_of(q: FloatArray, drawn: Sequence[int] | IntArray) -> FloatArray:
    """Points in the middle of each drawn vertex's share of [0, 1)."""
    return np.asarray((np.cumsum(q) - q / 2)[np.asarray(drawn)])


def draws_with_replacement(q: FloatArray, t: int) -> Iterator[Draw]:
    """All (up to n^t) ordered draws from q."""
    for drawn in product(np.flatnonzero(q).tolist(), repeat=t):
        yield Draw(float(np.prod(q[list(drawn)])), points_of(q, drawn), np.array(drawn))


def draws_without_replacement(q: FloatArray, t: int) -> Iterator[Draw]:
    """All ordered draws of distinct vertices, each next one from q over those left.

    The clock of vertex u with rate q(u) rings at r where its point is 1 − exp(−q(u)·r).
    """
    count = min(t, int(np.count_nonzero(q)))
    for drawn in permutations(np.flatnonzero(q).tolist(), count):
        taken = q[list(drawn)]
        never = np.delete(q, drawn).sum()
        left = never + np.cumsum(taken[::-1])[::-1]  # adding from the end loses no digits
        rings = np.full(len(q), count + 1.0)
        rings[list(drawn)] = np.arange(1, count + 1)
        yield Draw(float(np.prod(taken / left)), 1 - np.exp(-q * rings), np.array(drawn))


def candidates_of(matrix: FloatArray, rows: Any, *, neighbors_only: bool) -> IntArray:
    """The vertices that may be drawn for these rows."""
    reached = (matrix[rows] != 0).any(axis=0)
    return np.flatnonzero(reached) if neighbors_only else np.arange(len(matrix))


def all_scripts(
    matrix: FloatArray,
    q: FloatArray,
    samples: Sequence[int],
    rows: Any,
    *,
    replacement: bool = True,
    neighbors_only: bool = False,
) -> Iterator[tuple[float, list[FloatArray]]]:
    """Probability and points of every outcome of all layers, the top one drawn first."""
    if not samples:
        yield 1.0, []
        return
    candidates = candidates_of(matrix, rows, neighbors_only=neighbors_only)
    among = q[candidates] / q[candidates].sum()
    outcomes = draws_with_replacement if replacement else draws_without_replacement
    for draw in outcomes(among, samples[-1]):
        below = all_scripts(
            matrix,
            q,
            samples[:-1],
            np.unique(candidates[draw.drawn]),
            replacement=replacement,
            neighbors_only=neighbors_only,
        )
        for probability, points in below:
            yield draw.probability * probability, [draw.points, *points]


def scattered(block: Block, n: int) -> FloatArray:
    """(s, n) float64: the block with its columns where they belong in Â."""
    matrix = np.zeros((len(block.dst), n))
    matrix[:, block.src.numpy()] = block.adj.to_dense().numpy()
    return matrix


def expectation(
    sampler: LayerSampler,
    q: FloatArray,
    batch: Any,
    of: Callable[[list[Block]], FloatArray],
) -> FloatArray:
    """E[of(blocks)] over all outcomes of the sampler's draws, every one of them run."""
    total, mean = 0.0, np.zeros(())
    with scripted() as script:
        for probability, points in all_scripts(
            dense(sampler.adjacency),
            q,
            sampler.samples,
            batch,
            replacement=sampler.replacement,
            neighbors_only=sampler.neighbors_only,
        ):
            mean = mean + probability * of(script.run(sampler, batch, points))
            total += probability
    np.testing.assert_allclose(total, 1, rtol=1e-12, err_msg="not all outcomes were listed")
    return mean
