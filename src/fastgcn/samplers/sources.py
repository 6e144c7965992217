"""Where the vertices of a layer are drawn from: all of them, or what the rows above reach.

Each source estimates rows of Â from a draw: E[estimate] = the rows themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fastgcn.adjacency import Adjacency, Rows
from fastgcn.config import Draws
from fastgcn.kernels.ladies import draw_entries, sums_of_squares, weigh_by_squares
from fastgcn.kernels.picks import pick_entries, pick_reached, reach
from fastgcn.samplers.draws import Drawing, Rng, make_drawing
from fastgcn.types import FloatArray, IntArray


class Reached(NamedTuple):
    """What some rows of Â reach.

    Attributes:
        columns: (m,) distinct, as they are met.
        squares: (m,) the squared norms of Â(rows,:) there.
        places: (entries,) of each entry of the rows, where its column is among these; -1 for
            what is not sampled.
    """

    columns: IntArray
    squares: FloatArray
    places: IntArray


@dataclass(frozen=True, slots=True)
class Sampled:
    """The part of Â that is sampled: all of it or, with `exact_self`, all but the diagonal.

    `place` (n,) int32 is work space, filled with -1.
    """

    adjacency: Adjacency
    exact_self: bool
    place: IntArray

    @property
    def parts(self) -> tuple[IntArray, IntArray, FloatArray]:
        matrix = self.adjacency
        return matrix.indptr, matrix.indices, matrix.values

    def reach(self, rows: IntArray) -> Reached:
        return Reached(*reach(*self.parts, rows, self.exact_self, self.place))

    def pick(self, rows: IntArray, drawn: IntArray, weights: FloatArray) -> Rows:
        """The rows with the columns `drawn` alone, times their weights; the rest exact."""
        return Rows(*pick_entries(*self.parts, rows, drawn, weights, self.exact_self, self.place))

    def squares(self) -> tuple[FloatArray, FloatArray]:
        """(n,) ‖Â(v,:)‖² of each row and (n,) ‖Â(:,u)‖² of each column, of what is sampled."""
        sums: tuple[FloatArray, FloatArray] = sums_of_squares(*self.parts, self.exact_self)
        return sums


class Source(Protocol):
    def estimate(self, rows: IntArray, rng: Rng) -> Rows:
        """The rows of Â, estimated: some columns, as numbered in Â, scaled."""
        ...


@dataclass(frozen=True, slots=True)
class AllVertices:
    """One q over all n vertices, whatever the rows."""

    matrix: Sampled
    drawing: Drawing

    def estimate(self, rows: IntArray, rng: Rng) -> Rows:
        return self.matrix.pick(rows, *self.drawing.draw(rng, self.matrix.place))


@dataclass(frozen=True, slots=True)
class ReachedVertices:
    """The columns that the rows reach, by q (n,) renormalised, or by their squares if None."""

    matrix: Sampled
    q: FloatArray | None
    draws: Draws
    t: int
    correct_weights: bool

    def law(self, reached: Reached) -> FloatArray:
        """(m,): q of the columns reached; by squares it sums to one over them."""
        if self.q is not None:
            return self.q[reached.columns]
        squares = reached.squares
        return squares / squares.sum() if squares.any() else squares

    def estimate(self, rows: IntArray, rng: Rng) -> Rows:
        reached, matrix = self.matrix.reach(rows), self.matrix.adjacency
        drawing = make_drawing(
            self.draws, self.law(reached), self.t, correct_weights=self.correct_weights, once=True
        )
        drawn, weights = drawing.draw(rng, self.matrix.place)
        places, exact = (reached.columns, reached.places), self.matrix.exact_self
        return Rows(
            *pick_reached(matrix.indptr, matrix.values, rows, places, drawn, weights, exact)
        )


@dataclass(frozen=True, slots=True)
class Entries:
    """q(u) ∝ Σ_{v in rows} Â(v,u)² by t points that fall on entries in proportion to squares.

    The points run along the entries, row after row; a column has a stretch in each row.

    Attributes:
        lengths: (n,) the sum of squares of each row.
    """

    matrix: Sampled
    lengths: FloatArray
    points: Callable[[int, Rng], FloatArray]
    t: int

    def estimate(self, rows: IntArray, rng: Rng) -> Rows:
        matrix, lengths = self.matrix, self.lengths[rows]
        points = np.sort(self.points(self.t, rng))
        drawn, counts = draw_entries(
            *matrix.parts, rows, lengths, points, matrix.exact_self, matrix.place
        )
        picked = matrix.pick(rows, drawn, np.ones(len(drawn)))
        parts, factor = (picked.indptr, picked.indices, picked.values), lengths.sum() / self.t
        weigh_by_squares(parts, rows, drawn, counts, factor, matrix.exact_self, matrix.place)
        return picked
