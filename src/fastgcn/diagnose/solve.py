"""The least t that brings an error down to a target."""

import math
from collections.abc import Callable
from itertools import count

from fastgcn.diagnose.estimates import Estimate

# Guesses by error² ∝ 1/t before the range is halved instead.
_GUESSES = 4


def least_samples(
    error: Callable[[int], Estimate],
    target: float,
    largest: int,
    *,
    start: int = 64,
    tolerance: float = 0.01,
) -> tuple[int, Estimate]:
    """The least t up to `largest` with error(t) <= target, about, and the error there.

    Where even `largest` is not enough, that and its error. Guesses go by error² ∝ 1/t, which is
    exact for independent draws, and begin at `start`. The search ends when the error is within
    `tolerance` of the target, or t within twice that.

    >>> least_samples(lambda t: Estimate(2 / t**0.5, None), target=0.1, largest=1000)
    (400, Estimate(value=0.1, margin=None))
    >>> least_samples(lambda t: Estimate(2 / t**0.5, None), target=0.1, largest=100)
    (100, Estimate(value=0.2, margin=None))
    """
    below, above = 0, largest + 1  # the error is above the target at `below`, and not at `above`
    found, t = (largest, Estimate(math.inf, None)), min(start, largest)
    for tries in count():
        estimate = error(t)
        now = estimate.value
        if abs(now / target - 1) <= tolerance:
            return t, estimate
        if now > target:
            below = t
        else:
            above = t
        if now <= target or above > largest:
            found = (t, estimate)
        if above - below <= 1 + 2 * tolerance * below:
            return found
        guess = t * (now / target) ** 2
        t = math.ceil(min(guess, largest))
        if tries >= _GUESSES or not below < t < above:
            middle = math.ceil(math.sqrt(max(below, 1) * above))
            t = largest if above > largest else min(max(middle, below + 1), above - 1)
    raise AssertionError("unreachable")
