"""Rows of Â made when they are asked for, without normalising the whole graph.

Prediction for a few nodes then costs what their neighbourhood costs, and a graph can be
enlarged by new nodes without being rebuilt.
"""

from dataclasses import dataclass

import numpy as np

from fastgcn.adjacency import Rows, offsets, row_entries
from fastgcn.csr import CSR
from fastgcn.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Joined:
    """New nodes n..n+k-1 joined to a graph of n nodes.

    `touched` (r,) ascending are the nodes, old and new, that gain edges; row i of `gained`
    lists what `touched[i]` gains.
    """

    k: int
    touched: IntArray
    gained: CSR


class GraphRows:
    """Rows of Â = normalize(graph), or of the graph enlarged by `joined`.

    The rows equal those of `fastgcn.normalize` but for the order of their entries.
    """

    def __init__(self, csr: CSR, normalization: str, joined: Joined | None = None) -> None:
        self.csr, self.normalization, self.joined = csr, normalization, joined
        self._old = len(csr.indptr) - 1
        self._loop = 0 if normalization == "neighbors" else 1
        self._all_sums: FloatArray | None = None

    @property
    def n(self) -> int:
        return self._old + (self.joined.k if self.joined else 0)

    def rows(self, nodes: IntArray) -> Rows:
        """The rows of `nodes`, with their own loop where the normalisation has one."""
        counts, columns, weights = self._neighbors(nodes)
        if self._loop:
            ends = np.cumsum(counts)  # every row gets its loop, of weight one, as its last entry
            columns = np.insert(columns, ends, nodes)
            weights = np.insert(weights, ends, 1)
            counts = counts + 1
        own = np.repeat(self._row_sums(nodes), counts)
        if self.normalization == "symmetric":
            values = weights / np.sqrt(own * self._row_sums(columns))
        else:
            values = weights / own
        return Rows(offsets(counts), columns, values.astype(np.float32))

    def _neighbors(self, nodes: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Counts (s,), columns (m,) and weights (m,) of the rows of A, enlarged if joined."""
        if self.joined is None:
            return _read(self.csr, nodes)
        old = np.flatnonzero(nodes < self._old)
        places, gains = self._gains(nodes)
        counts_old, columns_old, weights_old = _read(self.csr, nodes[old])
        counts_new, columns_new, weights_new = _read(self.joined.gained, gains)
        row = np.concatenate([np.repeat(old, counts_old), np.repeat(places, counts_new)])
        order = np.argsort(row, kind="stable")
        return (
            np.bincount(row, minlength=len(nodes)),
            np.concatenate([columns_old, columns_new])[order],
            np.concatenate([weights_old, weights_new])[order],
        )

    def _row_sums(self, nodes: IntArray) -> FloatArray:
        """(s,) float64: the row sums of A + I (of A without loops), enlarged if joined."""
        if self.joined is None and 8 * len(nodes) > self._old and self._all_sums is None:
            # So many are asked for that all of them are cheaper than finding out which.
            self._all_sums = self._loop + _sums(self.csr, np.arange(self._old))
        if self._all_sums is not None:
            return self._all_sums[nodes]
        distinct, inverse = np.unique(nodes, return_inverse=True)
        sums = np.full(len(distinct), float(self._loop))
        old = distinct < self._old
        sums[old] += _sums(self.csr, distinct[old])
        if self.joined is not None:
            places, gains = self._gains(distinct)
            sums[places] += _sums(self.joined.gained, gains)
        return sums[inverse]

    def _gains(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Which of `nodes` gain edges, and the rows of `gained` that say which."""
        assert self.joined is not None
        touched = self.joined.touched
        row = np.searchsorted(touched, nodes)
        hit = np.flatnonzero((row < len(touched)) & (touched[row % max(len(touched), 1)] == nodes))
        return hit, row[hit]


def _read(csr: CSR, nodes: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    entries, counts = row_entries(csr.indptr, nodes)
    columns = csr.indices[entries].astype(np.int64, copy=False)
    weights = np.ones(len(entries)) if csr.weights is None else csr.weights[entries]
    return counts, columns, weights.astype(np.float64, copy=False)


def _sums(csr: CSR, nodes: IntArray) -> FloatArray:
    if csr.weights is None:
        return (csr.indptr[nodes + 1] - csr.indptr[nodes]).astype(np.float64)
    counts, _, weights = _read(csr, nodes)
    rows = np.repeat(np.arange(len(nodes)), counts)
    return np.bincount(rows, weights=weights, minlength=len(nodes)).astype(np.float64)
