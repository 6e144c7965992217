"""A step of the paper's network in three kernels: logits = adj·ReLU(X W1 + b1)·W2 + b2 (eq. 10).

X are rows of ÂX. Sources of a batch are few, so that each product is a handful of tiles, and the
time goes into waiting for one kernel to end before the next begins: hence three.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from fastgcn.kernels.gpu.adam import Parameter
from fastgcn.kernels.gpu.plain_rows import hidden_rows, loss_rows
from fastgcn.kernels.gpu.plain_update import update_weights

__all__ = ["OutOfResources", "PlainStep", "has_room"]

# Tiles and warps, found by trial on an H200, for a few hundred sources and for thousands.
_HIDDEN = {"BM": 16, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 5}
_MANY_HIDDEN = {"BM": 16, "BN": 64, "BK": 128, "num_warps": 4, "num_stages": 5}
_ROWS = {"BR": 16, "BE": 32, "num_warps": 8, "num_stages": 1}
_UPDATE = {"BS": 64, "BK": 16, "BN": 64, "B2": 16, "num_warps": 4, "num_stages": 4}
_MANY_UPDATE = {"BS": 128, "BK": 16, "BN": 64, "B2": 16, "num_warps": 4, "num_stages": 2}
_MANY = 1024
# An H200 has 227 KB of memory for a program's tiles, of which those above take up to 200; others
# have 99. What loads nothing ahead takes less, and more time.
_FRUGAL = {"num_stages": 1}

# Widths of rows, and entries of W2, that are one tile: an H200 has room for 512 x 64 and some rows.
_WIDEST, _LARGEST_TILE = 512, 1 << 15


def _padded(width: int) -> int:
    """The width of a tile that holds a whole row."""
    return max(16, int(triton.next_power_of_2(width)))


def has_room(d: int, classes: int) -> bool:
    """Whether a program can hold all of W2 (d, classes), and some rows beside it."""
    return max(d, classes) <= _WIDEST and _padded(d) * _padded(classes) <= _LARGEST_TILE


class PlainStep:
    """Work space for steps on batches of `size` rows with at most `sources` sources.

    `precision` "tf32" or "ieee" is what products round to. Of x in bfloat16 they are products of
    bfloat16 where TF32 would do; float16 has not the range that gradients have, and is read
    as float32. `frugal` is for devices on which a step raises `OutOfResources` otherwise.
    """

    def __init__(
        self,
        x: Tensor,
        parameters: tuple[Parameter, Parameter | None, Parameter, Parameter | None],
        size: int,
        sources: int,
        rate: float,
        *,
        precision: str = "tf32",
        frugal: bool = False,
    ) -> None:
        self.x, self.rate, self.precision, self.frugal = x, rate, precision, frugal
        narrow = x.dtype == torch.bfloat16 and precision == "tf32"
        self.operand = tl.bfloat16 if narrow else tl.float32
        w1, b1, w2, b2 = parameters
        self.w1, self.b1, self.w2, self.b2 = w1, b1 or w1, w2, b2 or w2
        self.has_bias = b1 is not None
        (self.width, self.d), self.classes = w1.weight.shape, w2.weight.shape[1]
        self.size = size
        self.bd, self.bc = _padded(self.d), _padded(self.classes)
        device = w1.weight.device

        def room(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        self.hidden, self.hidden_gradient = room(sources, self.d), room(sources, self.d)
        self.mixed, self.logit_gradient = room(size, self.bd), room(size, self.bc)
        self.tiles = triton.cdiv(size, _ROWS["BR"])

    def __call__(
        self,
        step: int,
        sources: Tensor,
        n_sources: Tensor,
        csr: tuple[Tensor, Tensor, Tensor],
        labels: Tensor,
        row_weights: Tensor,
        active: Tensor,
        steps: Tensor,
        losses: Tensor,
    ) -> None:
        """One step, number `step` of K batches, before which `steps` (1,) were taken.

        `sources` (K, room) and `csr` are those of a `Room`. `labels` and `row_weights` (K, s): a
        batch's weights sum to one, and are zero where there is no row; `active` (K,) is zero
        where the batch has no row at all. `losses` (K, tiles) take the loss, in parts.
        """
        common: dict[str, Any] = {"HAS_BIAS": self.has_bias, "PRECISION": self.precision}
        by_x = common | {"OPERAND": self.operand}
        room = sources.shape[1]
        hidden, update = self._tiles(room)
        hidden_rows[(triton.cdiv(room, hidden["BM"]), triton.cdiv(self.d, hidden["BN"]))](
            step, self.x, self.x.stride(0), sources, n_sources, self.w1.weight, self.b1.weight,
            self.hidden, self.hidden_gradient, room, self.width, self.d, **by_x, **hidden,
        )  # fmt: skip
        loss_rows[(self.tiles,)](
            step, *csr, self.hidden, self.w2.weight, self.b2.weight, labels, row_weights,
            self.mixed, self.logit_gradient, self.hidden_gradient, losses,
            self.size, self.d, self.classes, **common, **_ROWS, BD=self.bd, BC=self.bc,
        )  # fmt: skip
        tiles_n = triton.cdiv(self.d, update["BN"])
        tiles = triton.cdiv(self.width, update["BK"]) * tiles_n
        update_weights[(tiles + triton.cdiv(self.d, update["B2"]),)](
            step, self.x, self.x.stride(0), sources, n_sources, self.hidden, self.hidden_gradient,
            self.mixed, self.logit_gradient, active, steps,
            *self.w1.parts, *self.b1.parts, *self.w2.parts, *self.b2.parts,
            room, self.size, self.width, self.d, self.classes, tiles_n, tiles,
            self.rate, self.w1.decay, self.w2.decay,
            **by_x, **update, BD=self.bd, BC=self.bc,
        )  # fmt: skip

    def _tiles(self, room: int) -> tuple[dict[str, int], dict[str, int]]:
        """Those of the first kernel, and of the third."""
        many = room > _MANY and not self.frugal
        less = _FRUGAL if self.frugal else {}
        chosen = (_MANY_HIDDEN, _MANY_UPDATE) if many else (_HIDDEN, _UPDATE)
        hidden, update = (each | {"BN": min(each["BN"], self.bd)} | less for each in chosen)
        return hidden, update
