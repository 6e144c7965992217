"""Products on the device: blocks, whole matrices, rows gathered."""

import pytest
import torch

from fastgcn.backends.gpu.matrix import SampledBlock, WholeBlock
from fastgcn.backends.gpu.sampler import DeviceSampler
from fastgcn.kernels.gpu import products
from fastgcn.kernels.gpu.blocks import dense_block
from tests.backends.gpu.small import DEVICE, batches, matrix


@pytest.mark.parametrize("width", [1, 19, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_matrix_times_rows(width: int, dtype: torch.dtype) -> None:
    _, small = matrix()
    h = torch.randn(60, width).to(DEVICE, dtype)
    want = products.multiply_reference(*small.csr, h)
    torch.testing.assert_close(small.times(h).double(), want, rtol=1e-5, atol=1e-5)


def test_hubs_are_shared_by_several_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SEGMENT", 32)
    _, small = matrix()
    pieces = products.segments(small.indptr, len(small.indices))
    assert pieces.any_shared
    assert (pieces.row[pieces.shared > 0] == 3).all(), "the hub alone is longer than a segment"
    assert int((pieces.row == 3).sum()) == 2
    h = torch.randn(60, 5, device=DEVICE)
    torch.testing.assert_close(
        small.times(h).double(), products.multiply_reference(*small.csr, h), rtol=1e-5, atol=1e-5
    )


def test_some_rows_of_a_matrix() -> None:
    dense, small = matrix()
    nodes = torch.tensor([7, 3, 59], device=DEVICE)
    h = torch.randn(60, 4, device=DEVICE)
    block = WholeBlock.of(small, nodes)
    torch.testing.assert_close(block.mix(h), dense[nodes] @ h, rtol=1e-4, atol=1e-4)
    assert torch.equal(block.own_rows(h), h[nodes])
    assert block.matrix.n == 3


def test_a_block_of_a_group_and_its_gradient() -> None:
    sampler = DeviceSampler(matrix()[1], [20], size=9, steps=3, seed=0)
    (blocks,) = sampler.sample(batches(3, 9, 60), torch.zeros(1, dtype=torch.int64, device=DEVICE))
    for k in range(3):
        block = SampledBlock(blocks, 9, torch.tensor([k], device=DEVICE))
        h = torch.randn(20, 6, device=DEVICE, requires_grad=True)
        by_vertex = dense_block(blocks, k, 9, 60)
        sources = blocks.sources[k].clamp(min=0).long()
        adj = by_vertex[:, sources] * (blocks.sources[k] >= 0)
        torch.testing.assert_close(block.mix(h), adj @ h, rtol=1e-5, atol=1e-5)
        g = torch.randn(9, 6, device=DEVICE)
        (found,) = torch.autograd.grad(block.mix(h), h, g)
        torch.testing.assert_close(found, adj.T @ g, rtol=1e-5, atol=1e-5)


def test_rows_are_gathered_and_none_is_zero() -> None:
    x = products.aligned(torch.randn(10, 7, device=DEVICE), torch.float32)
    ids = torch.tensor([4, -1, 9], dtype=torch.int32, device=DEVICE)
    found = products.gather(x, ids, torch.ones((3, 7), device=DEVICE))
    assert torch.equal(found[0], x[4])
    assert torch.equal(found[2], x[9])
    assert not found[1].any()
