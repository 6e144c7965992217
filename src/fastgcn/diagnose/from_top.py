"""How many vertices each sampled layer needs, found from the top layer down."""

from collections.abc import Sequence

import numpy as np

from fastgcn.config import TrainConfig
from fastgcn.diagnose.convolutions import Convolution, convolve, rows_below
from fastgcn.diagnose.estimates import Estimate
from fastgcn.diagnose.gauge import Gauge, Laws


def samples_from_top(
    member: TrainConfig,
    laws: Laws,
    top: Sequence[Convolution],
    target: float,
    rng: np.random.Generator,
) -> list[tuple[int, Estimate]]:
    """The t of each sampled layer, from the input up, for a relative error, and the error there.

    `top` are the convolutions of some batches. The rows of a lower layer are those that the member
    draws above with the t found there: with other rows, t would have another error.
    """
    network, convolutions = laws.network, top
    found: list[tuple[int, Estimate]] = []
    for layer in reversed(range(network.layers)):
        found.insert(0, Gauge(member, laws, layer, convolutions).samples_for(target))
        if layer > 0:
            above = [convolution.rows for convolution in convolutions]
            rows = rows_below(member, network, layer, found[0][0], above)
            convolutions = convolve(network, layer - 1, rows, rng)
    return found
