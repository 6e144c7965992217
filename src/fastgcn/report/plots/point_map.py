"""Points of the plane by category."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgcn.arrays import AnyArray
from fastgcn.errors import InputError
from fastgcn.report.plots.svg import (
    COLOURS,
    MARGIN,
    WIDTH,
    colour,
    head,
    legend,
    number,
    picture,
    rect,
)

_PLOT_HEIGHT = 380
# Dots and rings in every colour; beyond that nobody could tell them apart.
_SHOWN = 2 * COLOURS


def scatter(
    points: Any, category: Any, names: Sequence[str], *, title: str, description: str
) -> str:
    """A map of points (n, 2), coloured by `category` (n,), whose names are in the legend.

    The most frequent categories have a look of their own, the others share one. Both axes have
    the same unit of length and bear no numbers; points far out are drawn at the edge.

    >>> svg = scatter([[0, 0], [1, 1]], [0, 1], ["a", "b"], title="Two", description="Apart.")
    >>> svg.count("fg-dots")
    5
    """
    xy = np.asarray(points, dtype=np.float64)
    ids = np.asarray(category, dtype=np.int64)
    if xy.ndim != 2 or xy.shape[1] != 2 or len(xy) != len(ids):
        raise InputError(
            f"a map needs (n, 2) points and n categories, got shapes {xy.shape} and {ids.shape}"
        )
    body, top = head(title)
    groups = _groups(ids, names)
    keys, top = legend([(_dots(np.array([[12.0, 7.0]]), s), name) for _, name, s in groups], top)
    body += keys + rect(MARGIN, top, WIDTH - 2 * MARGIN, _PLOT_HEIGHT, "fg-grid")
    placed = _placed(xy, top)
    # The shared look first, so that it lies below the others.
    for chosen, _, style in groups[::-1]:
        body += _dots(placed[chosen], style)
    return picture(body, height=top + _PLOT_HEIGHT + 10, title=title, description=description)


def _groups(ids: AnyArray, names: Sequence[str]) -> list[tuple[AnyArray, str, str]]:
    """Which points, their name and their style; in the order of the names, the rest last."""
    counts = np.bincount(ids, minlength=len(names))
    by_size = np.argsort(-counts, kind="stable")
    present = int(np.count_nonzero(counts))
    own = by_size[: present if present <= _SHOWN else _SHOWN - 1]
    groups = [
        (ids == c, str(names[c]), colour(i) + (" fg-ring" if i >= COLOURS else ""))
        for i, c in enumerate(np.sort(own))
    ]
    if present > len(own):
        rest = f"{present - len(own)} others"
        groups.append((~np.isin(ids, own), rest, "fg-other"))
    return groups


def _placed(xy: AnyArray, top: float) -> AnyArray:
    """Points in units of the picture: centred, one unit of length for both axes, y upwards.

    The middle 99% of each coordinate fill the frame: the few that lie far out, which would press
    the others together, are drawn at its edge.
    """
    low, high = np.quantile(xy, [0.005, 0.995], axis=0)
    room = np.array([WIDTH - 2 * MARGIN - 20, _PLOT_HEIGHT - 20])
    scale = float((room / np.maximum(high - low, 1e-12)).min())
    centred = (xy - (low + high) / 2) * scale * [1, -1]
    middle = np.array([WIDTH / 2, top + _PLOT_HEIGHT / 2])
    edge = room / 2 + 5
    return np.asarray(np.clip(centred, -edge, edge) + middle)


def _dots(xy: AnyArray, style: str) -> str:
    """Lines of no length, whose caps are dots: a tenth of the size of as many circles."""
    path = "".join(f"M{number(x)} {number(y)}h0" for x, y in xy)
    hole = f'<path class="fg-hole" d="{path}"/>' if style.endswith("ring") else ""
    return f'<path class="fg-dots {style}" d="{path}"/>{hole}'
