"""Dropout on a CUDA device: what is zeroed follows from a seed and a step, without state."""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries that a program draws for at once.
_ENTRIES = 4096


@triton.jit
def kept(number, seed, call, row, column, rate, COLUMNS: tl.constexpr):
    """(rows, COLUMNS) float32: 0 with probability `rate`, else 1/(1-rate), for a tile of entries.

    `number` is the step's. `column` (COLUMNS/4,) is the number of each four columns, for which one
    draw of Philox is enough.
    """
    rows: tl.constexpr = row.shape[0]
    step = number.to(tl.uint32)
    first = row.to(tl.uint32)[:, None] + (column * 0).to(tl.uint32)[None, :]
    second = (row * 0).to(tl.uint32)[:, None] + column.to(tl.uint32)[None, :]
    a, b, c, d = tl.philox(seed, first, second, first * 0 + step, first * 0 + call)
    bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (rows, COLUMNS))
    uniform = (bits >> 8).to(tl.float32) * (1.0 / 16777216.0)
    return tl.where(uniform < rate, 0.0, 1.0 / (1.0 - rate))


@triton.jit
def _drop(
    x, x_stride, out, out_stride, steps, seed, call, rate, n, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    fours = tl.program_id(1) * (COLUMNS // 4) + tl.arange(0, COLUMNS // 4)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = (row < n)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None]
    value = tl.load(x + place * x_stride + column[None, :], mask=there, other=0.0)
    factor = kept(tl.load(steps), seed, call, row, fours, rate, COLUMNS)
    tl.store(out + place * out_stride + column[None, :], value * factor, mask=there)


class CountedDropout:
    """Zeroes entries by a seed and the number of steps taken before, which is on the device.

    `begin` starts a step: its calls are numbered from 0, and each zeroes other entries. A resumed
    run zeroes what it would have zeroed.
    """

    def __init__(self, seed: int, steps: Tensor) -> None:
        self.seed, self.steps, self.calls = seed % 2**62, steps, 0

    def begin(self) -> None:
        self.calls = 0

    def __call__(self, h: Tensor, rate: float) -> Tensor:
        """h (n, d) or (m,), some of its entries zero, the others divided by 1 - rate."""
        call, self.calls = self.calls, self.calls + 1
        return cast(Tensor, _Dropped.apply(h, self, call, rate))

    def masked(self, h: Tensor, call: int, rate: float) -> Tensor:
        """The same for a call whose number is known, without a gradient."""
        rows = (h if h.ndim == 2 else h[None]).contiguous()
        out, (n, width) = torch.empty_like(rows), rows.shape
        columns = min(max(int(triton.next_power_of_2(width)), 16), 512)
        at_once = max(1, min(_ENTRIES // columns, int(triton.next_power_of_2(n))))
        _drop[(triton.cdiv(n, at_once), triton.cdiv(width, columns))](
            rows, rows.stride(0), out, out.stride(0), self.steps, self.seed, call, rate, n, width,
            ROWS=at_once, COLUMNS=columns,
        )  # fmt: skip
        return out.view(h.shape)


class _Dropped(torch.autograd.Function):
    """`CountedDropout` and its gradient, from which the same entries are zeroed."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, by: CountedDropout, call: int, rate: float) -> Tensor:
        ctx.by, ctx.call, ctx.rate = by, call, rate
        return by.masked(h, call, rate)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.by.masked(gradients[0], ctx.call, ctx.rate), None, None, None
