"""Pictures as hand-written SVG: each function returns one `<svg>` that stands alone or inlines."""

from fastgcn.plots.bar_plot import bars
from fastgcn.plots.heat_map import heatmap
from fastgcn.plots.line_plot import Series, lines
from fastgcn.plots.point_map import scatter

__all__ = ["Series", "bars", "heatmap", "lines", "scatter"]
