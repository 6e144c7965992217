"""The relative error of a sampled layer, in closed form and measured, and the t for a target."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.config import TrainConfig
from fastgcn.diagnose.convolutions import Convolution, ExactNetwork, convolve, rows_below
from fastgcn.kernels.draws import inclusion_probabilities
from fastgcn.sampling.layer import LayerSampler
from fastgcn.sampling.variance import stratified_variance


class Estimate(NamedTuple):
    """A relative error, and the half-width of its 95 % confidence interval (None: not known)."""

    value: float
    margin: float | None


def percent(estimate: Estimate) -> str:
    """A relative error in per cent, rounded to the digits that its margin supports.

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
    """√(E Σ‖estimate − exact‖² / Σ‖exact‖²), estimated from some of all batches.

    `squares` (B, K) holds the squared error of each batch in each of K draws (K = 1 for its
    expectation in closed form), `totals` (B,) the batches' Σ‖exact‖²; `covered` is the share f of
    all training nodes that the batches hold. With R = Σ_b mean_k squares / Σ_b totals,

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
    """The two-sided 5 % critical value of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1), 0.975))


# After this many guesses by error² ∝ 1/t, the range is halved instead.
_GUESSES = 4


def least_samples(
    error: Callable[[int], Estimate],
    target: float,
    largest: int,
    *,
    start: int = 64,
    tolerance: float = 0.01,
) -> tuple[int, Estimate]:
    """Approximately the least t up to `largest` with error(t) <= target, and its error.

    If even `largest` is not enough, returns `largest` and its error. The search begins at `start`
    and guesses by error² ∝ 1/t, which is exact for independent draws. It ends when the error is
    within `tolerance` of the target, or t is known to within twice that.

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


# Draws of each batch from which an error is estimated.
REPEATS = 8
# A search tries several sizes, with half as many draws each and at most this many vertices.
_ENOUGH_DRAWN = 1 << 15
# The tolerance of a search by draws.
_LOOSE = 0.05


@dataclass(frozen=True, slots=True)
class DrawnError:
    """The measured error, and the share of rows with no edge to any sampled vertex."""

    error: Estimate
    empty_rows: float


class SamplerCache:
    """Keeps the last sampler, because the distribution q takes long to compute on a large graph.

    Members that differ only in their draws follow each other and share q. One sampler for each
    distribution would fill the memory.
    """

    def __init__(self, network: ExactNetwork) -> None:
        self.network = network
        self._key: tuple[Any, ...] = ()
        self._sampler: LayerSampler | None = None

    def get(
        self,
        member: TrainConfig,
        layers: Sequence[int],
        samples: Sequence[int],
        *,
        own_rows: bool = False,
    ) -> LayerSampler:
        """The sampler of `member`; `samples` has one size for each of these sampled layers."""
        shared = self.with_q(member, layers, own_rows=own_rows)
        return shared.drawing(samples, member.draws, correct_weights=member.correct_weights)

    def with_q(
        self, member: TrainConfig, layers: Sequence[int], *, own_rows: bool = False
    ) -> LayerSampler:
        """A sampler with the member's q in these layers; its draws may differ."""
        # Only `optimal` has a different q in each layer.
        of_layers = tuple(layers) if member.distribution == "optimal" else len(layers)
        q = member.distribution, member.power, member.self_term, member.neighbors_only
        key = (*q, of_layers, own_rows)
        if self._sampler is None or key != self._key:
            plain = member.replace(draws="independent", correct_weights=True)
            ones = [1] * len(layers)
            self._sampler = self.network.sampler(plain, layers, ones, own_rows=own_rows)
            self._key = key
        return self._sampler


class Gauge:
    """Measures the relative error of a member in one layer, on the convolutions of batches."""

    def __init__(
        self,
        member: TrainConfig,
        samplers: SamplerCache,
        layer: int,
        convolutions: Sequence[Convolution],
    ) -> None:
        self.member, self.samplers, self.layer = member, samplers, layer
        self.network, self.convolutions = samplers.network, convolutions
        self.exact_self = member.self_term == "exact"
        self.from_rows = member.neighbors_only or member.distribution == "ladies"
        self.totals = np.array([convolution.total for convolution in convolutions])
        looked_at = sum(len(convolution.chosen) for convolution in convolutions)
        # Below the top layer, the rows are drawn, so they are never all rows.
        top = layer == self.network.layers - 1
        nodes = len(self.network.data.batch_nodes)
        self.covered = looked_at / nodes if top else 0.0

    @property
    def has_closed_form(self) -> bool:
        """False for successive draws, systematic draws (too slow) and biased weights."""
        known = self.member.draws in ("independent", "poisson", "stratified")
        along = self.member.draws != "stratified" or not self.member.neighbors_only
        return known and along and self.member.correct_weights

    @property
    def quick(self) -> bool:
        """True if the closed form takes less time than drawing; that of strata takes more."""
        return self.has_closed_form and self.member.draws != "stratified"

    @property
    def _with_q(self) -> LayerSampler:
        return self.samplers.with_q(self.member, [self.layer])

    def closed(self, t: int) -> Estimate | None:
        """The relative error by theory; None if there is no closed form."""
        if not self.has_closed_form:
            return None
        if self.member.draws == "independent":
            return relative_error(self._of_one_draw / t, self.totals, self.covered)
        return relative_error(self._expected_squares(t), self.totals, self.covered)

    @cached_property
    def _of_one_draw(self) -> FloatArray:
        """(B, 1): the expected squared errors of a single vertex, t times those of t."""
        return self._expected_squares(1)

    def _expected_squares(self, t: int) -> FloatArray:
        """(B, 1): Σ_v E|y(v) − e(v)|² of each batch."""
        law = None if self.from_rows else self._with_q.probabilities()
        if self.member.draws == "poisson" and law is not None:
            law = inclusion_probabilities(law, t)
        squares = [self._expected(convolution, law, t) for convolution in self.convolutions]
        return np.array(squares)[:, None]

    def drawn(self, t: int, *, repeats: int = REPEATS, seed: int = 0) -> DrawnError:
        """The relative error measured in `repeats` draws for each batch."""
        sampler = self.samplers.get(self.member, [self.layer], [t])
        rng = torch.Generator().manual_seed(seed)
        squares = np.zeros((len(self.convolutions), repeats))
        empty = 0
        for number, convolution in enumerate(self.convolutions):
            for repeat in range(repeats):
                (block,) = sampler.sample(torch.from_numpy(convolution.rows), rng)
                squares[number, repeat] = convolution.squared_error(block)
                empty += block.empty_rows
        rows = repeats * sum(len(convolution.rows) for convolution in self.convolutions)
        return DrawnError(relative_error(squares, self.totals, self.covered), empty / rows)

    def samples_for(self, target: float) -> tuple[int, Estimate]:
        """The least t for a relative error, at most all n vertices, and the error there."""
        n = self.network.data.adjacency.n
        if self.quick:
            return least_samples(self._closed_form, target, n)
        # If t is much smaller than n, other draws have about the error of independent ones.
        sibling = self.member.replace(draws="independent", correct_weights=True)
        alike = Gauge(sibling, self.samplers, self.layer, self.convolutions)
        start, _ = least_samples(alike._closed_form, target, n)
        if self.member.draws == "successive":
            # No vertex is drawn twice, so t = n leaves no error.
            start = max(round(start / (1 + start / n)), 1)
        return least_samples(self._as_drawn, target, n, start=start, tolerance=_LOOSE)

    def _closed_form(self, t: int) -> Estimate:
        estimate = self.closed(t)
        assert estimate is not None
        return estimate

    def _as_drawn(self, t: int) -> Estimate:
        repeats = max(min(REPEATS // 2, _ENOUGH_DRAWN // t), 1)
        return self.drawn(t, repeats=repeats).error

    def _expected(self, convolution: Convolution, law: FloatArray | None, t: int) -> float:
        """Σ_v E|y(v) − e(v)|² over the chosen rows; `docs/theory.md` has the formulas.

        `law` (n,) is q, or for Poisson draws the inclusion probabilities p; None if it depends on
        the rows.
        """
        if law is None:
            law = self._with_q.probabilities(rows=convolution.rows)
            if self.member.draws == "poisson":
                law = inclusion_probabilities(law, t)
        matrix = convolution.off_diagonal if self.exact_self else convolution.matrix
        if self.member.draws == "stratified":
            return self._expected_of_strata(convolution, matrix, law, t)
        sizes = convolution.sizes(self.exact_self)
        needed = sizes > 0
        inverse = 1 / law[convolution.columns[needed]]
        if self.member.draws == "poisson":
            return float(sizes[needed] @ (inverse - 1))
        mean = float(np.square(matrix @ convolution.x).sum())
        return max(float(sizes[needed] @ inverse) - mean, 0.0) / t

    def _expected_of_strata(
        self, convolution: Convolution, matrix: csr_array, q: FloatArray, t: int
    ) -> float:
        """`stratified_variance` over `columns`; one unused vertex represents all the others."""
        k, m = matrix.shape
        size = max(k, m + 1)
        indptr = np.append(matrix.indptr, np.full(size - k, matrix.nnz))
        square = csr_array((matrix.data, matrix.indices, indptr), shape=(size, size))
        x, local = np.zeros((size, convolution.x.shape[1])), np.zeros(size)
        x[:m], local[:m] = convolution.x, q[convolution.columns]
        local[m] = max(1 - local.sum(), 0.0)
        if self.from_rows:
            places, lengths = self._along_entries(convolution)
        else:
            places, lengths = _along_vertices(convolution.columns, q)
        # Rounding must not make the running sums exceed one before the last of them.
        along = places, lengths * ((1 - 1e-12) / lengths.sum())
        return stratified_variance(square, x, local, t, np.arange(k), along=along)

    def _along_entries(self, convolution: Convolution) -> tuple[IntArray, FloatArray]:
        """Columns (m: one not in use) of the entries of all rows, and |Â(v,u)|^power."""
        part = self.network.data.adjacency.rows(convolution.rows)
        power = self._with_q.power
        sizes = np.abs(part.values, dtype=np.float64) ** power * (part.values != 0)
        if self.exact_self:
            own = np.repeat(convolution.rows, np.diff(part.indptr)) == part.indices
            sizes[own] = 0
        m = len(convolution.columns)
        places = np.minimum(np.searchsorted(convolution.columns, part.indices), m - 1)
        places = np.where(convolution.columns[places] == part.indices, places, m)
        return places, sizes


def _along_vertices(columns: IntArray, q: FloatArray) -> tuple[IntArray, FloatArray]:
    """All vertices in order; those between two of `columns` count as one, with the number m."""
    m = len(columns)
    ends = np.cumsum(q)[columns]
    bounds = np.column_stack([ends - q[columns], ends]).ravel()
    lengths = np.diff(np.concatenate([[0.0], bounds, [1.0]])).clip(min=0)
    places = np.full(2 * m + 1, m)
    places[1::2] = np.arange(m)
    return places, lengths


def samples_from_top(
    member: TrainConfig,
    samplers: SamplerCache,
    top: Sequence[Convolution],
    target: float,
    rng: np.random.Generator,
) -> list[tuple[int, Estimate]]:
    """The t of each sampled layer, from the input up, for a relative error, and the error there.

    `top` holds the convolutions of some batches in the top layer. The rows of a lower layer are
    those that the member draws above with that layer's t; other rows would have other errors.
    """
    network, convolutions = samplers.network, top
    found: list[tuple[int, Estimate]] = []
    for layer in reversed(range(network.layers)):
        found.insert(0, Gauge(member, samplers, layer, convolutions).samples_for(target))
        if layer > 0:
            above = [convolution.rows for convolution in convolutions]
            rows = rows_below(member, network, layer, found[0][0], above)
            convolutions = convolve(network, layer - 1, rows, rng)
    return found
