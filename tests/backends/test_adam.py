"""Our Adam is torch's, without what torch's brings along."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from fastgcn.backends.steps import Adam


def parameters(rng: torch.Generator) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(shape, generator=rng)) for shape in ((4, 3), (3,))]


def groups(pair: list[nn.Parameter]) -> list[dict[str, object]]:
    return [{"params": [p], "weight_decay": decay} for p, decay in zip(pair, (0.1, 0), strict=True)]


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_are_torchs(compiled: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    ours = parameters(rng)
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    optimizer, reference = Adam(groups(ours), 0.01), torch.optim.Adam(groups(theirs), lr=0.01)
    for _ in range(20):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=rng)
            other.grad = mine.grad.clone()
            if compiled:
                optimizer.update(mine, mine.grad.numpy())
        if not compiled:
            optimizer.step()
        reference.step()
        optimizer.zero_grad()
        assert all(mine.grad is None for mine in ours)
    state = optimizer.state_dict()["state"]
    for number, expected in reference.state_dict()["state"].items():
        assert state[number].keys() == expected.keys()
        for name, value in expected.items():
            assert_allclose(state[number][name], value, rtol=1e-5, atol=1e-7)
    for mine, other in zip(ours, theirs, strict=True):
        assert_allclose(mine.detach(), other.detach(), rtol=1e-5, atol=1e-7)


def test_a_parameter_without_gradient_stays() -> None:
    weight, bias = parameters(torch.Generator().manual_seed(0))
    before = weight.detach().clone()
    bias.grad = torch.ones(3)
    optimizer = Adam(groups([weight, bias]), 0.01)
    optimizer.step()
    assert torch.equal(weight.detach(), before)
    assert list(optimizer.state_dict()["state"]) == [1]


def test_adam_goes_on_from_a_loaded_state() -> None:
    (weight, _) = parameters(torch.Generator().manual_seed(0))
    optimizer = Adam([{"params": [weight], "weight_decay": 0.0}], 0.1)
    gradient = np.ones((4, 3), np.float32)
    optimizer.update(weight, gradient)
    saved, start = copy.deepcopy(optimizer.state_dict()), weight.detach().clone()
    optimizer.update(weight, 3 * gradient)
    once = weight.detach().clone()
    with torch.no_grad():
        weight.copy_(start)
    optimizer.load_state_dict(saved)
    optimizer.update(weight, 3 * gradient)
    assert torch.equal(weight.detach(), once)


def test_a_state_of_another_network_is_refused() -> None:
    (weight, _) = parameters(torch.Generator().manual_seed(0))
    optimizer = Adam([{"params": [weight], "weight_decay": 0.0}], 0.1)
    wrong = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(5), "exp_avg_sq": torch.zeros(5)}
    with pytest.raises(RuntimeError):
        optimizer.load_state_dict({"state": {0: wrong}})
    with pytest.raises(KeyError):
        optimizer.load_state_dict({"state": {1: wrong}})


def test_torchs_compiler_is_not_imported() -> None:
    code = (
        "import sys, torch; from fastgcn.backends.steps import Adam;"
        "p = torch.nn.Parameter(torch.ones(2)); a = Adam([{'params': [p], 'weight_decay': 0}], 1);"
        "a.moments(p); a.load_state_dict(a.state_dict()); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
