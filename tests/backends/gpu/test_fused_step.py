"""The step of two layers against autograd and torch's Adam, on the same blocks."""

import pytest
import torch
import triton
from torch import Tensor

from fastgcn.backends.gpu.sampler import DeviceSampler
from fastgcn.kernels.gpu.blocks import BlockBuffers, dense_block
from fastgcn.kernels.gpu.dense import first_gradient, first_product
from fastgcn.kernels.gpu.dropout import CountedDropout
from fastgcn.kernels.gpu.step import (
    Copies,
    Known,
    NetworkStep,
    NetworkWeights,
    adam,
    fits_one_tile,
    logits_reference,
)
from tests.backends.gpu.small import DEVICE, batches, matrix

N, K, SIZE, T, F, D, C = 60, 3, 19, 20, 37, 24, 5


def weights(*, own: bool, bias: bool, norm: bool, members: int) -> NetworkWeights:
    rng = torch.Generator().manual_seed(0)

    def known(*shape: int) -> Known:
        found = (0.3 * torch.randn(shape, generator=rng)).to(DEVICE)
        return Known(found, torch.zeros_like(found))

    first, second = known((1 + own) * F, D), known((1 + own) * D, C)
    if members == 2:  # the second network has no own rows
        first.weight[F:, D // 2 :] = 0
        second.weight[D + D // 2 :] = 0
    return NetworkWeights(
        first, second,
        bias=known(D) if bias else None,
        gamma=known(D) if norm else None,
        beta=known(D) if norm else None,
        out_bias=known(C) if bias else None,
        own=own,
        members=members,
    )  # fmt: skip


def parts(of: NetworkWeights) -> list[Known]:
    found = (of.first, of.second, of.bias, of.gamma, of.beta, of.out_bias)
    return [part for part in found if part is not None]


@pytest.mark.parametrize(
    ("own", "bias", "norm", "members", "dtype", "t"),
    [
        (False, False, False, 1, torch.float32, T),
        (False, True, False, 1, torch.float16, 1_100),
        (True, True, True, 1, torch.float32, T),
        (True, False, False, 1, torch.bfloat16, T),
        (True, True, False, 2, torch.float32, T),
    ],
)
def test_gradients_are_those_of_autograd(
    own: bool, bias: bool, norm: bool, members: int, dtype: torch.dtype, t: int
) -> None:
    known = weights(own=own, bias=bias, norm=norm, members=members)
    rng = torch.Generator().manual_seed(1)
    x, beside = (torch.randn((N, F), generator=rng).to(DEVICE, dtype) for _ in range(2))
    sampler = DeviceSampler(matrix()[1], [t], size=SIZE, steps=K, seed=0, own_rows=own)
    rows, steps = batches(K, SIZE, N), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    (blocks,) = sampler.sample(rows, steps)
    room = SIZE * own + t
    step = NetworkStep(x, beside if own else None, known, SIZE, room, precision="ieee")
    labels = torch.randint(0, C, (K, SIZE), generator=rng, dtype=torch.int32).to(DEVICE)
    row_weights = torch.rand((K, SIZE), generator=rng).to(DEVICE) * (rows >= 0)
    row_weights /= row_weights.sum(1, keepdim=True)
    losses = torch.zeros((K, members, SIZE), device=DEVICE)
    for k in range(K):
        step.gather(k, blocks, steps)
        for part in parts(known):
            part.gradient.zero_()
        step(k, blocks, labels, row_weights, steps, losses)
        sources = blocks.sources[k]
        ids = sources.clamp(min=0).long()
        both = torch.cat([x[ids], beside[ids]], 1) if own else x[ids]
        adj = block_of(blocks, k, room, own)
        for part in parts(known):
            part.weight.requires_grad_()
        found = logits_reference(known, both.float() * (sources >= 0)[:, None], adj, SIZE)
        loss = sum(
            (torch.nn.functional.cross_entropy(each, labels[k].long(), reduction="none")
             * row_weights[k]).sum() / members
            for each in found
        )  # fmt: skip
        assert isinstance(loss, Tensor)
        wanted = torch.autograd.grad(loss, [part.weight for part in parts(known)])
        for part in parts(known):
            part.weight.requires_grad_(False)
        assert float(losses[k].sum()) == pytest.approx(float(loss.detach()), abs=1e-5)
        if members == 2:
            wanted[0][F:, D // 2 :] = 0
        for part, want in zip(parts(known), wanted, strict=True):
            torch.testing.assert_close(part.gradient, want, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="interpreted kernels do not round to bfloat16")
def test_rounding_to_bfloat16_hardly_changes_gradients() -> None:
    """By no more than products of bfloat16 may, against those in float32 of the same batch."""
    rng = torch.Generator().manual_seed(1)
    x, beside = (torch.randn((N, F), generator=rng).to(DEVICE) for _ in range(2))
    sampler = DeviceSampler(matrix()[1], [T], size=SIZE, steps=K, seed=0, own_rows=True)
    rows, steps = batches(K, SIZE, N), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    (blocks,) = sampler.sample(rows, steps)
    labels = torch.randint(0, C, (K, SIZE), generator=rng).to(DEVICE)
    row_weights = torch.full((K, SIZE), 1 / SIZE, device=DEVICE)
    losses = torch.zeros((K, 1, SIZE), device=DEVICE)
    found = []
    for precision in ("tf32", "ieee"):
        known = weights(own=True, bias=True, norm=True, members=1)
        step = NetworkStep(x, beside, known, SIZE, SIZE + T, precision=precision)
        step.gather(0, blocks, steps)
        step(0, blocks, labels, row_weights, steps, losses)
        found.append([part.gradient for part in parts(known)])
    for rounded, wanted in zip(*found, strict=True):
        assert float((rounded - wanted).norm() / wanted.norm()) < 0.02


@pytest.mark.parametrize("members", [1, 2])
def test_products_of_rows_in_half_precision(members: int) -> None:
    """They are those of the same rows in float32, and of the batch's sources alone."""
    # Where kernels are interpreted, products cannot be of bfloat16.
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16
    room, width, d, count, parts, wide = 150, 70, 24, 133, 3, 192
    rng = torch.Generator().manual_seed(0)
    x, weight, gradient = (
        torch.randn(shape, generator=rng).to(DEVICE, dtype)
        for shape in [(room, wide), (wide, d), (room, d)]
    )
    gradient[count:] = float("nan")
    sources = torch.tensor([0, count], dtype=torch.int32, device=DEVICE)
    z = torch.zeros((parts, room, d), device=DEVICE)
    first_product[(triton.cdiv(room, 32), 2, parts)](
        1, x, weight, sources, z, room, wide, d, PARTS=parts, BM=32, BN=16, BK=32
    )
    wanted = x[:count].float() @ weight.float()
    torch.testing.assert_close(z.sum(0)[:count], wanted, rtol=1e-4, atol=1e-4)
    assert not z[:, count:].any()
    out = torch.zeros((2 * width, d), device=DEVICE)
    first_gradient[(triton.cdiv(wide, 64), 2, 3)](
        1, x, gradient, sources, out, wide, 2 * width, d, width, d // members,
        PIECES=3, BF=64, BN=16, BR=32,
    )  # fmt: skip
    wanted = x[:count, : 2 * width].float().T @ gradient[:count].float()
    if members == 2:
        wanted[width:, d // 2 :] = 0
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-4)


def block_of(blocks: BlockBuffers, k: int, room: int, own: bool) -> Tensor:
    """(s, sources): a block by its columns, which name a node twice if it is a row and drawn."""
    if not own:
        sources = blocks.sources[k]
        return dense_block(blocks, k, SIZE, N)[:, sources.clamp(min=0).long()] * (sources >= 0)
    found = torch.zeros((SIZE, room), device=DEVICE)
    offsets = blocks.offsets[k * SIZE : (k + 1) * SIZE + 1].tolist()
    for row in range(SIZE):
        for entry in range(offsets[row], offsets[row + 1]):
            found[row, blocks.columns[entry]] += blocks.entries[entry]
    return found


def moments(size: int, decay: float) -> list[Tensor]:
    """Weights, two moments, a gradient and L2."""
    found = [torch.zeros(size, device=DEVICE) for _ in range(5)]
    found[0].normal_()
    found[4].fill_(decay)
    return found


def test_adam_is_torchs() -> None:
    weight, mean, square, gradient, decay = moments(21, 0.01)
    twin = weight.clone().requires_grad_()
    optimizer = torch.optim.Adam([twin], lr=0.1, weight_decay=0.01)
    steps, active = torch.tensor([0], device=DEVICE), torch.ones(2, dtype=torch.int32).to(DEVICE)
    copies = Copies(torch.zeros(5, 3, device=DEVICE), torch.zeros(2, 4, device=DEVICE), 12, 3)
    for number in range(3):
        twin.grad = torch.randn(21).to(DEVICE)
        gradient.copy_(twin.grad)
        if number < 2:
            adam(weight, mean, square, gradient, decay, steps, 0.1, step=number, active=active)
        else:
            adam(weight, mean, square, gradient, decay, steps + 2, 0.1, copies=copies)
        optimizer.step()
        torch.testing.assert_close(weight, twin.detach())
        assert not gradient.any()
    assert torch.equal(copies.first, weight[:15].view(5, 3))
    assert torch.equal(copies.last[:, :3], weight[12:18].view(2, 3))
    assert not copies.last[:, 3:].any()


def test_a_batch_without_rows_moves_nothing() -> None:
    weight, mean, square, gradient, decay = moments(21, 0.1)
    before = weight.clone()
    none = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    adam(weight, mean, square, gradient, decay, none.long(), 0.1, active=none)
    assert torch.equal(weight, before)


def test_what_is_dropped() -> None:
    steps = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    dropout, h = CountedDropout(3, steps), torch.ones(70, 90, device=DEVICE, requires_grad=True)
    first, second = dropout(h, 0.25), dropout(h, 0.25)
    assert sorted(set(first.detach().view(-1).tolist())) == pytest.approx([0, 4 / 3])
    assert float((first == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert not torch.equal(first, second), "each call of a step drops other entries"
    (gradient,) = torch.autograd.grad(first.sum(), h)
    assert torch.equal(gradient, first), "the gradient is dropped with its entry"
    dropout.begin()
    assert torch.equal(dropout(h, 0.25), first), "a step that is taken again drops the same"
    steps += 1
    dropout.begin()
    assert not torch.equal(dropout(h, 0.25), first)
    values = dropout(torch.ones(3_000, device=DEVICE), 0.5)
    assert float((values == 0).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_networks_whose_last_weights_are_one_tile() -> None:
    assert fits_one_tile(128, 41)
    assert fits_one_tile(512, 64)
    assert not fits_one_tile(512, 65)
    assert not fits_one_tile(16, 513)
    assert not fits_one_tile(17, 3)
