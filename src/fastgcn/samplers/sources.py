"""Where the vertices of a layer are drawn from: all of them, or what the rows above reach.

Each source makes blocks that estimate rows of Â: E[adj] = the rows themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fastgcn.adjacency import Adjacency, Rows
from fastgcn.config import Draws
from fastgcn.kernels.blocks import number_columns
from fastgcn.kernels.ladies import sums_of_powers
from fastgcn.kernels.picks import pick_entries, pick_reached, reach
from fastgcn.kernels.together import Blocks, room
from fastgcn.samplers.block import Block
from fastgcn.samplers.draws import Drawing, Rng, make_drawing
from fastgcn.samplers.group import BlockGroup
from fastgcn.types import FloatArray, IntArray


class Reached(NamedTuple):
    """What some rows of Â reach.

    Attributes:
        columns: (m,) distinct, as they are met.
        sums: (m,) Σ_v |Â(v,u)|^power over the rows.
        places: (entries,) of each entry of the rows, where its column is among these; -1 for
            what is not sampled.
    """

    columns: IntArray
    sums: FloatArray
    places: IntArray


@dataclass(frozen=True, slots=True)
class Sampled:
    """The part of Â that is sampled: all of it or, with `exact_self`, all but the diagonal.

    With `own_rows`, `src` of a block begins with its `dst`. Where laws are made of entries, these
    count as |Â(v,u)|^power; 2 gives the squared norms of rows and columns. `place` (n,) int32 is
    work space, filled with -1.
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
        """Rows of `dst`, columns as numbered in Â, as a block."""
        lead = dst.numpy() if self.own_rows else dst.numpy()[:0]
        src, columns = number_columns(lead, rows.indices, self.place)
        return Block.of_csr(dst, torch.from_numpy(src), (rows.indptr, columns, rows.values))

    def sums(self) -> tuple[FloatArray, FloatArray]:
        """(n,) Σ_u |Â(v,u)|^power of each row, (n,) Σ_v of each column, of what is sampled."""
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
    """One q over all n vertices, whatever the rows."""

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
    """The columns that the rows reach, by q (n,) renormalised, or by their sums if None."""

    matrix: Sampled
    q: FloatArray | None
    draws: Draws
    t: int
    correct_weights: bool

    def law(self, reached: Reached) -> FloatArray:
        """(m,): q of the columns reached; by their sums, it adds up to one over them."""
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
        kernel: one of those in `kernels/together.py`.
        law: its arguments before the points.
        points: takes t points for each of some batches.
        ascending: whether the kernel wants them in order.
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
