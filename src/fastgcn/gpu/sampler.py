"""The layer sampler on the device: the blocks of K batches at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fastgcn.config import OWN_POWERS, Distribution, Draws
from fastgcn.gpu.law import DeviceLaw, vertex_law
from fastgcn.gpu.matrix import DeviceMatrix
from fastgcn.kernels.gpu.draw import (
    INDEPENDENT,
    NOWHERE,
    STRATIFIED,
    SYSTEMATIC,
    Drawn,
    draw_entries,
    draw_vertices,
    forget,
)
from fastgcn.kernels.gpu.scan import CHUNK, Room, cut_blocks

KINDS: dict[Draws, int] = {
    "independent": INDEPENDENT,
    "stratified": STRATIFIED,
    "systematic": SYSTEMATIC,
}

# Bytes that the blocks of K batches, and the table of drawn vertices, may take.
_ROOM_BYTES = 1 << 30
# Programs for each processor of the device, that go through rows of Â.
_PROGRAMS = 8


class DeviceSampler:
    """`samplers.LayerSampler` of draws by points, for K batches of `size` rows at a time.

    The same estimator: unbiased weights count(u)/(t·q(u)), vertices that no row meets left out.
    A drawn vertex that is also one of the batch's own rows is in the sources twice, as either.
    Draws depend on the seed and the number of steps before them, and on nothing else.
    """

    def __init__(
        self,
        matrix: DeviceMatrix,
        samples: Sequence[int],
        *,
        size: int,
        count: int,
        seed: int,
        distribution: Distribution = "importance",
        power: float | None = None,
        draws: Draws = "independent",
        exact_self: bool = False,
        own_rows: bool = False,
    ) -> None:
        self.matrix, self.samples, self.seed = matrix, tuple(samples), seed
        self.distribution, self.kind = distribution, KINDS[draws]
        self.power = OWN_POWERS.get(distribution, 2.0) if power is None else power
        self.exact_self = exact_self
        self.own_rows = own_rows or exact_self
        device = matrix.indices.device
        self.programs = _processors(device) * _PROGRAMS
        self.laws: list[DeviceLaw] = []
        self.row_sums = self.entry_sums = torch.empty(0, device=device)
        self._set_laws()
        sizes = [size]
        for t in reversed(self.samples):
            sizes.append((sizes[-1] if self.own_rows else 0) + t)
        self.sizes = tuple(sizes[::-1])  # rows, from the lowest sources up to the batch
        self.count = min(count, self._together())
        self.place = torch.full((self.count, matrix.n), NOWHERE, dtype=torch.int32, device=device)
        self.rooms = [self._room(layer, self.count) for layer in range(len(self.samples))]
        self.draws = [Drawn.room(self.count, t, device) for t in self.samples]
        self.totals = torch.ones(self.count, dtype=torch.float64, device=device)

    def _set_laws(self) -> None:
        matrix = self.matrix
        by_rows = self.distribution == "ladies"
        sampled = matrix.magnitudes(self.power if by_rows else 2.0, diagonal=not self.exact_self)
        sums = torch.zeros(matrix.n, dtype=torch.float64, device=sampled.device)
        if by_rows:
            self.row_sums = sums.index_add_(0, matrix.row, sampled)
            self.entry_sums = sampled.cumsum(0)
            return
        self.squares = sums.index_add_(0, matrix.indices, sampled)
        q = vertex_law(self.distribution, self.squares, self.power, None)
        self.laws = [DeviceLaw(q) for _ in self.samples]

    def set_row_norms(self, norms: Sequence[Tensor]) -> None:
        """|x(u)| of every vertex, one tensor a sampled layer; `optimal` draws by them."""
        for law, each in zip(self.laws, norms, strict=True):
            law.set(vertex_law(self.distribution, self.squares, self.power, each))

    def _capacity(self, layer: int) -> tuple[int, int]:
        """Entries that a block can have at most, and that are looked at for it."""
        rows, t = self.sizes[layer + 1], self.samples[layer]
        looked_at = self.matrix.largest_rows(rows)
        if self.own_rows and layer < len(self.samples) - 1:
            # A vertex may be a row more than once: own, and drawn.
            looked_at = rows * int(self.matrix.indptr.diff().max())
        return min(rows * (t + self.exact_self), looked_at), looked_at

    def _together(self) -> int:
        """How many batches there is room for."""
        bytes_each = 4 * self.matrix.n
        for layer, t in enumerate(self.samples):
            capacity, looked_at = self._capacity(layer)
            bytes_each += 8 * capacity + 20 * t + 4 * (looked_at // CHUNK)
        return max(1, _ROOM_BYTES // bytes_each)

    def _room(self, layer: int, count: int) -> Room:
        rows, t = self.sizes[layer + 1], self.samples[layer]
        capacity, looked_at = self._capacity(layer)
        return Room.make(
            count, rows, t, rows if self.own_rows else 0, count * capacity, count * looked_at,
            self.matrix.indices.device,
        )  # fmt: skip

    def sample(self, rows: Tensor, steps: Tensor) -> list[Room]:
        """The blocks of `rows` (K, size) int32, -1 for none, from the input layer up.

        `steps` (1,) int64 counts the batches before these. What is returned is work space.
        """
        for layer in reversed(range(len(self.samples))):
            room, draws = self.rooms[layer], self.draws[layer]
            seed = (self.seed * 61 + layer) % 2**62
            totals = self.totals
            q: Tensor | float = self.power
            if self.distribution == "ladies":
                lengths = self.row_sums[rows.clamp(min=0)] * (rows >= 0)
                sums = lengths.cumsum(1)
                totals = sums[:, -1].contiguous()
                indptr, indices, _ = self.matrix.csr
                draw_entries(
                    sums, rows, (indptr, indices, self.entry_sums), steps, seed, self.kind, draws,
                    self.place,
                )  # fmt: skip
            else:
                law = self.laws[layer]
                q = law.q
                draw_vertices(
                    (law.cumulative, law.guide), steps, seed, self.kind, draws, self.place
                )
            cut_blocks(
                rows, self.matrix.csr, draws, self.place, q, totals, room,
                exact_self=self.exact_self, programs=self.programs,
            )  # fmt: skip
            forget(draws.vertices, self.place)
            rows = room.sources
        return self.rooms


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
