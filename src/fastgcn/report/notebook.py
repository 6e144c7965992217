"""What a notebook shows of a run: a picture of its training, and a table of its confusions."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.report.page import Figure
from fastgcn.report.quality import confusion_matrix, evaluate_run
from fastgcn.report.training import curves, race
from fastgcn.train.run import Run
from fastgcn.writing import write_bytes, write_text

if TYPE_CHECKING:
    import pandas

# Pixels of a .png for a pixel of the picture.
_SCALE = 2


@dataclass(frozen=True, slots=True)
class Picture:
    """Figures that a notebook shows below each other, and `save` writes to a file."""

    figures: Sequence[Figure]

    def _repr_html_(self) -> str:
        return "".join(f"<div>{figure.svg}</div>" for figure in self.figures)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.png` or `.svg` file with all figures below each other."""
        path = Path(path)
        if path.suffix not in (".png", ".svg"):
            raise InputError(f"a picture is saved as .png or .svg, got {path.name!r}")
        svg = _stacked([figure.svg for figure in self.figures])
        if path.suffix == ".svg":
            write_text(path, svg)
            return
        import vl_convert

        write_bytes(path, vl_convert.svg_to_png(svg, scale=_SCALE))


def plot(run: Run) -> Picture:
    """The loss by epoch, the score that validation selects by, and the race of candidates.

    In a notebook the picture is shown; `plot(run).save("training.png")` writes it to a file.
    """
    figures = curves(run)
    if not figures:
        raise InputError("a run of one epoch has no curve; run.metrics has its scores")
    return Picture(figures + race(run))


def _stacked(pictures: Sequence[str]) -> str:
    """One `<svg>` with pictures below each other."""
    sizes = [_size(svg) for svg in pictures]
    parts, top = [], 0.0
    for svg, (_, height) in zip(pictures, sizes, strict=True):
        parts.append(svg.replace("<svg ", f'<svg y="{top:g}" ', 1))
        top += math.ceil(height)
    width = max(width for width, _ in sizes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {top:g}" '
        f'width="{width:g}" height="{top:g}">{"".join(parts)}</svg>'
    )


def _size(svg: str) -> tuple[float, float]:
    """The width and height that a picture says of itself."""
    head = svg[: svg.index(">")]
    width, height = (head.partition(f' {name}="')[2].partition('"')[0] for name in _SIDES)
    return float(width), float(height)


_SIDES = ("width", "height")


def confusion(run: Run, graph: Graph, part: str = "test") -> "pandas.DataFrame":
    """How many nodes of each class (rows) are predicted as each class (columns).

    `part` of the split is train, val or test; nodes without a label do not count. A class is
    predicted as `fastgcn.predict` does it, with the run's threshold.
    """
    try:
        import pandas
    except ImportError:
        raise InputError("confusion() needs pandas; run.metrics has scores by class") from None
    if run.model.target is not None:
        raise InputError("a run that predicts a number has no confusions; see its report")
    if run.model.multilabel:
        raise InputError(
            "a run that predicts several labels for a node has no confusions; "
            "run.metrics['test_classes'] has the scores of each label"
        )
    found = evaluate_run(run, graph, part)
    names = list(found.names)
    return pandas.DataFrame(
        confusion_matrix(found),
        index=pandas.Index(names, name="class"),
        columns=pandas.Index(names, name="predicted"),
    )
