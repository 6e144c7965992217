"""Adam on a CUDA device: the update of some entries, for any kernel that has their gradient."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def adam_update(weight, mean, square, place, there, gradient, number, rate, decay):
    """Adam's update of some entries (Kingma & Ba), L2 added to the gradient as torch does."""
    w = tl.load(weight + place, mask=there, other=0.0)
    m = tl.load(mean + place, mask=there, other=0.0)
    s = tl.load(square + place, mask=there, other=0.0)
    g = gradient + decay * w
    m = 0.9 * m + 0.1 * g
    s = 0.999 * s + 0.001 * g * g
    steps = number.to(tl.float64)
    first = 1.0 - tl.exp2(steps * -0.15200309344504997)  # log2 of 0.9
    second = 1.0 - tl.exp2(steps * -0.0014434168696687186)  # log2 of 0.999
    size = (rate / first).to(tl.float32)
    root = tl.sqrt(s) / tl.sqrt(second).to(tl.float32)
    tl.store(weight + place, w - size * m / (root + 1e-8), mask=there)
    tl.store(mean + place, m, mask=there)
    tl.store(square + place, s, mask=there)


@triton.jit
def _adam_entries(weight, mean, square, gradient, steps, count, rate, decay, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    g = tl.load(gradient + place, mask=there, other=0.0)
    adam_update(weight, mean, square, place, there, g, tl.load(steps) + 1, rate, decay)


@dataclass(frozen=True)
class Parameter:
    """A parameter, its two moments, and its L2."""

    weight: Tensor
    mean: Tensor
    square: Tensor
    decay: float

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight, self.mean, self.square


def adam(parameter: Parameter, gradient: Tensor, steps: Tensor, rate: float) -> None:
    """Adam's step along a gradient, after `steps` (1,) others."""
    weight, mean, square = (part.view(-1) for part in parameter.parts)
    _adam_entries[(triton.cdiv(len(weight), 1024),)](
        weight, mean, square, gradient.contiguous().view(-1), steps, len(weight), rate,
        parameter.decay, BLOCK=1024,
    )  # fmt: skip
