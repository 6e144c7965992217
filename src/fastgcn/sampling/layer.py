"""`LayerSampler`, FastGCN's sampler: about t vertices per layer, drawn once for all rows.

They are drawn from all vertices, or from the neighbours of the rows above. Every block is unbiased:
E[adj] = the rows of Â themselves.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.config import LARGEST_POWER, OWN_POWERS, Distribution, Draws, SelfTerm
from fastgcn.errors import InputError, nearest
from fastgcn.graph.adjacency import Adjacency
from fastgcn.graph.edges import Rows
from fastgcn.kernels.blocks import (
    Blocks,
    has_repeats,
    number_columns,
    pick_entries,
    pick_reached,
    reach,
    room,
    sample_by_entries,
    sample_by_reach,
    sample_by_vertices,
)
from fastgcn.kernels.draws import sums_of_powers
from fastgcn.sampling.block import Block, BlockGroup, LayerRows
from fastgcn.sampling.draws import POINTS, Drawing, Law, Rng, fixed_q, make_drawing


class Reached(NamedTuple):
    """The columns in which some rows of Â have entries.

    Attributes:
        columns: (m,) distinct, in the order they occur.
        sums: (m,) Σ_v |Â(v,u)|^power over the rows.
        places: (entries,) for each entry of the rows, its column's position in `columns`; -1 for
            entries that are not sampled.
    """

    columns: IntArray
    sums: FloatArray
    places: IntArray


@dataclass(frozen=True, slots=True)
class Sampled:
    """The part of Â that is sampled: all of it or, with `exact_self`, all but the diagonal.

    With `own_rows`, `src` of a block begins with its `dst`. Distributions that depend on entries
    use |Â(v,u)|^power; 2 gives the squared norms of rows and columns. `place` (n,) int32 is work
    space, filled with -1.
    """

    adjacency: Adjacency
    exact_self: bool
    own_rows: bool
    power: float
    place: IntArray

    @property
    def parts(self) -> tuple[IntArray, IntArray, FloatArray]:
        matrix = self.adjacency
        return matrix.indptr, matrix.indices, matrix.values

    def reach(self, rows: IntArray) -> Reached:
        return Reached(*reach(*self.parts, rows, self.power, self.exact_self, self.place))

    def block(self, dst: Tensor, rows: Rows) -> Block:
        """A block of the rows of `dst`, whose columns are numbered as in Â."""
        lead = dst.numpy() if self.own_rows else dst.numpy()[:0]
        src, columns = number_columns(lead, rows.indices, self.place)
        return Block.of_csr(dst, torch.from_numpy(src), (rows.indptr, columns, rows.values))

    def sums(self) -> tuple[FloatArray, FloatArray]:
        """(n,) Σ_u |Â(v,u)|^power of each row and (n,) Σ_v of each column of the sampled part."""
        sums: tuple[FloatArray, FloatArray] = sums_of_powers(
            *self.parts, self.power, self.exact_self
        )
        return sums


class Source(Protocol):
    def blocks(self, batches: Sequence[Tensor], rng: Rng) -> list[Block]:
        """Blocks of batches of equal size, drawn one after the other."""
        ...


@dataclass(frozen=True, slots=True)
class AllVertices:
    """One q over all n vertices, the same for all rows."""

    matrix: Sampled
    drawing: Drawing

    def blocks(self, batches: Sequence[Tensor], rng: Rng) -> list[Block]:
        return [self._block(dst, rng) for dst in batches]

    def _block(self, dst: Tensor, rng: Rng) -> Block:
        matrix, place = self.matrix, self.matrix.place
        drawn, weights = self.drawing.draw(rng, place)
        rows = pick_entries(*matrix.parts, dst.numpy(), drawn, weights, matrix.exact_self, place)
        return matrix.block(dst, Rows(*rows))


@dataclass(frozen=True, slots=True)
class ReachedVertices:
    """Only the neighbours of the rows, by q (n,) renormalised, or by their sums if q is None."""

    matrix: Sampled
    q: FloatArray | None
    draws: Draws
    t: int
    correct_weights: bool

    def law(self, reached: Reached) -> FloatArray:
        """(m,): q of the reached columns; if q is made of their sums, it adds up to one."""
        if self.q is not None:
            return self.q[reached.columns]
        sums = reached.sums
        return sums / sums.sum() if sums.any() else sums

    def blocks(self, batches: Sequence[Tensor], rng: Rng) -> list[Block]:
        return [self._block(dst, rng) for dst in batches]

    def _block(self, dst: Tensor, rng: Rng) -> Block:
        rows, matrix, adjacency = dst.numpy(), self.matrix, self.matrix.adjacency
        reached = matrix.reach(rows)
        drawing = make_drawing(
            self.draws, self.law(reached), self.t, correct_weights=self.correct_weights, once=True
        )
        drawn, weights = drawing.draw(rng, matrix.place)
        places, exact = (reached.columns, reached.places), matrix.exact_self
        picked = pick_reached(
            adjacency.indptr, adjacency.values, rows, places, drawn, weights, exact
        )
        return matrix.block(dst, Rows(*picked))


@dataclass(frozen=True, slots=True)
class ByPoints:
    """Vertices drawn by t points in [0, 1), for many batches in one compiled call.

    Attributes:
        kernel: one of those in `kernels/blocks.py`.
        law: its arguments before the points.
        points: chooses t points for each of some batches.
        ascending: True if the kernel needs sorted points.
    """

    matrix: Sampled
    kernel: Callable[..., Blocks]
    law: tuple[Any, ...]
    t: int
    points: Callable[[int, int, Rng], FloatArray]
    ascending: bool = False

    def blocks(self, batches: Sequence[Tensor], rng: Rng) -> list[Block]:
        return self.group(batches, rng).blocks()

    def group(self, batches: Sequence[Tensor], rng: Rng) -> BlockGroup:
        """Blocks of batches of equal size, as one."""
        points = self.points(len(batches), self.t, rng)
        if self.ascending:
            points.sort(axis=1)
        matrix, dst = self.matrix, torch.stack(list(batches))
        rows, options = dst.numpy(), (matrix.own_rows, matrix.exact_self, matrix.place)
        blocks = self.kernel(*self.law, points, matrix.parts, rows, *options, room(points, rows))
        return BlockGroup(dst, blocks)


class LayerSampler:
    """Estimates every convolution from about t_l vertices, drawn once for all rows of the layer:

        (ÂH)(v) ≈ Σ_u weight(u)·Â(v,u)·H(u),   E weight(u) = 1           (eq. 10)

    For independent draws u ~ q, the paper's, weight(u) = count(u) / (t_l·q(u)).

    `distribution`, over all n vertices:

    * `uniform`: q(u) = 1/n (Alg. 1, eq. 5, where 1/(t·q) is the factor n/t);
    * `importance`: q(u) ∝ ‖Â(:,u)‖² (Alg. 2, Prop. 4), the paper's;
    * `flat`: q(u) ∝ ‖Â(:,u)‖^power; power 1 is what the authors' program draws from;
    * `optimal`: q(u) ∝ ‖Â(:,u)‖·|x(u)| (Thm 3), with x(u) the row H(u)W of the current model,
      passed by `observe` or `set_row_norms`; before the first call, q is that of `flat`;
    * `ladies`: q(u) ∝ Σ_v |Â(v,u)|^power over the rows v of the layer above;
      power 2, the squared norm of the column, is LADIES as published, power 1 spreads the
      draws more evenly. q is positive wherever a row has an entry, so 1/(t·q) is unbiased
      for any power.

    `power` None means the published power, 1 for `flat` and 2 for `ladies`.

    `draws`, all unbiased (weights in `sampling/draws.py`):

    * `independent`: t draws with replacement, the paper's;
    * `successive`: t distinct vertices one after the other, Des Raj's weights;
    * `poisson`: each vertex independently with probability p(u) ∝ q(u), at most 1; t expected;
    * `stratified`, `systematic`: t points spread evenly along the vertices' shares of q.

    Other departures from the paper, each a switch:

    * `self_term="exact"`: Â(v,v)·H(v) is added exactly and the rest of the row is sampled, with
      q from columns without their diagonal entry;
    * `own_rows`: `src` begins with `dst`, for networks that read a node's own row; the nodes of
      a batch must then be distinct, as with an exact self term;
    * `neighbors_only` draws among the neighbours of the rows above, with q renormalised;
    * `correct_weights=False` always divides by t·q(u) with q normalised over all vertices: the
      authors' biased factor.
    """

    def __init__(
        self,
        adjacency: Adjacency,
        samples: Sequence[int],
        *,
        distribution: Distribution = "importance",
        power: float | None = None,
        draws: Draws = "independent",
        self_term: SelfTerm = "sampled",
        own_rows: bool = False,
        neighbors_only: bool = False,
        correct_weights: bool = True,
    ) -> None:
        _one_of("distribution", distribution, get_args(Distribution))
        _one_of("draws", draws, get_args(Draws))
        _one_of("self_term", self_term, get_args(SelfTerm))
        if power is not None and not 0 <= power <= LARGEST_POWER:
            raise InputError(f"power must lie between 0 and {LARGEST_POWER}, got {power}")
        self.adjacency = adjacency
        self.samples = tuple(samples)
        self.distribution = distribution
        self.power = OWN_POWERS.get(distribution, 2.0) if power is None else power
        self.draws = draws
        self.exact_self = self_term == "exact"
        self.own_rows = own_rows or self.exact_self
        self.from_rows = neighbors_only or distribution == "ladies"
        self.correct_weights = correct_weights
        self._check_draws()
        place = np.full(adjacency.n, -1, np.int32)
        power = self.power if distribution == "ladies" else 2.0  # squared norms
        self._matrix = Sampled(adjacency, self.exact_self, self.own_rows, power, place)
        self._sums = self._matrix.sums()
        self._row_norms: list[FloatArray] = [np.ones(adjacency.n)] * len(self.samples)
        self._set_sources()

    def drawing(
        self, samples: Sequence[int], draws: Draws, *, correct_weights: bool = True
    ) -> "LayerSampler":
        """A copy with another sample size and draw scheme; reuses q, which takes long to make on
        a large graph. Both share their work space: never use them at the same time.
        """
        other = copy.copy(self)
        other.samples, other.draws = tuple(samples), draws
        other.correct_weights = correct_weights
        other._check_draws()
        other._set_sources()
        return other

    def _check_draws(self) -> None:
        if not self.correct_weights and self.draws not in ("independent", "successive"):
            raise InputError(
                "correct_weights=False, the authors' factor, is for independent and successive "
                f"draws, got draws={self.draws!r}"
            )
        for t in self.samples:
            if t < 1:
                raise InputError(f"samples must be at least 1, got {t}")
            if self.draws == "successive" and not self.from_rows and t > self.adjacency.n:
                raise InputError(
                    f"samples must be at most the {self.adjacency.n} nodes of the graph when drawn "
                    f"without replacement, got {t}"
                )

    def _set_sources(self) -> None:
        if self.distribution == "ladies":
            self._sources = self._ladies()
            return
        norms = np.sqrt(self._sums[1])
        self._q = [
            fixed_q(self.distribution, norms, self.power, np.asarray(row_norms, np.float64))
            for row_norms in self._row_norms
        ]
        self._sources = [self._source(q, t) for q, t in zip(self._q, self.samples, strict=True)]

    def _source(self, q: FloatArray, t: int) -> Source:
        matrix, correct = self._matrix, self.correct_weights
        points = POINTS.get(self.draws)
        if self.from_rows:
            if points is None:
                return ReachedVertices(matrix, q, self.draws, t, correct)
            return ByPoints(matrix, sample_by_reach, (q, correct), t, points)
        if points is None:
            return AllVertices(matrix, make_drawing(self.draws, q, t, correct_weights=correct))
        law = Law.of(q)
        whole = law.q, law.cumulative, law.guide
        return ByPoints(matrix, sample_by_vertices, (whole, correct), t, points)

    def _ladies(self) -> list[Source]:
        points = POINTS.get(self.draws)
        if points is None:
            return [
                ReachedVertices(self._matrix, None, self.draws, t, self.correct_weights)
                for t in self.samples
            ]
        law = self._sums[0], self._matrix.power
        return [
            ByPoints(self._matrix, sample_by_entries, law, t, points, ascending=True)
            for t in self.samples
        ]

    def set_row_norms(self, row_norms: Sequence[FloatArray]) -> None:
        """Set |x(u)| of every vertex (n,), one array per sampled layer, for `optimal`."""
        lengths = [len(norms) for norms in row_norms]
        if lengths != [self.adjacency.n] * len(self.samples):
            raise InputError(
                f"row_norms must be {len(self.samples)} arrays, one for each sampled layer, of "
                f"{self.adjacency.n} numbers, one per node, got arrays of {lengths}"
            )
        if self.distribution == "optimal":
            self._row_norms = list(row_norms)
            self._set_sources()

    def wants_rows(self, epoch: int) -> bool:  # noqa: ARG002
        """True if q depends on the network; it is then recomputed before every epoch."""
        return self.distribution == "optimal"

    def observe(self, rows: Sequence[LayerRows]) -> None:
        """Draw by the rows of the current network, one `LayerRows` per sampled layer."""
        self.set_row_norms([each.norms() for each in rows])

    def probabilities(self, layer: int = 0, rows: IntArray | None = None) -> FloatArray:
        """(n,) float64: q of a sampled layer, from the input up; sums to one.

        With `rows`, the q of a block of these rows: the same, or for `ladies` and
        `neighbors_only` one that is zero where the rows have no entry.
        """
        if self.distribution == "ladies" and rows is None:
            raise InputError("q of distribution='ladies' depends on the rows above: give rows")
        if rows is None or not self.from_rows:
            return self._q[layer]
        reached = self._matrix.reach(rows)
        ladies = self.distribution == "ladies"
        law = reached.sums if ladies else self._q[layer][reached.columns]
        q = np.zeros(self.adjacency.n)
        q[reached.columns] = law / law.sum() if law.any() else law
        return q

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        """The blocks of `batch`, from the input layer up."""
        self._check_batch(batch)
        blocks: list[Block] = []
        dst = batch
        for source in reversed(self._sources):
            blocks += source.blocks([dst], rng)
            dst = blocks[-1].src
        return blocks[::-1]

    @property
    def draws_together(self) -> bool:
        """True if `sample_many` takes less time than calling `sample` for each batch."""
        return len(self.samples) == 1 and isinstance(self._sources[0], ByPoints)

    def sample_many(self, batches: Sequence[Tensor], rng: Rng) -> list[list[Block]]:
        """The blocks that `sample` would return for each batch in turn."""
        if not self.draws_together:
            return [self.sample(batch, rng) for batch in batches]
        return [[block] for group in self.sample_groups(batches, rng) for block in group.blocks()]

    def sample_groups(self, batches: Sequence[Tensor], rng: Rng) -> Iterator[BlockGroup]:
        """The same, in groups of consecutive batches of equal size; only if `draws_together`."""
        (source,) = self._sources
        assert isinstance(source, ByPoints)
        for batch in batches:
            self._check_batch(batch)
        for _, alike in groupby(batches, len):
            yield source.group(list(alike), rng)

    def _check_batch(self, batch: Tensor) -> None:
        if self.own_rows and has_repeats(batch.numpy(), self._matrix.place):
            raise InputError(
                "batch must name each node once where src begins with it (own_rows, or "
                "self_term='exact'), got a node twice"
            )


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(
            f"{name} must be one of {', '.join(choices)}, got {value!r}"
            + nearest(str(value), choices)
        )
