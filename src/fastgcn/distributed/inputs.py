"""What a rank trains on: its rows of Â and of ÂX, and its labels."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from fastgcn.adjacency import Adjacency
from fastgcn.config import TrainConfig
from fastgcn.distributed.matrix import OwnRows, own_rows
from fastgcn.distributed.share import Share
from fastgcn.distributed.travel import ring_product
from fastgcn.features import FeatureRows, Moments, Statistics, column_moments, statistics_of
from fastgcn.training_data import TrainingData, label_tensor
from fastgcn.types import FloatArray, IntArray


class Prepared(NamedTuple):
    """Own rows of Â, and `TrainingData` of own nodes, `batch_nodes` being those of all ranks."""

    matrix: OwnRows
    data: TrainingData


def prepare_share(share: Share, config: TrainConfig) -> Prepared:
    """As `training_data.prepare`, for own nodes of the training graph."""
    nodes = share.split.train if config.inductive else None
    matrix = own_rows(share, nodes, config.normalization)
    statistics = _statistics(share) if config.feature_scaling == "standard" else None
    features = FeatureRows(share.features, config.feature_scaling, nodes, statistics)
    inputs: FloatArray | FeatureRows = features
    if config.precompute:
        inputs = convolved(share, matrix, features)
    return Prepared(
        matrix,
        TrainingData(
            Adjacency(*matrix.rows),
            None,
            inputs,
            features if config.precompute and config.input_skip else None,
            torch.from_numpy(_batch_nodes(share, matrix)),
            label_tensor(share.labels if nodes is None else share.labels[nodes]),
            statistics,
        ),
    )


def convolved(share: Share, matrix: OwnRows, features: FeatureRows) -> FloatArray:
    """(s, F) float32: own rows of ÂX, the rows of X going round the ranks."""

    def rows(start: int, stop: int) -> FloatArray:
        some = features(np.arange(start, stop))
        features.forget()
        return some

    return ring_product(share.world.host, matrix.rows, matrix.bounds, features.width, rows)


def _batch_nodes(share: Share, matrix: OwnRows) -> IntArray:
    """(k,) int64: the numbers of all ranks' training nodes."""
    if matrix.nodes is not None:
        return np.arange(matrix.n)
    channel, own = share.world.host, share.split.train + share.first
    counts = channel.counts(len(own), "numbers of nodes")
    return channel.gather(torch.from_numpy(own), counts, "training nodes").numpy()


def _statistics(share: Share) -> Statistics:
    """Of all ranks' training nodes."""
    own = column_moments(share.features, share.split.train)
    row = torch.from_numpy(np.concatenate([[own.rows], own.mean, own.squares]))[None]
    channel, width = share.world.host, len(own.mean)
    rows = channel.gather(row, [1] * channel.size, "statistics of features").numpy()
    found = Moments(0, np.zeros(width), np.zeros(width))
    for count, *rest in rows:
        found = found.joined(Moments(int(count), np.array(rest[:width]), np.array(rest[width:])))
    return statistics_of(found, sparse=isinstance(share.features, csr_array))
