"""`LayerSampler`: vertices drawn layer by layer (Alg. 1 and Alg. 2)."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from fastgcn.adjacency import Adjacency, row_entries
from fastgcn.config import Distribution
from fastgcn.errors import InputError, nearest
from fastgcn.samplers.block import DENSE_ENTRIES, Block, sparse_matrix
from fastgcn.samplers.draws import Rng, raj_weights, with_replacement, without_replacement
from fastgcn.types import FloatArray, IntArray


class LayerSampler:
    """Estimates every convolution from t_l vertices, drawn once for all rows of the layer:

        (ÂH)(v) ≈ Σ_u count(u)·Â(v,u) / (t_l·q(u)) · H(u),   u ~ q       (eq. 10)

    Distributions over all n vertices:

    * `uniform`: q(u) = 1/n (Alg. 1, eq. 5, where 1/(t·q) is the factor n/t);
    * `importance`: q(u) ∝ ‖Â(:,u)‖² (Alg. 2, Prop. 4), the paper's;
    * `flat`: q(u) ∝ ‖Â(:,u)‖, what the authors' program draws from;
    * `optimal`: q(u) ∝ ‖Â(:,u)‖·|x(u)| (Thm 3), with x(u) the row H(u)W of the current model,
      handed over by `set_row_norms`; until then as `flat`.

    Departures from the paper, each a switch:

    * `replacement=False` draws t distinct vertices one after the other; weights are Des Raj's,
      unbiased, and one each where all candidates are drawn;
    * `neighbors_only` draws among the columns that the rows above reach, with q renormalised;
    * `correct_weights=False` divides by t·q(u) with q normalised over all vertices whatever
      was drawn how: the authors' biased factor.
    """

    def __init__(
        self,
        adjacency: Adjacency,
        samples: Sequence[int],
        *,
        distribution: Distribution = "importance",
        replacement: bool = True,
        neighbors_only: bool = False,
        correct_weights: bool = True,
    ) -> None:
        if distribution not in get_args(Distribution):
            choices = get_args(Distribution)
            raise InputError(
                f"distribution must be one of {', '.join(choices)}, got {distribution!r}"
                + nearest(distribution, choices)
            )
        for t in samples:
            if t < 1:
                raise InputError(f"samples must be at least 1, got {t}")
            if not replacement and not neighbors_only and t > adjacency.n:
                raise InputError(
                    f"samples must be at most the {adjacency.n} nodes of the graph when drawn "
                    f"without replacement, got {t}"
                )
        self.adjacency = adjacency
        self.samples = tuple(samples)
        self.distribution = distribution
        self.replacement = replacement
        self.neighbors_only = neighbors_only
        self.correct_weights = correct_weights
        self._norms = adjacency.column_norms()
        self._place = np.full(adjacency.n, -1, dtype=np.int64)
        self._laws = [self._law(np.ones(adjacency.n))] * len(self.samples)

    def probabilities(self, layer: int = 0) -> FloatArray:
        """(n,) float64: q of a sampled layer, from the input up; sums to one."""
        return self._laws[layer][0]

    def set_row_norms(self, row_norms: Sequence[FloatArray]) -> None:
        """|x(u)| for every vertex (n,), one array a sampled layer; `optimal` draws by them."""
        lengths = [len(norms) for norms in row_norms]
        if lengths != [self.adjacency.n] * len(self.samples):
            raise InputError(
                f"row_norms must be {len(self.samples)} arrays, one for each sampled layer, of "
                f"{self.adjacency.n} numbers, one a node, got arrays of {lengths}"
            )
        self._laws = [self._law(norms) for norms in row_norms]

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        """The blocks of `batch`, from the input layer up."""
        blocks: list[Block] = []
        dst = batch
        for t, (q, cumulative) in zip(self.samples[::-1], self._laws[::-1], strict=True):
            rows = dst.cpu().numpy()
            if self.neighbors_only:
                entries, _ = row_entries(self.adjacency.indptr, rows)
                candidates = np.unique(self.adjacency.indices[entries])
                src, weight = self._draw(q[candidates], np.cumsum(q[candidates]), t, rng)
                src = candidates[src]
            else:
                src, weight = self._draw(q, cumulative, t, rng)
            block = self._block(dst, src.astype(np.int64, copy=False), weight)
            blocks.append(block)
            dst = block.src
        return blocks[::-1]

    def _law(self, row_norms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """q and its running sums."""
        if self.distribution == "uniform":
            weight: FloatArray = np.ones(self.adjacency.n)
        elif self.distribution == "importance":
            weight = self._norms**2
        elif self.distribution == "flat":
            weight = self._norms
        else:
            weight = self._norms * np.asarray(row_norms, dtype=np.float64)
            # A vertex whose x is exactly zero adds nothing now, but q must stay positive where
            # Â is, or the estimate would be biased as soon as the model moves on.
            weight = np.maximum(weight, 1e-6 * weight.max() * (self._norms > 0))
            if not weight.any():
                weight = self._norms
        total = weight.sum()
        q = weight / total if total > 0 else weight  # Â without entries: nothing to draw
        return q, np.cumsum(q)

    def _draw(
        self, q: FloatArray, cumulative: FloatArray, t: int, rng: Rng
    ) -> tuple[IntArray, FloatArray]:
        """Positions drawn from q (renormalised if it does not sum to one) and their weights."""
        total = cumulative[-1] if len(cumulative) else 0.0
        if total == 0:  # no row reaches a column: the convolution is zero, exactly
            return np.empty(0, dtype=np.int64), np.empty(0)
        if self.replacement:
            drawn, counts = with_replacement(cumulative, t, rng)
            norm = total if self.correct_weights else 1.0
            return drawn, counts * norm / (t * q[drawn])
        count = min(t, int(np.count_nonzero(q)))
        drawn = without_replacement(q, count, rng)
        if not self.correct_weights:
            return drawn, 1.0 / (t * q[drawn])
        if count == np.count_nonzero(q):
            return drawn, np.ones(count)
        return drawn, raj_weights(q[drawn] / total)

    def _block(self, dst: Tensor, src: IntArray, weight: FloatArray) -> Block:
        """Columns `src` of the rows `dst`, scaled by `weight`."""
        matrix, place = self.adjacency, self._place
        place[src] = np.arange(len(src))
        entries, counts = row_entries(matrix.indptr, dst.cpu().numpy())
        column = place[matrix.indices[entries]]
        place[src] = -1
        met = column >= 0
        column = column[met]
        row = np.repeat(np.arange(len(counts)), counts)[met]
        value = (matrix.values[entries[met]] * weight[column]).astype(np.float32)
        if len(dst) * len(src) <= DENSE_ENTRIES:
            dense = np.zeros((len(dst), len(src)), dtype=np.float32)
            dense[row, column] = value
            adj = torch.from_numpy(dense)
        else:
            indptr = np.zeros(len(dst) + 1, dtype=np.int64)
            np.cumsum(np.bincount(row, minlength=len(dst)), out=indptr[1:])
            adj = sparse_matrix(indptr, column, value, len(src))
        return Block(dst, torch.from_numpy(src), adj)
