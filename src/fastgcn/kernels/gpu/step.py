"""Training steps on a CUDA device: Adam for any network, and a step of two layers in few kernels.

The step is that of `NetworkStep`. Its large products are torch's; everything between two of them
is one kernel.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources as OutOfResources  # raised by `NetworkStep`

from fastgcn.kernels.gpu.blocks import BlockBuffers
from fastgcn.kernels.gpu.layers import (
    activate,
    activate_back,
    add_sums,
    gather_rows,
    loss_rows,
    mix,
    unmix,
)


@triton.jit(do_not_specialize=["step"])
def _adam(
    step, weight, mean, square, gradient, decay, active, steps, count, rate,
    turned, wide,
    SOME: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam (Kingma & Ba), L2 added to the gradient as torch does; the gradient is zero then.

    Unless `D` is 0, `turned` (D, wide) is the transpose of the first weights.
    """
    if SOME:  # noqa: SIM102 (a constant of the compiler)
        if tl.load(active + step) == 0:
            return
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    w = tl.load(weight + place, mask=there, other=0.0)
    m = tl.load(mean + place, mask=there, other=0.0)
    s = tl.load(square + place, mask=there, other=0.0)
    g = tl.load(gradient + place, mask=there, other=0.0)
    g += tl.load(decay + place, mask=there, other=0.0) * w
    m = 0.9 * m + 0.1 * g
    s = 0.999 * s + 0.001 * g * g
    number = (tl.load(steps) + step + 1).to(tl.float64)
    first = 1.0 - tl.exp2(number * -0.15200309344504997)  # log2 of 0.9
    second = 1.0 - tl.exp2(number * -0.0014434168696687186)  # log2 of 0.999
    size = (rate / first).to(tl.float32)
    root = tl.sqrt(s) / tl.sqrt(second).to(tl.float32)
    new = w - size * m / (root + 1e-8)
    tl.store(weight + place, new, mask=there)
    if D > 0:  # a divisor of BLOCK: a program has whole rows, and writes whole pieces of columns
        column = tl.arange(0, D)
        row = tl.program_id(0) * (BLOCK // D) + tl.arange(0, BLOCK // D)
        rows = tl.trans(tl.reshape(new, (BLOCK // D, D)))
        tl.store(turned + column[:, None] * wide + row[None, :], rows, mask=(row < wide)[None, :])
    tl.store(mean + place, m, mask=there)
    tl.store(square + place, s, mask=there)
    tl.store(gradient + place, w * 0, mask=there)


def adam(
    weight: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    decay: Tensor,
    steps: Tensor,
    rate: float,
    *,
    step: int = 0,
    active: Tensor | None = None,
    turned: Tensor | None = None,
) -> None:
    """Adam's step of weights (m,) with their moments and L2, after `steps` (1,) + `step` others.

    The gradient (m,) is zero afterwards. Nothing is done if `active` (K,) is 0 at `step`.
    `turned` (d, k) becomes the transpose of the first weights, if d is a power of two; any other
    must be turned afterwards.
    """
    some = steps if active is None else active
    d, wide = (0, 0) if turned is None else turned.shape
    block = 512 if d == 0 else max(2048, d)
    _adam[(triton.cdiv(len(weight), block),)](
        step, weight, mean, square, gradient, decay, some, steps, len(weight), rate,
        weight if turned is None else turned, wide,
        SOME=active is not None, D=d if d & (d - 1) == 0 else 0, BLOCK=block,
    )  # fmt: skip
    if turned is not None and d & (d - 1):
        turned.copy_(weight[: d * wide].view(wide, d).T)


# Rows, columns and entries of the kernels' tiles, for an H200.
_GATHER = {"ROWS": 4, "COLUMNS": 512, "num_warps": 4}
_TILE_ENTRIES = 2048
_LOSS = {"BR": 16, "num_warps": 8, "num_stages": 1}
_MIX = {"ENTRIES": 16, "num_warps": 4}
_PIECES = 6  # programs for a row of many entries

# The first product is cut into parts of at least this many columns, at most so many, which are
# added up later: a batch has too few rows to keep a device busy.
_PART, _PARTS = 384, 3

# The widest row, and the most entries of W2 and R2, that one tile holds: an H200 has room for
# 512 x 64 and some rows.
_WIDEST, _LARGEST_TILE = 512, 1 << 15


def _padded(width: int) -> int:
    """The width of a tile that holds a whole row."""
    return max(16, int(triton.next_power_of_2(width)))


def fits_one_tile(d: int, classes: int, *, own: bool) -> bool:
    """True if a program can hold all of W2 and R2 (d, classes), and some rows beside them."""
    entries = _padded(d) * _padded(classes) * (1 + own)
    return d % 4 == 0 and max(d, classes) <= _WIDEST and entries <= _LARGEST_TILE


@dataclass(frozen=True)
class Known:
    """A parameter, and where its gradient is put."""

    weight: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class NetworkWeights:
    """The parameters of two layers; None for what a network does not have.

    Attributes:
        first: W1 (F, d), or [W1; R1] (2F, d); rows of zeros may follow.
        second: W2 (d, C), or [W2; R2] (2d, C).
        bias, gamma, beta: (d,) of the hidden rows, the latter two those of a layer norm.
        out_bias: (C,).
        members: 2 for a pair of networks, which has R1 and R2, and no norm.
    """

    first: Known
    second: Known
    bias: Known | None = None
    gamma: Known | None = None
    beta: Known | None = None
    out_bias: Known | None = None
    own: bool = False
    members: int = 1


class NetworkStep:
    """A step's losses and gradients, with its work space, for the network

        H = dropped(ReLU(norm(dropped([X | Y][sources]) [W1; R1] + b1)))
        logits = adj·H·W2 + H[own]·R2 + b2

    where Y, R1, R2, norm, biases and dropout may be missing. Batches have `size` rows and at most
    `sources` sources, of which the first `size` are the rows themselves if there is R2.
    `precision` "tf32" or "ieee" is that of products in kernels; torch's setting is that of others.
    What is dropped in step number i follows from `seed` and i, as in `CountedDropout`.
    """

    def __init__(
        self,
        x: Tensor,
        beside: Tensor | None,
        weights: NetworkWeights,
        size: int,
        sources: int,
        *,
        rates: tuple[float, float] = (0.0, 0.0),
        seed: int = 0,
        precision: str = "tf32",
    ) -> None:
        self.x, self.beside, self.weights, self.size = x, beside, weights, size
        self.rates, self.seed, self.precision = rates, seed % 2**62, precision
        self.width, device = x.shape[1], weights.first.weight.device
        self.columns = self.width * (1 if beside is None else 2)
        wide, self.d = weights.first.weight.shape
        self.parts = next(
            n
            for n in range(_PARTS, 0, -1)
            if n == 1 or (wide % (16 * n) == 0 and wide >= n * _PART)
        )
        self.members, self.classes = weights.members, weights.second.weight.shape[1]
        self.half = self.d // self.members
        self.bd, self.bc = _padded(self.half), _padded(self.classes)
        self.tiles = triton.cdiv(size, _LOSS["BR"])
        # Two, so that the rows of the next step are gathered during this one.
        self.inputs = [torch.zeros((sources, wide), device=device) for _ in range(2)]
        self.z = torch.zeros((self.parts, sources, self.d), device=device)
        self.hidden, self.gradient = (
            torch.zeros((sources, self.d), device=device) for _ in range(2)
        )
        # Products are faster with this one; `turn` or `adam` must follow the weights.
        self.turned = torch.zeros((self.d, wide), device=device)
        self.turn()
        self.sums = torch.zeros((sources, 3, self.d), device=device)
        self.joined = torch.zeros((self.members, size, 2 * self.half), device=device)
        self.by_row = torch.zeros((self.members, size, self.half), device=device)
        self.logit_gradient = torch.zeros((self.members, size, self.bc), device=device)
        self.aside = Aside(device)

    def turn(self) -> None:
        """Copy the first layer's weights."""
        self.turned.copy_(self.weights.first.weight.T)

    def gather(self, step: int, blocks: BlockBuffers, steps: Tensor) -> None:
        """Gather the input rows of batch number `step` among K. They do not depend on weights."""
        beside, room = self.x if self.beside is None else self.beside, blocks.sources.shape[1]
        grid = triton.cdiv(room, _GATHER["ROWS"]), triton.cdiv(self.columns, _GATHER["COLUMNS"])
        out = self.inputs[step % 2]
        gather_rows[grid](
            step, self.x, self.x.stride(0), beside, beside.stride(0),
            blocks.sources, blocks.n_sources, out, out.stride(0), room, self.width, self.columns,
            steps, self.seed, self.rates[0],
            BESIDE=self.beside is not None, DROP=self.rates[0] > 0, **_GATHER,
        )  # fmt: skip

    def __call__(
        self,
        step: int,
        blocks: BlockBuffers,
        labels: Tensor,
        row_weights: Tensor,
        steps: Tensor,
        losses: Tensor,
    ) -> None:
        """Losses and gradients of the batch whose rows were gathered, before which `steps` (1,)
        + `step` were taken.

        `labels` and `row_weights` (K, s): the weights of a batch sum to one and are zero where
        there is no row. `losses` (K, members, tiles) receives the loss, in parts to be added up.
        """
        known, x, room = self.weights, self.inputs[step % 2], blocks.sources.shape[1]
        cut = x.view(len(x), self.parts, -1).transpose(0, 1)
        turned = self.turned.view(self.d, self.parts, -1).permute(1, 2, 0)
        torch.bmm(cut, turned, out=self.z)
        bias, gamma, beta, out_bias = (
            known.first if each is None else each
            for each in (known.bias, known.gamma, known.beta, known.out_bias)
        )
        bd = _padded(self.d)
        rows = max(1, _TILE_ENTRIES // bd)
        normed = self.z, bias.weight, gamma.weight, beta.weight, blocks.n_sources
        dropped = steps, self.seed, self.rates[1]
        kind = {
            "HAS_BIAS": known.bias is not None, "NORM": known.gamma is not None,
            "DROP": self.rates[1] > 0, "ROWS": rows, "BD": bd,
        }  # fmt: skip
        tiles = triton.cdiv(room, rows)
        activate[(tiles,)](
            step, *normed, self.hidden, self.gradient, self.joined, self.size, room, self.d,
            *dropped, PARTS=self.parts, MEMBERS=self.members, **kind,
        )  # fmt: skip
        of_rows = self.size, self.half, self.d
        mix[(self.size, self.members, _PIECES)](
            step, *blocks.csr, self.hidden, self.joined, *of_rows, BD=self.bd, **_MIX
        )
        w2, r2 = known.second.weight[: self.d], known.second.weight[self.d :]
        loss_rows[(self.tiles, self.members)](
            step, self.hidden, w2, r2 if known.own else w2, out_bias.weight, labels, row_weights,
            self.joined, self.logit_gradient, self.by_row, self.gradient, out_bias.gradient, losses,
            *of_rows, self.classes,
            HAS_BIAS=known.out_bias is not None, OWN=known.own, MEMBERS=self.members,
            PRECISION=self.precision, **_LOSS, BD=self.bd, BC=self.bc,
        )  # fmt: skip
        with self.aside:
            self._second_gradients()
        unmix[(self.size, self.members, _PIECES)](
            step, *blocks.csr, self.by_row, self.gradient, *of_rows, BD=self.bd, **_MIX
        )
        activate_back[(tiles,)](
            step, *normed, self.gradient, self.sums, room, self.d, *dropped, **kind
        )
        with self.aside:
            add_sums[(3 if kind["NORM"] else 1, triton.cdiv(self.d, 16))](
                self.sums, bias.gradient, gamma.gradient, beta.gradient, tiles, self.d,
                HAS_BIAS=kind["HAS_BIAS"], NORM=kind["NORM"], ROWS=64, BN=16,
            )  # fmt: skip
        self._first_gradients(x)
        self.aside.join()

    def _second_gradients(self) -> None:
        known, d, half = self.weights, self.d, self.half
        second, by_logits = known.second.gradient, self.logit_gradient[:, :, : self.classes]
        if self.members == 1:
            used = self.joined[0] if known.own else self.joined[0, :, :d]
            torch.mm(used.T, by_logits[0], out=second)
            return
        # What would join the two networks of a pair has no gradient, nor has what the second lacks.
        for member in range(2):
            rows = slice(member * half, (member + 1) * half)
            torch.mm(self.joined[member, :, :half].T, by_logits[member], out=second[rows])
        torch.mm(self.joined[0, :, half:].T, by_logits[0], out=second[d : d + half])

    def _first_gradients(self, x: Tensor) -> None:
        first, half, width, every = self.weights.first.gradient, self.half, self.width, self.columns
        if self.members == 1:
            torch.mm(x.T, self.gradient, out=first)
            return
        torch.mm(x[:, :width].T, self.gradient, out=first[:width])
        first[width:every, :half] = x[:, width:every].T @ self.gradient[:, :half]


class Aside:
    """Work that runs beside what follows, on a CUDA device, until `join`. Elsewhere it runs first.

    >>> with Aside(torch.device("cpu")) as aside:
    ...     pass
    >>> aside.join()
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.entered: Any = None
        self.begun = False

    def __enter__(self) -> "Aside":
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            self.entered = torch.cuda.stream(self.stream)
            self.entered.__enter__()
            self.begun = True
        return self

    def __exit__(self, *error: object) -> None:
        if self.entered is not None:
            self.entered.__exit__(*error)

    def join(self) -> None:
        """Wait on the device for everything that was begun."""
        if self.stream is not None and self.begun:
            torch.cuda.current_stream().wait_stream(self.stream)
            self.begun = False


def logits_reference(weights: NetworkWeights, x: Tensor, adj: Tensor, own: int) -> list[Tensor]:
    """The logits of each network by plain torch, without dropout, from input rows x (k, F or 2F);
    the first `own` rows are those of the batch, whose convolution `adj` estimates."""
    first, second = weights.first.weight, weights.second.weight
    d = first.shape[1]
    z = x @ first + (0.0 if weights.bias is None else weights.bias.weight)
    if weights.gamma is not None and weights.beta is not None:
        z = torch.nn.functional.layer_norm(z, (d,), weights.gamma.weight, weights.beta.weight)
    hidden = torch.relu(z)
    half, found = d // weights.members, []
    for member in range(weights.members):
        rows = slice(member * half, (member + 1) * half)
        logits = adj @ hidden[:, rows] @ second[rows]
        if weights.own and member == 0:
            logits = logits + hidden[:own, rows] @ second[d:][rows]
        logits = logits * weights.members
        found.append(logits + (0.0 if weights.out_bias is None else weights.out_bias.weight))
    return found
