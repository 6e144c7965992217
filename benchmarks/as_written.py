"""Algorithm 2 as it is written: every vertex drawn has its row computed, met by the batch or not.

The library's blocks leave out the vertices that no row meets, which changes no estimate and
takes most of the arithmetic away; estimators are compared with both.
"""

from dataclasses import replace

from fastgcn.arrays import FloatArray
from fastgcn.kernels.blocks import sample_all_drawn, sample_by_vertices
from fastgcn.sampling import LayerSampler
from fastgcn.sampling.layer import ByPoints, Source


class AsWritten(LayerSampler):
    """A `LayerSampler` of one law for all rows whose blocks hold all vertices drawn."""

    def _source(self, q: FloatArray, t: int) -> Source:
        source = super()._source(q, t)
        assert isinstance(source, ByPoints)
        assert source.kernel is sample_by_vertices
        return replace(source, kernel=sample_all_drawn)
