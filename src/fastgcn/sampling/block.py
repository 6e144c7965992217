"""`Block`, one convolution as a small matrix, and `Sampler`, the interface of all samplers."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self, cast

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.features.sparse import InputRows
from fastgcn.kernels.blocks import Blocks
from fastgcn.kernels.products import Transpose, mixing_first_pays, sparse_times_dense
from fastgcn.sampling.draws import Rng

# On a GPU, a block of up to this many entries is a dense matrix: its product is then one small
# GEMM, and the zeros cost less than a sparse product's bookkeeping. 2^22 floats are 16 MB.
_DENSE_ENTRIES = 1 << 22


@dataclass(frozen=True, slots=True)
class Block:
    """H_dst ≈ adj @ H_src (eq. 10).

    Attributes:
        dst: (s,) int64, node ids of layer l+1.
        src: (k,) int64, distinct node ids of layer l: first `dst` itself if the network reads a
            node's own row, then the drawn vertices with an edge to some row of `dst`. Other
            drawn vertices would be multiplied by zero and are left out.
        adj: (s, k) float32, sparse CSR or dense: count(u)·Â(v,u) / (t·q(u)) if vertices are
            drawn, Â(v,u) if all neighbours are used.
    """

    dst: Tensor
    src: Tensor
    adj: Tensor
    # Row offsets, columns and values of a sparse `adj` on the CPU, looked up once; else None.
    csr: tuple[IntArray, IntArray, FloatArray] | None = field(init=False, repr=False, compare=False)
    _transpose: Transpose = field(init=False, repr=False, compare=False)
    _edges: tuple[Tensor, Tensor] = field(init=False, repr=False, compare=False)

    @classmethod
    def of_csr(cls, dst: Tensor, src: Tensor, csr: tuple[IntArray, IntArray, FloatArray]) -> Self:
        """A block from the arrays of `adj`, whose tensor is made on first use."""
        block = object.__new__(cls)
        for name, value in (("dst", dst), ("src", src), ("csr", csr), ("_transpose", Transpose())):
            object.__setattr__(block, name, value)
        return block

    def __getattr__(self, name: str) -> Any:
        # Called for attributes without a value: `adj` of a block made by `of_csr`, and `_edges`.
        found: Any
        if name == "_edges":
            found = self._edges_of_adj()
        elif name == "adj" and self.csr is not None:
            found = sparse_matrix(*self.csr, len(self.src))
        else:
            raise AttributeError(name)
        object.__setattr__(self, name, found)
        return found

    def __post_init__(self) -> None:
        adj, parts = self.adj, None
        if adj.layout == torch.sparse_csr and adj.device.type == "cpu":
            parts = adj.crow_indices().numpy(), adj.col_indices().numpy(), adj.values().numpy()
        object.__setattr__(self, "csr", parts)
        object.__setattr__(self, "_transpose", Transpose())

    def to(self, device: torch.device | str) -> "Block":
        """The block on a device; on a GPU, a small block is dense."""
        device = torch.device(device)
        if device.type == "cpu":
            return self
        dense = self.adj.to_dense() if self.adj.numel() <= _DENSE_ENTRIES else self.adj
        return Block(self.dst.to(device), self.src.to(device), dense.to(device))

    def mix(self, h: Tensor) -> Tensor:
        """(s, d): adj @ h for rows h (k, d) of `src`; on the CPU by our own sparse product."""
        if self.csr is None:
            return self.adj @ h
        if torch.is_grad_enabled() and h.requires_grad:
            return cast(Tensor, _BlockMix.apply(h, self))  # type: ignore[no-untyped-call]
        return torch.from_numpy(self.mixed(_rows(h)))

    def mixed(self, h: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """`mix` on plain arrays, for a sparse block on the CPU; in `out` if it is given."""
        assert self.csr is not None
        return sparse_times_dense(*self.csr, h, out)

    def turn(self) -> None:
        """Make the transpose ahead of `unmix`, on the thread that calls this."""
        if self.csr is not None:
            self._transpose.find(*self.csr[:2], len(self.src))

    def unmix(self, gradient: Tensor) -> Tensor:
        """(k, d): adjᵀ @ gradient, the derivative of `mix`, for a sparse block on the CPU."""
        return torch.from_numpy(self.unmixed(_rows(gradient)))

    def unmixed(self, gradient: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """(k, d): adjᵀ @ gradient, the derivative of `mixed` for a gradient (s, d); in `out` if it
        is given."""
        assert self.csr is not None
        return self._transpose.times(*self.csr, gradient, len(self.src), out)

    def own_rows(self, h: Tensor) -> Tensor:
        """(s, d): the rows of `dst` among rows h (k, d) of `src`, which begins with them."""
        return h[: len(self.dst)]

    @property
    def edge_index(self) -> Tensor:
        """(2, e) int64: the positions in `src` and in `dst` of each entry, as PyG has them."""
        return self._edges[0]

    @property
    def edge_weight(self) -> Tensor:
        """(e,) float32: the entry of `adj` of each edge."""
        return self._edges[1]

    @property
    def size(self) -> tuple[int, int]:
        """(k, s): the rows of `src` and of `dst`, as PyG's bipartite layers want them."""
        return self.src.numel(), self.dst.numel()

    def _edges_of_adj(self) -> tuple[Tensor, Tensor]:
        """The entries of `adj` one by one, row after row."""
        if self.csr is None:
            entries = self.adj.to_sparse(layout=torch.sparse_coo).coalesce()
            return entries.indices().flip(0), entries.values()
        offsets, columns, values = (torch.from_numpy(part) for part in self.csr)
        return torch.stack([columns.long(), torch.repeat_interleave(offsets.diff())]), values

    @property
    def mix_first_only(self) -> bool:
        """True if `mix` must be given H itself and not HW."""
        return False

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        """True if (adj H)W takes fewer multiplications than adj(HW), for W (n_in, n_out)."""
        # `len` of a tensor takes microseconds.
        rows, sources = self.dst.numel(), self.src.numel()
        return bool(mixing_first_pays(self.entries, rows, sources, n_in, n_out))

    @property
    def entries(self) -> int:
        """Multiplications for each column of a product with `adj`."""
        if self.csr is not None:
            return len(self.csr[1])
        sparse = self.adj.layout == torch.sparse_csr
        return self.adj.values().numel() if sparse else self.adj.numel()

    @property
    def empty_rows(self) -> int:
        """Rows of `dst` without an entry: their convolution is estimated as zero."""
        if self.adj.layout == torch.sparse_csr:
            return int((self.adj.crow_indices().diff() == 0).sum())
        return int((self.adj == 0).all(dim=1).sum())


class _BlockMix(torch.autograd.Function):
    """`Block.mix` with its gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, block: Block) -> Tensor:
        ctx.block = block
        return block.mix(h.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.from_numpy(ctx.block.unmixed(_rows(gradients[0]))), None


def _rows(h: Tensor) -> FloatArray:
    return cast(FloatArray, h.detach().contiguous().numpy())


class LayerRows(NamedTuple):
    """The rows and weights of a sampled layer under the current network, for all n nodes.

    Attributes:
        hidden: (n, d) H, the input rows of the layer.
        weight: (d, d') W, the layer's weights.
    """

    hidden: Tensor
    weight: Tensor

    def norms(self) -> FloatArray:
        """(n,): |x(u)| = ‖H(u)W‖ (Thm 3)."""
        norms: FloatArray = (self.hidden @ self.weight).norm(dim=1).cpu().numpy()
        return norms


class Sampler(Protocol):
    """Makes the blocks of a batch, from the input layer up; `blocks[-1].dst` is the batch.

    A sampler may have further methods, which training calls if they exist:

    * `observe(rows)`: called before an epoch with the current network. `rows` has one
      `LayerRows` for each sampled layer, from the input up.
    * `wants_rows(epoch)`: False if `observe` need not be called before this epoch, counted
      from 0; without this method, `observe` is called before every epoch.
    * `state()` and `restore(state)`: the tensors, by name, that a resumed run needs.
    """

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]: ...


def show_network(sampler: Sampler, epoch: int, rows: Callable[[], Sequence[LayerRows]]) -> None:
    """Call a sampler's `observe` before an epoch, counted from 0, if it wants the rows.

    `rows` is called only then, because it takes a pass over the whole graph.
    """
    observe = getattr(sampler, "observe", None)
    wants: Callable[[int], bool] = getattr(sampler, "wants_rows", lambda _: True)
    if observe is not None and wants(epoch):
        observe(rows())


def sampler_state(sampler: Sampler) -> dict[str, Tensor]:
    """The tensors that a sampler keeps from epoch to epoch; none for most samplers."""
    state: Callable[[], dict[str, Tensor]] = getattr(sampler, "state", dict)
    return state()


def restore_sampler(sampler: Sampler, state: Mapping[str, Tensor]) -> None:
    """Restore the `sampler_state` of a sampler, if it has any."""
    restore = getattr(sampler, "restore", None)
    if restore is not None and state:
        restore(state)


def sparse_matrix(
    indptr: IntArray, columns: IntArray, values: FloatArray, n_columns: int
) -> Tensor:
    """An (s, n_columns) sparse CSR tensor over the arrays given."""
    _silence_csr_warnings()
    return _csr_tensor(indptr, columns, values, n_columns)


def _csr_tensor(indptr: IntArray, columns: IntArray, values: FloatArray, n_columns: int) -> Tensor:
    return torch.sparse_csr_tensor(
        torch.from_numpy(np.ascontiguousarray(indptr, dtype=np.int64)),
        torch.from_numpy(np.ascontiguousarray(columns, dtype=np.int64)),
        torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)),
        size=(len(indptr) - 1, n_columns),
        check_invariants=False,  # rows and columns come from a checked graph
    )


@cache
def _silence_csr_warnings() -> None:
    """Make torch give its warnings about CSR tensors (a beta feature, unchecked invariants) once,
    and ignore them; tests cover the products used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        _csr_tensor(np.zeros(2, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), 1)


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """One block for each of some batches of equal size.

    Attributes:
        dst: (b, s) int64, the batches.
        arrays: CSR arrays and sources of all blocks, concatenated.
    """

    dst: Tensor
    arrays: Blocks

    def __len__(self) -> int:
        return self.dst.shape[0]

    @property
    def src(self) -> Tensor:
        """The sources of all blocks, concatenated."""
        *_, sources, starts = self.arrays
        return torch.from_numpy(sources[: starts[1, -1]])

    @property
    def empty_rows(self) -> int:
        """Rows of the first batch with no edge to any drawn vertex."""
        return int(np.count_nonzero(np.diff(self.arrays[0][0]) == 0))

    def blocks(self) -> list[Block]:
        """The blocks one by one, as views."""
        offsets, columns, values, sources, starts = self.arrays
        ranges = zip(*(pairwise(part) for part in starts.tolist()), strict=True)
        return [
            Block.of_csr(
                dst, torch.from_numpy(sources[k:m]), (offsets[b], columns[e:f], values[e:f])
            )
            for b, (dst, ((e, f), (k, m))) in enumerate(zip(self.dst, ranges, strict=True))
        ]

    def each(self, x: InputRows, labels: Tensor) -> Iterator[tuple[list[Block], InputRows, Tensor]]:
        """Blocks, rows and labels of each batch; `x` are rows of `src`, `labels` of `dst`."""
        rows = x.split(np.diff(self.arrays[-1][1]).tolist())
        for block, mine, known in zip(
            self.blocks(), rows, torch.split(labels, self.dst.shape[1]), strict=True
        ):
            yield [block], mine, known
