"""An explanation as a picture: the node, and around it the neighbours that mattered most."""

import math

from fastgcn.infer.explain import Explanation
from fastgcn.report.plots import (
    INK,
    PAPER,
    SERIES,
    SOFT,
    WIDTH,
    Spec,
    hinted,
    layer,
    picture,
    shorten,
)

_FOR, _AGAINST = SERIES[:2]
_HEIGHT = 340
# Half the height of the rings of direct neighbours and of all others, in units of the picture.
_NEAR, _FAR = 90.0, 132.0
_LARGEST = 15.0  # radius of the neighbour with the largest effect
_MOST = 12  # more would overlap


def explanation_picture(found: Explanation) -> str:
    """The `<svg>` of a node with its most important neighbours.

    Direct neighbours are on the inner ring, others on the outer one. The area of a neighbour is its
    effect; its colour says whether it speaks for the class or against it.
    """
    shown = found.neighbors[:_MOST]
    largest = max((abs(each.effect) for each in shown), default=1.0) or 1.0
    points: list[Spec] = []
    for place, each in enumerate(shown):
        turn = 2 * math.pi * (place + 0.5) / len(shown) - math.pi / 2
        far = _NEAR if each.hops == 1 else _FAR
        right, up = 1.25 * far * math.cos(turn), -far * math.sin(turn)
        radius = max(3.0, _LARGEST * math.sqrt(abs(each.effect) / largest))
        points.append(
            {"x": right, "y": up, "cx": 0, "cy": 0, "size": math.pi * radius**2,
             "width": max(1.0, 5 * abs(each.effect) / largest),
             "color": _FOR if each.effect >= 0 else _AGAINST,
             "dash": [1, 0] if each.hops == 1 else [4, 4],
             "below": up + (radius + 10) * math.copysign(1, up), "text": shorten(str(each.id), 90)}
        )  # fmt: skip
    centre: list[Spec] = [{"x": 0, "y": 0, "below": -26, "text": shorten(str(found.node), 120)}]
    half = (WIDTH - 16) / 2, _HEIGHT / 2
    x, y = (_channel(name, side) for name, side in zip("xy", half, strict=True))
    color, below = _as_given("color"), y | {"field": "below"}
    size = {"field": "size", "type": "quantitative", "scale": None}
    width = {"field": "width", "type": "quantitative", "scale": None}
    dot: Spec = {"type": "point", "filled": True, "shape": "circle"}
    bold: Spec = {"type": "text", "fontWeight": 600}
    layers = [
        layer(points, {"type": "rule"}, x=x, y=y, x2={"field": "cx"}, y2={"field": "cy"},
              color=color, strokeWidth=width, strokeDash=_as_given("dash")),
        hinted(layer(points, dot, x=x, y=y, color=color, size=size),
               [f"{each.id}: {each.effect:+.3g}" for each in shown]),
        layer(points, {"type": "text", "fontSize": 12}, x=x, y=below, text={"field": "text"}),
        layer(centre, dot | {"fill": INK, "stroke": PAPER, "size": 500}, x=x, y=y),
        layer(centre, bold, x=x, y=below, text={"field": "text"}),
    ]  # fmt: skip
    key = f"blue: for {shorten(found.target, 120)}; orange: against"
    key += "" if all(each.hops == 1 for each in shown) else "; dashed: further away"
    layers.append(
        layer([{"x": 0, "y": -half[1] + 6, "text": key}],
              {"type": "text", "fontSize": 12, "color": SOFT}, x=x, y=y, text={"field": "text"})
    )  # fmt: skip
    first = f"{shown[0].id} has the largest effect. " if shown else "It has no neighbours. "
    return picture(
        {"height": _HEIGHT, "layer": layers},
        title=f"Node {found.node}: {found.target}, {found.output:.3g}",
        description=f"The neighbours that mattered most. {first}{key}.",
    )


def _channel(name: str, side: float) -> Spec:
    scale = {"domain": [-side, side], "nice": False}
    return {"field": name, "type": "quantitative", "axis": None, "scale": scale}


def _as_given(field: str) -> Spec:
    return {"field": field, "type": "nominal", "scale": None}
