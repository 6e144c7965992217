"""A relative error from batches: its value, and how sure it is."""

import math
from typing import NamedTuple

import numpy as np

from fastgcn.types import FloatArray


class Estimate(NamedTuple):
    """A relative error, and the half-width of its 95 % confidence interval (None: not known)."""

    value: float
    margin: float | None


def percent(estimate: Estimate) -> str:
    """In words, to as many digits as are worth something.

    >>> percent(Estimate(0.1234, 0.0051)), percent(Estimate(0.1234, 0.0))
    ('12.3 ± 0.5 %', '12.3 %')
    >>> percent(Estimate(2.3456, 0.1234)), percent(Estimate(0.1234, None))
    ('235 ± 12 %', '12.3 ± ? %')
    """
    value, margin = estimate
    digits = 0 if value >= 1 or (margin or 0) >= 0.1 else 1
    shown = f"{100 * value:.{digits}f}"
    if margin is None:
        shown += " ± ?"
    elif margin > 0:
        shown += f" ± {100 * margin:.{digits}f}"
    return f"{shown} %"


def relative_error(squares: FloatArray, totals: FloatArray, covered: float) -> Estimate:
    """√(E Σ‖estimate − exact‖² / Σ‖exact‖²), from some batches of all.

    `squares` (B, K) holds the squared error of each batch in each of K draws (K = 1 for its
    expectation in closed form), `totals` (B,) the batches' Σ‖exact‖²; `covered` is the share f of
    all training nodes that were looked at. With R = Σ_b mean_k squares / Σ_b totals,

        Var R = ((1 − f)·B/(B−1)·Σ_b r_b² + f·Σ_b s_b²/K) / (Σ_b totals)²

    as for any ratio in two-stage sampling: r_b = mean_k squares − R·totals, and s_b² is the
    variance over the draws of a batch.

    >>> relative_error(np.array([[1.0], [4.0]]), np.array([100.0, 400.0]), covered=1.0)
    Estimate(value=0.1, margin=0.0)
    """
    batches, draws = squares.shape
    means, total = squares.mean(axis=1), float(totals.sum())
    if not total > 0:
        return Estimate(math.inf if means.any() else 0.0, None)
    ratio = float(means.sum()) / total
    if ratio == 0:
        return Estimate(0.0, 0.0)
    within = float(squares.var(axis=1, ddof=1).sum()) / draws if draws > 1 else 0.0
    variance, freedom = covered * within, batches * (draws - 1)
    if covered < 1:
        if batches == 1:
            return Estimate(math.sqrt(ratio), None)
        between = batches / (batches - 1) * float(np.square(means - ratio * totals).sum())
        variance, freedom = variance + (1 - covered) * between, batches - 1
    value, deviation = math.sqrt(ratio), math.sqrt(variance) / total
    # d√R = dR / (2√R)
    return Estimate(value, _quantile(freedom) * deviation / (2 * value))


def _quantile(freedom: int) -> float:
    """What a t-distributed number exceeds in size with probability 5 %."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1), 0.975))
