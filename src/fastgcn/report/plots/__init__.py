"""Pictures as hand-written SVG: each function returns one `<svg>` that stands alone or inlines."""

from fastgcn.report.plots.bar_plot import bars
from fastgcn.report.plots.heat_map import heatmap
from fastgcn.report.plots.line_plot import Series, lines
from fastgcn.report.plots.point_map import scatter

__all__ = ["Series", "bars", "heatmap", "lines", "scatter"]
