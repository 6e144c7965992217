"""What a step sends, by formula: bytes on the wire of all ranks together."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SampledLayer:
    """What travels for one sampled convolution.

    Attributes:
        t: vertices drawn, counted as often as they are.
        met: distinct ones that some row of the layer above meets.
        width: numbers a row has that travels: that of H, or of HW where that is cheaper.
        trained: whether the rows depend on weights, so that their gradients travel back.
        above: rows of the layer above, where q is made of them (`ladies`), else 0.
    """

    t: int
    met: int
    width: int
    trained: bool = True
    above: int = 0

    def sent(self, ranks: int) -> int:
        """A row for each vertex met, from its rank to all others, and its gradient back. To draw
        them, an id and its q for each point and, from each rank, two counts and a bit a point for
        the vertices met; or, for `ladies`, a length for each row above, an id for each point, and
        the sum over ranks of a number for each vertex and two counts."""
        drawn = 16 * self.t + ranks * (16 + -(-self.t // 8))
        if self.above:
            drawn = 8 * self.above + 8 * self.t + 2 * 8 * (self.met + 2)
        rows = 4 * self.met * self.width * (2 if self.trained else 1)
        return (ranks - 1) * (drawn + rows)


def step_bytes(ranks: int, layers: Sequence[SampledLayer], parameters: int) -> int:
    """Bytes that all ranks together send in one step.

    Beside the layers, the sum of gradients, loss and weight: each rank adds up its part of them,
    from all others, and sends it to all others.

    >>> step_bytes(1, [SampledLayer(400, 300, 41)], 80_000)
    0
    >>> step_bytes(2, [SampledLayer(400, 300, 41)], 80_000)
    744948
    """
    return sum(layer.sent(ranks) for layer in layers) + 2 * (ranks - 1) * 4 * (parameters + 2)
