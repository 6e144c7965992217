"""Scores on the device, by the full network (eq. 1)."""

import numpy as np
import torch
from torch import Tensor

from fastgcn.config import TrainConfig
from fastgcn.gpu.block import WholeBlock
from fastgcn.gpu.data import DeviceData
from fastgcn.gpu.forward import HostRows, forward
from fastgcn.graph import Graph
from fastgcn.metrics import Metrics, Tally
from fastgcn.models import GCN
from fastgcn.types import IntArray


class DeviceJudge:
    """As `judge.Judge`: ÂX of the graph that is judged on is computed once, where X is on the
    device; else Â(XW) anew each time, X going by in chunks."""

    def __init__(
        self, graph: Graph, config: TrainConfig, data: DeviceData, part: IntArray, *, once: bool
    ) -> None:
        device = data.edges.indptr.device
        assert graph.labels is not None
        joined = np.union1d(graph.split.train, part)
        if graph.labels.ndim == 1:
            part = part[graph.labels[part] >= 0]
        ids = torch.from_numpy(np.array(part, np.int64)).to(device)
        labels = np.array(graph.labels[part], np.int64)
        self.labels = torch.from_numpy(labels).to(device)
        nodes: Tensor | None = None
        edges = data.edges
        if config.evaluation_graph == "joined" and config.inductive:
            nodes = torch.from_numpy(joined).to(device)
            edges = edges.induced(nodes)
            ids = torch.searchsorted(nodes, ids)
        matrix = edges.normalized(config.normalization)
        layers = config.layers
        whole = WholeBlock.of(matrix)
        self.blocks = [*[whole] * (layers - 1), WholeBlock.of(matrix, ids)]
        self.inputs: Tensor | HostRows
        if data.features is None:
            self.inputs = HostRows(graph.features, nodes)
            return
        x = data.features if nodes is None else data.features[nodes]
        if once:
            self.inputs = x
            return
        mixing = self.blocks.pop(0)  # in a network of one layer that of the judged rows alone
        mixed = mixing.mix(x)
        own = mixing.own_rows(x)
        self.inputs = torch.cat([mixed, own], 1) if config.input_skip else mixed

    def __len__(self) -> int:
        return len(self.labels)

    def __call__(self, model: GCN) -> Metrics:
        return device_tally(forward(model, self.blocks, self.inputs), self.labels).metrics()


def device_tally(logits: Tensor, labels: Tensor) -> Tally:
    """As `metrics.tally`, counted on the device and read in one go."""
    n, classes = logits.shape
    if labels.ndim == 2:
        truth, chances = labels > 0, torch.sigmoid(logits)
        guess = chances > 0.5
        chances = torch.where(truth, chances, 1 - chances)
        right = (truth == guess).all(1)
        hits, guessed, true = ((part).sum(0) for part in (truth & guess, guess, truth))
    else:
        best = logits.argmax(1)
        right = best == labels
        chances = torch.softmax(logits, 1).gather(1, labels[:, None])
        hits, guessed, true = (
            torch.zeros(classes, dtype=torch.int64, device=logits.device).index_add_(0, ids, by)
            for ids, by in (
                (labels, right.long()),
                (best, torch.ones_like(best)),
                (labels, torch.ones_like(best)),
            )
        )
    surprise = -torch.log(chances.double().clamp(1e-12, 1.0)).sum()
    counts = torch.cat([right.sum()[None], hits, guessed, true]).double()
    loss, *figures = torch.cat([surprise[None], counts]).tolist()
    whole = np.array(figures[1:], np.int64).reshape(3, classes)
    return Tally(n, int(figures[0]), loss, chances.numel(), *whole)
