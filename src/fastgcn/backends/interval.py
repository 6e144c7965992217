"""How many epochs lie between validations, so that these cost no more than training.

Work is counted in multiplications and never timed: a run is to be repeatable.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.config import TrainConfig
from fastgcn.graph.adjacency import Adjacency
from fastgcn.graph.csr import CSR

# What a step costs beside its products (drawing, finding entries, Adam), as multiplications: the
# tenth of a millisecond or so that it takes.
_OF_A_STEP = 1 << 21

# An epoch counts as so many at least. A validation of fewer is over in a hundredth of a second.
_OF_AN_EPOCH = 1 << 28


class Sizes(NamedTuple):
    """What the work depends on, beside the settings.

    Attributes:
        nodes, entries: of Â of the training graph.
        batch_nodes: nodes that batches are made of.
        all_nodes, all_entries: of Â of the whole graph, which validation sees.
        inputs: numbers that X holds, of sparse features those stored.
        judged, judged_entries: validation nodes, and entries of their rows of Â.
    """

    nodes: int
    entries: int
    batch_nodes: int
    all_nodes: int
    all_entries: int
    inputs: int
    judged: int
    judged_entries: int

    @classmethod
    def of(
        cls,
        adjacency: Adjacency,
        batch_nodes: int,
        csr: CSR,
        features: FloatArray | csr_array,
        judged: IntArray,
    ) -> "Sizes":
        """`adjacency` is Â trained on; `csr`, without loops, and `features` are the graph's."""
        nodes, degrees = len(csr.indptr) - 1, csr.indptr[judged + 1] - csr.indptr[judged]
        return cls(
            adjacency.n,
            len(adjacency.indices),
            batch_nodes,
            nodes,
            len(csr.indices) + nodes,
            features.size,
            len(judged),
            int(degrees.sum()) + len(judged),
        )

    @property
    def row_of_inputs(self) -> float:
        """Numbers in a row of ÂX, X being mixed as if no two neighbours shared a feature."""
        return self.inputs / self.all_nodes * self.all_entries / self.all_nodes


def validation_interval(sizes: Sizes, config: TrainConfig, widths: Sequence[int]) -> int:
    """The least number of epochs of training that are as much work as one validation.

    `widths` are the network's, F, d_1, ..., C. Where an epoch is little work, less than a
    hundredth of a second, it counts as that much.

    >>> n, k = 232_965, 152_410
    >>> reddit = Sizes(k, 10_000_000, k, n, 23_400_000, 602 * n, 23_699, 2_400_000)
    >>> validation_interval(reddit, TrainConfig(), (602, 128, 41))
    4
    """
    epoch = max(training_work(sizes, config, widths), _OF_AN_EPOCH)
    return max(1, math.ceil(validation_work(sizes, widths) / epoch))


def validation_work(sizes: Sizes, widths: Sequence[int]) -> float:
    """Multiplications of the full network on the validation nodes, ÂX being kept.

    Each layer multiplies by W the rows that the layer above reads, and by Â's entries what comes
    of it. Rows are as many as the entries that read them, up to all there are; below the
    neighbours of the validation nodes, nodes have the mean degree.
    """
    rows, entries, work = float(sizes.judged), float(sizes.judged_entries), 0.0
    for n_in, n_out in list(pairwise(widths))[:0:-1]:
        read = min(entries, float(sizes.all_nodes))
        work += _product(rows, read, entries, n_in, n_out)
        rows, entries = read, read * sizes.all_entries / sizes.all_nodes
    return work + rows * min(widths[0], sizes.row_of_inputs) * widths[1]


def training_work(sizes: Sizes, config: TrainConfig, widths: Sequence[int]) -> float:
    """Multiplications of an epoch's steps, and something for each step beside them.

    The gradient of a layer is twice its own work, of the first layer once: its input has none.
    A batch of s out of n nodes meets a vertex of c entries with probability 1 - (1 - s/n)^c,
    where c is the mean; of the vertices drawn over all of the graph that share is computed. What
    `history` and `optimal` look at before an epoch is not counted, nor are products for skips.
    """
    full_batch = config.method == "gcn"
    rows = float(sizes.batch_nodes if full_batch else min(config.batch_size, sizes.batch_nodes))
    steps = math.ceil(sizes.batch_nodes / rows)
    degree, layers, work = sizes.entries / sizes.nodes, list(pairwise(widths)), 0.0
    for number in range(len(layers) - 1, config.precompute - 1, -1):
        met = 1 - (1 - min(rows / sizes.nodes, 1.0)) ** degree
        reached = met * sizes.nodes
        read = _read(config, number, rows, met, reached)
        entries = rows * degree * min(read / reached, 1.0) if reached else 0.0
        if config.needs_own_rows or config.self_term == "exact":
            read = min(read + rows, float(sizes.nodes))
        work += (3 if number else 2) * _product(rows, read, entries, *layers[number])
        rows = read
    if config.precompute:
        work += 2 * rows * min(widths[0], sizes.row_of_inputs) * widths[1]
    return steps * (work + _OF_A_STEP)


def _read(config: TrainConfig, number: int, rows: float, met: float, reached: float) -> float:
    """The vertices below a layer's rows that are computed, of those that the rows reach."""
    if config.neighbor_sampling:
        return min(reached, rows * config.fanouts[number])
    if config.method != "fastgcn":
        return reached
    drawn = config.layer_samples[number - config.precompute]
    from_rows = config.distribution == "ladies" or config.neighbors_only
    return min(reached, drawn if from_rows else drawn * met)


def _product(rows: float, read: float, entries: float, n_in: int, n_out: int) -> float:
    """ÂHW of `rows` from `read` rows of H, in the cheaper order."""
    return min(
        read * n_in * n_out + entries * n_out,
        entries * n_in + rows * n_in * n_out,
    )
