"""`LayerBatch`, a minibatch as PyG's convolutions take it, and `EdgeBlock`, one of its layers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, overload

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError, nearest
from fastgcn.features.sparse import InputRows, SparseMatrix, dense
from fastgcn.sampling.block import Block

# What an edge weighs, see `EdgeBlock`.
Weights = Literal["unbiased", "self-normalised"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)


@dataclass(frozen=True, slots=True)
class Matrix:
    """What is known about the matrix M that blocks estimate, for the checks of `convolve`.

    Attributes:
        normalization: symmetric, row, neighbors or none; None for a matrix of the user's own.
        loops: True if M has a diagonal.
        exact: True if the blocks hold rows of M themselves, and not a sample.
        weights: what `edge_weight` holds.
    """

    normalization: str | None
    loops: bool
    exact: bool
    weights: Weights = "unbiased"


@dataclass(frozen=True, slots=True)
class EdgeBlock:
    """One layer of a minibatch: `edge_index, edge_weight, size = block`, for a bipartite operator.

    With u drawn count(u) times by q, an edge u → v weighs

    * `unbiased`: w(v,u) = count(u)·M(v,u) / (t·q(u)), so that E Σ_u w(v,u)·h(u) = (Mh)(v);
    * `self-normalised`: w(v,u) / Σ_u w(v,u), so that the weights of a row sum to one.

    Without sampling, w(v,u) = M(v,u) before it is divided. An attention adds log w(v,u) to its
    logits before the softmax; `convolve` does that for PyG's operators.

    Attributes:
        edge_index: (2, E) int64: positions of u among `src` and of v among `dst`, sorted by v.
        edge_weight: (E,) float32.
        src: (k,) int64, distinct node ids whose rows go in; with `own_rows` they begin with `dst`.
        dst: (s,) int64, node ids whose rows come out.
        own_rows: True if `src` begins with `dst`.
        matrix: what the weights estimate.
    """

    edge_index: Tensor
    edge_weight: Tensor
    src: Tensor
    dst: Tensor
    own_rows: bool
    matrix: Matrix
    # The same as a CSR matrix on the CPU, which multiplies faster than edges do.
    _block: Block | None = field(default=None, repr=False, compare=False)

    @property
    def size(self) -> tuple[int, int]:
        """(k, s), as PyG's `size`."""
        return self.src.numel(), self.dst.numel()

    @property
    def n_dst(self) -> int:
        """s: rows h[:n_dst] are those of `dst` if the block has `own_rows`."""
        return self.dst.numel()

    def __iter__(self) -> Iterator[Any]:
        return iter((self.edge_index, self.edge_weight, self.size))

    def mix(self, h: Tensor) -> Tensor:
        """(s, d): Σ_u edge_weight(v,u)·h(u) for rows h (k, d) of `src`; differentiable by h."""
        if not isinstance(h, Tensor):
            raise InputError(
                "sparse rows are multiplied by weights before they are mixed: block.mix(x @ W); "
                "batch.x.dense() makes a tensor of them"
            )
        self.check_rows(h)
        if self._block is not None and h.device.type == "cpu" and h.dtype == torch.float32:
            return self._block.mix(h)
        u, v = self.edge_index
        mixed = h.new_zeros(self.n_dst, *h.shape[1:])
        return mixed.index_add(0, v, h.index_select(0, u) * self.edge_weight.to(h.dtype)[:, None])

    @overload
    def own(self, h: Tensor) -> Tensor: ...

    @overload
    def own(self, h: SparseMatrix) -> SparseMatrix: ...

    def own(self, h: InputRows) -> InputRows:
        """(s, d): the rows of `dst` themselves, of rows h (k, d) of `src`."""
        if not self.own_rows:
            raise InputError(
                "a node's own row is not among the rows of this block; make the sampler with "
                "own_rows=True, as LayerSampler(..., own_rows=True)"
            )
        self.check_rows(h)
        return h.between(0, self.n_dst) if isinstance(h, SparseMatrix) else h[: self.n_dst]

    def check_rows(self, h: InputRows) -> None:
        """Check that h has a row for each of `src`, where the edges are."""
        if len(h) != self.src.numel():
            raise InputError(
                f"h must have {self.src.numel()} rows, one for each node of block.src, got "
                f"{len(h)}; pass batch.x to the first block and each block's result to the next"
            )
        if isinstance(h, Tensor) and h.device != self.edge_index.device:
            raise InputError(
                f"the rows are on {h.device} and the block on {self.edge_index.device}; make the "
                f"loader with device={str(h.device)!r}, or call batch.to({str(h.device)!r})"
            )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "EdgeBlock":
        """The block on a device."""
        return self.moved(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def moved(self, move: Callable[[Tensor], Tensor]) -> "EdgeBlock":
        """A block whose tensors are moved."""
        ends, weights, src, dst = map(move, (self.edge_index, self.edge_weight, self.src, self.dst))
        return EdgeBlock(ends, weights, src, dst, self.own_rows, self.matrix)


def edge_block(block: Block, matrix: Matrix, *, own_rows: bool) -> EdgeBlock:
    """A sampler's block as edges; `own_rows` asks for, and checks, `src` that begins with `dst`."""
    if own_rows and not torch.equal(block.src[: block.dst.numel()], block.dst):
        raise InputError(
            "the sampler's blocks do not begin with the rows of the layer above; make it with "
            "own_rows=True, as LayerSampler(..., own_rows=True), or pass own_rows=False for a "
            "network that never reads a node's own row"
        )
    indptr, columns, values = _csr(block)
    counts = np.diff(indptr)
    edge_index = np.empty((2, len(columns)), np.int64)
    edge_index[0] = columns
    edge_index[1] = np.repeat(np.arange(len(counts)), counts)
    if matrix.weights == "self-normalised":
        values = _self_normalised(edge_index[1], values, len(counts))
        block = Block.of_csr(block.dst, block.src, (indptr, columns, values))
    ends, weight = torch.from_numpy(edge_index), torch.from_numpy(values)
    kept = block if block.csr is not None else None
    return EdgeBlock(ends, weight, block.src, block.dst, own_rows, matrix, kept)


def _csr(block: Block) -> tuple[IntArray, IntArray, FloatArray]:
    if block.csr is not None:
        return block.csr
    # A dense block of the user's own.
    rows, columns = block.adj.nonzero(as_tuple=True)
    counts = np.bincount(rows.numpy(), minlength=block.dst.numel())
    values = block.adj[rows, columns].float().numpy()
    return np.concatenate([[0], np.cumsum(counts)]), columns.numpy(), values


def _self_normalised(rows: IntArray, values: FloatArray, n_rows: int) -> FloatArray:
    """Values divided by the sum of their row; a row that sums to zero stays as it is."""
    sums = np.bincount(rows, weights=values, minlength=n_rows)
    sums[sums == 0] = 1.0
    return (values / sums[rows]).astype(np.float32)


def check_weights(weights: str) -> None:
    if weights not in WEIGHTS:
        raise InputError(
            f"weights must be one of {', '.join(WEIGHTS)}, got {weights!r}"
            + nearest(str(weights), WEIGHTS)
        )


@dataclass(frozen=True, slots=True)
class LayerBatch:
    """A minibatch: `h = batch.x`, then for each layer `h = layer(h, block)`, then a loss with `y`.

    Attributes:
        x: (k, F) float32, the features of `n_id`, the input rows; with the loader's `sparse`, a
            `SparseMatrix`, which `x @ W` multiplies, differentiable by W.
        y: (s,) int64 classes, (s, C) float32 label sets or (s,) float32 numbers; None if the
            loader gives no labels.
        blocks: one for each layer, from the input up.
    """

    x: Any  # a union would make users of type checkers cast it everywhere
    y: Tensor | None
    blocks: tuple[EdgeBlock, ...]

    @property
    def nodes(self) -> Tensor:
        """(s,): the ids of the batch itself."""
        return self.blocks[-1].dst

    @property
    def n_id(self) -> Tensor:
        """(k,): the ids of the input rows, under PyG's name."""
        return self.blocks[0].src

    @property
    def layers(self) -> list[Tensor]:
        """The node ids of every layer: those of the input rows first, the batch last."""
        return [*(block.src for block in self.blocks), self.nodes]

    @property
    def batch_size(self) -> int:
        return self.nodes.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(each.nbytes for each in self.tensors())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "LayerBatch":
        """The minibatch on a device."""
        if torch.device(device) == self.nodes.device:
            return self
        return self._moved(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "LayerBatch":
        """A copy in pinned memory, from which CUDA copies without waiting."""
        return self._moved(lambda tensor: tensor.pin_memory())

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "LayerBatch":
        y = None if self.y is None else move(self.y)
        return LayerBatch(move(dense(self.x)), y, tuple(block.moved(move) for block in self.blocks))

    def tensors(self) -> Iterator[Tensor]:
        """All tensors of the minibatch."""
        if isinstance(self.x, SparseMatrix):
            yield from map(torch.from_numpy, self.x.csr)
        else:
            yield self.x
        if self.y is not None:
            yield self.y
        yield self.nodes
        for block in self.blocks:
            yield from (block.edge_index, block.edge_weight, block.src)
