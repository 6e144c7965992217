"""Plain references of the kernels for CUDA devices, for any device: slow, and easy to believe."""

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.kernels.gpu.draw import STRATIFIED, SYSTEMATIC
from fastgcn.kernels.gpu.scan import Room

_LOW = np.uint64(0xFFFFFFFF)


def uniforms(seed: int, counters: IntArray) -> FloatArray:
    """float64 in [0, 1) for each counter: Philox 4x32 of ten rounds (Salmon et al., 2011).

    >>> uniforms(0, np.arange(2)).shape
    (2,)
    """
    counter = np.asarray(counters, np.uint64)
    c = [counter & _LOW, counter >> np.uint64(32), *(np.zeros_like(counter) for _ in range(2))]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        high_a, high_b = a >> np.uint64(32), b >> np.uint64(32)
        c = [high_b ^ c[1] ^ key[0], b & _LOW, high_a ^ c[3] ^ key[1], a & _LOW]
        key = [(key[0] + np.uint64(0x9E3779B9)) & _LOW, (key[1] + np.uint64(0xBB67AE85)) & _LOW]
    bits = (c[0] << np.uint64(21)) | (c[1] >> np.uint64(11))
    return bits.astype(np.float64) / 2.0**53


def points(seed: int, step: int, t: int, kind: int) -> FloatArray:
    """(t,) in [0, 1): those of batch number `step`."""
    j, first = np.arange(t), step * t
    if kind == STRATIFIED:
        return (uniforms(seed, first + j) + j) / t
    if kind == SYSTEMATIC:
        return (uniforms(seed, np.full(t, first)) + j) / t
    return uniforms(seed, first + j)


def sampled_rows(
    dense: Tensor, rows: Tensor, vertices: Tensor, q: Tensor | float, *, exact_self: bool
) -> Tensor:
    """(s, n): rows of Â (n, n) as estimated from draws (t,), for row ids (s,), -1 for none.

    `q` (n,) sums to one; a number p stands for Σ |Â(v,u)|^p over these rows v, normalised.
    """
    there = rows >= 0
    mine = dense[rows.clamp(min=0).long()] * there[:, None]
    own = torch.zeros_like(mine)
    own[there, rows[there].long()] = mine[there, rows[there].long()]
    drawn_from = mine - own if exact_self else mine
    if not isinstance(q, Tensor):
        shares = torch.where(drawn_from != 0, drawn_from.double().abs() ** q, 0.0).sum(0)
        q = shares / shares.sum()
    counts = torch.bincount(vertices.long(), minlength=len(q)).to(q)
    weights = torch.where(counts > 0, counts / (len(vertices) * q), 0.0)
    return (drawn_from * weights).float() + (own if exact_self else 0.0)


def dense_block(room: Room, k: int, size: int, n: int) -> Tensor:
    """(s, n): block number k of a room, by vertices and not by sources."""
    block = torch.zeros((size, n), device=room.entries.device)
    offsets = room.offsets[k * size : (k + 1) * size + 1].tolist()
    for row in range(size):
        for entry in range(offsets[row], offsets[row + 1]):
            block[row, room.sources[k, room.columns[entry]]] += room.entries[entry]
    return block


def step_loss(
    parameters: list[Tensor | None], x: Tensor, adj: Tensor, labels: Tensor, row_weights: Tensor
) -> Tensor:
    """The loss of adj·ReLU(X W1 + b1)·W2 + b2, of `parameters` W1, b1, W2, b2."""
    w1, b1, w2, b2 = parameters
    assert w1 is not None
    assert w2 is not None
    hidden = torch.relu(x @ w1 + (0.0 if b1 is None else b1))
    logits = adj @ hidden @ w2 + (0.0 if b2 is None else b2)
    each = torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none")
    return (each * row_weights).sum()


def product(indptr: Tensor, indices: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """A CSR matrix times h, in float64."""
    row = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=h.device), indptr.diff())
    out = torch.zeros((len(indptr) - 1, h.shape[1]), dtype=torch.float64, device=h.device)
    return out.index_add_(0, row, values.double()[:, None] * h.double()[indices.long()])
