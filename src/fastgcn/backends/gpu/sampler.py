"""q over all vertices on the device, ready to draw from, and changed in place."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fastgcn.backends.gpu.data import DeviceData
from fastgcn.backends.gpu.matrix import DeviceMatrix
from fastgcn.config import OWN_POWERS, Distribution, Draws, TrainConfig
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


class DeviceLaw:
    """q (n,) float64, its running sums, and where the search for each slot of [0, 1) begins."""

    def __init__(self, q: Tensor) -> None:
        self.q = torch.empty_like(q)
        self.cumulative = torch.empty_like(q)
        self.guide = torch.empty(len(q) + 1, dtype=torch.int32, device=q.device)
        self.set(q)

    def set(self, q: Tensor) -> None:
        self.q.copy_(q)
        torch.cumsum(q, 0, out=self.cumulative)
        total = self.cumulative[-1:]
        slots = len(q)
        shares = torch.arange(slots + 1, dtype=torch.float64, device=q.device) / slots * total
        found = torch.searchsorted(self.cumulative, shares, right=True)
        # The last vertex that can be drawn; rounding must not lead beyond it.
        last = torch.searchsorted(self.cumulative, total)
        self.guide.copy_(torch.minimum(found, last))
        self.guide[-1:] = last


def vertex_law(
    distribution: Distribution, squares: Tensor, power: float, row_norms: Tensor | None
) -> Tensor:
    """(n,) float64: as `samplers.distributions.fixed_q`, from squared column norms."""
    norms = squares.sqrt()
    if distribution == "uniform":
        weight = torch.ones_like(squares)
    elif distribution == "importance":
        weight = squares
    elif distribution == "flat":
        weight = norms**power
    elif row_norms is None:
        weight = norms
    else:
        weight = norms * row_norms.double()
        weight = torch.maximum(weight, 1e-6 * weight.max() * (norms > 0))
        weight = torch.where(weight.any(), weight, norms)
    total = weight.sum()
    return torch.where(total > 0, weight / total, weight)


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


# Batches that are drawn together, and where the step allows it, recorded together.
_TOGETHER = 64


class Group:
    """The batches of an epoch, cut into groups of K.

    Attributes:
        order: (groups, K, size) int32, the epoch's nodes, then -1.
        at: (1,) int64, which group is next; `steps` (1,) int64, how many steps were taken before.
        rows, labels, row_weights: those of the group at hand; a batch's weights sum to one.
        active: (K,) int32, whether a batch has any row.
        losses: (groups, K) of the epoch's steps.
        empty: (1,) the share of rows of the group's first batch that met no vertex.
    """

    def __init__(
        self, data: DeviceData, config: TrainConfig, loss: nn.Module, *, own_rows: bool
    ) -> None:
        self.data, self.loss = data, loss
        device, nodes = data.matrix.indices.device, len(data.batch_nodes)
        size = min(config.batch_size, nodes)
        self.used = nodes - nodes % size if config.drop_last else nodes
        self.n_steps = -(-self.used // size)
        self.sampler = DeviceSampler(
            data.matrix,
            config.layer_samples,
            size=size,
            count=min(_TOGETHER, self.n_steps),
            seed=config.seed + 1,
            distribution=config.distribution,
            power=config.power,
            draws=config.draws,
            exact_self=config.self_term == "exact",
            own_rows=own_rows,
        )
        groups = -(-self.n_steps // self.sampler.count)
        self.count = self.sampler.count
        self.order = torch.full((groups, self.count, size), -1, dtype=torch.int32, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.steps = torch.zeros(1, dtype=torch.int64, device=device)
        self.rows = self.order[0].clone()
        self.labels = data.labels[self.rows.clamp(min=0).long()]
        self.row_weights = torch.zeros((self.count, size), device=device)
        self.active = torch.zeros(self.count, dtype=torch.int32, device=device)
        self.losses = torch.zeros((groups, self.count), device=device)
        self.empty = torch.zeros(1, device=device)
        self.rng = torch.Generator(device)
        self.seed = config.seed

    @property
    def size(self) -> int:
        return int(self.order.shape[2])

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch of an epoch."""
        left = self.used - self.size * (self.n_steps - 1)
        return [self.size] * (self.n_steps - 1) + [left]

    def shuffle(self, epoch: int) -> None:
        """A new order, that of this epoch whenever it is begun."""
        self.rng.manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        nodes = self.data.batch_nodes
        mixed = nodes[torch.randperm(len(nodes), generator=self.rng, device=nodes.device)]
        self.order.view(-1)[: self.used] = mixed[: self.used]
        self.at.zero_()

    def draw(self) -> list[Room]:
        """The next group's rows, labels, weights and blocks."""
        self.rows.copy_(self.order.index_select(0, self.at)[0])
        there = self.rows >= 0
        # Where there is no row, node 0 stands in, with weight zero and perhaps without a label.
        self.labels.copy_(self.data.labels[self.rows.clamp(min=0)]).clamp_(min=0)
        weights = self._class_weights() * there
        torch.div(weights, weights.sum(1, keepdim=True).clamp(min=1e-30), out=self.row_weights)
        self.active.copy_(there.any(1))
        rooms = self.sampler.sample(self.rows, self.steps)
        if rooms:
            unmet = rooms[-1].offsets[: self.size + 1].diff() == 0
            self.empty.copy_((unmet & there[0]).sum() / there[0].sum().clamp(min=1))
        return rooms

    def _class_weights(self) -> Tensor:
        if isinstance(self.loss, nn.CrossEntropyLoss) and self.loss.weight is not None:
            return self.loss.weight[self.labels]
        return torch.ones_like(self.row_weights)

    def finish(self, losses: Tensor) -> None:
        """Keep a group's losses (K,), and go on to the next one."""
        self.losses.index_copy_(0, self.at, losses[None])
        self.at.add_(1).remainder_(len(self.order))

    def results(self) -> tuple[list[float], float]:
        """The losses of the epoch's steps, and `empty`; here the host waits for the device."""
        *losses, empty = torch.cat([self.losses.view(-1)[: self.n_steps], self.empty]).tolist()
        return losses, empty
