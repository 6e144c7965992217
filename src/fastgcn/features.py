"""Feature rows by id: the one way that training and inference read features.

Dense, memory-mapped and sparse features look the same from here; only the rows asked for are
ever read.
"""

from typing import cast

import numpy as np
from scipy.sparse import csr_array

from fastgcn.adjacency import Rows
from fastgcn.types import FloatArray, IntArray


class FeatureRows:
    """Rows of an (N, F) feature matrix under ids 0..n-1.

    `nodes` (n,) says which row an id stands for, None that they are the same. With `scaling`
    "row", every row is divided by the sum of its magnitudes, as the authors' program does with
    counts of words; a row of zeros stays.
    """

    def __init__(
        self,
        features: FloatArray | csr_array,
        scaling: str = "none",
        nodes: IntArray | None = None,
    ) -> None:
        self.features, self.scaling, self.nodes = features, scaling, nodes

    @property
    def width(self) -> int:
        return int(self.features.shape[1])

    def __call__(self, ids: IntArray) -> FloatArray:
        """(len(ids), F) float32, dense, a copy."""
        rows = self._rows(ids)
        dense: FloatArray = rows.toarray() if isinstance(rows, csr_array) else rows
        return dense * self._scales(dense)[:, None] if self.scaling == "row" else dense

    def convolve(self, rows: Rows) -> FloatArray:
        """(s, F) float32: the product of some rows of Â with the features, ÂX."""
        shape = (len(rows.indptr) - 1, self.features.shape[0])
        if self.scaling == "none" and not isinstance(self.features, csr_array):
            # Straight from the feature matrix, which may be a memory map: nothing is gathered.
            columns = rows.indices if self.nodes is None else self.nodes[rows.indices]
            direct = csr_array((rows.values, columns, rows.indptr), shape) @ self.features
            return cast(FloatArray, direct)
        columns, place = np.unique(rows.indices, return_inverse=True)
        part = self._rows(columns)
        scales = self._scales(part) if self.scaling == "row" else np.ones(len(columns), np.float32)
        matrix = csr_array(
            (rows.values * scales[place], place, rows.indptr), (shape[0], len(columns))
        )
        product = matrix @ part
        return cast(FloatArray, product.toarray() if isinstance(product, csr_array) else product)

    def _rows(self, ids: IntArray) -> FloatArray | csr_array:
        return self.features[ids if self.nodes is None else self.nodes[ids]]

    def _scales(self, rows: FloatArray | csr_array) -> FloatArray:
        sums = np.asarray(abs(rows).sum(axis=1)).reshape(-1)
        scales: FloatArray = np.zeros(len(sums), np.float32)
        np.divide(1, sums, out=scales, where=sums > 0)
        return scales
