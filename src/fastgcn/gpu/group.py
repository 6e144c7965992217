"""K batches at a time: their rows, labels and blocks, in memory that stays where it is."""

import torch
from torch import Tensor, nn

from fastgcn.config import TrainConfig
from fastgcn.gpu.data import DeviceData
from fastgcn.gpu.sampler import DeviceSampler
from fastgcn.kernels.gpu.scan import Room

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
