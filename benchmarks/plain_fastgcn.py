"""FastGCN as a first program would have it: scipy slices, PyTorch's autograd, nothing compiled.

`python -m benchmarks speed` times whole trainings against this. It is the algorithm with the
schedule of the paper's authors' program, for two layers with a precomputed first one:

    logits of a batch B = Â(B, S)/(t·q(S)) · ReLU((ÂX)(S) W0) · W1

S are t distinct vertices, drawn among the neighbours of B with q(u) ∝ ‖Â(:,u)‖. Training sees
the graph of the training nodes alone; a partial last batch is dropped; the first layer has L2;
after every epoch the validation nodes are evaluated by the whole network on the whole graph.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, eye_array
from torch import Tensor

import fastgcn
from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.config import TrainConfig

L2 = 5e-4


def normalized(adjacency: csr_array) -> csr_array:
    """Â = D^-1/2 (A + I) D^-1/2."""
    loops = adjacency + eye_array(adjacency.shape[0], dtype=np.float32)
    scale = diags_array(1 / np.sqrt(loops.sum(axis=1)))
    return csr_array(scale @ loops @ scale).astype(np.float32)


def row_scaled(features: Any) -> csr_array:
    """Every row divided by its sum of magnitudes; a row of zeros stays."""
    matrix = csr_array(features)
    sums = abs(matrix).sum(axis=1)
    return csr_array(diags_array(1 / np.where(sums > 0, sums, 1)) @ matrix).astype(np.float32)


def as_tensor(matrix: csr_array) -> Tensor:
    """A sparse matrix for PyTorch."""
    entries = matrix.tocoo()
    places = torch.from_numpy(np.stack(entries.coords).astype(np.int64))
    values = torch.from_numpy(entries.data)
    return torch.sparse_coo_tensor(places, values, matrix.shape, check_invariants=False)


@dataclass(frozen=True)
class Inputs:
    """A graph made ready: Â, dense ÂX, and labels."""

    adjacency: csr_array
    mixed: Tensor
    labels: AnyArray  # (n,) class ids

    @classmethod
    def of(cls, adjacency: csr_array, features: csr_array, labels: AnyArray) -> "Inputs":
        matrix = normalized(adjacency)
        return cls(csr_array(matrix), torch.from_numpy((matrix @ features).toarray()), labels)

    @cached_property
    def q(self) -> FloatArray:
        """(n,) float64: ‖Â(:,u)‖, divided by their sum."""
        norms = np.sqrt(self.adjacency.power(2).sum(axis=0, dtype=np.float64))
        return cast(FloatArray, norms / norms.sum())


def sampled(
    rows: csr_array, q: FloatArray, t: int, rng: np.random.Generator
) -> tuple[IntArray, Tensor]:
    """t neighbours of a batch, and the batch's `rows` of Â over them, weighted 1/(t·q)."""
    neighbours = np.unique(rows.indices)
    chances = q[neighbours] / q[neighbours].sum()
    t = min(t, len(neighbours))
    drawn = rng.choice(neighbours, t, replace=False, p=chances)
    weights = diags_array((1 / (t * q[drawn])).astype(np.float32))
    return drawn, as_tensor(csr_array(rows[:, drawn] @ weights))


class Network(torch.nn.Module):
    """Â ReLU(ÂX W0) W1, with Glorot's weights and no bias."""

    def __init__(self, sizes: tuple[int, int, int], seed: int) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.first = torch.nn.Parameter(torch.empty(sizes[0], sizes[1]))
        self.second = torch.nn.Parameter(torch.empty(sizes[1], sizes[2]))
        for weight in self.parameters():
            torch.nn.init.xavier_uniform_(weight, generator=rng)

    def forward(self, mixed: Tensor, adjacency: Tensor) -> Tensor:
        hidden = torch.relu(mixed @ self.first)
        return cast(Tensor, torch.sparse.mm(adjacency, hidden @ self.second))


@torch.no_grad()
def evaluated(network: Network, whole: Inputs, rows: Tensor, nodes: IntArray) -> float:
    """Accuracy on `nodes`, whose rows of Â are `rows`, by the whole network."""
    logits, labels = network(whole.mixed, rows), torch.from_numpy(whole.labels[nodes])
    return float((logits.argmax(dim=1) == labels).float().mean())


def train_epoch(
    network: Network,
    optimizer: torch.optim.Optimizer,
    own: Inputs,
    config: TrainConfig,
    rng: np.random.Generator,
) -> None:
    """One pass over the training nodes, in whole batches."""
    (t,) = config.layer_samples
    order, size = rng.permutation(len(own.labels)), min(config.batch_size, len(own.labels))
    for start in range(0, len(order) - size + 1, size):
        batch = order[start : start + size]
        drawn, adjacency = sampled(own.adjacency[batch], own.q, t, rng)
        logits = network(own.mixed[torch.from_numpy(drawn)], adjacency)
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(own.labels[batch]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def train(graph: fastgcn.Graph, config: TrainConfig, *, epochs: int) -> dict[str, Any]:
    """Train with the sizes, rate and seed of `config`; scores of the best epoch's weights."""
    assert isinstance(config.hidden, int)
    began = time.perf_counter()
    split, features, labels = graph.split, row_scaled(graph.features), graph.labels
    assert labels is not None
    weights = np.ones(len(graph.indices), np.float32)
    edges = csr_array((weights, graph.indices, graph.indptr), shape=(graph.n_nodes, graph.n_nodes))
    own = Inputs.of(edges[split.train][:, split.train], features[split.train], labels[split.train])
    whole = Inputs.of(edges, features, labels)
    val_rows, test_rows = (as_tensor(whole.adjacency[part]) for part in (split.val, split.test))
    network = Network((features.shape[1], config.hidden, graph.n_classes), config.seed)
    decayed: list[dict[str, Any]] = [
        {"params": network.first, "weight_decay": L2},
        {"params": network.second},
    ]
    optimizer = torch.optim.Adam(decayed, lr=config.learning_rate)
    rng = np.random.default_rng(config.seed)
    best, kept = -1.0, network.state_dict()
    for _ in range(epochs):
        train_epoch(network, optimizer, own, config, rng)
        accuracy = evaluated(network, whole, val_rows, split.val)
        if accuracy > best:
            best, kept = accuracy, {k: v.clone() for k, v in network.state_dict().items()}
    network.load_state_dict(kept)
    test = evaluated(network, whole, test_rows, split.test)
    return {
        "dataset": graph.name,
        "epochs": epochs,
        "val_micro_f1": best,
        "test_micro_f1": test,
        "seconds": time.perf_counter() - began,
    }
