"""Training steps on a CUDA device: Adam for any network, and a step of two layers in few kernels.

The step is that of `NetworkStep`.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources as OutOfResources  # raised by `NetworkStep`

from fastgcn.kernels.gpu.blocks import BlockBuffers
from fastgcn.kernels.gpu.dense import first_gradient, first_product, second_gradients
from fastgcn.kernels.gpu.layers import (
    activate,
    activate_back,
    add_sums,
    gather_rows,
    losses_back,
    mix_entries,
)


@triton.jit(do_not_specialize=["step"])
def _adam(
    step, weight, mean, square, gradient, decay, active, steps, count, rate,
    copied, first, padded, begin, end, columns,
    SOME: tl.constexpr, COPY: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam (Kingma & Ba), L2 added to the gradient as torch does; the gradient is zero then.

    With `COPY`, the `first` weights are copied, and those from `begin` to `end` as rows of some
    `columns`, padded to `WIDE`.
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
    one = 1.0 - tl.exp2(number * -0.15200309344504997)  # log2 of 0.9
    two = 1.0 - tl.exp2(number * -0.0014434168696687186)  # log2 of 0.999
    size = (rate / one).to(tl.float32)
    root = tl.sqrt(s) / tl.sqrt(two).to(tl.float32)
    new = w - size * m / (root + 1e-8)
    tl.store(weight + place, new, mask=there)
    if COPY:
        tl.store(copied + place, new, mask=place < first)
        start = tl.program_id(0) * BLOCK
        if (start < end) & (start + BLOCK > begin):
            entry = place - begin
            wide = entry // columns * WIDE + entry % columns
            tl.store(padded + wide, new, mask=(place >= begin) & (place < end))
    tl.store(mean + place, m, mask=there)
    tl.store(square + place, s, mask=there)
    tl.store(gradient + place, w * 0, mask=there)


@dataclass(frozen=True)
class Copies:
    """What kernels read of two weights among all, in forms that they read fast.

    Attributes:
        first: (k, d) of any float type, of the first k·d weights.
        last: (r, w), of r rows of weights, from number `begin` on; `columns` of them a row.
    """

    first: Tensor
    last: Tensor
    begin: int
    columns: int


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
    copies: Copies | None = None,
) -> None:
    """Adam's step of weights (m,) with their moments and L2, after `steps` (1,) + `step` others.

    The gradient (m,) is zero afterwards. Nothing is done if `active` (K,) is 0 at `step`.
    `copies` are those of the new weights afterwards.
    """
    some = steps if active is None else active
    copied = Copies(weight[:0], weight[:0, None], 0, 1) if copies is None else copies
    rows, wide = copied.last.shape
    _adam[(triton.cdiv(len(weight), _ADAM_BLOCK),)](
        step, weight, mean, square, gradient, decay, some, steps, len(weight), rate,
        copied.first, copied.first.numel(),
        copied.last, copied.begin, copied.begin + rows * copied.columns, copied.columns,
        SOME=active is not None, COPY=copies is not None, WIDE=wide, BLOCK=_ADAM_BLOCK,
    )  # fmt: skip


# Rows, columns and entries of the kernels' tiles, for an H200.
_GATHER = {"ROWS": 4, "COLUMNS": 512, "num_warps": 4}
_GATHERING = 264  # programs that gather
_ACTIVATE = {"ROWS": 16, "num_warps": 8}
_BACK = {"ROWS": 16, "num_warps": 8}
_MIX = {"ENTRIES": 32, "num_warps": 4}
_LOSS = {"ROWS": 16, "num_warps": 4}
_FIRST = {"BM": 64, "BK": 64, "num_warps": 4, "num_stages": 3}
_FIRST_BACK = {"BF": 64, "BR": 64, "num_warps": 4, "num_stages": 3}
_SECOND = {"BR": 64, "num_warps": 8}

# Programs of a product that keep the device busy, and the columns of the first one's tiles.
_PROGRAMS, _PRODUCT_COLUMNS = 132, 128
# Programs that share a batch's entries: so many are all at work at once.
_SHARING = 4 * _PROGRAMS
# Columns of the gathered rows are padded to a multiple of this, with zeros.
_WIDE = 64

# The widest row, and the most entries of W2, that one tile holds: an H200 has room for 512 x 64 and
# some rows.
_WIDEST, _LARGEST_TILE = 512, 1 << 15
# Numbers that a program of Adam moves.
_ADAM_BLOCK = 256


def _padded(width: int) -> int:
    """The width of a tile that holds a whole row."""
    return max(16, int(triton.next_power_of_2(width)))


def fits_one_tile(d: int, classes: int) -> bool:
    """True if a program can hold all of W2 (d, classes), and some rows beside it."""
    entries = _padded(d) * _padded(classes)
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
        first: W1 (F, d), or [W1; R1] (2F, d).
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
    With `precision` "tf32", the first layer's products and the gradients by weights take their
    factors in bfloat16 and add up in float32, and other products are in TF32. With "ieee", torch
    makes the first layer's, and its setting is theirs.
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
        self.rates, self.seed = rates, seed % 2**62
        # Three products in TF32 are as good as one in float32, and take far less time.
        self.precision = "tf32" if precision == "tf32" else "tf32x3"
        self.width, device = x.shape[1], weights.first.weight.device
        self.columns = self.width * (1 if beside is None else 2)
        self.members, self.classes = weights.members, weights.second.weight.shape[1]
        self.d = weights.first.weight.shape[1]
        self.bd, self.bc = _padded(self.d), _padded(self.classes)
        # What the large products read. TF32 takes two to eight times as long in them.
        self.kept = torch.bfloat16 if precision == "tf32" else torch.float32
        self.bn = min(self.bd, _PRODUCT_COLUMNS)
        wide = -(-self.columns // _WIDE) * _WIDE
        tiles = triton.cdiv(sources, _FIRST["BM"]) * triton.cdiv(self.d, self.bn)
        self.parts = min(triton.cdiv(_PROGRAMS, tiles), wide // _WIDE)
        if self.kept == torch.float32:  # by torch
            self.parts = 1
        tiles = triton.cdiv(wide, _FIRST_BACK["BF"]) * triton.cdiv(self.d, self.bn)
        self.pieces = triton.cdiv(_PROGRAMS, tiles)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        # Two, so that the rows of the next step are gathered during this one.
        self.inputs = [zeros(sources, wide, dtype=self.kept) for _ in range(2)]
        self.weight = zeros(wide, self.d, dtype=self.kept)
        self.last = zeros(len(weights.second.weight), self.bc)
        self.copied.copy_(weights.first.weight)
        self.last[:, : self.classes] = weights.second.weight
        self.z = zeros(self.parts, sources, self.d)
        self.hidden, self.gradient = (zeros(sources, self.d, dtype=self.kept) for _ in range(2))
        self.narrow, self.by_narrow = (zeros(sources, self.members, self.bc) for _ in range(2))
        self.mixed, self.by_logits = (zeros(size, self.members, self.bc) for _ in range(2))
        self.own = zeros(size, self.bc)
        self.sums = zeros(triton.cdiv(sources, _BACK["ROWS"]), 3, self.d)
        self.aside, self.gathering = Aside(device), Aside(device)

    @property
    def copied(self) -> Tensor:
        """The copy of W1 that the first product reads, which must follow it."""
        return self.weight[: self.columns]

    def gather(self, step: int, blocks: BlockBuffers, steps: Tensor) -> None:
        """Gather the input rows of batch number `step` among K. They do not depend on weights."""
        beside, room = self.x if self.beside is None else self.beside, blocks.sources.shape[1]
        out = self.inputs[step % 2]
        gather_rows[(_GATHERING,)](
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
        *,
        following: bool = False,
    ) -> None:
        """Losses and gradients of the batch whose rows were gathered, before which `steps` (1,)
        + `step` were taken.

        `labels` and `row_weights` (K, s): the weights of a batch sum to one and are zero where
        there is no row. `losses` (K, members, s) receives those of the rows, times their weights.
        The rows of the `following` batch, if there is one, are gathered meanwhile.
        """
        known, x, room = self.weights, self.inputs[step % 2], blocks.sources.shape[1]
        d, size, classes = self.d, self.size, self.classes
        bias, gamma, beta, out_bias = (
            known.first if each is None else each
            for each in (known.bias, known.gamma, known.beta, known.out_bias)
        )
        count, w2 = blocks.n_sources, self.last
        r2 = w2[d:] if known.own else w2
        own = {"OWN": known.own, "MEMBERS": self.members}
        dots = {"PRECISION": self.precision}
        norm = {"HAS_BIAS": known.bias is not None, "NORM": known.gamma is not None}
        kind = norm | own | dots | {"DROP": self.rates[1] > 0, "BD": self.bd, "BC": self.bc}
        normed = self.z, bias.weight, gamma.weight, beta.weight, count, w2, r2
        shape = size, room, d, steps, self.seed, self.rates[1]
        self._first_product(step, x, count)
        if following:  # begun now: both wait for memory
            with self.gathering:
                self.gather(step + 1, blocks, steps)
        activate[(triton.cdiv(room, _ACTIVATE["ROWS"]),)](
            step, *normed, self.hidden, self.narrow, self.own, self.by_narrow, *shape,
            PARTS=self.parts, **kind, **_ACTIVATE,
        )  # fmt: skip
        entries = blocks.offsets, blocks.entry_rows, blocks.columns, blocks.entries
        mix_entries[(_SHARING, self.members)](
            step, *entries, self.narrow, self.mixed, size,
            MEMBERS=self.members, BC=self.bc, **_MIX,
        )  # fmt: skip
        losses_back[(triton.cdiv(size, _LOSS["ROWS"]) + _SHARING, self.members)](
            step, *entries, self.mixed, self.own, out_bias.weight, labels, row_weights,
            self.by_narrow, self.by_logits, losses, size, classes,
            HAS_BIAS=known.out_bias is not None, **own, BC=self.bc, **_LOSS,
        )  # fmt: skip
        with self.aside:
            second_gradients[(triton.cdiv(max(room, size), _SECOND["BR"]),)](
                step, self.hidden, self.by_narrow, self.by_logits, self.mixed, count,
                known.second.gradient, out_bias.gradient, size, d, classes,
                HAS_BIAS=known.out_bias is not None, **own, **dots, BD=self.bd, BC=self.bc,
                **_SECOND,
            )  # fmt: skip
        activate_back[(triton.cdiv(room, _BACK["ROWS"]),)](
            step, *normed, self.by_narrow, self.by_logits, self.gradient, self.sums, *shape,
            **kind, **_BACK,
        )  # fmt: skip
        with self.aside:
            add_sums[(3 if norm["NORM"] else 1, triton.cdiv(d, 16))](
                step, self.sums, bias.gradient, gamma.gradient, beta.gradient, count, d,
                EACH=_BACK["ROWS"], **norm, ROWS=64, BN=16,
            )  # fmt: skip
        self._first_gradient(step, x, count)
        self.aside.join()
        self.gathering.join()

    def _first_product(self, step: int, x: Tensor, count: Tensor) -> None:
        """z, in parts to be added up, = x·W1; by torch in float32."""
        if self.kept == torch.float32:
            torch.mm(x, self.weight, out=self.z[0])
            return
        (room, wide), d = x.shape, self.d
        grid = triton.cdiv(room, _FIRST["BM"]), triton.cdiv(d, self.bn), self.parts
        first_product[grid](
            step, x, self.weight, count, self.z, room, wide, d,
            PARTS=self.parts, BN=self.bn, **_FIRST,
        )  # fmt: skip

    def _first_gradient(self, step: int, x: Tensor, count: Tensor) -> None:
        """The gradient by W1 = xᵀ·gradient, without that by what the second of a pair lacks."""
        out, d, width = self.weights.first.gradient, self.d, self.width
        half = d // self.members
        if self.kept == torch.float32:
            torch.mm(x[:, : self.columns].T, self.gradient, out=out)
            if self.members == 2:
                out[width:, half:].zero_()
            return
        wide = x.shape[1]
        grid = triton.cdiv(wide, _FIRST_BACK["BF"]), triton.cdiv(d, self.bn), self.pieces
        first_gradient[grid](
            step, x, self.gradient, count, out, wide, self.columns, d, width, half,
            PIECES=self.pieces, BN=self.bn, **_FIRST_BACK,
        )  # fmt: skip


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
