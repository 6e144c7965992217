"""`HistorySampler`: samples only the change since the hidden rows were last computed in full."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastgcn.arrays import FloatArray
from fastgcn.errors import InputError
from fastgcn.kernels.products import sparse_times_dense
from fastgcn.sampling.block import Block, LayerRows
from fastgcn.sampling.draws import Rng
from fastgcn.sampling.layer import LayerSampler


@dataclass(frozen=True, slots=True)
class HistoryBlock(Block):
    """H_dst ≈ ÂH̄ + adj @ (H_src − H̄_src): a control variate, exact if H = H̄.

    Attributes:
        kept: (k, d) rows of H̄, those of `src`.
        base: (s, d) rows of ÂH̄, those of `dst`.
    """

    kept: Tensor
    base: Tensor

    def mix(self, h: Tensor) -> Tensor:
        """(s, d): the estimate of ÂH for rows h (k, d) of `src`; it takes H, not HW."""
        return self.base + Block(self.dst, self.src, self.adj).mix(h - self.kept)

    def mixed(self, h: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """`mix` on plain arrays, for a sparse block on the CPU; in `out` if it is given."""
        found = Block.mixed(self, h - self.kept.numpy(), out)
        found += self.base.numpy()
        return found

    def to(self, device: torch.device | str) -> "HistoryBlock":
        there = Block(self.dst, self.src, self.adj).to(device)
        kept, base = self.kept.to(device), self.base.to(device)
        return HistoryBlock(there.dst, there.src, there.adj, kept, base)

    @property
    def mix_first_only(self) -> bool:
        """True: H̄ has the width of H, so it gives (ÂH)W but not Â(HW)."""
        return True

    @property
    def empty_rows(self) -> int:
        """0: a row without a drawn neighbour is still estimated, by its row of ÂH̄."""
        return 0


@dataclass(frozen=True, slots=True)
class _KeptLayer:
    """H̄ (n, d) and ÂH̄ (n, d) of one layer's input."""

    hidden: Tensor
    mixed: Tensor


class HistorySampler:
    """A `LayerSampler` whose blocks estimate (ÂH̄)(v) + Σ_u weight(u)·Â(v,u)·(H(u) − H̄(u)).

    H̄ are the hidden rows of the last `refresh`, and ÂH̄ is exact. The estimate is unbiased for
    any H̄, and its error is that of sampling H − H̄ instead of H.

    Training refreshes them before every `every`-th epoch, by `observe`.

    Its cost: two (n, d) matrices per layer; at a refresh, one full product and the forward pass
    that makes H; in each block, gathering k + s rows. `refreshes`, `multiplications` and
    `seconds` count the work of the products.
    """

    def __init__(self, sampler: LayerSampler, every: int = 1) -> None:
        self.sampler, self.every = sampler, every
        self.refreshes, self.multiplications, self.seconds = 0, 0, 0.0
        self._kept: list[_KeptLayer | None] = [None] * len(sampler.samples)

    @property
    def hidden(self) -> list[Tensor | None]:
        """H̄ of each sampled layer, from the input up, as of the last `refresh`."""
        return [None if kept is None else kept.hidden for kept in self._kept]

    def refresh(self, hidden: Sequence[Tensor | None]) -> None:
        """Keep the input rows H (n, d) of each sampled layer, from the input up, and their ÂH.

        A layer with None is sampled without history, as all are until the first refresh.
        """
        layers, n = len(self.sampler.samples), self.sampler.adjacency.n
        shapes = [None if h is None else tuple(h.shape) for h in hidden]
        if len(hidden) != layers or any(s is not None and (len(s), s[0]) != (2, n) for s in shapes):
            raise InputError(
                f"hidden must be {layers} matrices, one for each sampled layer, of {n} rows, one "
                f"a node, got shapes {shapes}"
            )
        start = time.perf_counter()
        self._kept = [None if h is None else self._keep(h) for h in hidden]
        self.refreshes += 1
        self.seconds += time.perf_counter() - start

    def wants_rows(self, epoch: int) -> bool:
        """True before every `every`-th epoch, counted from 0."""
        return epoch % self.every == 0

    def observe(self, rows: Sequence[LayerRows]) -> None:
        """`refresh` with the rows of the current network, one `LayerRows` per sampled layer."""
        self.refresh([each.hidden for each in rows])

    def state(self) -> dict[str, Tensor]:
        """H̄ of each layer that has one, by the layer's number."""
        hidden = enumerate(self.hidden)
        return {str(layer): h.detach().cpu() for layer, h in hidden if h is not None}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore H̄ from a `state`, and compute ÂH̄."""
        self.refresh([state.get(str(layer)) for layer in range(len(self._kept))])

    def _keep(self, hidden: Tensor) -> _KeptLayer:
        matrix = self.sampler.adjacency
        # A copy, because the caller may change its tensor before the next refresh.
        h = hidden.detach().to("cpu", torch.float32, copy=True).contiguous()
        mixed = sparse_times_dense(matrix.indptr, matrix.indices, matrix.values, h.numpy())
        self.multiplications += len(matrix.values) * h.shape[1]
        return _KeptLayer(h, torch.from_numpy(mixed))

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        """The blocks of `batch`, from the input layer up."""
        return [
            block if kept is None else _with_history(block, kept)
            for block, kept in zip(self.sampler.sample(batch, rng), self._kept, strict=True)
        ]


def _with_history(block: Block, kept: _KeptLayer) -> HistoryBlock:
    rows = kept.hidden.index_select(0, block.src)
    base = kept.mixed.index_select(0, block.dst)
    return HistoryBlock(block.dst, block.src, block.adj, rows, base)
