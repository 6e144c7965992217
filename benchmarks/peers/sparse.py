"""PyG's networks on sparse features, with their products in an order that costs less.

PyG's layers take dense rows, and its `SAGEConv` takes the mean of rows before it multiplies them:
on the 8,189 words of BlogCatalog that is a hundred times the work. Weights, dropout, optimiser and
stopping rule are those of `networks` and `search`; a test compares outputs and gradients.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from benchmarks.peers.networks import Network, Setting
from benchmarks.peers.search import Task, Trainer


class Matrix(NamedTuple):
    """A sparse matrix and its transpose, as rows; `order` is where the transpose's values are."""

    rows: Tensor
    turned: Tensor
    order: Tensor

    @classmethod
    def of(cls, matrix: Any, device: str | torch.device = "cpu") -> "Matrix":
        matrix = csr_array(matrix)
        matrix.sort_indices()
        places = csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)
        turned = csr_array(places.T)
        order = torch.from_numpy(turned.data)
        turned.data = matrix.data[turned.data]
        return cls(*(each.to(device) for each in (_tensor(matrix), _tensor(turned), order)))

    def dropped(self, share: float, training: bool) -> "Matrix":
        """The matrix after dropout; entries that are zero stay zero whatever is drawn."""
        if not training:
            return self
        values = functional.dropout(self.rows.values(), share)
        return Matrix(
            _with_values(self.rows, values), _with_values(self.turned, values[self.order]),
            self.order,
        )  # fmt: skip

    def times(self, dense: Tensor) -> Tensor:
        found: Tensor = _Times.apply(dense, self)  # type: ignore[no-untyped-call]
        return found


class _Times(torch.autograd.Function):
    """A sparse matrix times a dense one; only the dense one has a gradient."""

    @staticmethod
    def forward(context: Any, dense: Tensor, matrix: Matrix) -> Tensor:
        context.matrix = matrix
        return matrix.rows @ dense

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.matrix.turned @ gradient, None


def _tensor(matrix: csr_array) -> Tensor:
    parts = (matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32))
    pointers, columns = map(torch.from_numpy, parts)
    values = torch.from_numpy(matrix.data.astype(np.float32))
    return torch.sparse_csr_tensor(pointers, columns, values, matrix.shape)


def _with_values(matrix: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(
        matrix.crow_indices(), matrix.col_indices(), values, matrix.shape
    )


class SparseNetwork(Network):
    """A network of `networks` that is given its sparse features and neighbours as `edges`."""

    def forward(self, x: Tensor, edges: tuple[Any, ...]) -> Tensor:  # noqa: ARG002
        features, neighbors = edges
        first, second = self.layers
        inputs = features.dropped(self.dropout, self.training)
        hidden = _layer(first, neighbors, lambda weight: inputs.times(weight.T)).relu()
        hidden = functional.dropout(hidden, self.dropout, self.training)
        return _layer(second, neighbors, lambda weight: hidden @ weight.T)


def _layer(layer: Any, neighbors: Matrix | None, times: Any) -> Tensor:
    """What a layer of PyG's, or a linear one, gives for rows that `times` multiplies by weights."""
    found: Tensor
    if neighbors is None:
        found = times(layer.weight) + layer.bias
    elif hasattr(layer, "lin_l"):
        both = times(torch.cat([layer.lin_l.weight, layer.lin_r.weight]))
        means, own = both.chunk(2, dim=1)
        found = neighbors.times(means.contiguous()) + layer.lin_l.bias + own
    else:
        found = neighbors.times(times(layer.lin.weight)) + layer.bias
    return found


def make_trainers(
    task: Task, features: Any, settings: Sequence[Setting]
) -> tuple[list[Trainer], str]:
    """Trainers of settings of one kind on sparse features, and what form they are."""
    edges = Matrix.of(features, task.device), _neighbors(task, settings[0].kind)
    trainers = [Trainer(task, each, fast=False) for each in settings]
    for trainer in trainers:
        trainer.network.__class__ = SparseNetwork
        trainer.edges = edges
        if task.device.type == "cuda":
            trainer.record()
    return trainers, f"{'recorded' if task.device.type == 'cuda' else 'eager'}, sparse features"


def _neighbors(task: Task, kind: str) -> Matrix | None:
    """What a kind multiplies rows by: the normalised adjacency, or the mean of neighbours."""
    if kind == "MLP":
        return None
    (sources, targets), *weights = (each.cpu() for each in task.edges(kind, fast=False))
    n = len(task.x)
    if not weights:
        weights = [1 / torch.bincount(targets, minlength=n)[targets]]
    return Matrix.of(csr_array((weights[0], (targets, sources)), shape=(n, n)), task.device)
