"""What the authors' program does, written plainly: scipy slices, PyTorch's autograd.

`python -m benchmarks speed` times whole trainings against this. It is not Algorithm 2: it has the
draws and the schedule of the authors' program, for two layers with a precomputed first one:

    logits of a batch B = Â(B, S)/(t·q(S)) · ReLU((ÂX)(S) W0) · W1

S are t distinct vertices, drawn among the neighbours of B with q(u) ∝ ‖Â(:,u)‖. Training sees
the graph of the training nodes alone; a partial last batch is dropped; the first layer has L2;
after every epoch the validation nodes are evaluated by the whole network on the whole graph.
"""

import time
from typing import Any, cast

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, eye_array
from torch import Tensor

import fastgcn
from fastgcn.arrays import FloatArray, IntArray
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


def logits(weights: list[Tensor], mixed: Tensor, adjacency: Tensor) -> Tensor:
    """Â ReLU(ÂX W0) W1."""
    hidden = torch.relu(mixed @ weights[0])
    return cast(Tensor, torch.sparse.mm(adjacency, hidden @ weights[1]))


def train(graph: fastgcn.Graph, config: TrainConfig, *, epochs: int) -> dict[str, Any]:
    """Train with the sizes, rate and seed of `config`; scores of the best epoch's weights."""
    assert isinstance(config.hidden, int)
    assert graph.labels is not None
    began, split, features = time.perf_counter(), graph.split, row_scaled(graph.features)
    ones = np.ones(len(graph.indices), np.float32)
    edges = csr_array((ones, graph.indices, graph.indptr), shape=(graph.n_nodes, graph.n_nodes))
    labels = torch.from_numpy(np.asarray(graph.labels))
    own, whole = normalized(edges[split.train][:, split.train]), normalized(edges)
    own_mixed = torch.from_numpy((own @ features[split.train]).toarray())
    mixed = torch.from_numpy((whole @ features).toarray())
    q = np.sqrt(own.power(2).sum(axis=0, dtype=np.float64))
    q = cast(FloatArray, q / q.sum())
    weights = _weights((features.shape[1], config.hidden, graph.n_classes), config.seed)
    decayed: list[dict[str, Any]] = [
        {"params": weights[0], "weight_decay": L2},
        {"params": weights[1]},
    ]
    optimizer = torch.optim.Adam(decayed, lr=config.learning_rate)
    rng, own_labels = np.random.default_rng(config.seed), labels[split.train]

    def step(batch: IntArray) -> None:
        drawn, adjacency = sampled(own[batch], q, config.layer_samples[0], rng)
        scores = logits(weights, own_mixed[torch.from_numpy(drawn)], adjacency)
        loss = torch.nn.functional.cross_entropy(scores, own_labels[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @torch.no_grad()
    def accuracy(rows: Tensor, nodes: IntArray) -> float:
        """By the whole network, on `nodes`, whose rows of Â are `rows`."""
        classes = logits(weights, mixed, rows).argmax(dim=1)
        return float((classes == labels[nodes]).float().mean())

    val_rows, test_rows = (as_tensor(whole[part]) for part in (split.val, split.test))
    best, kept, size = -1.0, weights, min(config.batch_size, len(split.train))
    for _ in range(epochs):
        order = rng.permutation(len(split.train))
        for start in range(0, len(order) - size + 1, size):
            step(order[start : start + size])
        score = accuracy(val_rows, split.val)
        if score > best:
            best, kept = score, [weight.detach().clone() for weight in weights]
    weights = kept
    return {
        "epochs": epochs,
        "val_micro_f1": best,
        "test_micro_f1": accuracy(test_rows, split.test),
        "seconds": time.perf_counter() - began,
    }


def _weights(sizes: tuple[int, int, int], seed: int) -> list[Tensor]:
    """W0 and W1 by Glorot."""
    rng = torch.Generator().manual_seed(seed)
    weights = [torch.empty(size, requires_grad=True) for size in (sizes[:2], sizes[1:])]
    return [torch.nn.init.xavier_uniform_(weight, generator=rng) for weight in weights]
