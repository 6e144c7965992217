"""Joint draws: all ranks use the same random points, and each finds those that fall on its nodes.

The points come from a generator that is in the same state on all ranks, so the draws are those
of one process, for any number of ranks.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.ranks.collectives import Communicator
from fastgcn.kernels.blocks import number_columns, pick_entries
from fastgcn.kernels.draws import entries_at, sums_of_columns

Csr = tuple[IntArray, IntArray, FloatArray]


@dataclass(frozen=True, slots=True)
class RankNumbering:
    """Two numberings of the nodes of the training graph.

    A node's number counts rank after rank and is the same everywhere. Its local number counts
    from this rank's first node and wraps around at the end, so this rank's nodes are 0, 1, ...

    Attributes:
        bounds: (K+1,) where each rank's numbers begin and end.
        rank: the number of this rank.
        place: (n,) int32, work space filled with -1.
    """

    bounds: IntArray
    rank: int
    place: IntArray

    @property
    def n(self) -> int:
        return int(self.bounds[-1])

    @property
    def first(self) -> int:
        return int(self.bounds[self.rank])

    def local(self, numbers: IntArray) -> IntArray:
        """The local numbers of some nodes."""
        return (numbers - self.first) % self.n

    def own(self, numbers: IntArray) -> IntArray:
        """The local numbers of this rank's nodes among some, in their order."""
        mine = (numbers >= self.first) & (numbers < self.bounds[self.rank + 1])
        own: IntArray = numbers[mine] - self.first
        return own

    def owners(self, numbers: IntArray) -> IntArray:
        """The rank of each node."""
        return np.searchsorted(self.bounds, numbers, side="right") - 1

    def counts(self, ascending: IntArray) -> list[int]:
        """How many of some nodes each rank has."""
        found: list[int] = np.diff(np.searchsorted(ascending, self.bounds)).tolist()
        return found


class SampledMatrix(NamedTuple):
    """This rank's rows of the sampled part of Â, by local numbers; `diagonal` is (s,) float32 if
    that term is exact and not sampled."""

    csr: Csr
    diagonal: FloatArray | None

    def pick(self, rows: IntArray, drawn: IntArray, weights: FloatArray, place: IntArray) -> Csr:
        """Entries of this rank's `rows` in the columns `drawn`, times these columns' weights, as
        CSR arrays whose columns are positions in `drawn`."""
        indptr, columns, values = pick_entries(*self.csr, rows, drawn, weights, False, place)
        _, places = number_columns(drawn, columns, place)
        return indptr, places, values

    def count_empty(self, indptr: IntArray, rows: IntArray) -> int:
        """How many of this rank's `rows` have no entry, neither picked nor on the diagonal."""
        without = np.diff(indptr) == 0
        if self.diagonal is not None:
            without &= self.diagonal[rows] == 0
        return int(np.count_nonzero(without))


class DrawnLayer(NamedTuple):
    """The vertices drawn for a layer, and this rank's rows over them.

    Attributes:
        drawn: (D,) numbers, ascending, of the drawn vertices that have an edge to some row.
        csr: this rank's rows over these vertices.
        entries, empty: the entries, and the rows without any, of all ranks.
    """

    drawn: IntArray
    csr: Csr
    entries: int
    empty: int


class RankDistribution(Protocol):
    """Where the vertices of a layer are drawn from, over all ranks."""

    def draw(self, above: IntArray, points: FloatArray) -> DrawnLayer:
        """For the rows `above` (s,), by number, of all ranks; `points` (t,) lie in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class FixedDistribution:
    """One q over all vertices. Each rank has the q of its own vertices and their part of [0, 1).

    Attributes:
        cumulative: (s,) running sums of q over this rank's vertices, from its first one on.
        ends: (K,) running sums of q at the end of each rank's vertices.
    """

    numbers: RankNumbering
    matrix: SampledMatrix
    q: FloatArray
    cumulative: FloatArray
    ends: FloatArray
    comm: Communicator

    @classmethod
    def of(
        cls,
        numbers: RankNumbering,
        matrix: SampledMatrix,
        weights: FloatArray,
        comm: Communicator,
    ) -> "FixedDistribution":
        """q ∝ weights, of which each rank passes those of its own vertices (s,)."""
        total = torch.tensor([float(weights.sum())], dtype=torch.float64)
        totals = comm.all_gather(total, [1] * comm.size, "the mass of q").numpy()
        q = weights / totals.sum() if totals.sum() > 0 else weights
        own = torch.tensor([float(q.sum())], dtype=torch.float64)
        ends = np.cumsum(comm.all_gather(own, [1] * comm.size, "the mass of q").numpy())
        return cls(numbers, matrix, q, np.cumsum(q), ends, comm)

    def draw(self, above: IntArray, points: FloatArray) -> DrawnLayer:
        drawn, weights = self._vertices(points)
        rows, local = self.numbers.own(above), self.numbers.local(drawn)
        csr = self.matrix.pick(rows, local, weights, self.numbers.place)
        return self._met(drawn, csr, self.matrix.count_empty(csr[0], rows), len(points))

    def _vertices(self, points: FloatArray) -> tuple[IntArray, FloatArray]:
        """Distinct numbers, ascending, and their weights count/(t·q)."""
        total = self.ends[-1]
        if total == 0:
            return np.empty(0, np.int64), np.empty(0)
        x = np.sort(points) * total  # finding sorted points takes a third of the time
        owner = np.minimum(np.searchsorted(self.ends, x, side="right"), _last(self.ends))
        counts = np.bincount(owner, minlength=self.comm.size).tolist()
        rank = self.numbers.rank
        before = self.ends[rank - 1] if rank else 0.0
        places = np.searchsorted(self.cumulative, x[owner == rank] - before, side="right")
        if len(places):
            places = np.minimum(places, _last(self.cumulative))
        # Numbers are exact in float64, up to 2**53.
        mine = np.stack([places + self.numbers.first, self.q[places]], axis=1)
        everyone = self.comm.all_gather(torch.from_numpy(mine), counts, "drawn vertices").numpy()
        drawn, at, times = np.unique(
            everyone[:, 0].astype(np.int64), return_index=True, return_counts=True
        )
        return drawn, times * (total / len(points)) / everyone[at, 1]

    def _met(self, drawn: IntArray, csr: Csr, empty: int, t: int) -> DrawnLayer:
        """Leave out vertices without an edge to any row of any rank: nobody needs their rows."""
        indptr, columns, values = csr
        flags = np.zeros(t, np.bool_)
        flags[columns] = True
        counts = np.array([len(columns), empty])
        mine = np.concatenate([counts.view(np.uint8), np.packbits(flags)])
        size = self.comm.size
        gathered = self.comm.all_gather(torch.from_numpy(mine), [len(mine)] * size, "what was met")
        everyone = gathered.numpy().reshape(size, -1)
        entries, empties = np.ascontiguousarray(everyone[:, :16]).view(np.int64).sum(axis=0)
        met = np.bitwise_or.reduce(everyone[:, 16:], axis=0)
        kept = np.unpackbits(met, count=len(drawn)).astype(np.bool_)
        renumbered = np.cumsum(kept) - 1
        csr = indptr, renumbered[columns], values
        return DrawnLayer(drawn[kept], csr, int(entries), int(empties))


@dataclass(frozen=True, slots=True)
class LadiesDistribution:
    """LADIES: q(u) ∝ Σ_v |Â(v,u)|^power over the rows v of the layer above.

    The entries of these rows are laid end to end, in the order of the rows, each as long as its
    |Â(v,u)|^power; a point draws the column of the entry that it falls on.

    Attributes:
        lengths: (s,) Σ_u |Â(v,u)|^power of own rows.
    """

    numbers: RankNumbering
    matrix: SampledMatrix
    lengths: FloatArray
    power: float
    comm: Communicator

    @classmethod
    def of(
        cls, numbers: RankNumbering, matrix: SampledMatrix, power: float, comm: Communicator
    ) -> "LadiesDistribution":
        indptr, _, values = matrix.csr
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        lengths = sums_of_columns(rows, values, power, len(indptr) - 1)
        return cls(numbers, matrix, lengths, power, comm)

    def draw(self, above: IntArray, points: FloatArray) -> DrawnLayer:
        rows = self.numbers.own(above)
        ends = np.cumsum(self._all_lengths(above, rows))
        total = ends[-1] if len(ends) else 0.0
        drawn: IntArray = np.empty(0, np.int64)
        times: IntArray = np.empty(0, np.int64)
        if total > 0:
            drawn, times = self._vertices(above, rows, ends, np.sort(points) * total)
        local = self.numbers.local(drawn)
        ones, place = np.ones(len(drawn)), self.numbers.place
        indptr, columns, values = self.matrix.pick(rows, local, ones, place)
        counts = np.array([len(columns), self.matrix.count_empty(indptr, rows)])
        sums = np.append(sums_of_columns(columns, values, self.power, len(drawn)), counts)
        sums = self.comm.all_reduce(torch.from_numpy(sums), "sums of columns").numpy()
        factors = times * (total / len(points)) / sums[:-2]
        values = (values * factors[columns]).astype(np.float32)
        return DrawnLayer(drawn, (indptr, columns, values), int(sums[-2]), int(sums[-1]))

    def _all_lengths(self, above: IntArray, rows: IntArray) -> FloatArray:
        """(s,) of all rows, in their order."""
        owners = self.numbers.owners(above)
        counts = np.bincount(owners, minlength=self.comm.size).tolist()
        mine = torch.from_numpy(self.lengths[rows])
        lengths = np.empty(len(above))
        lengths[np.argsort(owners, kind="stable")] = self.comm.all_gather(
            mine, counts, "lengths of rows"
        ).numpy()
        return lengths

    def _vertices(
        self, above: IntArray, rows: IntArray, ends: FloatArray, x: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Distinct columns, ascending, and how many of the ascending points x fall on each."""
        at = np.minimum(np.searchsorted(ends, x, side="right"), _last(ends))
        owners = self.numbers.owners(above)
        mine = owners[at] == self.numbers.rank
        counts = np.bincount(owners[at], minlength=self.comm.size).tolist()
        which = (np.cumsum(owners == self.numbers.rank) - 1)[at[mine]]
        begins = np.append(0.0, ends[:-1])[at[mine]]
        lengths = self.lengths[rows]
        within = (x[mine] - begins) / lengths[which]
        columns = entries_at(*self.matrix.csr, rows, lengths, self.power, which, within)
        columns = (columns + self.numbers.first) % self.numbers.n
        drawn = self.comm.all_gather(torch.from_numpy(columns), counts, "drawn vertices").numpy()
        return np.unique(drawn, return_counts=True)


def _last(running: FloatArray) -> int:
    """The last position at which running sums grow: rounding must not draw beyond it."""
    return int(np.searchsorted(running, running[-1], side="left"))
