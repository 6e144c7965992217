"""Minibatches on the device: q, the vertices drawn by it, their blocks, and an epoch's order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fastgcn.backends.data import SharedData
from fastgcn.backends.gpu.matrix import DeviceMatrix
from fastgcn.config import OWN_POWERS, Distribution, Draws, TrainConfig
from fastgcn.kernels.gpu.blocks import CHUNK, BlockBuffers, cut_blocks
from fastgcn.kernels.gpu.draw import (
    INDEPENDENT,
    STRATIFIED,
    SYSTEMATIC,
    DrawnVertices,
    Places,
    clear_places,
    draw_entries,
    draw_vertices,
)
from fastgcn.sampling.draws import fixed_q

if TYPE_CHECKING:
    from fastgcn.backends.gpu.data import DeviceTrainingData

KINDS: dict[Draws, int] = {
    "independent": INDEPENDENT,
    "stratified": STRATIFIED,
    "systematic": SYSTEMATIC,
}

# Bytes that a set of the blocks of K batches, and the table of drawn vertices, may take.
_BUFFER_BYTES = 1 << 30
# Programs for each of the device's processors that scan rows of Â.
_PROGRAMS = 8
# Batches that are drawn together and, with the fused step, recorded together.
_TOGETHER = 64


class DeviceLaw:
    """q (n,) float64, its running sums, and the guide of `draw_vertices`.

    `set` writes a new q into the same memory, which recorded work reads.
    """

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
        # The last vertex that can be drawn; rounding must not draw one beyond it.
        last = torch.searchsorted(self.cumulative, total)
        self.guide.copy_(torch.minimum(found, last))
        self.guide[-1:] = last


class DeviceSampler:
    """`sampling.LayerSampler` with draws by points, K of `steps` batches of `size` rows at a time.

    The same estimator: weights count(u)/(t·q(u)) are unbiased, and vertices without an edge to
    any row are left out. A drawn vertex that is also one of the batch's own rows is among the
    sources twice. Draws depend only on the seed and the number of steps before them, so trainings
    that take turns may share a sampler, unless it is told the norms of one network's rows. If K is
    not all, there are blocks for two calls.
    """

    def __init__(
        self,
        matrix: DeviceMatrix,
        samples: Sequence[int],
        *,
        size: int,
        steps: int,
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
        self.row_sums = self.entry_sums = self.norms = torch.empty(0, device=device)
        self._set_laws()
        sizes = [size]
        for t in reversed(self.samples):
            sizes.append((sizes[-1] if self.own_rows else 0) + t)
        self.sizes = tuple(sizes[::-1])  # rows, from the lowest sources up to the batch
        # Groups of equal size: what the last one lacks would be computed in vain.
        groups = -(-steps // min(_TOGETHER, self._most_batches()))
        self.count = -(-steps // groups)
        self.places = Places.empty(self.count, matrix.n, device)
        layers = range(len(self.samples))
        self.sets = [[self._buffers(layer) for layer in layers] for _ in range(min(groups, 2))]
        self.drawn = [DrawnVertices.empty(self.count, t, device) for t in self.samples]
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
        self.norms = sums.index_add_(0, matrix.indices, sampled).sqrt()
        q = self._q(torch.ones_like(self.norms))
        self.laws = [DeviceLaw(q) for _ in self.samples]

    def _q(self, row_norms: Tensor) -> Tensor:
        return fixed_q(self.distribution, self.norms, self.power, row_norms.double())

    def set_row_norms(self, norms: Sequence[Tensor]) -> None:
        """|x(u)| of every vertex (n,), one tensor a sampled layer; `optimal` draws by them."""
        for law, each in zip(self.laws, norms, strict=True):
            law.set(self._q(each))

    def _capacity(self, layer: int) -> tuple[int, int]:
        """The most entries of a block, and the most that are scanned for it."""
        rows, t = self.sizes[layer + 1], self.samples[layer]
        scanned = self.matrix.largest_rows(rows)
        if self.own_rows and layer < len(self.samples) - 1:
            # A vertex may be a row more than once: as an own row, and as a drawn one.
            scanned = rows * int(self.matrix.indptr.diff().max())
        return min(rows * (t + self.exact_self), scanned), scanned

    def _most_batches(self) -> int:
        """How many batches fit the buffers of a set."""
        bytes_each = 4 * self.matrix.n + self.matrix.n // 8
        for layer, t in enumerate(self.samples):
            capacity, scanned = self._capacity(layer)
            bytes_each += 12 * capacity + 20 * t + 16 * (scanned // CHUNK) + scanned // 8
        return max(1, _BUFFER_BYTES // bytes_each)

    def _buffers(self, layer: int) -> BlockBuffers:
        rows, t, count = self.sizes[layer + 1], self.samples[layer], self.count
        capacity, scanned = self._capacity(layer)
        return BlockBuffers.empty(
            count, rows, t, rows if self.own_rows else 0, count * capacity, count * scanned,
            self.matrix.indices.device,
        )  # fmt: skip

    def sample(self, rows: Tensor, steps: Tensor, into: int = 0) -> list[BlockBuffers]:
        """The blocks of `rows` (K, size) int32, -1 for none, from the input layer up.

        `steps` (1,) int64 counts the batches before these. The next call with the same number of a
        set, `into`, overwrites the result.
        """
        buffers = self.sets[into]
        for layer in reversed(range(len(self.samples))):
            drawn = self.drawn[layer]
            seed = (self.seed * 61 + layer) % 2**62
            totals = self.totals
            q: Tensor | float = self.power
            if self.distribution == "ladies":
                sums = (self.row_sums[rows.clamp(min=0)] * (rows >= 0)).cumsum(1)
                totals = sums[:, -1].contiguous()
                entries = self.matrix.indptr, self.matrix.indices, self.entry_sums
                draw_entries(sums, rows, entries, steps, seed, self.kind, drawn, self.places)
            else:
                law = self.laws[layer]
                q, sums_and_guide = law.q, (law.cumulative, law.guide)
                draw_vertices(sums_and_guide, steps, seed, self.kind, drawn, self.places)
            cut_blocks(
                rows, self.matrix.csr, drawn, self.places, q, totals, buffers[layer],
                exact_self=self.exact_self, programs=self.programs,
            )  # fmt: skip
            clear_places(drawn, self.places)
            rows = buffers[layer].sources
        return buffers


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@dataclass(frozen=True)
class Group:
    """K batches that were drawn together.

    Attributes:
        rows: (K, size) int32, -1 for none.
        labels, row_weights: those of the rows; the weights of a batch sum to one.
        active: (K,) int32, 1 if a batch has any row.
        blocks: from the input layer up.
    """

    rows: Tensor
    labels: Tensor
    row_weights: Tensor
    active: Tensor
    blocks: list[BlockBuffers]


class EpochBatches:
    """The batches of an epoch, in groups of K that are drawn together.

    Attributes:
        order: (groups, K, size) int32, the epoch's nodes, then -1.
        at: (1,) int64, the number of the next group.
        steps: (1,) int64, how many steps were taken before that group.
        drawn: the groups that were drawn last; two if there is more than one, so that one can be
            drawn while steps are taken with the other.
        losses: (groups, K) of the epoch's steps.
        empty: (1,) the share of rows, in the first batch of the group drawn last, with no drawn
            neighbour.
    """

    def __init__(
        self,
        data: "DeviceTrainingData",
        config: TrainConfig,
        loss: nn.Module,
        shared: SharedData | None = None,
    ) -> None:
        self.data, self.loss = data, loss
        device, nodes = data.matrix.indices.device, len(data.batch_nodes)
        size = min(config.batch_size, nodes)
        self.used = nodes - nodes % size if config.drop_last else nodes
        self.n_steps = -(-self.used // size)
        settings: dict[str, Any] = {
            "size": size,
            "steps": self.n_steps,
            "seed": config.seed + 1,
            "distribution": config.distribution,
            "power": config.power,
            "draws": config.draws,
            "exact_self": config.self_term == "exact",
            "own_rows": config.needs_own_rows,
        }
        if shared is None or config.distribution == "optimal":
            shared = SharedData()
        key = id(data.matrix), config.layer_samples, *settings.values()
        self.sampler = shared.get(
            key, lambda: DeviceSampler(data.matrix, config.layer_samples, **settings)
        )
        self.count = self.sampler.count
        groups = -(-self.n_steps // self.count)
        self.order = torch.full((groups, self.count, size), -1, dtype=torch.int32, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.steps = torch.zeros(1, dtype=torch.int64, device=device)
        self.drawn = [self._group(blocks) for blocks in self.sampler.sets]
        self.losses = torch.zeros((groups, self.count), device=device)
        self.empty = torch.zeros(1, device=device)
        self.rng = torch.Generator(device)
        self.seed = config.seed

    def _group(self, blocks: list[BlockBuffers]) -> Group:
        rows = self.order[0].clone()
        weights = torch.zeros(rows.shape, device=rows.device)
        active = torch.zeros(self.count, dtype=torch.int32, device=rows.device)
        labels = self.data.labels[rows.clamp(min=0).long()]
        return Group(rows, labels, weights, active, blocks)

    @property
    def size(self) -> int:
        return int(self.order.shape[2])

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch of an epoch."""
        left = self.used - self.size * (self.n_steps - 1)
        return [self.size] * (self.n_steps - 1) + [left]

    def shuffle(self, epoch: int) -> None:
        """The order of an epoch, which depends only on the seed and the epoch's number."""
        self.rng.manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        nodes = self.data.batch_nodes
        mixed = nodes[torch.randperm(len(nodes), generator=self.rng, device=nodes.device)]
        self.order.view(-1)[: self.used] = mixed[: self.used]
        self.at.zero_()

    def draw(self, into: int = 0, ahead: int = 0) -> Group:
        """The group that is `ahead` of the next one, kept as number `into` of `drawn`.

        Steps are counted as if all batches until then had rows.
        """
        group = self.drawn[into]
        rows, labels = group.rows, group.labels
        rows.copy_(self.order.index_select(0, (self.at + ahead) % len(self.order))[0])
        there = rows >= 0
        # A missing row takes the label of node 0, which may have none, with weight zero.
        labels.copy_(self.data.labels[rows.clamp(min=0)])
        if not labels.is_floating_point():  # class ids, -1 for none
            labels.clamp_(min=0)
        weights = self._class_weights(labels, there) * there
        torch.div(weights, weights.sum(1, keepdim=True).clamp(min=1e-30), out=group.row_weights)
        group.active.copy_(there.any(1))
        blocks = self.sampler.sample(rows, self.steps + ahead * self.count, into)
        if blocks:
            blocks[0].n_sources.mul_(group.active)  # kernels leave a batch without sources at once
            unmet = blocks[-1].offsets[: self.size + 1].diff() == 0
            self.empty.copy_((unmet & there[0]).sum() / there[0].sum().clamp(min=1))
        return group

    def _class_weights(self, labels: Tensor, there: Tensor) -> Tensor:
        if isinstance(self.loss, nn.CrossEntropyLoss) and self.loss.weight is not None:
            return self.loss.weight[labels]
        return torch.ones_like(there, dtype=torch.float32)

    def finish(self, losses: Tensor) -> None:
        """Keep a group's losses (K,), and go on to the next group."""
        self.losses.index_copy_(0, self.at, losses[None])
        self.at.add_(1).remainder_(len(self.order))

    def results(self) -> tuple[list[float], float]:
        """The losses of the epoch's steps, and `empty`; here the host waits for the device."""
        *losses, empty = torch.cat([self.losses.view(-1)[: self.n_steps], self.empty]).tolist()
        return losses, empty
