"""A block's entries as edges, in the form that PyG's layers take."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fastgcn import Block
from fastgcn.sampling.block import sparse_matrix

ADJ = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])


SPARSE = sparse_matrix(np.array([0, 1, 3]), np.array([1, 0, 2]), np.array([2, 1, 3], "f4"), 3)


@pytest.mark.parametrize("adj", [ADJ, SPARSE], ids=["dense", "sparse"])
def test_edges_are_the_entries_of_adj(adj: Tensor) -> None:
    block = Block(torch.tensor([5, 6]), torch.tensor([5, 6, 7]), adj)
    h = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    source, target = block.edge_index
    mixed = torch.zeros(2, 4).index_add_(0, target, block.edge_weight[:, None] * h[source])
    assert block.size == (3, 2)
    assert torch.allclose(mixed, ADJ @ h)
    assert block.edge_index is block.edge_index  # made once
