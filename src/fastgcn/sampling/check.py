"""`check_sampler`: checks on a tiny graph that a sampler does what training assumes.

It also takes samplers that are not part of this package:

>>> class CoinSampler:
...     '''One layer: each vertex is kept with probability one half, and then counts double.'''
...
...     def __init__(self, adjacency):
...         self.matrix = adjacency.to_scipy()
...
...     def sample(self, batch, rng):
...         kept = torch.rand(self.matrix.shape[1], generator=rng) < 0.5
...         src = kept.nonzero()[:, 0]
...         adj = 2 * self.matrix[batch.numpy()][:, src.numpy()].toarray()
...         return [Block(batch, src, torch.from_numpy(adj))]
>>> checked = check_sampler(CoinSampler, tiny_graphs()["undirected"])
>>> checked.exact, checked.layers
(False, 1)
>>> class Forgetful(CoinSampler):
...     def sample(self, batch, rng):
...         (block,) = super().sample(batch, rng)
...         return [Block(block.dst, block.src, block.adj / 2)]
>>> check_sampler(Forgetful, tiny_graphs()["undirected"])  # doctest: +ELLIPSIS
Traceback (most recent call last):
AssertionError: one layer is biased: row 0, column 0 is 0.17... on average and should be 0.33...
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray
from fastgcn.errors import InputError
from fastgcn.graph import checks
from fastgcn.graph.adjacency import Adjacency, normalize
from fastgcn.graph.graph import Graph
from fastgcn.sampling.block import Block, Sampler

# Entries of blocks are float32: "equal" means up to this share of the largest number compared.
_ROUNDING = 1e-5

Points: TypeAlias = FloatArray | Callable[[int], FloatArray]


class Outcome(NamedTuple):
    """One possible result of a sampler's draws.

    Attributes:
        probability: of this outcome; those of all outcomes sum to one.
        points: what `rng.random(count)` must return, call after call, to produce this outcome:
            an array of that length, or a function that makes one.
    """

    probability: float
    points: Sequence[Points]


class Scripted(np.random.Generator):
    """A generator whose `random` returns given points, so that an outcome can be replayed."""

    def __init__(self, points: Sequence[Points]) -> None:
        super().__init__(np.random.PCG64(0))
        self.left = list(points)

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        _must(len(self.left) > 0, "the sampler asks for points more often than the outcome says")
        points = self.left.pop(0)
        points = points(size) if callable(points) else points
        _must(len(points) == size, f"the outcome has {len(points)} points, {size} are asked for")
        return points


@dataclass(frozen=True, slots=True)
class Checked:
    """The figures of a sampler that passed.

    Attributes:
        exact: True if every outcome was run; otherwise means are over repetitions.
        layers: how many blocks a batch has.
        unseen_bias: the largest bias of an entry of mix(h), one layer, that the check could
            miss; only rounding if `exact`.
        row_error: E Σ_v ‖y(v) − e(v)‖² over the batch's rows, one layer.
        sources: the mean number of vertices in `src` of the top block.
    """

    exact: bool
    layers: int
    unseen_bias: float
    row_error: float
    sources: float


def check_sampler(
    make: Callable[[Adjacency], Sampler],
    adjacency: Adjacency,
    *,
    batch: Sequence[int] | None = None,
    h: Any = None,
    mean: Any = None,
    row_error: float | None = None,
    own_rows: bool = False,
    outcomes: Iterable[Outcome] | None = None,
    repetitions: int = 2000,
    false_alarm: float = 1e-6,
    seed: int = 0,
) -> Checked:
    """Raise AssertionError, with a message, if a sampler breaks what training relies on.

    * Blocks: `blocks[-1].dst` is the batch, in its order, each block's `src` is the `dst` of the
      one below, ids are distinct and in range, shapes fit, entries are finite, and with
      `own_rows` each `src` begins with `dst`. The same holds for the batch in reverse order, and
      for a single node.
    * Equal generator states give equal blocks, from this sampler or a new one, and the global
      generators of torch, numpy and Python are not used.
    * Unbiased: E[mix(h)] = Âh for the top block, and Â···Âh through all blocks, for rows
      h (n, d), the identity by default. `mean` (n, n) replaces Â if a sampler estimates
      something else.
    * `row_error`, if given, is the expected squared error of the top block, Σ_v ‖y(v) − e(v)‖²
      over `batch` (all vertices by default), by a formula of `fastgcn.sampling.variance`.

    With `outcomes`, all of them are run, and expectations are exact up to rounding. Otherwise
    they are means over `repetitions`, and a correct sampler is refused with probability at most
    `false_alarm`, if these means are normal. A bias below their noise passes; `unseen_bias` of
    the result says how large it may be, and four times the repetitions halve it.
    """
    n = adjacency.n
    rows = torch.arange(n) if batch is None else _node_ids(batch, n)
    inputs = np.eye(n) if h is None else np.asarray(h, dtype=np.float64)
    matrix = adjacency.to_scipy().toarray() if mean is None else np.asarray(mean)
    for what, given, width in (("h", inputs, "d"), ("mean", matrix, n)):
        if given.ndim != 2 or len(given) != n or (width == n and given.shape[1] != n):
            raise InputError(f"{what} must have shape ({n}, {width}), got {given.shape}")
        checks.finite(given, what)
    if repetitions < 2:
        raise InputError(f"repetitions must be at least 2, got {repetitions}")
    if not 0 < false_alarm < 1:
        raise InputError(f"false_alarm must be above 0 and below 1, got {false_alarm}")
    sampler, before = make(adjacency), _global_generators()
    for part in (rows[:1], rows.flip(0), rows):
        first = sampler.sample(part.clone(), torch.Generator().manual_seed(seed))
        check_blocks(first, part, n, own_rows=own_rows)
    _must(
        before == _global_generators(),
        "a sampler must draw from the generator it is given, not from a global one",
    )
    _check_repeatable(first, [sampler, make(adjacency)], rows, seed)
    if outcomes is None:
        runs = _drawn(sampler, rows, repetitions, seed)
    else:
        runs = _replayed(sampler, rows, outcomes)
    found = _Estimates.of(runs, rows, torch.from_numpy(inputs.astype(np.float32)), own_rows)
    tests = 2 * len(rows) * inputs.shape[1] + 1
    limit = None if outcomes is not None else -NormalDist().inv_cdf(false_alarm / 2 / tests)
    convolved = matrix @ inputs
    unseen = found.check("one layer is biased", found.one, convolved[rows], limit)
    squares = ((found.one - convolved[rows]) ** 2).sum(axis=(1, 2), keepdims=True)
    if row_error is not None:
        found.check("the error of one layer is off", squares, np.full((1, 1), row_error), limit)
    for _ in first[1:]:
        convolved = matrix @ convolved
    found.check("the layers together are biased", found.chain, convolved[rows], limit)
    return Checked(
        exact=outcomes is not None,
        layers=len(first),
        unseen_bias=unseen,
        row_error=float(found.probability @ squares[:, 0, 0]),
        sources=float(found.probability @ found.sources),
    )


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


def _drawn(
    sampler: Sampler, rows: Tensor, repetitions: int, seed: int
) -> Iterator[tuple[float, list[Block]]]:
    rng = torch.Generator().manual_seed(seed)
    for _ in range(repetitions):
        yield 1 / repetitions, sampler.sample(rows, rng)


def _replayed(
    sampler: Sampler, rows: Tensor, outcomes: Iterable[Outcome]
) -> Iterator[tuple[float, list[Block]]]:
    total = 0.0
    for outcome in outcomes:
        rng = Scripted(outcome.points)
        yield outcome.probability, sampler.sample(rows, rng)
        _must(not rng.left, "the sampler asks for points less often than the outcome says")
        total += outcome.probability
    _must(abs(total - 1) < 1e-9, f"the outcomes' probabilities sum to {total}, not to one")


@dataclass(frozen=True, slots=True)
class _Estimates:
    """R runs with their probabilities (R,): the estimates of Âh (R, s, d) by the top block alone
    and through all blocks, and the number of sources of the top block (R,)."""

    probability: FloatArray
    one: FloatArray
    chain: FloatArray
    sources: FloatArray

    @classmethod
    def of(
        cls,
        runs: Iterable[tuple[float, list[Block]]],
        rows: Tensor,
        inputs: Tensor,
        own_rows: bool,
    ) -> "_Estimates":
        probability, one, chain, sources = [], [], [], []
        for chance, blocks in runs:
            check_blocks(blocks, rows, len(inputs), own_rows=own_rows)
            mixed = inputs[blocks[0].src]
            for block in blocks:
                mixed = block.mix(mixed)
            probability.append(chance)
            one.append(blocks[-1].mix(inputs[blocks[-1].src]).numpy())
            chain.append(mixed.numpy())
            sources.append(float(len(blocks[-1].src)))
        return cls(
            np.array(probability),
            np.stack(one).astype(np.float64),
            np.stack(chain).astype(np.float64),
            np.array(sources),
        )

    def check(
        self, complaint: str, values: FloatArray, expected: FloatArray, limit: float | None
    ) -> float:
        """Check that the mean of values (R, a, b) is `expected` (a, b) up to `limit` standard
        errors; returns the largest difference that passes."""
        mean = np.tensordot(self.probability, values, axes=1)
        room = _ROUNDING * max(1e-3, float(np.abs(expected).max()), float(np.abs(mean).max()))
        tolerance = np.full(expected.shape, room)
        if limit is not None:
            tolerance += limit * values.std(axis=0, ddof=1) / np.sqrt(len(values))
        wrong = ~(np.abs(mean - expected) <= tolerance)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise AssertionError(
                f"{complaint}: row {row}, column {column} is {mean[row, column]:.6g} on average "
                f"and should be {expected[row, column]:.6g}, give or take "
                f"{tolerance[row, column]:.2g}"
            )
        return float(tolerance.max())


def _node_ids(batch: Sequence[int], n: int) -> Tensor:
    ids = checks.integers(batch, "batch").astype(np.int64)
    if not ids.size:
        raise InputError("batch must name at least one node, got none")
    checks.in_range(ids, n, "batch")
    return torch.from_numpy(ids)


def check_blocks(blocks: Sequence[Block], batch: Tensor, n: int, *, own_rows: bool) -> None:
    """Check that a batch's blocks fit each other, the graph of n nodes and the network."""
    _must(len(blocks) > 0, "a sampler must give at least one block, got none")
    for block in blocks:
        kind = type(block).__name__
        _must(isinstance(block, Block), f"a sampler must give a list of Block, got a {kind}")
        for what, ids in (("dst", block.dst), ("src", block.src)):
            _must(ids.dtype == torch.int64, f"{what} must be int64, got {ids.dtype}")
    _must(torch.equal(blocks[-1].dst, batch), "blocks[-1].dst must be the batch, in its order")
    for below, above in pairwise(blocks):
        _must(torch.equal(below.dst, above.src), "src of a block must be dst of the one below")
    for block in blocks:
        src, shape = block.src.tolist(), (len(block.dst), len(block.src))
        _must(len(set(src)) == len(src), f"src must be distinct, got {_shown(src)}")
        _must(all(0 <= u < n for u in src), f"src must lie in 0..{n - 1}, got {_shown(src)}")
        _must(tuple(block.adj.shape) == shape, f"adj must be {shape}, got {block.adj.shape}")
        _must(block.adj.dtype == torch.float32, f"adj must be float32, got {block.adj.dtype}")
        layout = block.adj.layout
        known = layout in (torch.strided, torch.sparse_csr)
        _must(known, f"adj must be dense or sparse CSR, got {layout}")
        _must(bool(block.adj.to_dense().isfinite().all()), "entries of adj must be finite")
        if own_rows:
            leads = torch.equal(block.src[: len(block.dst)], block.dst)
            dst = _shown(block.dst.tolist())
            _must(
                leads,
                f"src must begin with dst for this network, got {_shown(src)} for {dst}",
            )


def _shown(ids: list[int]) -> str:
    """The first few of some ids, for a message."""
    return f"[{', '.join(map(str, ids[:8]))}{', ...' if len(ids) > 8 else ''}]"


def _check_repeatable(
    first: list[Block], samplers: Sequence[Sampler], rows: Tensor, seed: int
) -> None:
    """Check that equal generator states give equal blocks, whatever was drawn before."""
    for sampler in samplers:
        sampler.sample(rows, torch.Generator().manual_seed(seed + 1))
        blocks = sampler.sample(rows, torch.Generator().manual_seed(seed))
        same = len(first) == len(blocks) and all(
            torch.equal(a.src, b.src) and torch.equal(a.adj.to_dense(), b.adj.to_dense())
            for a, b in zip(first, blocks, strict=True)
        )
        _must(same, "one generator state must give one list of blocks")


def _global_generators() -> tuple[bytes, bytes, int, object]:
    state = np.random.get_state(legacy=False)["state"]
    torch_state = bytes(torch.get_rng_state().numpy())
    return torch_state, bytes(state["key"]), int(state["pos"]), random.getstate()


def _must(holds: bool, complaint: str) -> None:
    """As `assert`, which `python -O` leaves out."""
    if not holds:
        raise AssertionError(complaint)
