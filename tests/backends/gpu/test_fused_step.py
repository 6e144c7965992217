"""The fused step against autograd and torch's Adam, on the same blocks."""

from typing import Any

import pytest
import torch

from fastgcn.backends.gpu.sampler import DeviceSampler
from fastgcn.kernels.gpu.blocks import dense_block
from fastgcn.kernels.gpu.step import (
    AdamParameter,
    FusedStep,
    adam,
    fits_one_tile,
    loss_reference,
)
from tests.backends.gpu.small import DEVICE, batches, matrix

N, K, SIZE, T, F, D, C = 60, 3, 19, 20, 37, 24, 5


@pytest.mark.parametrize(
    ("bias", "dtype", "t", "frugal"),
    [
        (False, torch.float32, T, False),
        (True, torch.float32, 1_100, False),
        (True, torch.float32, T, True),
        (False, torch.float16, T, False),
        (True, torch.bfloat16, T, False),
    ],
)
def test_steps_move_the_weights_as_autograd_does(
    bias: bool, dtype: torch.dtype, t: int, frugal: bool
) -> None:
    """Products of x in half precision are those of float32, where that is asked for."""
    rng = torch.Generator().manual_seed(0)
    shapes = [(F, D), (D,), (D, C), (C,)]
    known = [(0.3 * torch.randn(shape, generator=rng)).to(DEVICE) for shape in shapes]
    wanted: list[torch.Tensor | None] = [
        p.clone().requires_grad_() if p.ndim == 2 or bias else None for p in known
    ]
    there = [p for p in wanted if p is not None]
    groups: list[dict[str, Any]] = [
        {"params": there[:1], "weight_decay": 0.1},
        {"params": there[1:]},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    mine = [
        AdamParameter(p, torch.zeros_like(p), torch.zeros_like(p), 0.1 if number == 0 else 0.0)
        for number, p in enumerate(known)
    ]
    x = torch.randn((N, F), generator=rng).to(DEVICE, dtype)
    sampler = DeviceSampler(matrix()[1], [t], size=SIZE, count=K, seed=0)
    rows, steps = batches(K, SIZE, N), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    (blocks,) = sampler.sample(rows, steps)
    b1, b2 = (mine[1], mine[3]) if bias else (None, None)
    known_as = mine[0], b1, mine[2], b2
    step = FusedStep(x, known_as, SIZE, t, 0.01, precision="ieee", frugal=frugal)
    labels = torch.randint(0, C, (K, SIZE), generator=rng, dtype=torch.int32).to(DEVICE)
    weights = torch.rand((K, SIZE), generator=rng).to(DEVICE) * (rows >= 0)
    weights /= weights.sum(1, keepdim=True)
    active = torch.ones(K, dtype=torch.int32, device=DEVICE)
    losses = torch.zeros((K, step.tiles), device=DEVICE)
    for k in range(K):
        step(k, blocks, labels, weights, active, steps, losses)
        sources = blocks.sources[k]
        adj = dense_block(blocks, k, SIZE, N)[:, sources.clamp(min=0).long()]
        loss = loss_reference(
            wanted, x[sources.clamp(min=0).long()].float(), adj * (sources >= 0), labels[k],
            weights[k],
        )  # fmt: skip
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        assert float(losses[k].sum()) == pytest.approx(float(loss.detach()), abs=1e-5)
        for found, want in zip(known, wanted, strict=True):
            if want is not None:
                torch.testing.assert_close(found, want.detach(), rtol=0, atol=1e-5)


def test_a_batch_without_rows_moves_nothing() -> None:
    weights = [torch.randn(F, D, device=DEVICE), torch.randn(D, C, device=DEVICE)]
    w1, w2 = (AdamParameter(w, torch.ones_like(w), torch.ones_like(w), 0.0) for w in weights)
    before = [w.clone() for w in weights]
    sampler = DeviceSampler(matrix()[1], [T], size=SIZE, count=1, seed=0)
    steps = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    none = torch.full((1, SIZE), -1, dtype=torch.int32, device=DEVICE)
    (blocks,) = sampler.sample(none, steps)
    step = FusedStep(torch.ones(N, F, device=DEVICE), (w1, None, w2, None), SIZE, T, 0.01)
    nothing = torch.zeros((1, SIZE), device=DEVICE)
    step(
        0, blocks, nothing.int(), nothing, torch.zeros(1, dtype=torch.int32, device=DEVICE), steps,
        torch.zeros((1, step.tiles), device=DEVICE),
    )  # fmt: skip
    for now, then in zip(weights, before, strict=True):
        assert torch.equal(now, then)


def test_adam_of_one_parameter() -> None:
    p = torch.randn(7, 3, device=DEVICE)
    twin = p.clone().requires_grad_()
    optimizer = torch.optim.Adam([twin], lr=0.1, weight_decay=0.01)
    mine = AdamParameter(p, torch.zeros_like(p), torch.zeros_like(p), 0.01)
    for number in range(3):
        twin.grad = torch.randn(7, 3).to(DEVICE)
        adam(mine, twin.grad, torch.tensor([number], device=DEVICE), 0.1)
        optimizer.step()
        torch.testing.assert_close(p, twin.detach())


def test_networks_whose_last_weights_are_one_tile() -> None:
    assert fits_one_tile(128, 41)
    assert fits_one_tile(512, 64)
    assert not fits_one_tile(512, 65)
    assert not fits_one_tile(16, 513)
