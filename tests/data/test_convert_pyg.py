"""Graphs that come from and go to the real PyG."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of PyG's, while it is imported
    from torch_geometric.data import Data, HeteroData


def small(**changes: Any) -> Data:
    """0 → 1 ⇄ 2 with two features."""
    fields = {
        "x": torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]),
        "edge_index": torch.tensor([[0, 1, 2], [1, 2, 1]]),
    }
    return Data(**(fields | changes))


def test_edges_point_the_same_way() -> None:
    graph = Graph.from_pyg(small())
    assert graph.directed
    np.testing.assert_array_equal(graph.to_scipy().toarray(), [[0, 1, 0], [0, 0, 1], [0, 1, 0]])
    assert Graph.from_pyg(small(), directed=False).n_edges == 2


def test_asymmetric_weights_are_directed() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    data = small(edge_index=edges, edge_weight=torch.tensor([1.0, 2.0]))
    assert data.is_undirected(), "which is why it is not asked"
    assert Graph.from_pyg(data).directed


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta")
def test_sparse_features(layout: torch.layout) -> None:
    x = small().x
    assert x is not None
    graph = Graph.from_pyg(small(x=x.to_sparse(layout=layout)))
    assert isinstance(graph.features, csr_array)
    np.testing.assert_array_equal(graph.features.toarray(), x.numpy())


def test_features_of_other_kinds() -> None:
    x = small().x
    assert x is not None
    for other in (x.bfloat16(), x.double(), x.long(), x.clone().requires_grad_()):
        np.testing.assert_array_equal(Graph.from_pyg(small(x=other)).features, x.numpy())
    assert Graph.from_pyg(small(x=None, num_nodes=4)).features.shape == (4, 0)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (torch.tensor([2, -1, 0]), [2, -1, 0]),
        (torch.tensor([[2], [-1], [0]]), [2, -1, 0]),
        (torch.tensor([[2.0], [torch.nan], [0.0]]), [2, -1, 0]),
        (torch.tensor([True, False, True]), [1, 0, 1]),
        (torch.tensor([[True], [False], [True]]), [[True], [False], [True]]),
        (torch.tensor([[0.0, 1], [1, 1], [0, 0]]), [[False, True], [True, True], [False, False]]),
    ],
)
def test_labels(y: torch.Tensor, expected: Any) -> None:
    labels = Graph.from_pyg(small(y=y)).labels
    assert labels is not None
    assert labels.tolist() == expected


@pytest.mark.parametrize("name", ["edge_weight", "edge_attr"])
def test_weights(name: str) -> None:
    for values in (torch.tensor([1.0, 2, 3]), torch.tensor([[1.0], [2], [3]])):
        weights = Graph.from_pyg(small(**{name: values})).weights
        assert weights is not None
        assert weights.tolist() == [1, 2, 3]


def test_masks_of_several_splits() -> None:
    masks = torch.tensor([[True, False], [False, True], [False, False]])
    data = small(
        y=torch.tensor([0, 1, 0]), train_mask=masks, test_mask=torch.tensor([0, 0, 1]).bool()
    )
    for column in (0, 1):
        split = Graph.from_pyg(data, mask_column=column).split
        assert split.train.tolist() == [column]
        assert split.test.tolist() == [2]
        assert split.val.tolist() == []
    with pytest.raises(InputError, match="train_mask has 2 columns.*mask_column=0 to 1, got None"):
        Graph.from_pyg(data)
    with pytest.raises(InputError, match="mask_column=0 to 1, got 2"):
        Graph.from_pyg(data, mask_column=2)
    data.train_mask = masks[:, :1]
    assert Graph.from_pyg(data).split.train.tolist() == [0]


def test_own_names_can_be_overruled() -> None:
    data = small(name="theirs", node_ids=["a", "b", "c"])
    graph = Graph.from_pyg(data, name="mine")
    assert graph.name == "mine"
    assert list(graph.node_ids or ()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HeteroData(), r"torch_geometric Data, got HeteroData; HeteroData\.to_homogeneous"),
        (Data(x=torch.eye(2)), r"data\.edge_index is missing"),
        (small(edge_index=torch.tensor([0, 1])), r"edge_index must have shape \(2, edges\)"),
        (small(edge_index=torch.tensor([[0], [3]])), r"target must lie in 0\.\.2.* got 3"),
        (small(x=torch.ones(3)), "features must be two-dimensional"),
        (small(edge_attr=torch.ones(3, 4)), r"edge_attr must hold one number per edge.*\(3, 4\)"),
        (small(edge_weight=torch.ones(2)), r"weights must have shape \(3,\)"),
        (small(y=torch.tensor([1])), r"labels must have shape \(3,\)"),
        (small(y=torch.tensor([[0, 2], [1, 1], [0, 0]])), "must be 0 or 1"),
        (small(train_mask=torch.tensor([0, 2])), r"train_mask must be bool of shape \(3,\), got"),
        (small(val_mask=torch.tensor([True])), r"val_mask must be bool of shape \(3,\), got"),
    ],
)
def test_refuses(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(data)
