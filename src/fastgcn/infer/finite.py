"""Predictions and embeddings are finite, or refused with a sentence that names the cause."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray, is_finite
from fastgcn.errors import InputError
from fastgcn.features.extremes import LARGE, extreme
from fastgcn.graph import checks
from fastgcn.model import all_finite
from fastgcn.network import Network


def check_weights(model: Network) -> None:
    """Refuse a network whose training diverged, or whose file is damaged."""
    if not all_finite(model.state_dict().values()):
        raise InputError(
            "the network's weights are not finite, because its training diverged; train again "
            "with a lower learning_rate or with scaled features"
        )


class Described(NamedTuple):
    """Nodes in messages: their features, their own ids, or numbers from `first` on."""

    features: FloatArray | csr_array
    node_ids: Sequence[Any] | None
    first: int = 0

    def named(self, node: int) -> str:
        return checks.named(node if self.node_ids is not None else node + self.first, self.node_ids)


def check_rows(
    rows: FloatArray,
    nodes: IntArray,
    asked: Described,
    others: Described | None = None,
    feature_names: Sequence[str] | None = None,
) -> FloatArray:
    """Return the rows (len(nodes), d) that a network has computed, if all of them are finite.

    If not, the cause is looked for in the features of the nodes `asked` for and of the `others`.
    """
    if is_finite(rows):
        return rows
    bad = ~np.isfinite(rows).all(axis=1)
    cause = "its weights are too large: train again with a lower learning_rate"
    for each in (asked,) if others is None else (asked, others):
        largest = extreme(each.features)
        shown = largest.shown(each.node_ids, feature_names, each.first)
        if not math.isfinite(largest.value):
            cause = f"{shown}: fill or drop such values first"
            break
        if largest.size > LARGE:
            cause = f"{shown}, which is too large for it"
            break
    raise InputError(
        f"the network's outputs are not finite for {np.count_nonzero(bad):,} of {len(rows):,} "
        f"nodes, first for {asked.named(int(nodes[np.argmax(bad)]))}; {cause}"
    )
